"""Weights that the page shows are those of the layers, by matrices of all queries and keys."""

import pytest
import torch
from torch.testing import assert_close

from helpers.explored import (
    explorable,
    read_layers,
    residual_weights,
    with_attention,
    write_image,
)
from mminline.explore import Explorer
from mminline.layers import reference
from mminline.layers.attention import KINDS

KIND_NAMES = [kind.__name__ for kind in KINDS]
POINT = (41, 22)  # of the image of 64 x 48 px; stage 1 has a token for each 4 x 4 px
CELL = (5, 10)


@pytest.fixture(scope='module')
def image(tmp_path_factory):
    return write_image(tmp_path_factory.mktemp('images') / 'noise.png')


@pytest.mark.parametrize('kind', [*KIND_NAMES, 'whole map'])
def test_weights_of_a_query_are_a_row_of_all_weights(kind, image):
    options = dict(type=kind)
    if kind == 'whole map':
        options = dict(type='SoftmaxAttention', window_size=None)
    model = with_attention(**options)
    scene = Explorer([model]).open(image)
    attentions = read_layers(model.model, scene.image_HWC)

    for layer in ('1.2', '2.1'):
        query = scene.look(0, layer, None, POINT).query
        attention = attentions[layer]
        number = query.cell[0] * attention.hw_shape[1] + query.cell[1]
        ((group, row),) = (attention.cell_BL == number).nonzero().tolist()
        cells = attention.cell_BL[group]
        everything = attention.weights()  # of all queries and keys
        expected = torch.zeros(everything.shape[1], attention.hw_shape[0] * attention.hw_shape[1])
        expected[:, cells[cells >= 0]] = everything[group, :, row][:, cells >= 0]
        assert_close(query.maps.attention, expected.unflatten(1, attention.hw_shape))
        assert query.maps.keys == attention.visible()[group, row].sum()


def test_inline_weights_are_those_of_the_reference(image):
    model = explorable('segmentor')
    scene = Explorer([model]).open(image)
    attention = read_layers(model.model, scene.image_HWC)['1.1']

    look = scene.look(0, '1.1', None, POINT)

    scale = attention.q_BNLD.shape[-1] ** -0.5
    token = CELL[0] * 16 + CELL[1]
    weights = reference.inline_weights(attention.q_BNLD, attention.k_BNMD, scale)[0, :, token]
    residual = residual_weights(attention, token)
    assert attention.hw_shape == (12, 16)
    assert look.query.cell == CELL
    assert_close(look.query.maps.attention.flatten(1), weights)
    assert_close(look.query.maps.residual.flatten(1), residual)
    assert (residual != 0).sum(dim=1).tolist() == [9]
    parts = (weights, residual, weights + residual)
    for shown, expected in zip(look.maps, parts, strict=True):  # in multiples of 1/N
        assert_close(torch.from_numpy(shown).flatten(), 12 * 16 * expected.mean(dim=0))


def test_a_head_is_one_of_those_that_the_mean_is_over(image):
    scene = Explorer([explorable('segmentor')]).open(image)
    mean, *heads = (scene.look(0, '2.1', head, POINT).maps for head in (None, 1, 2))

    for part in range(3):
        assert_close((heads[0][part] + heads[1][part]) / 2, mean[part])
        assert abs(heads[0][part] - heads[1][part]).max() > 0


def test_a_query_in_a_window_has_weights_there_alone(image):
    scene = Explorer([with_attention(type='SoftmaxAttention', window_size=4)]).open(image)
    (weights,) = scene.look(0, '1.1', None, POINT).maps  # 12 x 16 tokens, row 5, column 10

    assert (weights[4:8, 8:12] > 0).all()
    assert weights[4:8, 8:12].sum() == pytest.approx(16, rel=1e-4)  # in multiples of 1/16
    assert (weights != 0).sum() == 16


def test_a_padded_image_lies_where_its_cells_are(tmp_path):
    # The backbone leaves padding to multiples of 32 out; a cell of stage 4 still covers 32 px.
    model = explorable('detector')
    scene = Explorer([model]).open(write_image(tmp_path / 'odd.png', 40, 64))

    assert scene.views[0].extent('4.1') == (64, 64)
    assert scene.views[0].extent('1.1') == (64, 40)
    assert scene.look(0, '4.1', None, (63, 39)).query.cell == (1, 1)
    assert scene.look(0, '4.1', None, (31, 31)).query.cell == (0, 0)
    assert scene.look(0, '1.1', None, (63, 39)).query.cell == (9, 15)


@pytest.mark.parametrize(
    ('layer', 'head', 'point', 'message'),
    [
        ('9.1', None, POINT, r'segmentor has no layer 9.1, only 1.1, 1.2, 2.1'),
        ('2.1', 3, POINT, r'Layer 2.1 of segmentor has no head 3, only 2'),
        ('2.1', 0, POINT, r'has no head 0'),
        ('2.1', None, (64, 0), r'inside the image of 64 x 48 px, got x = 64, y = 0'),
        ('2.1', None, (0, -1), r'inside the image'),
    ],
)
def test_what_does_not_exist_is_named(image, layer, head, point, message):
    scene = Explorer([explorable('segmentor')]).open(image)
    with pytest.raises(ValueError, match=message):
        scene.look(0, layer, head, point)
