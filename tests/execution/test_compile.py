"""torch.compile: one graph without a break, and few of them however image sizes vary."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from helpers import tiny
from mminline.layers import InLineAttention
from mminline.models import InLineDeiT, InLinePVT, InLineSwin

pytestmark = pytest.mark.slow

SIZES = [(256, 320), (240, 400), (288, 288), (261, 307), (400, 240)]
TWO_STAGES = dict(embed_dims=(8, 16), depths=(1, 2), num_heads=(2, 2), mlp_ratios=(2, 2))


@pytest.mark.parametrize('backbone', tiny.BACKBONES)
def test_compiled_backbone_is_one_graph_for_all_image_sizes(backbone):
    # Two stages have every kind of layer; the symbolic sizes of four take a minute to trace.
    arch = {
        InLinePVT: TWO_STAGES,
        InLineSwin: dict(TWO_STAGES, inline_depths=(1, 0)),
        InLineDeiT: tiny.DEIT_SIZES,
    }[backbone]
    model = tiny.build(backbone, arch=arch, out_indices=(0, 1)).eval()
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=counter)

    with torch.no_grad():
        for size in SIZES:
            image = tiny.image(1, 3, *size)
            for output, expected in zip(compiled(image), model(image), strict=True):
                torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-4)

    assert counter.frame_count == 1


@pytest.mark.parametrize('feature_map', ['identity', 'relu'])
def test_compiled_layer_is_one_graph_for_all_grids(feature_map):
    layer = tiny.randomize(InLineAttention(8, 2, feature_map))
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=counter)

    for height, width in [(14, 20), (8, 9), (50, 84)]:
        x_BLC = tiny.image(2, height * width, 8)
        expected = layer(x_BLC, (height, width))
        torch.testing.assert_close(compiled(x_BLC, (height, width)), expected)

    assert counter.frame_count == 1


def test_compiled_backbone_trains():
    model = tiny.build(InLinePVT, arch=TWO_STAGES, out_indices=(0, 1)).double()
    image = tiny.image(2, 3, 64, 96, dtype=torch.float64)
    tiny.weighted_sum(model(image)).backward()
    expected = tiny.gradients(model)
    model.zero_grad()
    torch._dynamo.reset()

    compiled = torch.compile(model, fullgraph=True, backend='aot_eager')
    tiny.weighted_sum(compiled(image)).backward()

    for name, gradient in tiny.gradients(model).items():
        torch.testing.assert_close(gradient, expected[name], msg=name)
