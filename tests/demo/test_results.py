"""Demo of a few iterations: scores, curves and pictures of what was trained."""

import json
import subprocess
import sys
from pathlib import Path

import mmcv
import numpy as np
import pytest

from helpers.shipped_configs import CONFIGS
from helpers.tiny_configs import TOOLS
from mminline.datasets import PALETTE, SEMANTIC_PALETTE, write_shapes
from mminline.demo import session
from mminline.demo.pictures import LAYERS
from mminline.demo.runs import METHODS, MORE_METHODS, Run

pytestmark = pytest.mark.slow

SHAPES = sorted(path.stem for path in CONFIGS.glob('*/*_shapes.py'))
# What makes a run take seconds, and validate twice on its way.
SMALL = [
    'train_cfg.max_iters=4',
    'train_cfg.val_interval=2',
    'train_dataloader.batch_size=2',
    'default_hooks.logger.interval=1',
    *(f'{split}_dataloader.num_workers=0' for split in ('train', 'val', 'test')),
    *(f'{split}_dataloader.persistent_workers=False' for split in ('train', 'val', 'test')),
]


@pytest.fixture(scope='module')
def shapes(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp('demo') / 'data' / 'shapes'
    write_shapes(root, train=8, val=6, size=64)
    return root


@pytest.fixture(scope='module')
def finished(shapes):
    """The folder of a demo of few iterations, with the tools run as mim would run them."""

    def run_tool(command: list[str], log: Path, environment: dict, report) -> None:
        *_, verb, package, config, gpus, number = command[: command.index('--gpus') + 2]
        assert (package, gpus, number) == ('mminline', '--gpus', '0')
        arguments = command[command.index('0') + 1 :]
        if verb == 'test':
            assert arguments.pop(0) == '--checkpoint'
        (path,) = CONFIGS.glob(f'*/{config}')
        words = [sys.executable, TOOLS / f'{verb}.py', path, *arguments, *SMALL]
        result = subprocess.run(words, capture_output=True, text=True, check=True)
        for line in result.stdout.splitlines():
            report(line)

    folder = shapes.parents[1] / 'work_dirs' / 'demo'
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(shapes.parents[1])
        patch.setattr(session, 'draw_data', lambda: None)
        patch.setattr(session, 'run_logged', run_tool)
        session.run_demo(folder, seed=3)
    return folder


def runs(folder: Path) -> list:
    return [Run(method, folder / method.key) for method in METHODS]


def test_the_methods_of_the_demo_have_configs_of_shapes():
    configs = {method.config for method in METHODS + MORE_METHODS}

    assert len(configs) == 4
    assert configs <= {f'{stem}.py' for stem in SHAPES}


def test_results_are_the_scores_of_the_tests_as_fractions(finished):
    results = json.loads((finished / 'results.json').read_text())
    detector, segmentor = (
        json.loads(next(finished.glob(f'{key}/test/*/*.json')).read_text())
        for key in ('mask_rcnn', 'semantic_fpn')
    )

    assert results['box_AP'] == detector['coco/bbox_mAP']
    assert results['mask_AP'] == detector['coco/segm_mAP']
    assert results['mIoU'] == pytest.approx(segmentor['mIoU'] / 100)
    assert 0 < results['mIoU'] < 1
    assert results['seed'] == 3
    seconds = results['seconds']
    assert list(seconds) == [
        'data', 'mask_rcnn_train', 'mask_rcnn_test', 'semantic_fpn_train', 'semantic_fpn_test',
        'pictures', 'total',
    ]  # fmt: skip
    total = seconds.pop('total')
    # The methods run side by side.
    assert max(seconds.values()) - 0.5 < total < sum(seconds.values()) + 0.5


def test_the_seed_reaches_the_training(finished):
    for run in runs(finished):
        (saved,) = run.folder.glob('*_shapes.py')
        assert 'seed=3' in saved.read_text()


def test_curves_hold_every_iteration_and_validation(finished):
    for run in runs(finished):
        assert [step for step, _ in run.losses()] == [1, 2, 3, 4]
        for points in run.validations().values():
            assert [step for step, _ in points] == [2, 4]
        last = {name: points[-1][1] for name, points in run.validations().items()}
        assert last == pytest.approx(run.scores())  # the last weights are those that are tested


def test_pictures_are_drawn(finished):
    sheet, curves = (
        mmcv.imread(finished / name) for name in ('contact_sheet.png', 'learning_curves.png')
    )

    assert min(sheet.shape[:2]) > 1000
    assert min(curves.shape[:2]) > 600
    for rgb in PALETTE:  # in the legend at least, and in the truth
        assert (sheet == rgb[::-1]).all(axis=-1).sum() > 200


def test_the_sheet_shows_the_truth_and_what_was_predicted(finished, shapes):
    from matplotlib import pyplot

    detector, segmentor = runs(finished)
    truth = json.loads((shapes / 'annotations' / 'instances_val.json').read_text())['annotations']
    of_first = [figure for figure in truth if figure['image_id'] == 0]
    sure = [dict(figure, score=0.9) for figure in of_first[1:]]
    unsure = [dict(of_first[0], score=0.1)]
    files = detector.predictions.with_suffix('.segm.json')
    kept = files.read_text()
    files.write_text(json.dumps(sure + unsure))
    figure, panels = pyplot.subplots(1, 4)

    layers = [
        *LAYERS['instance'](detector, shapes),
        *LAYERS['semantic'](segmentor, shapes),
    ]
    for panel, draw in zip(panels, layers, strict=True):
        draw(panel, '000000.png')
    files.write_text(kept)

    boxes = [[patch.get_bbox().bounds[2:] for patch in panel.patches] for panel in panels[:2]]
    assert boxes[0] == [tuple(figure['bbox'][2:]) for figure in of_first]
    assert boxes[1] == boxes[0][1:]  # who is not sure is not shown
    assert [text.get_text() for text in panels[1].texts] == ['0.90'] * len(sure)
    for panel, folder in zip(
        panels[2:], (shapes / 'semantic' / 'val', segmentor.predictions), strict=True
    ):
        labels = mmcv.imread(folder / '000000.png', 'unchanged')
        np.testing.assert_array_equal(
            panel.images[-1].get_array(), np.array(SEMANTIC_PALETTE)[labels]
        )
    pyplot.close(figure)
