"""Models of configs in Python: build and fill them, prepare images, predict, export."""

from .acceleration import accelerate
from .config import get_test_dataset, read_config
from .export import export_model
from .model import init_model
from .pipeline import build_test_pipeline
from .precision import PRECISIONS, set_precision
from .predictor import Predictor
from .weights import IncompleteCheckpointError, check_complete, load_weights

__all__ = [
    'IncompleteCheckpointError',
    'PRECISIONS',
    'Predictor',
    'accelerate',
    'build_test_pipeline',
    'check_complete',
    'export_model',
    'get_test_dataset',
    'init_model',
    'load_weights',
    'read_config',
    'set_precision',
]
