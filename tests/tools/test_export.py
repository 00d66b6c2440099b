"""``tools/export.py``: files that do what the model does at any size, and what it refuses."""

import importlib.util
import runpy
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor, nn

from helpers import tiny
from helpers.shipped_configs import CONFIGS, ROOT

TOOLS = ROOT / 'tools'
MEAN, STD = [120.0, 110.0, 100.0], [60.0, 55.0, 50.0]
DIMS = (8, 16)
PVT = dict(embed_dims=DIMS, depths=(1, 1), num_heads=(1, 2), mlp_ratios=(2, 2))
# One InLine block, then two of softmax windows, of which the second is shifted.
SWIN = dict(PVT, depths=(1, 2), inline_depths=(1, 0))
FPN_HEAD = dict(type='FPNHead', in_index=[0, 1], in_channels=[8, 8], feature_strides=[4, 8])
UPER_HEAD = dict(type='UPerHead', in_index=[0, 1], in_channels=list(DIMS), pool_scales=(1, 6))
# Odd, small and long, on both sides of where windows are shifted: a side of 57 at stride 8.
SHAPES = [(1, 32, 32), (2, 65, 97), (3, 57, 121)]


def segmentor(backbone: str, arch: dict, head: dict, neck: bool, **options) -> dict:
    """Settings of a small segmentor."""
    model = dict(
        type='EncoderDecoder',
        data_preprocessor=dict(type='SegDataPreProcessor', mean=MEAN, std=STD, bgr_to_rgb=True),
        backbone=dict(type=f'mminline.{backbone}', arch=arch, out_indices=(0, 1), **options),
        decode_head=dict(
            channels=8,
            num_classes=5,
            norm_cfg=dict(type='SyncBN'),
            align_corners=False,
            loss_decode=dict(type='CrossEntropyLoss'),
            **head,
        ),
        test_cfg=dict(mode='whole'),
    )
    if neck:
        model['neck'] = dict(type='FPN', in_channels=list(DIMS), out_channels=8, num_outs=2)
    return model


@pytest.fixture
def tool(monkeypatch, tmp_path):
    """Run the tool in this process and in a folder of its own, as from the command line."""
    monkeypatch.syspath_prepend(TOOLS)
    monkeypatch.chdir(tmp_path)

    def run_tool(*arguments: object) -> None:
        monkeypatch.setattr(sys, 'argv', ['export.py', *map(str, arguments)])
        runpy.run_path(str(TOOLS / 'export.py'), run_name='__main__')

    return run_tool


def write(model: dict, scope: str = 'mmseg') -> nn.Module:
    """Write config and checkpoint of a model with random weights; return the model."""
    Config(dict(default_scope=scope, model=model)).dump('small.py')
    init_default_scope(scope)
    built = tiny.randomize(revert_sync_batchnorm(MODELS.build(Config.fromfile('small.py').model)))
    torch.save({'state_dict': built.state_dict()}, 'small.pth')
    return built.eval()


def pixels(*shape: int) -> Tensor:
    return torch.randint(256, shape, generator=torch.Generator().manual_seed(0)).float()


def normalized(image: Tensor) -> Tensor:
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    return (image - mean) / std


def open_file(name: str) -> Callable[[Tensor], list[Tensor]]:
    """An exported file, opened by whatever its users run it with."""
    if name.endswith('.onnx'):
        import onnxruntime

        session = onnxruntime.InferenceSession(name)
        return lambda image: [
            torch.from_numpy(part) for part in session.run(None, {'image': image.numpy()})
        ]
    module = torch.export.load(name).module()

    def run(image: Tensor) -> list[Tensor]:
        with torch.no_grad():
            outputs = module(image)
        return [outputs] if isinstance(outputs, Tensor) else outputs

    return run


def compare_features(
    name: str,
    extract: Callable[[Tensor], tuple[Tensor, ...]],
    shapes: list[tuple[int, int, int]],
) -> None:
    """Compare an exported file with the features of a model at several sizes."""
    run = open_file(name)
    for batch, *side in shapes:
        image = pixels(batch, 3, *side)
        with torch.no_grad():
            expected = extract(normalized(image))
        for part, wanted in zip(run(image), expected, strict=True):
            torch.testing.assert_close(part, wanted, rtol=1e-4, atol=1e-4)


def test_a_detector_gives_its_features_at_all_sizes_and_says_why(tool, capsys):
    model = Config.fromfile(CONFIGS / 'detection' / 'retinanet_inline-pvt-t_fpn_1x_coco.py').model
    model.data_preprocessor.update(mean=MEAN, std=STD)
    model.backbone = dict(
        type='mminline.InLineSwin', arch=SWIN, out_indices=(0, 1), inline_window=7
    )
    model.neck = dict(type='FPN', in_channels=list(DIMS), out_channels=8, num_outs=3)
    model.bbox_head.update(in_channels=8, feat_channels=8, stacked_convs=1)
    detector = write(model.to_dict(), scope='mmdet')

    tool('small.py', 'small.pth', '--format', 'onnx', '--dynamic', '--shape', '64', '80')

    out = capsys.readouterr().out
    assert 'The head of a detector cannot be exported' in out
    assert '129 x 260' in out
    compare_features('small-features.onnx', detector.extract_feat, SHAPES)


@pytest.mark.parametrize(
    ('kind', 'head', 'options'),
    [
        ('onnx', FPN_HEAD, {}),
        ('onnx', UPER_HEAD, {}),
        ('pt2', FPN_HEAD, dict(feature_map='relu', injective=False)),
    ],
)
def test_a_segmentor_gives_the_class_map_that_mmseg_predicts(
    tool, monkeypatch, kind, head, options
):
    model = write(segmentor('InLinePVT', PVT, head, neck=head is FPN_HEAD, **options))
    # Of two stages, with a coarsest map of one row, as 32 is of four.
    monkeypatch.setattr(importlib.import_module('_exporter'), 'SMALLEST', 8)

    tool('small.py', 'small.pth', '--format', kind, '--dynamic', '--shape', '8', '96')

    path = f'small-segmentor.{kind}'
    if kind == 'pt2':  # no image inside
        with zipfile.ZipFile(path) as archive:
            assert sum(m.file_size for m in archive.filelist if 'inputs' in m.filename) == 0
    run = open_file(path)
    for batch, *side in SHAPES:
        image = pixels(batch, 3, *side)
        with torch.no_grad():
            logits = model.encode_decode(normalized(image), [dict(img_shape=side)] * batch)
        (classes,) = run(image)
        assert classes.dtype == torch.int64
        assert classes.shape == (batch, *side)
        assert (classes != logits.argmax(dim=1)).float().mean() < 1e-3
    assert len(classes.unique()) > 1


def test_a_file_for_one_size_refuses_others(tool):
    model = write(segmentor('InLineSwin', SWIN, UPER_HEAD, neck=False))

    tool('small.py', 'small.pth', '--format', 'onnx', '--what', 'backbone', '--shape', '64', '80')

    compare_features('small-backbone.onnx', model.backbone, [(1, 64, 80)])
    with pytest.raises(Exception, match='Got: 96 Expected: 80'):
        open_file('small-backbone.onnx')(pixels(1, 3, 64, 96))


def test_a_size_that_a_layer_fixes_is_an_error(tool, monkeypatch):
    write(segmentor('InLinePVT', PVT, FPN_HEAD, neck=True))
    monkeypatch.setattr(importlib.import_module('_exporter'), 'open_sizes', lambda module: None)

    with pytest.raises(SystemExit, match='fixes a size that --dynamic wants open'):
        tool('small.py', '--format', 'pt2', '--dynamic')


def test_a_layer_that_cannot_be_exported_is_named(tool, monkeypatch):
    write(segmentor('InLinePVT', PVT, UPER_HEAD, neck=False))

    def fail(*arguments, **options):
        raise RuntimeError('outer') from TypeError('no such operation')

    monkeypatch.setattr(torch.export, 'export', fail)
    with pytest.raises(SystemExit, match='pt2 was not written, TypeError: no such operation'):
        tool('small.py', '--format', 'pt2')


def test_pooling_of_open_size_is_adaptive_pooling():
    spec = importlib.util.spec_from_file_location('_exported', TOOLS / '_exported.py')
    exported = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(exported)
    for side in range(1, 20):
        image = tiny.image(2, 3, side, 7, dtype=torch.float64)
        for bins in (1, 2, 3, 6):
            expected = nn.AdaptiveAvgPool2d(bins)(image)
            torch.testing.assert_close(exported.OpenAveragePool(bins)(image), expected)


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['nowhere.py'], r'no config nowhere\.py'),
        (['small.py', '--shape', '31', '64'], 'at least 32 32, got 31 64'),
        (['small.py', '--out', 'nowhere/a.pt2'], 'a folder that exists, got nowhere'),
        (['small.py', '--what', 'features'], 'needs a neck, and this model has none'),
        (['small.py', 'nowhere.pth'], 'there is none at nowhere.pth'),
        (['small.py', 'backbone.pth'], 'has to hold backbone, neck, decode_head'),
    ],
)
def test_what_cannot_work_is_named(tool, arguments, message):
    model = write(segmentor('InLinePVT', PVT, UPER_HEAD, neck=False))
    torch.save({'state_dict': model.backbone.state_dict()}, 'backbone.pth')

    with pytest.raises(SystemExit, match=message):
        tool(*arguments, '--format', 'pt2')


def test_missing_packages_are_named_with_the_way_to_get_them(tool, monkeypatch):
    write(segmentor('InLinePVT', PVT, UPER_HEAD, neck=False))
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, 'find_spec', lambda name, *rest: None if name == 'onnx' else find(name)
    )

    with pytest.raises(SystemExit, match=r'ONNX needs onnx: pip install "mminline\[export\]"'):
        tool('small.py', '--format', 'onnx')


def test_a_file_that_differs_from_the_model_is_an_error(tool, monkeypatch):
    write(segmentor('InLinePVT', PVT, UPER_HEAD, neck=False))
    load = torch.export.load

    class Other(nn.Module):
        def __init__(self, path: Path) -> None:
            super().__init__()
            self.module_ = load(path).module()

        def module(self) -> nn.Module:
            return lambda image: [1.01 * part for part in self.module_(image)]

    monkeypatch.setattr(torch.export, 'load', Other)
    with pytest.raises(SystemExit, match='does not do what the model does'):
        tool('small.py', '--format', 'pt2', '--what', 'backbone', '--shape', '64', '64')
