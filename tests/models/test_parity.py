"""The backbones against outputs of the published models, in float64 and float32."""

import pytest
import torch
from torch import nn

from helpers.golden import golden_image, golden_outputs, official_state_dict
from mminline.checkpoints import convert_official
from mminline.layers import InLineAttention
from mminline.models import InLineDeiT, InLinePVT, InLineSwin

pytestmark = pytest.mark.slow

MODELS = {
    'inline-pvt-t': (InLinePVT, 'tiny', ['224x224', '256x320', '96x160']),
    'inline-swin-t': (InLineSwin, 'tiny', ['224x224']),
    'inline-swin-s': (InLineSwin, 'small', ['224x224']),
}
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4}


@pytest.fixture(scope='module', params=MODELS)
def published(request):
    """A backbone with the weights of the golden outputs, and the outputs by size."""
    backbone, arch, sizes = MODELS[request.param]
    model = backbone(arch)
    loaded = model.load_state_dict(
        convert_official(official_state_dict(request.param)), strict=False
    )
    fresh = {f'norm{index}' for index in range(4)} if backbone is InLineSwin else set()
    assert {key.split('.')[0] for key in loaded.missing_keys} == fresh
    assert not loaded.unexpected_keys
    # The published maps are those of the last blocks, before any norm of an output.
    for name in fresh:
        setattr(model, name, nn.Identity())
    return model.eval(), sizes, golden_outputs(request.param)


def largest_error(model, size, golden, dtype):
    """Largest difference over all stages, relative to the spread of the stage's map."""
    height, width = map(int, size.split('x'))
    maps = model.to(dtype)(golden_image(height, width).to(dtype))
    errors = []
    for stage, feature in enumerate(maps):
        key = f'{size}_stage{stage}'
        assert feature.shape == tuple(golden[f'{key}_shape'])
        values = feature.flatten()[torch.from_numpy(golden[f'{key}_idx'])].double()
        difference = (values - torch.from_numpy(golden[f'{key}_val'])).abs().max()
        errors.append(difference.item() / float(golden[f'{key}_std']))
    return max(errors)


@pytest.mark.parametrize('dtype', TOLERANCES)
@pytest.mark.parametrize('folded', [True, False])
def test_training_pass_gives_the_published_values(published, folded, dtype, monkeypatch):
    monkeypatch.setattr(InLineAttention, 'folded', folded)
    model, sizes, golden = published
    for size in sizes:
        assert largest_error(model, size, golden, dtype) < TOLERANCES[dtype]


@torch.inference_mode()
@pytest.mark.parametrize('dtype', TOLERANCES)
def test_inference_gives_the_published_values(published, dtype):
    model, sizes, golden = published
    for size in sizes:
        assert largest_error(model, size, golden, dtype) < TOLERANCES[dtype]


@pytest.mark.parametrize('dtype', TOLERANCES)
@pytest.mark.parametrize('folded', [True, False])
@pytest.mark.parametrize('with_grad', [True, False])
def test_deit_gives_the_published_tokens_and_maps(with_grad, folded, dtype, monkeypatch):
    monkeypatch.setattr(InLineAttention, 'folded', folded)
    model, golden = InLineDeiT().to(dtype).eval(), golden_outputs('inline-deit-t')
    model.load_state_dict(convert_official(official_state_dict('inline-deit-t')))
    with torch.set_grad_enabled(with_grad):
        maps = model(golden_image(224, 224).to(dtype))
        # As a timm classifier does: all blocks, the class token kept.
        tokens, hw_shape = model.stages[0](golden_image(224, 224).to(dtype))

    assert tokens.shape == tuple(golden['224x224_tokens_shape']) and hw_shape == (14, 14)
    values = tokens.flatten()[torch.from_numpy(golden['224x224_tokens_idx'])].double()
    difference = (values - torch.from_numpy(golden['224x224_tokens_val'])).abs().max()
    assert difference < TOLERANCES[dtype] * float(golden['224x224_tokens_std'])
    assert torch.equal(maps[-1].flatten(2).transpose(1, 2), tokens[:, 1:])
