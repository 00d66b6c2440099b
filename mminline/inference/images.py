"""Single images."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ..apis import Predictor
from ..large import FullSizePredictor, open_image
from ..predictions import read_image, write_image
from .loop import infer


def infer_images(images: Sequence[Path], predictor: Predictor, out: Path) -> tuple[int, int]:
    """Do images; return how many were done, and how many there are."""
    read = open_image if isinstance(predictor, FullSizePredictor) else read_image
    items = ((path.name, partial(read, path)) for path in images)

    def keep(name, picture_HWC):
        write_image(out / 'pictures' / name, picture_HWC)

    return infer(items, len(images), predictor, out / 'predictions', keep), len(images)
