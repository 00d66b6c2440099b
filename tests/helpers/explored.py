"""Tiny models and images to explore, and the weights that they give by explicit N x N matrices."""

import copy
import functools
from pathlib import Path

import cv2
import numpy as np
import torch
from mmengine.config import Config
from torch import Tensor, nn

from helpers import tiny
from helpers.tiny_configs import DETECTOR, SEGMENTOR
from mminline.analysis import AttentionWeights, attention_hooks, find_layers
from mminline.analysis.model_input import prepare_input, run_features
from mminline.apis import build_test_pipeline, init_model
from mminline.explore import ExplorableModel
from mminline.layers import reference
from mminline.models import InLinePVT

TEXTS = dict(detector=DETECTOR, segmentor=SEGMENTOR)


@functools.cache
def build(kind: str) -> nn.Module:
    """Build a tiny detector or segmentor with random weights, all of which matter."""
    torch.manual_seed(0)
    return tiny.randomize(init_model(Config.fromstring(TEXTS[kind], '.py'), device='cpu'))


def explorable(kind: str, name: str | None = None) -> ExplorableModel:
    return ExplorableModel(name or kind, build(kind))


def with_attention(**attention) -> ExplorableModel:
    """Build a tiny segmentor with another kind of attention in its backbone."""
    model = copy.deepcopy(build('segmentor'))
    model.backbone = tiny.build(InLinePVT, attention=attention).eval()
    return ExplorableModel(attention['type'], model)


def write_image(path: Path, height: int = 48, width: int = 64) -> Path:
    """Write an image of noise."""
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    assert cv2.imwrite(str(path), pixels)
    return path


@torch.no_grad()
def read_layers(model: nn.Module, image_HWC: np.ndarray) -> dict[str, AttentionWeights]:
    """Read all attention layers of a model while it runs."""
    found = {}
    packed = build_test_pipeline(model.cfg)(image_HWC)
    with attention_hooks(find_layers(model), found.__setitem__):
        run_features(model, prepare_input(model, packed).inputs_1CHW)
    return found


@torch.no_grad()
def residual_weights(attention: AttentionWeights, token: int) -> Tensor:
    """Weights of the local residual for a query, ``(N, L)``, from the reference of the 3x3 step.

    Values that are 1 on a single token and 0 elsewhere show the weight of that token.
    """
    num_tokens, channels = attention.q_BNLD.shape[2], attention.kernel_BC33.shape[1]
    values = torch.eye(num_tokens)[:, :, None].expand(-1, -1, channels)
    kernels = attention.kernel_BC33.expand(num_tokens, -1, -1, -1)
    out_LC = reference.local_residual(values, kernels, attention.grid)[:, token]
    return out_LC.T.unflatten(0, (attention.q_BNLD.shape[1], -1)).mean(dim=1)
