"""Backbones take official files, ours and a detector's, completely or not at all."""

import pytest
import torch
import torch.nn.functional as F
from mmengine.logging import HistoryBuffer
from mmengine.registry import MODELS

from helpers import golden
from helpers.tiny import SIZES, SWIN_SIZES, build
from mminline.checkpoints import convert_official, load_pretrained
from mminline.models import InLineDeiT, InLinePVT, InLineSwin


def save(weights, path):
    torch.save({'state_dict': weights, 'meta': {}}, path)
    return str(path)


def assert_same(backbone, weights):
    own = backbone.state_dict()
    assert own.keys() == weights.keys()
    assert all(torch.equal(own[key], weights[key]) for key in own)


@pytest.fixture
def log(monkeypatch):
    """Lines that loading writes to the log."""
    lines = []
    monkeypatch.setattr(
        'mminline.checkpoints.load.print_log', lambda message, logger: lines.append(message)
    )
    return lines


@pytest.mark.parametrize(
    ('name', 'model'), [('inline-pvt-t', 'InLinePVT'), ('inline-swin-t', 'InLineSwin')]
)
def test_an_official_file_loads_through_init_cfg_as_it_is(name, model, tmp_path):
    official = golden.official_state_dict(name)
    path = tmp_path / 'published.pth'
    torch.save({'model': official}, path)
    init_cfg = dict(type='Pretrained', checkpoint=str(path))

    backbone = MODELS.build(dict(type=f'mminline.{model}', arch='tiny', init_cfg=init_cfg))
    norms = {k: v.clone() for k, v in backbone.state_dict().items() if k.startswith('norm')}
    backbone.init_weights()

    assert_same(backbone, {**convert_official(official), **norms})


def test_output_norms_that_a_file_lacks_keep_their_values_and_are_named(tmp_path, log):
    saved = build(InLineSwin).state_dict()
    stages = {key: value for key, value in saved.items() if key.startswith('stages.')}
    backbone = InLineSwin(SWIN_SIZES)
    norms = {k: v.clone() for k, v in backbone.state_dict().items() if k.startswith('norm')}

    load_pretrained(backbone, save(stages, tmp_path / 'stages.pth'))

    assert_same(backbone, {**stages, **norms})
    assert log[1].endswith(
        'initial values kept: norm0.weight, norm0.bias, norm1.weight, norm1.bias, '
        'norm2.weight, norm2.bias, norm3.weight, norm3.bias'
    )


@pytest.mark.parametrize(('backbone', 'arch'), [(InLinePVT, SIZES), (InLineSwin, SWIN_SIZES)])
def test_weights_of_ours_come_back_as_they_were(backbone, arch, tmp_path):
    saved = build(backbone).state_dict()
    loaded = backbone(arch)
    load_pretrained(loaded, save(saved, tmp_path / 'ours.pth'))
    assert_same(loaded, saved)


def test_other_outputs_than_the_file_had_are_no_obstacle(tmp_path, log):
    saved = build(InLineSwin, out_indices=(0, 3)).state_dict()
    loaded = InLineSwin(SWIN_SIZES, out_indices=(2, 3))
    load_pretrained(loaded, save(saved, tmp_path / 'ours.pth'))

    assert torch.equal(loaded.norm3.weight, saved['norm3.weight'])
    assert torch.equal(loaded.norm2.weight, torch.ones(24))
    assert log[1].endswith('initial values kept: norm2.weight, norm2.bias')
    assert log[2].endswith('left out: norm0.weight, norm0.bias')


@pytest.mark.parametrize('prefix', ['backbone.', 'backbone'])
def test_the_backbone_of_a_detector_is_taken_by_its_prefix(prefix, tmp_path):
    saved = build(InLinePVT).state_dict()
    weights = {f'backbone.{key}': value for key, value in saved.items()}
    weights['neck.weight'] = torch.ones(3)
    log = {'loss': HistoryBuffer([0.5], [1])}
    path = str(tmp_path / 'epoch_12.pth')
    torch.save({'meta': {'epoch': 12}, 'state_dict': weights, 'message_hub': log}, path)
    loaded = InLinePVT(SIZES, init_cfg=dict(type='Pretrained', checkpoint=path, prefix=prefix))
    loaded.init_weights()
    assert_same(loaded, saved)

    with pytest.raises(ValueError, match=r"prefix has to be 'backbone\.', .* got prefix=None"):
        load_pretrained(loaded, path)


def test_a_classifier_in_a_file_of_ours_is_left_out(tmp_path):
    saved = build(InLinePVT).state_dict()
    path = save({**saved, 'head.weight': torch.ones(3), 'norm.bias': torch.ones(3)}, tmp_path / 'a')
    loaded = InLinePVT(SIZES)
    load_pretrained(loaded, path)
    assert_same(loaded, saved)


def test_position_embeddings_are_resized_as_in_the_forward_pass(tmp_path, log):
    saved = build(InLinePVT, pretrain_size=64).double().state_dict()
    loaded = InLinePVT(SIZES, pretrain_size=96).double()
    load_pretrained(loaded, save(saved, tmp_path / 'ours.pth'))

    for index, side in enumerate((24, 12, 6, 3)):
        grid = saved[f'stages.{index}.pos_embed'].permute(0, 3, 1, 2)
        expected = F.interpolate(grid, (side, side), mode='bilinear', align_corners=False)
        torch.testing.assert_close(
            loaded.stages[index].pos_embed.data, expected.permute(0, 2, 3, 1), rtol=0, atol=1e-12
        )
    assert 'Resized stages.0.pos_embed from (1, 16, 16, 8) to (1, 24, 24, 8)' in log


def test_bias_tables_are_resized_bicubically(tmp_path, log):
    saved = build(InLineSwin).double().state_dict()
    key = 'stages.3.blocks.0.attn.relative_position_bias_table'
    saved[key] = torch.randn(9 * 9, 4, dtype=torch.float64)  # windows of 5
    loaded = InLineSwin(SWIN_SIZES).double()
    load_pretrained(loaded, save(saved, tmp_path / 'ours.pth'))

    grid = saved[key].T.view(1, 4, 9, 9)
    expected = F.interpolate(grid, (13, 13), mode='bicubic', align_corners=False)
    torch.testing.assert_close(
        loaded.state_dict()[key], expected.view(4, 169).T, rtol=0, atol=1e-12
    )
    assert f'Resized {key} from (81, 4) to (169, 4)' in log


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (
            lambda weights: weights.pop('stages.2.blocks.1.mlp.fc2.bias'),
            r'does not fit InLinePVT: unfilled: stages\.2\.blocks\.1\.mlp\.fc2\.bias$',
        ),
        (
            lambda weights: weights.update({'stages.1.strange': torch.zeros(1)}),
            r'left over: stages\.1\.strange$',
        ),
        (
            lambda weights: weights.update({'stages.0.embed.proj.bias': torch.zeros(9)}),
            r'of another shape: stages\.0\.embed\.proj\.bias \(9,\) for \(8,\)$',
        ),
        (
            lambda weights: weights.update({'stages.3.pos_embed': torch.zeros(1, 2, 2, 31)}),
            r'of another shape: stages\.3\.pos_embed \(1, 2, 2, 31\) for \(1, 7, 7, 32\)$',
        ),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_loaded(change, message, tmp_path):
    weights = build(InLinePVT).state_dict()
    change(weights)
    path = save(weights, tmp_path / 'ours.pth')
    backbone = InLinePVT(SIZES)
    before = {key: value.clone() for key, value in backbone.state_dict().items()}

    with pytest.raises(ValueError, match=message):
        load_pretrained(backbone, path)
    assert_same(backbone, before)


def test_a_bias_table_that_is_not_square_is_named_with_its_shape(tmp_path):
    weights = InLineSwin(SWIN_SIZES).state_dict()
    weights['stages.3.blocks.0.attn.relative_position_bias_table'] = torch.zeros(80, 4)
    path = save(weights, tmp_path / 'ours.pth')
    with pytest.raises(ValueError, match=r'bias_table \(80, 4\) for \(169, 4\)$'):
        load_pretrained(InLineSwin(SWIN_SIZES), path)


def test_a_file_of_another_family_is_an_error_that_names_what_it_is(tmp_path):
    path = save(build(InLineSwin).state_dict(), tmp_path / 'swin.pth')
    with pytest.raises(
        ValueError, match=r'swin\.pth \(mminline\) does not fit InLinePVT: unfilled'
    ):
        load_pretrained(InLinePVT(SIZES), path)


def test_a_file_of_another_model_is_an_error_that_lists_its_keys(tmp_path):
    path = save({f'layer.{index}': torch.zeros(1) for index in range(12)}, tmp_path / 'other.pth')
    with pytest.raises(ValueError, match=r'got the keys layer\.0, .*, layer\.9 and 2 more$'):
        load_pretrained(InLinePVT(SIZES), path)


def test_mmengine_records_where_the_values_came_from(tmp_path):
    path = save(build(InLinePVT).state_dict(), tmp_path / 'ours.pth')
    backbone = InLinePVT(SIZES)
    record = {p: dict(init_info='', tmp_mean_value=p.mean()) for p in backbone.parameters()}
    backbone._params_init_info = record

    load_pretrained(backbone, path)

    assert {entry['init_info'] for entry in record.values()} == {f'Pretrained: load from {path}'}


def test_positions_of_another_grid_are_resized_and_the_class_token_keeps_its_own(tmp_path):
    official = golden.official_state_dict('inline-deit-t')
    torch.save({'model': official}, tmp_path / 'deit.pth')
    model = InLineDeiT(pretrain_size=(96, 160))
    load_pretrained(model, tmp_path / 'deit.pth')

    (stage,) = model.stages
    grid = official['pos_embed'][:, 1:].unflatten(1, (14, 14)).permute(0, 3, 1, 2).double()
    resized = F.interpolate(grid, (6, 10), mode='bilinear', align_corners=False)
    torch.testing.assert_close(stage.pos_embed.detach(), resized.permute(0, 2, 3, 1).float())
    assert torch.equal(stage.class_position, official['pos_embed'][:, :1])
    assert torch.equal(stage.class_token, official['cls_token'])
