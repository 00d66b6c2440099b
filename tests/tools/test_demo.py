"""``tools/demo.py``: what it trains, what it makes of finished runs, what it refuses."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import mmcv
import numpy as np
import pytest
from mmengine.runner import Runner

from helpers.shipped_configs import CONFIGS, ROOT, load
from mminline.datasets import CLASSES, PALETTE, SEMANTIC_CLASSES, SEMANTIC_PALETTE, write_shapes

TOOLS = ROOT / 'tools'
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
def tools():
    """The demo and its helpers as modules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TOOLS)
        import demo

        yield demo
    for name in [name for name in sys.modules if name.startswith(('demo', '_demo'))]:
        del sys.modules[name]


@pytest.fixture(scope='module')
def shapes(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp('demo') / 'data' / 'shapes'
    write_shapes(root, train=8, val=6, size=64)
    return root


@pytest.fixture(scope='module')
def finished(tools, shapes):
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
        patch.setattr(tools, 'draw_data', lambda: None)
        patch.setattr(tools._support, 'run_logged', run_tool)
        tools.main(['--seed', '3', '--work-dir', str(folder)])
    return folder


def runs(tools, folder: Path) -> list:
    return [tools.Run(method, folder / method.key) for method in tools.METHODS]


@pytest.mark.parametrize('stem', SHAPES)
def test_a_short_training_lowers_the_loss(stem, shapes, tmp_path):
    config = load(stem)
    config.work_dir = str(tmp_path)
    config.train_dataloader.update(batch_size=4, num_workers=0, persistent_workers=False)
    config.train_dataloader.dataset.data_root = str(shapes)
    config.train_cfg = dict(type='IterBasedTrainLoop', max_iters=12)
    config.val_cfg = config.val_dataloader = config.val_evaluator = None
    config.default_hooks.logger.interval = config.log_processor.window_size = 1
    config.visualizer.name = stem  # mmengine goes on with an older one of the same name
    config.param_scheduler = None
    config.randomness = dict(seed=0)

    Runner.from_cfg(config).train()

    (log,) = tmp_path.glob('*/vis_data/scalars.json')
    losses = [json.loads(line)['loss'] for line in log.read_text().splitlines()]
    assert len(losses) == 12
    assert np.mean(losses[-3:]) < 0.85 * np.mean(losses[:3])


def test_configs_name_and_colour_classes_as_the_data_set_does():
    for stem in SHAPES:
        semantic = stem.startswith(('semantic', 'upernet'))
        classes, palette = (SEMANTIC_CLASSES, SEMANTIC_PALETTE) if semantic else (CLASSES, PALETTE)
        config = load(stem)
        for split in ('train', 'val', 'test'):
            metainfo = config[f'{split}_dataloader'].dataset.metainfo
            assert tuple(metainfo.classes) == classes
            assert tuple(map(tuple, metainfo.palette)) == palette


def test_the_demo_has_a_method_for_each_config_of_shapes(tools):
    configs = [method.config for method in tools.METHODS + tools.MORE_METHODS]

    assert sorted(configs) == [f'{stem}.py' for stem in SHAPES]


def test_results_are_the_scores_of_the_tests_as_fractions(tools, finished):
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


def test_the_seed_reaches_the_training(tools, finished):
    for run in runs(tools, finished):
        (saved,) = run.folder.glob('*_shapes.py')
        assert 'seed=3' in saved.read_text()


def test_curves_hold_every_iteration_and_validation(tools, finished):
    for run in runs(tools, finished):
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


def test_the_sheet_shows_the_truth_and_what_was_predicted(tools, finished, shapes):
    from matplotlib import pyplot

    import _demo_pictures

    detector, segmentor = runs(tools, finished)
    truth = json.loads((shapes / 'annotations' / 'instances_val.json').read_text())['annotations']
    of_first = [figure for figure in truth if figure['image_id'] == 0]
    sure = [dict(figure, score=0.9) for figure in of_first[1:]]
    unsure = [dict(of_first[0], score=0.1)]
    files = detector.predictions.with_suffix('.segm.json')
    kept = files.read_text()
    files.write_text(json.dumps(sure + unsure))
    figure, panels = pyplot.subplots(1, 4)

    layers = [
        *_demo_pictures.LAYERS['instance'](detector, shapes),
        *_demo_pictures.LAYERS['semantic'](segmentor, shapes),
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


def test_results_of_an_earlier_demo_are_kept(tools, tmp_path, capsys):
    folder = tmp_path / 'demo'
    for number in range(3):
        tools.make_room(folder)
        assert [path.name for path in folder.iterdir()] == ['demo.log']
        (folder / 'results.json').write_text(str(number))

    assert (tmp_path / 'demo.1' / 'results.json').read_text() == '0'
    assert (tmp_path / 'demo.2' / 'results.json').read_text() == '1'
    assert str(tmp_path / 'demo.2') in capsys.readouterr().out


def test_what_an_interrupted_demo_left_is_replaced(tools, tmp_path):
    tools.make_room(tmp_path)
    (tmp_path / 'mask_rcnn').mkdir()

    tools.make_room(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ['demo.log']


def test_a_folder_of_something_else_is_left_alone(tools, tmp_path):
    (tmp_path / 'thesis.tex').touch()

    with pytest.raises(SystemExit, match='--work-dir has to be empty or of an earlier demo'):
        tools.main(['--work-dir', str(tmp_path)])

    assert [path.name for path in tmp_path.iterdir()] == ['thesis.tex']


def test_a_file_is_no_folder_for_results(tools, tmp_path):
    (tmp_path / 'file').touch()

    with pytest.raises(SystemExit, match='--work-dir has to be a folder, got .*file'):
        tools.main(['--work-dir', str(tmp_path / 'file')])


def test_other_data_in_the_place_of_shapes_is_named(tools, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_shapes('data/shapes', train=1, val=1, size=64)

    with pytest.raises(SystemExit, match='train is 1 there.*Move data/shapes away'):
        tools.main([])


def test_a_bad_seed_is_refused(tools, capsys):
    with pytest.raises(SystemExit):
        tools.main(['--seed', '-1'])

    assert '--seed has to be at least 0, got --seed -1' in capsys.readouterr().err


def test_the_time_left_follows_the_pace(tools, monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(time, 'monotonic', lambda: now[0])
    progress = tools.Progress(dict(train=100.0, test=20.0))

    with progress.part('train', 'training') as report:
        now[0] = 100.0  # twice as slow as foretold
        report('... Iter(train) [300/600]  lr: 1e-3  loss: 1.2345  loss_cls: 0.5')
        left = progress.time_left()
        now[0] = 101.0
        report('... Iter(train) [310/600]  lr: 1e-3  loss: 1.1  loss_cls: 0.5')
        now[0] = 200.0

    assert left == pytest.approx(2 * (50 + 20))
    printed = capsys.readouterr().out
    assert '[1/2] training: 300/600, loss 1.23, 2:20 to the end' in printed
    assert '310/600' not in printed  # not a terminal: a line now and then
    assert '[1/2] training: 3:20' in printed
    assert progress.seconds == dict(train=200.0)


def test_parts_at_the_same_time_are_shown_together(tools, monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(time, 'monotonic', lambda: now[0])
    progress = tools.Progress(dict(first=100.0, second=100.0))

    with progress.part('first', 'one') as first, progress.part('second', 'two') as second:
        now[0] = 30.0
        first('Iter(train) [10/100]  loss: 2.0')
        now[0] = 60.0
        second('Iter(train) [50/100]  loss: 1.0')

    expected = '[1/2] one: 10/100, loss 2.00; [2/2] two: 50/100, loss 1.00, 2:20 to the end'
    assert expected in capsys.readouterr().out


def test_a_run_that_fails_ends_the_others(tools, tmp_path, monkeypatch):
    started = []

    def fail_or_wait(run, seed, progress):
        if run == 'fails':
            raise tools._support.UserError('no disk')
        with progress.part('waits', 'waiting') as report:
            started.append(run)
            for _ in range(200):
                time.sleep(0.05)
                report('a line')
            started.append('came to the end')

    monkeypatch.setattr(tools, 'train_and_test', fail_or_wait)
    monkeypatch.setattr(os, 'cpu_count', lambda: 2)
    with pytest.raises(tools._support.UserError, match='no disk'):
        tools.do_all(['waits', 'fails'], 0, tools.Progress(dict(waits=1.0)))

    assert started == ['waits']


def test_an_interruption_ends_all_that_was_started(tools, tmp_path):
    child = 'import os, time; print(os.getpid(), flush=True); time.sleep(60)'
    code = f'import subprocess, sys; subprocess.run([sys.executable, "-c", {child!r}])'
    started = []

    def interrupt(line: str) -> None:
        started.append(int(line))
        raise KeyboardInterrupt

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        tools._support.run_logged(
            [sys.executable, '-c', code], tmp_path / 'log', dict(os.environ), interrupt
        )

    assert time.monotonic() - begin < 20
    with pytest.raises(ProcessLookupError):
        for _ in range(100):  # whoever adopts orphans may take a moment to bury this one
            os.kill(started[0], signal.SIG_DFL)
            time.sleep(0.05)


def test_an_interrupted_demo_says_how_to_go_on(tools, tmp_path, monkeypatch):
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tools, 'draw_data', interrupt)

    with pytest.raises(SystemExit, match='interrupted; run it again, it starts from the beginning'):
        tools.main(['--work-dir', str(tmp_path / 'demo')])
