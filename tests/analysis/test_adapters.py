"""Attention seen from outside: its weights give what the layer gives, for every kind of layer."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from helpers.hooked_layers import GRID, LAYERS, build, look, tokens
from helpers.tiny import build as build_backbone
from helpers.tiny import image
from mminline.analysis.hooks import attention_hooks, find_layers
from mminline.models import InLinePVT, InLineSwin


@pytest.mark.parametrize('name', LAYERS)
@torch.no_grad()
def test_weights_times_values_give_the_output_of_the_layer(name):
    layer, x = build(name), tokens()
    seen = []

    def replace(_, attention):
        seen.append(attention.kind)
        return attention.mix()

    expected = layer(x, GRID)
    with attention_hooks({'layer': layer}, replace):
        found = layer(x, GRID)

    assert seen == [LAYERS[name][0]]
    assert_close(found, expected)
    assert_close(layer(x, GRID), expected)  # the hook is gone


@pytest.mark.parametrize('name', LAYERS)
def test_some_rows_are_rows_of_all_weights(name):
    _, attention = look(build(name), tokens())
    rows = torch.tensor([7, 0, 3])

    assert_close(attention.weights(slice(1, 2), rows), attention.weights()[1:2, :, rows])


@pytest.mark.parametrize('name', LAYERS)
def test_chunks_cover_every_query_once_and_stay_small(name):
    _, attention = look(build(name), tokens())
    times = torch.zeros_like(attention.cell_BL)
    for groups, rows in attention.chunks(max_weights=1500):
        assert attention.weights(groups, rows).numel() <= 1500
        times = times.clone()
        times[groups, rows] += 1

    assert (times == 1).all()


@pytest.mark.parametrize('name', LAYERS)
def test_weights_sum_to_one_and_hidden_keys_have_none(name):
    _, attention = look(build(name), tokens())
    weights = attention.weights()
    is_token = (attention.cell_BL >= 0)[:, None].expand(weights.shape[:3])

    # Hydra divides by nothing, the others add a small number to the divisor.
    if attention.kind not in ('hydra', 'linear', 'focused'):
        assert_close(weights.sum(-1)[is_token], torch.ones(int(is_token.sum())).double())
    assert (weights * ~attention.visible()[:, None]).abs().max() == 0


@pytest.mark.parametrize('name', LAYERS)
def test_neighbours_are_the_keys_next_to_a_query(name):
    _, attention = look(build(name), tokens())
    index, seen = attention.neighbours()
    width, key_width = attention.grid[1], attention.key_grid[1]
    row, column = 1, 2  # of the first group, far from seams and padding
    places = index[row * width + column]
    step = attention.reduction
    expected = [
        (row // step + dy) * key_width + column // step + dx
        for dy in (-1, 0, 1)
        for dx in (-1, 0, 1)
    ]
    inside = seen[0, row * width + column]
    assert places[inside].tolist() == [place for place in expected if place >= 0][-inside.sum() :]
    corner = seen[0, 0].view(3, 3)
    assert corner[0].sum() == corner[:, 0].sum() == 0
    assert corner[1, 1]


@pytest.mark.parametrize('grid', [(9, 11), (14, 14)])
def test_neighbours_stop_at_padding_and_at_seams_of_shifted_windows(grid):
    layer = build('softmax shifted windows')
    _, attention = look(layer, tokens(batch=1, grid=grid), grid)
    index, seen = attention.neighbours()

    for group, row in (attention.cell_BL >= 0).nonzero().tolist():
        cell = int(attention.cell_BL[group, row])
        keys = attention.cell_BL[group, index[row, seen[group, row]]]
        assert (keys >= 0).all()
        dy, dx = keys // grid[1] - cell // grid[1], keys % grid[1] - cell % grid[1]
        assert max(dy.abs().max(), dx.abs().max()) <= 1


@pytest.mark.parametrize(
    ('backbone', 'names'),
    [
        (InLinePVT, ['1.1', '1.2', '2.1', '3.1', '3.2', '4.1']),
        (InLineSwin, ['1.1', '1.2', '1.3', '2.1', '2.2', '3.1', '3.2', '4.1']),
    ],
)
def test_layers_are_named_by_stage_and_block_in_the_order_in_which_they_run(backbone, names):
    model = nn.Sequential(build_backbone(backbone).eval())  # a number in front of the stages
    seen = []
    layers = find_layers(model[0])
    with torch.no_grad(), attention_hooks(layers, lambda name, attention: seen.append(name)):
        model(image(1, 3, 64, 64))

    assert seen == names


def test_layers_of_mmdet_are_found():
    from mmdet.models.backbones import PyramidVisionTransformer, SwinTransformer

    pvt = PyramidVisionTransformer(embed_dims=8, num_layers=[1, 2, 1, 1], num_heads=[1] * 4)
    swin = SwinTransformer(embed_dims=8, depths=(2, 1, 1, 1), num_heads=(1, 1, 1, 1))

    assert list(find_layers(pvt)) == ['1.1', '2.1', '2.2', '3.1', '4.1']
    assert list(find_layers(swin)) == ['1.1', '1.2', '2.1', '3.1', '4.1']


def test_a_model_without_attention_is_refused():
    with pytest.raises(ValueError, match=r'InLineAttention.*got a Sequential without any'):
        find_layers(nn.Sequential(nn.Conv2d(3, 3, 1)))
