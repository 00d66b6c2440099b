"""``export_model``: files that do what the model does at any size, and what it refuses."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmengine.config import Config
from torch import Tensor, nn

from helpers import tiny
from helpers.tiny_exports import (
    FPN_HEAD,
    PVT,
    SWIN,
    UPER_HEAD,
    compare_features,
    normalized,
    open_file,
    pixels,
    segmentor,
)
from mminline.apis import export_model, init_model
from mminline.apis.export import ExportError, checking, choose_part, load_part, tracing
from mminline.apis.export.open_sizes import OpenAveragePool

pytestmark = pytest.mark.slow

# Odd, small and long, on both sides of where windows are shifted: a side of 57 at stride 8.
SHAPES = [(1, 32, 32), (2, 65, 97), (3, 57, 121)]


def build(model: dict, scope: str = 'mmseg') -> nn.Module:
    """Build a model whose weights all matter."""
    return tiny.randomize(init_model(Config(dict(default_scope=scope, model=model)), device='cpu'))


@pytest.fixture
def pvt() -> nn.Module:
    return build(segmentor('InLinePVT', PVT, UPER_HEAD, neck=False))


@pytest.mark.parametrize(
    ('kind', 'head', 'options'),
    [
        ('onnx', FPN_HEAD, {}),
        ('onnx', UPER_HEAD, {}),
        ('pt2', FPN_HEAD, dict(feature_map='relu', injective=False)),
    ],
)
def test_a_segmentor_gives_the_class_map_that_mmseg_predicts(
    tmp_path, monkeypatch, kind, head, options
):
    model = build(segmentor('InLinePVT', PVT, head, neck=head is FPN_HEAD, **options))
    # Of two stages, with a coarsest map of one row, as 32 is of four.
    monkeypatch.setattr(tracing, 'SMALLEST', 8)

    path = tmp_path / f'model.{kind}'
    exported = export_model(model, path, shape=(8, 96), dynamic=True)

    assert exported.path == path
    assert max(exported.differences.values()) <= 1e-3
    assert set(exported.differences) == {(1, 8, 96), *checking.OPEN_SHAPES}
    if kind == 'pt2':  # no image inside
        with zipfile.ZipFile(path) as archive:
            assert sum(m.file_size for m in archive.filelist if 'inputs' in m.filename) == 0
    run = open_file(path)
    for batch, *side in SHAPES:
        image = pixels(batch, 3, *side)
        with torch.no_grad():
            logits = model.encode_decode(normalized(image), [dict(img_shape=side)] * batch)
        classes, scores = run(image)
        assert classes.dtype == torch.int64
        assert classes.shape == (batch, *side)
        assert (classes != logits.argmax(dim=1)).float().mean() < 1e-3
        resized = F.interpolate(scores, side, mode='bilinear', align_corners=False)
        torch.testing.assert_close(resized, logits, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(exported.run(image)[0], classes)
    assert len(classes.unique()) > 1


@pytest.mark.parametrize('kind', ['onnx', 'pt2'])
def test_a_plain_transformer_with_its_class_token_runs_at_any_size(tmp_path, kind):
    arch = dict(embed_dims=(8,), depths=(2,), num_heads=(2,), mlp_ratios=(2,))
    head = dict(UPER_HEAD, in_channels=[8, 8])
    model = build(segmentor('InLineDeiT', arch, head, neck=False, pretrain_size=64))

    path = tmp_path / f'model.{kind}'
    export_model(model, path, what='backbone', shape=(64, 80), dynamic=True)

    compare_features(path, model.backbone, SHAPES)


def test_a_file_for_one_size_refuses_others(tmp_path):
    model = build(segmentor('InLineSwin', SWIN, UPER_HEAD, neck=False))

    path = tmp_path / 'model.onnx'
    export_model(model, path, what='backbone', shape=(64, 80))

    compare_features(path, model.backbone, [(1, 64, 80)])
    with pytest.raises(Exception, match='Got: 96 Expected: 80'):
        open_file(path)(pixels(1, 3, 64, 96))


def test_normalisation_can_be_left_out(pvt, tmp_path):
    path = tmp_path / 'model.pt2'
    export_model(pvt, path, what='backbone', shape=(64, 64), normalize=False)

    image = normalized(pixels(1, 3, 64, 64))
    with torch.no_grad():
        expected = pvt.backbone(image)
    for part, wanted in zip(open_file(path)(image), expected, strict=True):
        torch.testing.assert_close(part, wanted, rtol=1e-4, atol=1e-4)


def test_the_model_stays_as_it_is(pvt, tmp_path):
    layers = [type(part) for part in pvt.modules()]
    pvt.train()

    export_model(pvt, tmp_path / 'model.pt2', shape=(64, 64))

    assert pvt.training
    assert [type(part) for part in pvt.modules()] == layers


def test_steps_are_printed_only_if_wanted(pvt, tmp_path, capsys):
    options = dict(what='backbone', shape=(64, 64))
    export_model(pvt, tmp_path / 'model.pt2', **options)
    assert capsys.readouterr().out == ''

    export_model(pvt, tmp_path / 'model.pt2', verbose=True, **options)
    assert 'tracing ...' in capsys.readouterr().out


def test_a_file_is_timed_against_the_model(pvt, tmp_path):
    exported = export_model(pvt, tmp_path / 'model.pt2', what='backbone', shape=(64, 64))

    by_file, by_torch = exported.time((64, 64), rounds=2)
    assert by_file > 0
    assert by_torch > 0


def test_a_size_that_a_layer_fixes_is_an_error(tmp_path, monkeypatch):
    model = build(segmentor('InLinePVT', PVT, FPN_HEAD, neck=True))
    monkeypatch.setattr(tracing, 'open_sizes', lambda module: None)

    with pytest.raises(ExportError, match='fixes a size that dynamic wants open'):
        export_model(model, tmp_path / 'model.pt2', dynamic=True)


def test_a_layer_that_cannot_be_exported_is_named(pvt, tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise RuntimeError('outer') from TypeError('no such operation')

    monkeypatch.setattr(torch.export, 'export', fail)
    with pytest.raises(ExportError, match='pt2 was not written, TypeError: no such operation'):
        export_model(pvt, tmp_path / 'model.pt2')


def test_pooling_of_open_size_is_adaptive_pooling():
    for side in range(1, 20):
        image = tiny.image(2, 3, side, 7, dtype=torch.float64)
        for bins in (1, 2, 3, 6):
            expected = nn.AdaptiveAvgPool2d(bins)(image)
            torch.testing.assert_close(OpenAveragePool(bins)(image), expected)


@pytest.mark.parametrize('change', [lambda part: 1.01 * part, lambda part: part * torch.nan])
@pytest.mark.parametrize('number', [0, 1])
def test_a_file_that_differs_from_the_model_is_an_error(pvt, tmp_path, monkeypatch, change, number):
    load = torch.export.load

    class Other:
        def __init__(self, path: Path) -> None:
            self.right = load(path).module()

        def module(self) -> Callable[[Tensor], list[Tensor]]:
            return lambda image: [
                change(part) if index == number else part
                for index, part in enumerate(self.right(image))
            ]

    monkeypatch.setattr(torch.export, 'load', Other)
    with pytest.raises(ExportError, match='does not do what the model does'):
        export_model(pvt, tmp_path / 'model.pt2', what='backbone', shape=(64, 64))


@pytest.mark.parametrize(
    ('name', 'options', 'message'),
    [
        ('model.pt2', dict(shape=(31, 64)), 'at least 32 32, got 31 64'),
        ('nowhere/model.pt2', {}, 'a folder that exists, got .*nowhere'),
        ('model.torch', {}, "format has to be one of onnx, pt2, got 'torch'"),
        ('model.pt2', dict(what='features'), 'needs a neck, and this model has none'),
        (
            'model.pt2',
            dict(what='head'),
            "one of backbone, features, segmentor, detector, got 'head'",
        ),
    ],
)
def test_what_cannot_work_is_named(pvt, tmp_path, name, options, message):
    with pytest.raises(ValueError, match=message):
        export_model(pvt, tmp_path / name, **options)


def test_a_part_that_a_model_does_not_have_is_refused():
    detector = nn.Module()
    cascade = nn.Module()
    cascade.decode_head = nn.ModuleList()

    with pytest.raises(ValueError, match='needs a segmentor, got Module'):
        choose_part(detector, 'segmentor')
    with pytest.raises(ValueError, match='a cascade of heads cannot be exported'):
        choose_part(cascade)


def test_a_part_is_filled_from_a_whole_model_or_from_a_backbone_alone(pvt, tmp_path):
    weights = pvt.backbone.state_dict()
    whole = {f'backbone.{name}': value for name, value in weights.items()}
    for state_dict in (weights, whole):
        torch.save(dict(state_dict=state_dict), tmp_path / 'weights.pth')
        other = init_model(pvt.cfg, device='cpu')
        load_part(other, tmp_path / 'weights.pth', 'backbone')
        for name, value in other.backbone.state_dict().items():
            assert torch.equal(value, weights[name])
        with pytest.raises(ValueError, match='has to hold backbone, neck, decode_head'):
            load_part(other, tmp_path / 'weights.pth', 'segmentor')
