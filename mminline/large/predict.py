"""Prediction for a whole image of any size."""

from pathlib import Path

import numpy as np
import torch
from mmengine.structures import InstanceData
from torch import nn

from .. import execution
from ..apis.precision import is_half
from .backbone import Report, compute_maps
from .detector import TiledDetector
from .image import ModelImage
from .memory import bytes_per_pixel, choose_tile_shape, tile_budget
from .segmentor import TiledSegmentor, predict_bands
from .shared import bring_together, fetch_halo
from .tiles import UNIT, Maps
from .writers import check_output, save_class_map


@torch.inference_mode()
def predict(
    model: nn.Module,
    image_HWC: np.ndarray,
    band_rows: int | None = None,
    out: str | Path | None = None,
    *,
    report: Report = lambda part, done, total: None,
) -> np.ndarray | InstanceData | Path | None:
    """Predict for an image at its own resolution, in bounded memory.

    The result is that of ``model.test_step`` for the image without ``Resize``, padded to
    multiples of 32 and cropped afterwards; mmseg's ``slide`` mode is left aside. The backbone sees
    the whole image; neck and head run in tiles with as many lines around them as they look at. A
    model of which this would not be exact is refused with a ``CannotCutError``.

    Args:
        model: Detector or segmentor, in evaluation mode.
        image_HWC: Image as OpenCV reads it, blue first: an array, one mapped from a file, or an
            image of ``mminline.large.open_image``.
        band_rows: Rows of a tile as wide as the image; None for nearly square tiles of at most
            2.5 GB.
        out: File for a class map, ``.png``, ``.tif`` or ``.npy``, written band by band.
        report: Called with the part of the model that runs, how much of it is done, and how much
            there is.

    Returns:
        Segmentors: class of each pixel, or the file that it was written to. Detectors: instances
        with ``bboxes``, ``scores``, ``labels`` and ``masks``, the masks as run lengths. Inside
        ``mminline.spatial_parallel`` all processes call this with the same arguments; the first
        one has the result, the others None.
    """
    _check(model, band_rows, out)
    image = ModelImage(model, image_HWC)
    with execution.as_part_of(image.padded_shape, image.padded_shape):
        return _predict(model, image, band_rows, out, report)


def _predict(
    model: nn.Module,
    image: ModelImage,
    band_rows: int | None,
    out: str | Path | None,
    report: Report,
) -> np.ndarray | InstanceData | Path | None:
    maps = compute_maps(model.backbone, image, report)
    tiled = cut(model, maps)
    halo = tiled.find_halo()
    slab = fetch_halo(maps, halo)
    tile_shape = (band_rows, image.padded_shape[1])
    if band_rows is None:
        pixel_bytes = bytes_per_pixel(tiled.run, maps)
        budget = tile_budget(maps.maps[0].device) // (len(slab.rows) if slab else 1)
        tile_shape = choose_tile_shape(image.padded_shape, halo, pixel_bytes, budget)
    if not is_segmentor(model):
        return tiled.predict(image.shape, tile_shape, halo, report)
    bands = predict_bands(tiled, image, tile_shape, halo, report)
    if slab is not None:
        bands = bring_together(bands, slab, image.shape, tiled.dtype)
        if bands is None:
            return None
    if out is not None:
        return save_class_map(out, bands, image.shape, tiled.dtype)
    return np.concatenate(list(bands))


def cut(model: nn.Module, maps: Maps) -> TiledSegmentor | TiledDetector:
    """Prepare what follows the backbone for tiles."""
    return TiledSegmentor(model, maps) if is_segmentor(model) else TiledDetector(model, maps)


def is_segmentor(model: nn.Module) -> bool:
    """Whether a model gives each pixel a class."""
    return hasattr(model, 'decode_head')


def _check(model: nn.Module, band_rows: int | None, out: str | Path | None) -> None:
    if band_rows is not None and band_rows < UNIT:
        raise ValueError(f'band_rows has to be at least {UNIT}, got {band_rows=}')
    if model.training:
        raise ValueError('the model has to be in evaluation mode: call model.eval() first')
    if is_half(model):
        raise ValueError(
            'large images run in float32: call mminline.apis.set_precision(model, "float32") first'
        )
    if out is not None:
        if not is_segmentor(model):
            raise ValueError(f'out is for class maps of segmentors, got out={str(out)!r}')
        check_output(Path(out))
