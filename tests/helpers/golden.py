"""The published models without their files: weights by rule, an image, and what comes out.

``data/NAME.keys.json`` lists the keys and shapes of an official checkpoint. Its weights are
filled from the names of the keys; ``data/NAME.npz`` holds outputs of the published code for
those weights, in float64.
"""

import json
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

DATA = Path(__file__).parents[1] / 'data'
NAMES = ('inline-pvt-t', 'inline-swin-t', 'inline-swin-s', 'inline-deit-t')


def official_shapes(name: str) -> dict[str, tuple[int, ...]]:
    """Every key of an official state dict with its shape, buffers too."""
    keys = json.loads((DATA / f'{name}.keys.json').read_text())['keys']
    return {key: tuple(shape) for key, shape in keys.items()}


def params_with_head(name: str) -> int:
    """Number of parameters of the published classifier."""
    return json.loads((DATA / f'{name}.keys.json').read_text())['params_with_head']


def fill(key: str, shape: tuple[int, ...]) -> Tensor:
    """Values of a parameter in float32, by the rule of the golden outputs."""
    rng = np.random.default_rng(zlib.crc32(key.encode()))
    value = rng.standard_normal(shape).astype(np.float32) * np.float32(0.05)
    if key.endswith('weight') and 'norm' in key:
        value += np.float32(1)
    return torch.from_numpy(value)


def official_state_dict(name: str) -> dict[str, Tensor]:
    """A whole official state dict in float32. Buffers have their dtypes, not their values."""
    state_dict = {}
    for key, shape in official_shapes(name).items():
        if key.endswith('relative_position_index'):
            state_dict[key] = torch.zeros(shape, dtype=torch.int64)
        elif key.endswith('attn_mask'):
            state_dict[key] = torch.zeros(shape)
        else:
            state_dict[key] = fill(key, shape)
    return state_dict


def golden_image(height: int, width: int) -> Tensor:
    """The image of the golden outputs, in float32."""
    image = np.random.default_rng(7).standard_normal((1, 3, height, width))
    return torch.from_numpy(image.astype(np.float32))


def golden_outputs(name: str) -> dict[str, np.ndarray]:
    """Shapes, flat indices, values and standard deviations of the published maps."""
    with np.load(DATA / f'{name}.npz') as arrays:
        return dict(arrays)
