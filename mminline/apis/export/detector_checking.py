"""Exported detectors against mmdet on scenes of several sizes."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ...datasets import draw_scene
from ...deployment.masks import paste_masks
from .detector import DetectorModel
from .files import ExportError, Run
from .matching import Match, match
from .pixels import Pixels
from .reference import Detections, DetectorReference
from .tracing import SMALLEST

# Height and width: usual ones, odd ones, flat and tall ones, and the smallest.
SIZES = ((128, 128), (203, 157), (96, 320), (333, 245), (32, 32))
# Rounding may decide between boxes that overlap by just the threshold.
LARGEST_SHARE = 0.01
SCENE = 128


def open_sizes_of(module: DetectorModel) -> list[tuple[int, int]]:
    """List the sizes at which a file for any size is compared.

    One is lower than what the backbone needs, if padding makes up for that.
    """
    needed = getattr(module.backbone, 'smallest_side', SMALLEST)
    return [*SIZES, *([(needed * 5 // 8, 157)] if module.smallest_side == 1 else [])]


def compare_detections(
    module: DetectorModel, run: Run, reference: DetectorReference, sizes: list[tuple[int, int]],
    report: Callable[[tuple[int, int], Match], None],
) -> dict[tuple[int, int], Match]:  # fmt: skip
    """Compare a file with mmdet at each height and width; raise if it does not run.

    Args:
        module: The module that was exported.
        run: The file.
        reference: The model, in mmdet.
        sizes: Heights and widths.
        report: Called with each size and its result.
    """
    normalize = Pixels(reference.model.data_preprocessor) if not module.pixels.normalize else None
    matches = {}
    for size in sizes:
        image = mosaic(size)
        with reference.exact_ranks():
            wanted, threshold = _detect(reference, image)
        try:
            outputs = run(normalize(image) if normalize else image, threshold)
        except Exception as error:  # runtimes raise all kinds
            raise ExportError(f'the file does not run at {size[0]} x {size[1]}: {error}') from error
        matches[size] = match(as_detections(module, outputs, size), wanted)
        report(size, matches[size])
    return matches


def _detect(reference: DetectorReference, image: Tensor) -> tuple[Detections, float | None]:
    """Detect objects, at the score threshold of the model or, if it finds none, at 0."""
    wanted = reference(image)
    if len(wanted.labels):
        return wanted, None
    with reference.at_threshold(0.0):
        return reference(image), 0.0


def as_detections(
    module: DetectorModel, outputs: list[np.ndarray], size: tuple[int, int]
) -> Detections:
    """Bring the outputs of a file to the form of the reference: masks of the size of the image."""
    dets, labels, *masks = outputs
    if not masks:
        return Detections(dets, labels, None)
    if not module.with_paste:
        masks = [paste_masks(masks[0], dets[:, :4], size, module.test_cfg.mask_thr_binary)]
    return Detections(dets, labels, masks[0])


def mosaic(size: tuple[int, int]) -> Tensor:
    """Make an image with figures of Shapes, (1, 3, height, width): noise has no objects."""
    rows, columns = (-(-side // SCENE) for side in size)
    scenes = [draw_scene(index, 'val', size=SCENE).image_HWC for index in range(rows * columns)]
    tiles = np.stack(scenes).reshape(rows, columns, SCENE, SCENE, 3)
    image_HWC = tiles.swapaxes(1, 2).reshape(rows * SCENE, columns * SCENE, 3)
    image_HWC = image_HWC[: size[0], : size[1]]
    return torch.from_numpy(image_HWC.transpose(2, 0, 1)[None].astype(np.float32))
