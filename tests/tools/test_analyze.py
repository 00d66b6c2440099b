"""``tools/analyze_attention.py``: its reports on small models, and what it refuses."""

import csv
import functools
import json
import re
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import mmcv
import numpy as np
import pytest
import torch

from helpers import tiny_configs
from helpers.shipped_configs import CONFIGS
from helpers.tiny import SIZES, randomize
from mminline.apis import init_model
from mminline.datasets import write_shapes

SEGMENTOR = tiny_configs.SEGMENTOR.replace('/train', '/val')
# Softmax attention with reduced keys, and in windows; and a detector.
PVT = """
_base_ = 'small.py'
model = dict(backbone=dict(_delete_=True, type='mmdet.PyramidVisionTransformer', embed_dims=8,
    num_layers=[1, 1, 1, 1], num_heads=[1, 2, 3, 4]),
    neck=dict(in_channels=[8, 16, 24, 32]))
"""
SWIN = """
_base_ = 'small.py'
model = dict(backbone=dict(_delete_=True, type='mminline.InLineSwin', arch=dict(
    embed_dims=(8, 16, 24, 32), depths=(2, 1, 1, 1), num_heads=(1, 2, 3, 4),
    mlp_ratios=(1, 1, 1, 1), inline_depths=(1, 1, 0, 0))))
"""
DETECTOR = f"""
_base_ = '{CONFIGS}/detection/mask-rcnn_inline-pvt-t_fpn_1x_coco.py'
model = dict(
    backbone=dict(_delete_=True, type='mminline.InLinePVT', arch={SIZES}),
    neck=dict(in_channels={list(SIZES['embed_dims'])}, out_channels=8),
    rpn_head=dict(in_channels=8, feat_channels=8),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=8),
        bbox_head=dict(in_channels=8, fc_out_channels=8, num_classes=6),
        mask_roi_extractor=dict(out_channels=8),
        mask_head=dict(in_channels=8, conv_out_channels=8, num_classes=6),
    ),
    test_cfg=dict(rpn=dict(max_per_img=20)),
)
val_dataloader = dict(
    num_workers=0,
    persistent_workers=False,
    dataset=dict(
        data_root='shapes/',
        ann_file='annotations/instances_val.json',
        data_prefix=dict(img='images/val/'),
        metainfo=dict(classes=('circle', 'square', 'triangle', 'star', 'ring', 'cross')),
    ),
)
val_evaluator = dict(ann_file='shapes/annotations/instances_val.json')
"""


@pytest.fixture(scope='module')
def home(tmp_path_factory) -> Path:
    """Configs, a checkpoint of random weights for the first, and data."""
    home = tmp_path_factory.mktemp('home')
    write_shapes(home / 'shapes', train=1, val=3, size=64)
    for name, text in dict(small=SEGMENTOR, pvt=PVT, swin=SWIN, detector=DETECTOR).items():
        (home / f'{name}.py').write_text(text)
    torch.manual_seed(0)
    model = randomize(init_model(home / 'small.py', device='cpu'), std=0.3)
    torch.save(dict(state_dict=model.state_dict()), home / 'small.pth')
    return home


@pytest.fixture
def analyze(home, run, tmp_path, monkeypatch):
    """Run the tool with results in ``tmp_path``."""
    monkeypatch.chdir(home)
    return lambda *arguments: run('analyze_attention.py', *arguments, '--out', tmp_path)


IMAGES = ('--images', 'shapes/images/val')


def read_rows(path: Path) -> list[dict]:
    with open(path) as file:
        return list(csv.DictReader(file))


def test_confusion_compares_kinds_of_attention(analyze, tmp_path, capsys):
    analyze('confusion', 'small.py', 'small.pth', *IMAGES, '--name', 'InLine',
            '--also', 'PVT=pvt.py', '--also', 'Swin=swin.py', '--weight-difference', '0.05',
            '--pairs', '3000')  # fmt: skip

    rows = read_rows(tmp_path / 'confusion.csv')
    summary = json.loads((tmp_path / 'confusion.json').read_text())
    assert len(rows) == 3 * (6 + 4 + 5)  # images x layers
    assert {row['exact'] for row in rows} == {'True', 'False'}
    curves = ['InLine', 'PVT', 'Swin (inline)', 'Swin (softmax)']
    assert [row['curve'] for row in summary['means']] == curves
    for mean in summary['means']:
        rates = [
            np.mean([float(row['rate']) for row in rows if (row['curve'], row['image']) == where])
            for where in {(mean['curve'], row['image']) for row in rows}
        ]
        assert mean['rate'] == pytest.approx(np.mean(rates))
        assert mean['low'] <= mean['rate'] <= mean['high']
    assert summary['settings']['weight_difference'] == 0.05
    assert 'weight difference at most 0.05' in capsys.readouterr().out
    assert mmcv.imread(str(tmp_path / 'confusion.png')).shape[1] > 500


def test_locality_has_a_row_for_each_layer(analyze, tmp_path, capsys):
    analyze('locality', 'small.py', 'small.pth', *IMAGES, '--limit', '2', '--also', 'PVT=pvt.py')

    layers = json.loads((tmp_path / 'locality.json').read_text())['layers']
    assert [row['layer'] for row in layers] == [
        '1.1', '1.2', '2.1', '3.1', '3.2', '4.1', '1.1', '2.1', '3.1', '4.1',
    ]  # fmt: skip
    assert layers[0]['uniform'] == pytest.approx(46**2 / 256**2)  # of 16 x 16 cells
    assert all(row['with_residual'] is not None for row in layers[:6])
    assert layers[6]['with_residual'] is None
    assert layers[6]['keys'] == '2x2 (1 for 8x8 tokens)'
    assert '2x2 (1 for 8x8 tokens)' in capsys.readouterr().out
    assert (tmp_path / 'locality.png').is_file()


def test_maps_have_the_weights_of_the_points(analyze, tmp_path):
    analyze('map', 'small.py', 'small.pth', *IMAGES, '--limit', '1', '--layer', '3.2',
            '--point', 60, 5, '--point', 0, 63, '--name', 'mine', '--heads', 'each')  # fmt: skip

    queries = json.loads((tmp_path / 'map_mine_000000_3.2.json').read_text())['queries']
    assert [query['cell'] for query in queries] == [[0, 3], [3, 0]]  # of 4 x 4
    for query in queries:
        assert np.array(query['attention']).sum(axis=(1, 2)) == pytest.approx(1, abs=1e-4)
    assert np.count_nonzero(queries[0]['residual']) == 3 * 4  # heads x neighbours in a corner
    assert (tmp_path / 'map_mine_000000_3.2.png').is_file()


def test_maps_of_a_detector_know_that_it_scales_and_pads(analyze, tmp_path):
    # 64 px become 800, a grid of 200 cells, and the right half is the right half.
    analyze('map', 'detector.py', *IMAGES, '--limit', '1', '--point', '48', '16', '--layer', '4.1',
            '--cfg-options', 'test_dataloader.dataset.pipeline.1.scale=(333,200)')  # fmt: skip

    (path,) = tmp_path.glob('map_detector_*.json')
    (query,) = json.loads(path.read_text())['queries']
    # 200 px padded to 224: 7 cells of 32 px; 48 and 16 px are 150 and 50 px.
    assert np.array(query['attention']).shape[1:] == (7, 7)
    assert query['cell'] == [1, 4]


def test_masking_scores_the_model_without_its_neighbours(analyze, tmp_path, capsys):
    analyze('mask', 'small.py', 'small.pth', '--sides', '3', '17', '--name', 'mine')

    rows = read_rows(tmp_path / 'mask.csv')
    assert [(row['kind'], row['side']) for row in rows] == [
        ('none', '0'), ('local', '3'), ('random', '3'), ('local', '17'), ('random', '17'),
    ]  # fmt: skip
    assert len({row['mIoU'] for row in rows}) > 2
    assert 'mine, local 17' in capsys.readouterr().out
    assert (tmp_path / 'mask.png').is_file()


def test_masks_can_be_kept_to_some_layers(analyze, tmp_path):
    scores = []
    for layers in (['4.1'], ['1.1', '1.2']):
        analyze('mask', 'small.py', 'small.pth', '--sides', '3', '--layers', *layers)
        scores.append([row['mIoU'] for row in read_rows(tmp_path / 'mask.csv')])

    assert scores[0][0] == scores[1][0]
    assert scores[0][1] == scores[0][2]  # all of 2 x 2 tokens are hidden either way
    assert scores[0][1:] != scores[1][1:]


def test_masking_scores_a_detector(analyze, tmp_path):
    analyze('mask', 'detector.py', '--sides', '3', '--cfg-options',
            'val_dataloader.dataset.pipeline.1.scale=(64,64)')  # fmt: skip

    rows = read_rows(tmp_path / 'mask.csv')
    assert [row['kind'] for row in rows] == ['none', 'local', 'random']
    assert {'coco/bbox_mAP', 'coco/segm_mAP'} <= rows[0].keys()
    settings = json.loads((tmp_path / 'mask.json').read_text())['settings']
    assert settings['metric'] == 'coco/segm_mAP'


def test_without_masks_the_score_is_that_of_tools_test(analyze, run, tmp_path, capsys):
    analyze('mask', 'small.py', 'small.pth', '--sides', '1')
    rows = read_rows(tmp_path / 'mask.csv')
    capsys.readouterr()
    run('test.py', 'small.py', 'small.pth', '--work-dir', tmp_path / 'test')

    tested = re.findall(r'mIoU: ([\d.]+)', capsys.readouterr().out)[-1]
    assert float(rows[0]['mIoU']) == pytest.approx(float(tested), abs=0.005)


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['map', 'small.py', 'small.pth', *IMAGES, '--point', '64', '5'],
         r'inside the image 000000.png of 64 x 64 px, got 64 5'),
        (['map', 'small.py', 'small.pth', *IMAGES, '--layer', '9.1'],
         r'layer has to be one of 1\.1, 1\.2, .*, got 9\.1'),
        (['locality', 'small.py', 'small.pth', '--images', 'shapes/annotations'],
         r'shapes/annotations has no images'),
        (['locality', 'small.py', 'small.pth', '--images', 'nowhere'], 'no folder nowhere'),
        (['locality', 'swin.py', 'small.pth', *IMAGES],
         r'small\.pth has to hold the whole model .*another config\?'),
        (['locality', 'small.py', 'nowhere.pth', *IMAGES], r'no checkpoint nowhere\.pth'),
        (['locality', 'nowhere.py', *IMAGES], r'no config nowhere\.py'),
        (['locality', 'small.py', 'small.py', *IMAGES], 'whole file of torch.save'),
        (['locality', 'small.py', *IMAGES, '--also', 'small=pvt.py'], 'different names'),
        (['mask', 'small.py', 'small.pth', '--layers', '1.1', '9.1'],
         r'layers has to be of 1\.1, 1\.2, .*, got 9\.1'),
        (['mask', 'small.py', 'small.pth', '--metric', 'AP'], r'metric has to be one of .*mIoU'),
        (['mask', 'small.py', 'small.pth', '--cfg-options',
          'val_dataloader.dataset.data_root=nowhere'], 'val data is not there: nowhere'),
    ],
)  # fmt: skip
def test_mistakes_end_with_a_sentence(analyze, arguments, message):
    with pytest.raises(SystemExit, match=message):
        analyze(*arguments)


def test_a_model_without_attention_is_named(analyze, home):
    (home / 'resnet.py').write_text(
        "_base_ = 'small.py'\nmodel = dict(backbone=dict(_delete_=True, type='ResNet', depth=18, "
        'base_channels=8, num_stages=4), neck=dict(in_channels=[8, 16, 32, 64]))\n'
    )
    with pytest.raises(SystemExit, match='EncoderDecoder without any'):
        analyze('locality', 'resnet.py', *IMAGES)


@pytest.mark.parametrize(
    'arguments', [['--sides', '4'], ['--sides', '0'], ['--also', 'nonsense'], ['--seed', 'x']]
)
def test_bad_arguments_are_refused(analyze, capsys, arguments):
    with pytest.raises(SystemExit):
        analyze('mask', 'small.py', *arguments)
    assert f'argument {arguments[0]}' in capsys.readouterr().err


def test_help_states_the_thresholds(analyze, capsys):
    with pytest.raises(SystemExit):
        analyze('confusion', '--help')
    text = ' '.join(capsys.readouterr().out.split())
    assert '(default: 0.1)' in text
    assert '(default: 0.01)' in text


class Trojan:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), 'w')


def test_code_in_a_downloaded_checkpoint_is_not_run(analyze, home, tmp_path, monkeypatch):
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'cache'))
    weights = torch.load(home / 'small.pth')
    torch.save(dict(weights, meta=Trojan(tmp_path / 'written')), home / 'trojan.pth')
    handler = functools.partial(SimpleHTTPRequestHandler, directory=home)
    with ThreadingHTTPServer(('127.0.0.1', 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            address = f'http://127.0.0.1:{server.server_port}/trojan.pth'
            with pytest.raises(
                SystemExit, match='trojan.pth is refused, and nothing in it was run'
            ):
                analyze('locality', 'small.py', address, *IMAGES, '--limit', '1')
        finally:
            server.shutdown()

    assert not (tmp_path / 'written').exists()
