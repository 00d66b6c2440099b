"""``tools/export.py``: files that do what the model does at any size, and what it refuses."""

import importlib.util
import runpy
import sys
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor, nn

import tiny
from zoo import CONFIGS, ROOT

TOOLS = ROOT / 'tools'
MEAN, STD = [120.0, 110.0, 100.0], [60.0, 55.0, 50.0]
DIMS = (8, 16)
PVT = dict(embed_dims=DIMS, depths=(1, 1), num_heads=(1, 2), mlp_ratios=(2, 2))
# The last block is of softmax windows, shifted.
SWIN = dict(PVT, depths=(2, 2), inline_depths=(2, 0))
FPN_HEAD = dict(type='FPNHead', in_channels=[8, 8], feature_strides=[4, 8])
UPER_HEAD = dict(type='UPerHead', in_channels=list(DIMS), pool_scales=(1, 2, 3, 6))
# Odd, small and long, on both sides of where windows are shifted: a side of 57 at stride 8.
# TODO: ends when the causes are found; both were seen once and not looked into.
SWIN_ONNX = pytest.mark.xfail(strict=True, reason='InLineSwin is not converted to ONNX yet')
CLASS_MAP = pytest.mark.xfail(strict=True, reason='class maps in ONNX fail, cause not found')
SHAPES = [(1, 32, 32), (2, 65, 97), (3, 57, 121)]


def segmentor(backbone: str, arch: dict, head: dict, neck: bool, **options) -> dict:
    """Settings of a small segmentor."""
    model = dict(
        type='EncoderDecoder',
        data_preprocessor=dict(type='SegDataPreProcessor', mean=MEAN, std=STD, bgr_to_rgb=True),
        backbone=dict(type=f'mminline.{backbone}', arch=arch, out_indices=(0, 1), **options),
        decode_head=dict(
            in_index=[0, 1],
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


def run_file(name: str, image: Tensor) -> list[Tensor]:
    """Outputs of an exported file, by whatever its users run it with."""
    if name.endswith('.onnx'):
        import onnxruntime

        session = onnxruntime.InferenceSession(name)
        return [torch.from_numpy(part) for part in session.run(None, {'image': image.numpy()})]
    with torch.no_grad():
        return torch.export.load(name).module()(image)


@pytest.mark.parametrize(
    ('kind', 'backbone', 'arch', 'options'),
    [
        ('onnx', 'InLinePVT', PVT, {}),
        ('pt2', 'InLinePVT', PVT, {}),
        pytest.param('onnx', 'InLineSwin', SWIN, {}, marks=SWIN_ONNX),
        ('pt2', 'InLineSwin', SWIN, dict(inline_window=7, feature_map='relu', injective=False)),
    ],
)
def test_one_file_of_a_backbone_serves_all_sizes(tool, capsys, kind, backbone, arch, options):
    model = write(segmentor(backbone, arch, UPER_HEAD, neck=False, **options))

    tool('small.py', 'small.pth', '--format', kind, '--what', 'backbone', '--dynamic')

    assert '129 x 260' in capsys.readouterr().out
    for shape in SHAPES:
        image = pixels(shape[0], 3, *shape[1:])
        with torch.no_grad():
            expected = model.backbone(normalized(image))
        for part, wanted in zip(run_file(f'small-backbone.{kind}', image), expected, strict=True):
            torch.testing.assert_close(part, wanted, rtol=1e-4, atol=1e-4)


@CLASS_MAP
@pytest.mark.parametrize(('head', 'neck'), [(FPN_HEAD, True), (UPER_HEAD, False)])
def test_a_segmentor_gives_the_class_map_that_mmseg_predicts(tool, head, neck):
    model = write(segmentor('InLinePVT', PVT, head, neck))

    tool('small.py', 'small.pth', '--format', 'onnx', '--dynamic', '--shape', '64', '96')

    for batch, *side in SHAPES:
        image = pixels(batch, 3, *side)
        with torch.no_grad():
            logits = model.encode_decode(normalized(image), [dict(img_shape=side)] * batch)
        (classes,) = run_file('small-segmentor.onnx', image)
        assert classes.dtype == torch.int64
        assert classes.shape == (batch, *side)
        assert (classes != logits.argmax(dim=1)).float().mean() < 1e-3
        assert len(classes.unique()) > 1


def test_a_detector_gives_its_features_and_says_why(tool, capsys):
    settings = Config.fromfile(CONFIGS / 'detection' / 'retinanet_inline-pvt-t_fpn_1x_coco.py')
    model = settings.model
    model.data_preprocessor.update(mean=MEAN, std=STD)
    model.backbone = dict(type='mminline.InLinePVT', arch=PVT, out_indices=(0, 1))
    model.neck = dict(type='FPN', in_channels=list(DIMS), out_channels=8, num_outs=3)
    model.bbox_head.update(in_channels=8, feat_channels=8, stacked_convs=1)
    detector = write(model.to_dict(), scope='mmdet')

    tool('small.py', 'small.pth', '--format', 'pt2', '--shape', '64', '80')

    assert 'The head of a detector cannot be exported' in capsys.readouterr().out
    image = pixels(1, 3, 64, 80)
    with torch.no_grad():
        expected = detector.extract_feat(normalized(image))
    for part, wanted in zip(run_file('small-features.pt2', image), expected, strict=True):
        torch.testing.assert_close(part, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('kind', [pytest.param('onnx', marks=SWIN_ONNX), 'pt2'])
def test_a_file_for_one_size_refuses_others(tool, kind):
    write(segmentor('InLineSwin', SWIN, UPER_HEAD, neck=False))

    tool(
        'small.py', '--format', kind, '--what', 'backbone', '--shape', '64', '80', '--no-normalize'
    )

    with pytest.raises(Exception, match='80'):
        run_file(f'small-backbone.{kind}', pixels(1, 3, 64, 96))


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
