"""Fill a backbone from a checkpoint, completely or not at all."""

import math
import re
from logging import Logger
from pathlib import Path

import torch
import torch.nn.functional as F
from mmengine.logging import print_log
from mmengine.model import update_init_info
from torch import Tensor, nn

from .convert import find_backbone, listed, unwrap
from .download import published_name
from .schemes import read_checkpoint

# Downstream models put a fresh norm on each output; which ones depends on ``out_indices``.
OUTPUT_NORM = re.compile(r'norm\d+\.(weight|bias)')


def load_pretrained(
    module: nn.Module,
    checkpoint: str | Path,
    prefix: str | None = None,
    map_location: str | torch.device | None = 'cpu',
    logger: Logger | str | None = 'current',
) -> None:
    """Load official weights, ours, or a detector's into a backbone, or raise.

    Every parameter has to be filled but for output norms, which official files do not have:
    they keep their initial values. Position embeddings of another grid and bias tables of
    another window are resized.

    Args:
        module: The backbone.
        checkpoint: Path, web address or ``inline://`` name.
        prefix: What the backbone's names begin with, such as 'backbone.' in a detector.
        map_location: Where tensors are read to, as in ``torch.load``.
        logger: Where to say what was loaded, resized and left alone.
    """
    source = find_backbone(unwrap(read_checkpoint(checkpoint, map_location)), prefix)
    weights = source.converted()
    origin = ', '.join(filter(None, (source.kind, published_name(weights))))
    own = module.state_dict()
    weights = resize(weights, own, logger)
    if found := misfits(weights, own):
        raise ValueError(f'{checkpoint} ({origin}) does not fit {type(module).__name__}: {found}')
    # Only output norms can be missing or left over now.
    missing, spare = module.load_state_dict(weights, strict=False)
    print_log(f'Loaded {len(weights) - len(spare)} tensors of {checkpoint} ({origin})', logger)
    if missing:
        print_log(f'Not in the checkpoint, initial values kept: {listed(missing)}', logger)
    if spare:
        print_log(f'Not in the model, left out: {listed(spare)}', logger)
    if hasattr(module, '_params_init_info'):  # mmengine's record, while it initialises a model
        update_init_info(module, init_info=f'Pretrained: load from {checkpoint}')


def misfits(weights: dict[str, Tensor], own: dict[str, Tensor]) -> str:
    """List what keeps weights from filling a model, a phrase for each kind; empty if nothing."""
    missing = [key for key in own.keys() - weights.keys() if not OUTPUT_NORM.fullmatch(key)]
    spare = [key for key in weights.keys() - own.keys() if not OUTPUT_NORM.fullmatch(key)]
    shapes = [
        f'{key} {tuple(weights[key].shape)} for {tuple(own[key].shape)}'
        for key in sorted(weights.keys() & own.keys())
        if weights[key].shape != own[key].shape
    ]
    found = {'unfilled': sorted(missing), 'left over': sorted(spare), 'of another shape': shapes}
    return '; '.join(f'{what}: {listed(names)}' for what, names in found.items() if names)


def resize(
    weights: dict[str, Tensor], own: dict[str, Tensor], logger: Logger | str | None = 'current'
) -> dict[str, Tensor]:
    """Fit position embeddings and bias tables to the grids and windows of a model."""
    return {
        key: _resize(key, value, own[key].shape, logger) if key in own else value
        for key, value in weights.items()
    }


def _resize(key: str, value: Tensor, shape: torch.Size, logger: Logger | str | None) -> Tensor:
    """Resize what depends on a grid or a window to the model's; return all else as it is."""
    if value.shape == shape or value.dim() != len(shape) or value.shape[-1] != shape[-1]:
        return value
    if key.endswith('.pos_embed'):
        resized = _resize_grid(value, shape[1:3], 'bilinear')
    elif key.endswith('.relative_position_bias_table'):
        old, new = math.isqrt(len(value)), math.isqrt(shape[0])
        if (old**2, new**2) != (len(value), shape[0]):
            return value
        grid = value.unflatten(0, (old, old)).unsqueeze(0)
        resized = _resize_grid(grid, (new, new), 'bicubic').flatten(0, 2)
    else:
        return value
    print_log(f'Resized {key} from {tuple(value.shape)} to {tuple(resized.shape)}', logger)
    return resized


def _resize_grid(grid_1HWC: Tensor, size: tuple[int, int], mode: str) -> Tensor:
    resized = F.interpolate(
        grid_1HWC.permute(0, 3, 1, 2).double(), tuple(size), mode=mode, align_corners=False
    )
    return resized.permute(0, 2, 3, 1).to(grid_1HWC.dtype)
