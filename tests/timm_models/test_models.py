"""Classifiers as timm makes them: values, counts, and each part of timm's interface."""

import pytest
import timm
import torch
from timm.models import group_parameters
from timm.optim import create_optimizer_v2
from torch import nn

import mminline.timm_models  # noqa: F401
from helpers.golden import NAMES, golden_image, golden_outputs, official_state_dict
from helpers.tiny import (
    ARCHS,
    BACKBONES,
    CHANNELS,
    build,
    gradients,
    image,
    randomize,
)
from mminline.models import InLineDeiT, InLinePVT, InLineSwin

pytestmark = pytest.mark.slow

PARAMETERS = {
    'inline_pvt_tiny': 12_032_232,
    'inline_pvt_small': 21_556_136,
    'inline_pvt_medium': 37_618_856,
    'inline_pvt_large': 51_154_280,
    'inline_swin_tiny': 29_223_544,
    'inline_swin_small': 49_793_296,
    'inline_swin_base': 88_350_120,
    'inline_deit_tiny': 6_477_736,
    'inline_deit_small': 16_734_760,
    'inline_deit_base': 23_797_096,
}
FAMILIES = {
    'inline_pvt_tiny': InLinePVT,
    'inline_swin_tiny': InLineSwin,
    'inline_deit_tiny': InLineDeiT,
}
NAME_OF = {backbone: name for name, backbone in FAMILIES.items()}
PYRAMIDS = ['inline_pvt_tiny', 'inline_swin_tiny']


def create(name: str, **options) -> nn.Module:
    """A model of a few thousand parameters, none of which is without effect."""
    torch.manual_seed(0)
    defaults = dict(arch=ARCHS[FAMILIES[name]], num_classes=5)
    return randomize(timm.create_model(name, **{**defaults, **options}))


def test_importing_registers_the_ten_published_models():
    assert set(timm.list_models('inline_*')) == set(PARAMETERS)
    assert set(timm.list_pretrained('inline_*')) == {f'{name}.in1k' for name in PARAMETERS}


@pytest.mark.parametrize('name', PARAMETERS)
def test_the_numbers_of_parameters_are_the_published_ones(name):
    with torch.device('meta'):
        model = timm.create_model(name)

    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS[name]


@torch.inference_mode()
@pytest.mark.parametrize(('dtype', 'tolerance'), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
@pytest.mark.parametrize('published', NAMES)
def test_the_class_scores_are_the_published_ones(published, dtype, tolerance):
    name = published.replace('-', '_') + {'t': 'iny', 's': 'mall'}[published[-1]]
    weights = dict(state_dict={'model': official_state_dict(published)})
    model = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=weights)
    scores = model.to(dtype).eval()(golden_image(224, 224).to(dtype))
    golden = torch.from_numpy(golden_outputs(published)['224x224_logits']).flatten()

    assert scores.shape == (1, 1000)
    assert (scores[0, :64] - golden).abs().max() < tolerance * golden.std()


@pytest.mark.parametrize('backbone', BACKBONES)
@pytest.mark.parametrize('size', [(64, 64), (45, 71)])
def test_features_are_the_maps_of_the_backbone(backbone, size):
    name = NAME_OF[backbone]
    reference = build(backbone).double().eval()
    for index in range(4):  # the maps before the norms that dense prediction adds
        if hasattr(reference, f'norm{index}'):
            setattr(reference, f'norm{index}', nn.Identity())
    features = create(name, features_only=True, img_size=224).double().eval()
    features.model.stages.load_state_dict(reference.stages.state_dict())
    maps = features(image(2, 3, *size, dtype=torch.float64))

    torch.testing.assert_close(maps, list(reference(image(2, 3, *size, dtype=torch.float64))))
    assert all(feature.is_contiguous() for feature in maps)
    assert features.feature_info.channels() == list(reference.out_channels)
    assert features.feature_info.reduction() == list(reference.strides)


@pytest.mark.parametrize('name', FAMILIES)
@pytest.mark.parametrize(('indices', 'wanted'), [((0, 2), [0, 2]), ((-3,), [1]), (2, [2, 3])])
def test_out_indices_choose_maps_and_the_rest_is_not_built(name, indices, wanted):
    every = create(name, features_only=True).eval()
    some = create(name, features_only=True, out_indices=indices).eval()
    del every.model.units[max(wanted) + 1 :]
    some.model.stages.load_state_dict(every.model.stages.state_dict())
    every = create(name, features_only=True).eval()
    maps, picture = every(image(1, 3, 64, 64)), image(1, 3, 64, 64)

    torch.testing.assert_close(some(picture), [maps[index] for index in wanted])
    assert len(some.model.units) == max(wanted) + 1
    channels = CHANNELS[FAMILIES[name]]
    assert some.feature_info.channels() == [channels[index] for index in wanted]
    assert not list(some.model.norm.parameters()) and not list(some.model.head.parameters())


@pytest.mark.parametrize('name', PYRAMIDS)
def test_intermediates_come_with_the_final_map_and_its_norm(name):
    model, picture = create(name).eval(), image(1, 3, 64, 96)
    final, maps = model.forward_intermediates(picture, norm=True)
    early, (first, second) = model.forward_intermediates(picture, indices=[0, 1], stop_early=True)

    torch.testing.assert_close(final, model.forward_features(picture))
    torch.testing.assert_close(maps[-1], final)
    torch.testing.assert_close([first, second, early], [maps[0], maps[1], maps[1]])
    with pytest.raises(ValueError, match="has to be 'NCHW', got output_fmt='NLC'"):
        model.forward_intermediates(picture, output_fmt='NLC')


def test_intermediates_of_deit_come_with_the_tokens_behind_the_final_norm():
    model, picture = create('inline_deit_tiny').eval(), image(1, 3, 64, 96)
    tokens, maps = model.forward_intermediates(picture, norm=True)
    raw = model.forward_intermediates(picture, intermediates_only=True)
    early, (first, second) = model.forward_intermediates(picture, indices=[0, 1], stop_early=True)

    torch.testing.assert_close(tokens, model.forward_features(picture))
    assert tokens.shape == (1, 1 + 4 * 6, 8)
    for normed, plain in zip(maps, raw, strict=True):
        expected = model.norm(plain.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        torch.testing.assert_close(normed, expected)
    torch.testing.assert_close(maps[-1].flatten(2).transpose(1, 2), tokens[:, 1:])
    torch.testing.assert_close([first, second], raw[:2])
    torch.testing.assert_close(early[:, 1:], second.flatten(2).transpose(1, 2))


def test_the_head_of_deit_is_a_linear_over_the_class_token():
    name, picture = 'inline_deit_tiny', image(2, 3, 64, 64, dtype=torch.float64)
    model = create(name).double().eval()
    tokens = model.forward_features(picture)
    pooled = model.forward_head(tokens, pre_logits=True)
    torch.testing.assert_close(pooled, tokens[:, 0])
    torch.testing.assert_close(model(picture), model.get_classifier()(pooled))

    model.reset_classifier(0, 'avg')
    torch.testing.assert_close(model(picture), tokens[:, 1:].mean(dim=1))
    model.reset_classifier(0, '')
    torch.testing.assert_close(model(picture), tokens)
    model.reset_classifier(7, 'token')
    assert model.double()(picture).shape == (2, 7)
    with pytest.raises(ValueError, match="global_pool has to be one of .*'token'.*, got 'max'"):
        create(name, global_pool='max')


@pytest.mark.parametrize('name', PYRAMIDS)
def test_the_head_is_a_linear_over_the_mean_of_the_map(name):
    model, picture = create(name).double().eval(), image(2, 3, 64, 64, dtype=torch.float64)
    map_BCHW = model.forward_features(picture)
    pooled = model.forward_head(map_BCHW, pre_logits=True)

    assert map_BCHW.shape == (2, 32, 2, 2)
    torch.testing.assert_close(pooled, map_BCHW.flatten(2).mean(-1))
    torch.testing.assert_close(model(picture), model.get_classifier()(pooled))


@pytest.mark.parametrize('name', PYRAMIDS)
def test_the_head_can_be_replaced_and_left_out(name):
    model, picture = create(name).eval(), image(1, 3, 64, 64)
    model.reset_classifier(7)
    assert model(picture).shape == (1, 7) and model.num_classes == 7
    assert 0 < model.get_classifier().weight.std() < 0.03 and not model.get_classifier().bias.any()

    model.reset_classifier(0)
    torch.testing.assert_close(model(picture), model.forward_features(picture).mean((2, 3)))
    model.reset_classifier(0, 'max')
    torch.testing.assert_close(model(picture), model.forward_features(picture).amax((2, 3)))
    unpooled = create(name, num_classes=0, global_pool='').eval()
    torch.testing.assert_close(unpooled(picture), unpooled.forward_features(picture))


@pytest.mark.parametrize('name', FAMILIES)
def test_checkpointing_runs_blocks_twice_and_changes_no_gradient(name):
    model, picture = create(name), image(2, 3, 64, 64)
    found, runs = [], []
    model.stages[0].blocks[0].attn.register_forward_hook(lambda *_: runs.append(1))
    for enable in (False, True):
        model.zero_grad()
        model.set_grad_checkpointing(enable)
        model(picture).square().sum().backward()
        found.append(gradients(model))
        assert len(runs) == (3 if enable else 1)
    torch.testing.assert_close(*found)
    # The class token gets no local residual, so in the last block that has no effect on the scores.
    idle = 'stages.0.blocks.3.attn.local_kernel.' if 'deit' in name else '-'
    for key, gradient in found[0].items():
        assert (gradient.abs().sum() > 0) != key.startswith(idle), key


@pytest.mark.parametrize('backbone', BACKBONES)
def test_layers_are_numbered_as_in_the_backbone(backbone):
    model, reference = create(NAME_OF[backbone]), build(backbone)
    layers = group_parameters(model, model.group_matcher(), reverse=True)
    coarse = group_parameters(model, model.group_matcher(coarse=True), reverse=True)
    last = sum(len(stage.blocks) for stage in model.stages)

    for key, layer in layers.items():
        stage, fresh = key.split('.')[1], key.startswith(('norm', 'head'))
        expected = reference.get_layer_depth(key)[0] if not fresh else last + key.startswith('head')
        assert layer == expected, key
        if not fresh:
            assert coarse[key] == (int(stage) + 1 if layer else 0), key


@pytest.mark.parametrize(
    ('name', 'undecayed'),
    [
        ('inline_pvt_tiny', '.pos_embed'),
        ('inline_swin_tiny', '.relative_position_bias_table'),
        ('inline_deit_tiny', ('.pos_embed', '.class_token', '.class_position')),
    ],
)
def test_the_optimizer_factory_decays_by_layer_and_spares_positions(name, undecayed):
    model = create(name)
    optimizer = create_optimizer_v2(model, 'adamw', lr=1.0, weight_decay=0.05, layer_decay=0.5)
    groups = {id(each): group for group in optimizer.param_groups for each in group['params']}

    spared = [key for key, _ in model.named_parameters() if key.endswith(undecayed)]
    assert spared and set(spared) == model.no_weight_decay()
    for key, parameter in model.named_parameters():
        decays = parameter.ndim > 1 and key not in spared
        assert groups[id(parameter)]['weight_decay'] == (0.05 if decays else 0), key
    depth = sum(len(stage.blocks) for stage in model.stages)
    assert groups[id(model.get_classifier().weight)]['lr_scale'] == 1
    assert groups[id(model.stages[0].embed.proj.weight)]['lr_scale'] == 0.5 ** (depth + 1)


@pytest.mark.parametrize('name', FAMILIES)
def test_img_size_sets_the_position_grid_and_the_size_of_the_data(name):
    model = create(name, img_size=(96, 64))

    assert timm.data.resolve_model_data_config(model)['input_size'] == (3, 96, 64)
    positions = [stage.pos_embed for stage in model.stages if stage.pos_embed is not None]
    grids = [tuple(position.shape[1:3]) for position in positions]
    pyramid = [(24, 16), (12, 8), (6, 4), (3, 2)]
    assert grids == {'pvt': pyramid, 'swin': [], 'deit': [(6, 4)]}[name.split('_')[1]]


@pytest.mark.parametrize('name', FAMILIES)
def test_rates_and_channels_reach_their_layers(name):
    options = dict(in_chans=1, drop_rate=0.1, proj_drop_rate=0.2, drop_path_rate=0.3)
    model = create(name, **options)

    assert model(image(1, 1, 64, 64)).shape == (1, 5)
    assert model.head.drop.p == 0.1
    assert model.stages[0].drop.p == model.stages[-1].blocks[0].mlp.drop.p == 0.2
    assert model.stages[-1].blocks[-1].drop_path.drop_prob == 0.3
    with pytest.raises(ValueError, match=r'shape \(B, 1, H, W\), got \(1, 3, 64, 64\)'):
        model(image(1, 3, 64, 64))


@pytest.mark.parametrize('name', FAMILIES)
def test_the_switches_of_the_ablations_are_there_and_strange_words_are_not(name):
    plain, switched = create(name).eval(), create(name, local_residual=False).eval()
    switched.load_state_dict(plain.state_dict(), strict=False)
    picture = image(1, 3, 64, 64)

    assert (plain(picture) - switched(picture)).abs().max() > 1e-3
    for word in ('frozen_stages', 'with_cp', 'in_channels', 'pretrain_size'):  # of the backbones
        with pytest.raises(TypeError, match=word):
            create(name, **{word: 1})
