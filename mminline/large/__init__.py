"""Whole images of any size in bounded memory, exact: neck and head run tile by tile."""

from .errors import CannotCutError
from .predict import predict
from .predictor import FullSizePredictor
from .readers import open_image

__all__ = ['CannotCutError', 'FullSizePredictor', 'open_image', 'predict']
