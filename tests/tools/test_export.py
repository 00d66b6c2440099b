"""``tools/export.py``: what it writes, what it says, and what it refuses."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from mmengine.config import Config
from torch import nn

from helpers import tiny, tiny_detectors
from helpers.shipped_configs import CONFIGS
from helpers.tiny_exports import (
    DIMS,
    FPN_HEAD,
    MEAN,
    PVT,
    STD,
    SWIN,
    UPER_HEAD,
    compare_features,
    segmentor,
)
from mminline.apis import init_model

pytestmark = pytest.mark.slow

# Odd, small and long, on both sides of where windows are shifted: a side of 57 at stride 8.
SHAPES = [(1, 32, 32), (2, 65, 97), (3, 57, 121)]


@pytest.fixture
def export(run, monkeypatch, tmp_path):
    """Run the tool in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run('export.py', *arguments)


def write(model: dict, scope: str = 'mmseg') -> nn.Module:
    """Write config and checkpoint of a model with random weights; return the model."""
    Config(dict(default_scope=scope, model=model)).dump('small.py')
    built = tiny.randomize(init_model('small.py', device='cpu'))
    torch.save({'state_dict': built.state_dict()}, 'small.pth')
    return built


def test_a_detector_gives_its_features_at_all_sizes(export, capsys):
    model = Config.fromfile(CONFIGS / 'detection' / 'retinanet_inline-pvt-t_fpn_1x_coco.py').model
    model.data_preprocessor.update(mean=MEAN, std=STD)
    model.backbone = dict(
        type='mminline.InLineSwin', arch=SWIN, out_indices=(0, 1), inline_window=7
    )
    model.neck = dict(type='FPN', in_channels=list(DIMS), out_channels=8, num_outs=3)
    model.bbox_head.update(in_channels=8, feat_channels=8, stacked_convs=1)
    detector = write(model.to_dict(), scope='mmdet')

    export('small.py', 'small.pth', '--what', 'features', '--dynamic', '--shape', '64', '80')

    assert '129 x 260' in capsys.readouterr().out
    compare_features('small-features.onnx', detector.extract_feat, SHAPES)


def test_a_detector_is_exported_whole_and_evaluated(export, capsys, shapes):
    config = tiny_detectors.retinanet()
    model = tiny_detectors.build(config, shapes)
    torch.save({'state_dict': model.state_dict()}, 'small.pth')
    config.dump('small.py')

    export('small.py', 'small.pth', '--score-thr', '0.3', '--nms-thr', '0.4', '--evaluate',
           '--no-dynamic', '--shape', '128', '128', '--time', '1')  # fmt: skip

    out = capsys.readouterr().out
    assert 'detections  unmatched' in out
    assert 'One image of 128 x 128: file ' in out
    (line,) = (line for line in out.splitlines() if line.startswith('coco/bbox_mAP '))
    _, by_file, by_torch = line.split()
    assert by_file == by_torch
    session = onnxruntime.InferenceSession('small-detector.onnx')
    meta = session.get_modelmeta().custom_metadata_map
    thresholds = json.loads(meta['mminline.thresholds'])
    assert (thresholds['score'], thresholds['iou']) == (0.3, 0.4)
    dets, labels = session.run(None, {'image': np.full((1, 3, 128, 128), np.nan, np.float32)})
    assert (dets.shape, labels.shape) == ((0, 5), (0,))


def test_a_segmentor_is_exported_with_the_options_of_the_command_line(export, capsys):
    model = segmentor('InLinePVT', PVT, FPN_HEAD, neck=True)
    model['test_cfg'] = dict(mode='slide', crop_size=(64, 64), stride=(32, 32))
    write(model)

    export('small.py', '--format', 'pt2', '--shape', '64', '80', '--time', '1', '--out', 'a.bin',
           '--no-normalize', '--cfg-options', 'model.decode_head.num_classes=3')  # fmt: skip

    out = capsys.readouterr().out
    for text in (
        'No checkpoint is given: the weights are random.',
        'sliding windows; the graph predicts whole images',
        'share of pixels',
        'One image of 64 x 80: file ',
    ):
        assert text in out
    program = torch.export.load('a.bin')
    assert not {'mean', 'std'} & {name for name, _ in program.named_buffers()}
    weights = program.state_dict
    (classifier,) = (name for name in weights if name.endswith('conv_seg.weight'))
    assert len(weights[classifier]) == 3


def test_weights_of_the_checkpoint_are_exported(export):
    model = write(segmentor('InLineSwin', SWIN, UPER_HEAD, neck=False))
    torch.save({'state_dict': model.backbone.state_dict()}, 'backbone.pth')

    for checkpoint in ('small.pth', 'backbone.pth'):
        export('small.py', checkpoint, '--format', 'pt2', '--what', 'backbone', '--shape', 64, 80)
        compare_features('small-backbone.pt2', model.backbone, [(1, 64, 80)])
        Path('small-backbone.pt2').unlink()


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
def test_what_cannot_work_is_named(export, arguments, message):
    model = write(segmentor('InLinePVT', PVT, UPER_HEAD, neck=False))
    torch.save({'state_dict': model.backbone.state_dict()}, 'backbone.pth')

    with pytest.raises(SystemExit, match=message):
        export(*arguments, '--format', 'pt2')


def test_missing_packages_are_named_with_the_way_to_get_them(export, monkeypatch):
    write(segmentor('InLinePVT', PVT, UPER_HEAD, neck=False))
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, 'find_spec', lambda name, *rest: None if name == 'onnx' else find(name)
    )

    with pytest.raises(SystemExit, match=r'ONNX needs onnx: pip install "mminline\[export\]"'):
        export('small.py', '--format', 'onnx')


def test_a_layer_that_cannot_be_exported_ends_the_program(export, monkeypatch):
    write(segmentor('InLinePVT', PVT, UPER_HEAD, neck=False))

    def fail(*arguments, **options):
        raise RuntimeError('outer') from TypeError('no such operation')

    monkeypatch.setattr(torch.export, 'export', fail)
    with pytest.raises(SystemExit, match='pt2 was not written, TypeError: no such operation'):
        export('small.py', '--format', 'pt2')
