"""Official names to ours: all of them, none twice, with the right rows."""

import pytest
import torch

from helpers import golden
from mminline.checkpoints import convert_official, find_backbone, unwrap
from mminline.checkpoints.download import PUBLISHED, published_name
from mminline.models import InLineDeiT, InLinePVT, InLineSwin

MODELS = {
    'inline-pvt-t': (InLinePVT, 'tiny'),
    'inline-swin-t': (InLineSwin, 'tiny'),
    'inline-swin-s': (InLineSwin, 'small'),
    'inline-deit-t': (InLineDeiT, 'tiny'),
}
# Parameters with the class head of 1000 classes as published, channels of the last stage.
PUBLISHED_SIZES = {
    'pvt-tiny': (12_032_232, 512),
    'pvt-small': (21_556_136, 512),
    'pvt-medium': (37_618_856, 512),
    'pvt-large': (51_154_280, 512),
    'swin-tiny': (29_223_544, 768),
    'swin-small': (49_793_296, 768),
    'swin-base': (88_350_120, 1024),
    'deit-tiny': (6_477_736, 192),
    'deit-small': (16_734_760, 320),
    'deit-base': (23_797_096, 384),
}


def empty_official(name: str) -> dict[str, torch.Tensor]:
    """Official keys and shapes; one number behind all values."""
    return {
        key: torch.zeros(1).expand(shape) for key, shape in golden.official_shapes(name).items()
    }


@pytest.fixture(scope='module')
def pvt_weights():
    return golden.official_state_dict('inline-pvt-t')


@pytest.mark.parametrize('name', golden.NAMES)
def test_official_keys_fill_the_backbone_with_none_left_over_and_none_missing(name):
    backbone, arch = MODELS[name]
    own = {key: value.shape for key, value in backbone(arch).state_dict().items()}
    fresh = {key for key in own if key.startswith('norm')}

    converted = convert_official(empty_official(name))

    assert {key: value.shape for key, value in converted.items()} == {
        key: shape for key, shape in own.items() if key not in fresh
    }
    assert len(fresh) == (8 if backbone is InLineSwin else 0)


@pytest.mark.parametrize('name', golden.NAMES)
def test_classifier_is_kept_on_request_and_no_parameter_but_its_own_is_ever_dropped(name):
    official = empty_official(name)
    with_classifier = convert_official(official, keep_classifier=True)

    classifier = {key for key in official if key.startswith(('head.', 'norm.'))}
    assert len(classifier) == (2 if 'pvt' in name else 4)
    assert with_classifier.keys() - convert_official(official).keys() == classifier
    size = sum(value.numel() for value in with_classifier.values())
    assert size == golden.params_with_head(name)


def test_queries_come_before_keys_and_values_whatever_the_order_in_the_file(pvt_weights):
    backwards = dict(reversed(pvt_weights.items()))
    for official in (pvt_weights, backwards):
        converted = convert_official(official)
        for tensor in ('weight', 'bias'):
            query = official[f'block3.1.attn.q.{tensor}']
            key_value = official[f'block3.1.attn.kv.{tensor}']
            joined = converted[f'stages.2.blocks.1.attn.qkv.{tensor}']
            assert torch.equal(joined[:320], query)
            assert torch.equal(joined[320:], key_value)


def test_values_go_to_their_places(pvt_weights):
    converted = convert_official(pvt_weights)
    for ours, official in {
        'stages.3.embed.proj.weight': 'patch_embed4.proj.weight',
        'stages.0.blocks.1.norm2.bias': 'block1.1.norm2.bias',
        'stages.1.blocks.0.attn.local_kernel.2.weight': 'block2.0.attn.residual.2.weight',
        'stages.2.blocks.0.mlp.fc1.weight': 'block3.0.mlp.fc1.weight',
    }.items():
        assert torch.equal(converted[ours], pvt_weights[official])
    # Tokens run along rows of the grid.
    grid = converted['stages.0.pos_embed']
    assert torch.equal(grid[0, 5, 7], pvt_weights['pos_embed1'][0, 5 * 56 + 7])


def test_position_of_the_class_token_of_deit_becomes_a_weight_of_its_own():
    official = golden.official_state_dict('inline-deit-t')
    converted = convert_official(official)
    position = official['pos_embed']
    assert torch.equal(converted['stages.0.class_position'], position[:, :1])
    assert torch.equal(converted['stages.0.class_token'], official['cls_token'])
    # Tokens run along rows of the grid.
    assert torch.equal(converted['stages.0.pos_embed'][0, 5, 7], position[0, 1 + 5 * 14 + 7])
    with pytest.raises(ValueError, match=r'square grid, got pos_embed of shape \(1, 195, 192\)'):
        convert_official({**official, 'pos_embed': position[:, 1:]})


def test_patch_merging_of_swin_belongs_to_the_stage_behind_it():
    official = empty_official('inline-swin-t')
    official['layers.1.downsample.reduction.weight'] = torch.randn(384, 768)

    converted = convert_official(official)

    expected = official['layers.1.downsample.reduction.weight']
    assert torch.equal(converted['stages.2.embed.reduction.weight'], expected)


def test_unknown_keys_are_an_error_that_names_them(pvt_weights):
    with pytest.raises(ValueError, match=r'got dist_token, block1\.0\.attn\.sr\.weight$'):
        convert_official(
            {**pvt_weights, 'dist_token': torch.zeros(1), 'block1.0.attn.sr.weight': torch.zeros(1)}
        )


def test_a_long_list_of_unknown_keys_is_cut():
    with pytest.raises(ValueError, match=r'got 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 90 more$'):
        convert_official({str(number): torch.zeros(1) for number in range(100)})


@pytest.mark.parametrize('half', ['q', 'kv'])
def test_half_of_qkv_is_an_error_that_names_the_other_half(pvt_weights, half):
    lonely = {k: v for k, v in pvt_weights.items() if k != f'block2.1.attn.{half}.bias'}
    with pytest.raises(ValueError, match=rf'stages\.1\.blocks\.1\.attn\.{half}\.bias is missing'):
        convert_official(lonely)


def test_a_position_embedding_that_is_not_square_is_an_error(pvt_weights):
    with pytest.raises(ValueError, match=r'square grid, got pos_embed4 of shape \(1, 50, 512\)'):
        convert_official({**pvt_weights, 'pos_embed4': torch.zeros(1, 50, 512)})


def test_sizes_in_the_table_of_published_models_are_those_of_the_paper():
    assert PUBLISHED.keys() == PUBLISHED_SIZES.keys()
    for name, (with_head, channels) in PUBLISHED_SIZES.items():
        final_norm = 0 if name.startswith('pvt') else 2 * channels
        head = 1000 * (channels + 1)
        assert PUBLISHED[name].num_parameters == with_head - head - final_norm


@pytest.mark.parametrize(
    ('name', 'model'),
    [
        ('inline-pvt-t', 'pvt-tiny'),
        ('inline-swin-t', 'swin-tiny'),
        ('inline-swin-s', 'swin-small'),
        ('inline-deit-t', 'deit-tiny'),
    ],
)
def test_a_published_model_is_recognised_by_its_stages(name, model):
    weights = convert_official(empty_official(name))
    assert published_name(weights) == model
    weights.popitem()
    assert published_name(weights) is None


@pytest.mark.parametrize(
    'wrap',
    [
        lambda weights: weights,
        lambda weights: {'model': weights, 'epoch': 3},
        lambda weights: {'state_dict': weights, 'meta': {}},
        lambda weights: {'state_dict_ema': weights, 'args': None},
        lambda weights: {'model': {'state_dict': weights}},
        lambda weights: {'model': {f'module.{key}': value for key, value in weights.items()}},
    ],
)
def test_weights_are_unwrapped(wrap):
    weights = {'block1.0.norm1.weight': torch.ones(2), 'head.bias': torch.zeros(3)}
    unwrapped = unwrap(wrap(weights))
    assert unwrapped.keys() == weights.keys()
    assert all(unwrapped[key] is weights[key] for key in weights)


@pytest.mark.parametrize(
    ('checkpoint', 'message'),
    [
        ([torch.zeros(1)], 'has to be a dict of weights, got list'),
        ({}, 'has to be a dict of weights, got dict'),
        ({'net': {'weight': torch.zeros(1)}, 'epoch': 1}, 'got other objects in net, epoch'),
    ],
)
def test_what_holds_no_weights_is_an_error(checkpoint, message):
    with pytest.raises(ValueError, match=message):
        unwrap(checkpoint)


@pytest.mark.parametrize(
    ('key', 'kind'),
    [
        ('block1.0.norm1.weight', 'official InLine-PVT'),
        ('layers.0.blocks.0.norm1.weight', 'official InLine-Swin'),
        ('blocks.0.norm1.weight', 'official InLine-DeiT'),
        ('stages.0.blocks.0.norm1.weight', 'mminline'),
    ],
)
@pytest.mark.parametrize('prefix', [None, 'backbone', 'backbone.', 'model.backbone.'])
def test_kinds_are_recognised_by_themselves_and_under_a_prefix(key, kind, prefix):
    name = f'{prefix.rstrip(".")}.{key}' if prefix else key
    weights = {name: torch.zeros(1), 'neck.conv.weight': torch.ones(1)}

    source = find_backbone(weights, prefix)

    assert source.kind == kind
    assert source.weights.keys() == ({key} if prefix else weights.keys())


@pytest.mark.parametrize(
    ('keys', 'prefix', 'message'),
    [
        (
            ['conv1.weight', 'fc.bias'],
            None,
            r'InLine backbone, got the keys conv1\.weight, fc\.bias$',
        ),
        (['backbone.block1.0.x'], None, r"prefix has to be 'backbone\.', .* got prefix=None"),
        (['block1.0.x'], 'backbone.', r"prefix has to be None, .* got prefix='backbone\.'"),
        (['conv_block1.0.x'], None, r'InLine backbone, got the keys conv_block1\.0\.x$'),
        (['layers.1.blocks.0.x'], None, r'InLine backbone, got the keys layers\.1\.blocks\.0\.x$'),
    ],
)
def test_a_backbone_that_is_not_found_is_an_error_that_tells_where_to_look(keys, prefix, message):
    with pytest.raises(ValueError, match=message):
        find_backbone(dict.fromkeys(keys, torch.zeros(1)), prefix)
