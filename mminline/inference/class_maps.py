"""One image in parts: its class map as a file, and the work of further processes."""

from pathlib import Path

from torch import nn

from ..large import open_image, predict
from ..large.predictor import show_progress


def write_class_map(path: Path, model: nn.Module, out: Path) -> None:
    """Do a single image whose class map is all that is written."""
    print(predict(model, open_image(path), out=out, report=show_progress))


def assist(path: Path, model: nn.Module) -> None:
    """Compute the own rows of an image; the first process has the result."""
    predict(model, open_image(path))
