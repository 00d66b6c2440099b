"""Whole images of any size in bounded memory, exact: neck and head run tile by tile."""

from .errors import CannotCutError
from .predict import predict

__all__ = ['CannotCutError', 'predict']
