"""Multiply-adds: the counter against arithmetic, the models against the literature."""

import json
import runpy
import sys

import pytest
import torch
import yaml
from torch import nn

from helpers.shipped_configs import CONFIGS, ROOT, build
from mminline.analysis import measure_complexity
from mminline.layers import InLineAttention
from mminline.models import InLineDeiT, InLinePVT, InLineSwin

pytestmark = pytest.mark.slow

# GMACs that the papers of the softmax models print, and those that follow for InLine attention.
LITERATURE = {
    'mask-rcnn_{}pvt-{}_fpn_1x_coco': dict(
        t=(240, 210.8), s=(305, 250.7), m=(392, 310.6), l=(494, 377.4)
    ),
    'mask-rcnn_{}swin-{}_fpn_1x_coco': dict(t=(267, 263.3), s=(358, 357.1)),
    'mask-rcnn_{}swin-{}_fpn_3x_coco': dict(t=(267, 263.3), s=(358, 357.1)),
    'cascade-mask-rcnn_{}swin-{}_fpn_1x_coco': dict(t=(745, 741.3)),
    'cascade-mask-rcnn_{}swin-{}_fpn_3x_coco': dict(t=(745, 741.3), s=(837, 836.1), b=(981, 978.0)),
    'semantic-fpn_{}pvt-{}_40k_ade20k-512x512': dict(
        t=(158, 127.3), s=(225, 168.0), m=(315, 229.4), l=(420, 297.4)
    ),
    'upernet_{}swin-{}_160k_ade20k-512x512': dict(
        t=(945, 941.3), s=(1038, 1036.7), b=(1188, 1184.5)
    ),
}
FIGURES = {
    pattern.format(prefix, size): figure
    for pattern, sizes in LITERATURE.items()
    for size, figures in sizes.items()
    for prefix, figure in zip(('', 'inline-'), figures, strict=True)
}
METADATA = {
    model['Name']: model['Metadata']
    for path in CONFIGS.glob('*/metafile.yml')
    for model in yaml.safe_load(path.read_text())['Models']
}


@pytest.mark.parametrize('stem', FIGURES)
def test_multiply_adds_are_within_a_percent_of_the_literature(stem):
    assert METADATA[stem]['FLOPs'] / 1e9 == pytest.approx(FIGURES[stem], rel=0.01)


@pytest.mark.parametrize(
    ('pattern', 'millions'),
    [
        ('semantic-fpn_pvt-{}_40k_ade20k-512x512', dict(t=17, s=28, m=48, l=65)),
        ('upernet_swin-{}_160k_ade20k-512x512', dict(t=60, s=81, b=121)),
    ],
)
def test_baselines_have_the_published_number_of_parameters(pattern, millions):
    found = {size: round(METADATA[pattern.format(size)]['Parameters'] / 1e6) for size in millions}

    assert found == millions


# One of each kind of model; tools/model_zoo.py --check measures them all.
@pytest.mark.parametrize(
    ('stem', 'shape'),
    [
        ('mask-rcnn_inline-pvt-t_fpn_1x_coco', (800, 1280)),
        ('mask-rcnn_pvt-t_fpn_1x_coco', (800, 1280)),
        ('retinanet_inline-pvt-t_fpn_1x_coco', (800, 1280)),
        ('cascade-mask-rcnn_inline-swin-t_fpn_1x_coco', (800, 1280)),
        ('cascade-mask-rcnn_swin-t_fpn_1x_coco', (800, 1280)),
        ('semantic-fpn_inline-pvt-t_40k_ade20k-512x512', (512, 2048)),
        ('upernet_inline-swin-t_160k_ade20k-512x512', (512, 2048)),
        ('upernet_swin-t_160k_ade20k-512x512', (512, 2048)),
        ('upernet_inline-deit-t_160k_ade20k-512x512', (512, 2048)),
        ('upernet_deit-t_160k_ade20k-512x512', (512, 2048)),
    ],
)
def test_the_metafile_says_what_is_measured(stem, shape):
    cost = measure_complexity(build(stem), shape)

    said = METADATA[stem]
    assert cost == (said['FLOPs'], said['FLOPs Executed'], said['Parameters'])


def test_inline_attention_counts_as_the_formula_says():
    tokens, channels, heads, ratio = 8 * 16, 32, 4, 3
    arch = dict(embed_dims=(channels,), depths=(2,), num_heads=(heads,), mlp_ratios=(ratio,))
    model = InLinePVT(arch=arch, out_indices=(0,))

    cost = measure_complexity(model, (32, 64))

    embedding = tokens * channels * 3 * 16
    linears = (4 + 2 * ratio) * tokens * channels**2
    attention = 2 * tokens * channels * (channels // heads)
    local = 9 * tokens * channels + 10 * channels**2 // heads
    assert cost.usual_macs == embedding + 2 * (linears + attention + local)
    head = channels // heads
    folding = channels**3 + 2 * channels**2 * head + channels**2 + channels * head
    assert cost.macs == embedding + 2 * (linears + local + folding)
    assert cost.parameters == sum(part.numel() for part in model.parameters())


def test_softmax_attention_counts_as_the_formula_says():
    # A grid of 2 x 3 windows: nothing is padded, the second block is shifted.
    tokens, channels, ratio = 14 * 21, 32, 2
    arch = dict(
        embed_dims=(channels,), depths=(2,), num_heads=(4,), mlp_ratios=(ratio,), inline_depths=(0,)
    )

    cost = measure_complexity(InLineSwin(arch=arch, out_indices=(0,)), (56, 84))

    embedding = tokens * channels * 3 * 16
    block = (4 + 2 * ratio) * tokens * channels**2 + 2 * 49 * tokens * channels
    assert cost.usual_macs == cost.macs == embedding + 2 * block


@pytest.mark.parametrize(
    ('arch', 'side', 'giga'), [('tiny', 224, 1.1), ('small', 288, 5.0), ('base', 448, 17.2)]
)
def test_deit_costs_what_the_paper_says(arch, side, giga):
    assert measure_complexity(InLineDeiT(arch), (side, side)).usual_macs / 1e9 == pytest.approx(
        giga, abs=0.06
    )


class ReadsValues(nn.Module):
    """Module that reads values of tensors, as some transformers do, such as that of DINO."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        steps = 1 + int(image.sum())
        for _ in range(steps):
            features = self.linear(image.mean(dim=(2, 3)))
        return features


def test_a_model_that_reads_values_is_counted_with_real_tensors():
    assert measure_complexity(ReadsValues(), (4, 4)).macs == 15


def test_measuring_leaves_the_choice_of_attention_as_it_was(monkeypatch):
    monkeypatch.setattr(InLineAttention, 'folded', True)
    fastpath = torch.backends.mha.get_fastpath_enabled()

    with pytest.raises(ValueError, match='at least 32 x 32'):
        measure_complexity(InLinePVT(), (8, 8))

    assert InLineAttention.folded is True
    assert torch.backends.mha.get_fastpath_enabled() == fastpath


def run_tool(monkeypatch, *arguments: str) -> None:
    tool = ROOT / 'tools' / 'get_flops.py'
    monkeypatch.setattr(sys, 'argv', [tool.name, *map(str, arguments)])
    runpy.run_path(str(tool), run_name='__main__')


def test_the_tool_prints_json(monkeypatch, capsys):
    stem = 'semantic-fpn_inline-pvt-t_40k_ade20k-512x512'

    run_tool(monkeypatch, CONFIGS / 'segmentation' / f'{stem}.py', '--shape', '64', '96', '--json')

    row = json.loads(capsys.readouterr().out)[stem]
    assert (row['height'], row['width']) == (64, 96)
    assert row['parameters'] == METADATA[stem]['Parameters']
    # Nearly all of the work is on pixels.
    assert row['usual_macs'] / (64 * 96) == pytest.approx(
        METADATA[stem]['FLOPs'] / (512 * 2048), rel=0.01
    )


def test_the_tool_prints_a_table(monkeypatch, capsys):
    stem = 'semantic-fpn_inline-pvt-t_40k_ade20k-512x512'

    run_tool(monkeypatch, CONFIGS / 'segmentation' / f'{stem}.py')

    header, row = capsys.readouterr().out.splitlines()
    assert 'GMACs  executed  parameters (M)' in header
    assert row.split()[:5] == [stem, '512', 'x', '2048', f'{METADATA[stem]["FLOPs"] / 1e9:.1f}']


def test_the_tool_names_a_config_that_is_not_there(monkeypatch):
    with pytest.raises(SystemExit, match=r'no config nowhere\.py'):
        run_tool(monkeypatch, 'nowhere.py')
