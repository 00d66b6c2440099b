"""``tools/train.py`` and ``tools/test.py``: runs on Shapes, resuming, and what they refuse."""

import importlib.util
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from helpers.shipped_configs import CONFIGS, ROOT
from helpers.tiny_configs import SEGMENTOR, TOOLS

pytestmark = pytest.mark.slow


@pytest.fixture
def config(shapes, tmp_path, monkeypatch) -> Path:
    """A small segmentor in a folder of its own, with the data beside it."""
    (tmp_path / 'shapes').symlink_to(shapes)
    (tmp_path / 'small.py').write_text(SEGMENTOR)
    monkeypatch.chdir(tmp_path)
    return Path('small.py')


def iterations(text: str) -> list[int]:
    return [int(number) for number in re.findall(r'Iter\(train\) \[ *(\d+)/', text)]


def test_a_segmentor_trains_and_is_tested(config, run, capsys):
    run('train.py', config)
    trained = capsys.readouterr().out
    run('test.py', config, 'work_dirs/small/iter_4.pth', '--work-dir', 'tested')
    tested = capsys.readouterr().out

    assert iterations(trained) == [1, 2, 3, 4]
    scores = [re.findall(r'mIoU: [\d.]+', text)[-1] for text in (trained, tested)]
    assert scores[0] == scores[1]
    assert list(Path('tested').glob('*/*.json'))


def test_resuming_passes_over_a_checkpoint_that_was_cut_off(config, run, capsys):
    run('train.py', config, '--work-dir', 'work')
    last = Path('work/iter_4.pth')
    weights = torch.load(last)['state_dict']
    last.write_bytes(last.read_bytes()[:-1000])
    capsys.readouterr()

    run('train.py', config, '--work-dir', 'work', '--resume')

    captured = capsys.readouterr()
    assert re.search(r'Passed over: .*cut off.*iter_4\.pth', captured.err)
    assert iterations(captured.out) == [3, 4]
    assert torch.load(last)['state_dict'].keys() == weights.keys()


def test_resuming_needs_no_pretrained_weights(config, run, capsys):
    run('train.py', config, '--cfg-options', 'train_cfg.max_iters=2')
    capsys.readouterr()

    nowhere = 'model.backbone.init_cfg.checkpoint=nowhere.pth'
    resume = Path('work_dirs/small/iter_2.pth')
    run(
        'train.py', config, '--resume', resume, '--cfg-options',
        'model.backbone.init_cfg.type=Pretrained', nowhere,
    )  # fmt: skip

    assert iterations(capsys.readouterr().out) == [3, 4]


def test_resuming_an_empty_folder_starts_at_the_beginning(config, run, capsys):
    run('train.py', config, '--resume', '--cfg-options', 'train_cfg.max_iters=2')

    captured = capsys.readouterr().out
    assert 'No checkpoint in work_dirs/small yet' in captured
    assert iterations(captured) == [1, 2]


def test_resuming_says_so_when_no_checkpoint_is_whole(config, run):
    Path('work').mkdir()
    Path('work/iter_2.pth').write_bytes(b'PK')

    with pytest.raises(SystemExit, match='No checkpoint in work is whole'):
        run('train.py', config, '--work-dir', 'work', '--resume')


def test_resuming_names_a_checkpoint_that_is_not_there(config, run):
    with pytest.raises(SystemExit, match=r'no checkpoint nowhere\.pth'):
        run('train.py', config, '--resume', 'nowhere.pth')


@pytest.mark.parametrize('tool', ['train.py', 'test.py'])
def test_a_config_that_is_not_there_is_named(run, tool):
    with pytest.raises(SystemExit, match=r'no config nowhere\.py'):
        run(tool, 'nowhere.py', *['weights.pth'] * (tool == 'test.py'))


def test_data_that_is_not_there_is_named(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stem = 'mask-rcnn_inline-pvt-t_fpn_1x_coco'

    with pytest.raises(
        SystemExit, match='The train data is not there: data/coco/.*cocodataset.org'
    ):
        run('train.py', CONFIGS / 'detection' / f'{stem}.py')


@pytest.mark.parametrize(
    ('checkpoint', 'message'),
    [
        ('nowhere/backbone.pth', 'there is none at nowhere/backbone.pth'),
        ('inline://pvt-tiny', 'no checkpoint from http://127.0.0.1:9/.*random weights'),
    ],
)
def test_weights_that_are_not_there_are_named(config, run, monkeypatch, checkpoint, message):
    monkeypatch.setenv('TORCH_HOME', 'hub')
    monkeypatch.setenv('MMINLINE_WEIGHTS_URL', 'http://127.0.0.1:9')  # nobody listens there

    with pytest.raises(SystemExit, match=message):
        run(
            'train.py', config, '--cfg-options', 'model.backbone.init_cfg.type=Pretrained',
            f'model.backbone.init_cfg.checkpoint={checkpoint}',
        )  # fmt: skip


def test_weights_of_a_baseline_are_named_when_they_cannot_be_fetched(config, run, monkeypatch):
    monkeypatch.setenv('TORCH_HOME', 'hub')
    address = 'http://127.0.0.1:9/swin.pth'
    config.write_text(
        SEGMENTOR
        + f"""
model['backbone'] = dict(
    _delete_=True,
    type='SwinTransformer',
    embed_dims=8,
    num_heads=(1, 1, 1, 1),
    init_cfg=dict(type='Pretrained', checkpoint='{address}'),
)
"""
    )

    advice = r'put it as \w+-swin\.pth into .*init_cfg=None'
    with pytest.raises(SystemExit, match=f'no checkpoint from {address}: .*{advice}'):
        run('train.py', config)


def test_a_checkpoint_of_the_backbone_alone_is_no_tested_model(config, run):
    torch.save({'state_dict': {'backbone.norm.weight': torch.ones(1)}}, 'backbone.pth')

    with pytest.raises(SystemExit, match=r'backbone\.pth has to hold the whole model'):
        run('test.py', config, 'backbone.pth')


def test_a_missing_checkpoint_is_named(config, run):
    with pytest.raises(SystemExit, match=r'no checkpoint nowhere\.pth'):
        run('test.py', config, 'nowhere.pth')


@pytest.mark.skipif(torch.cuda.is_available(), reason='there is a GPU')
@pytest.mark.filterwarnings('ignore:This CPU has no instructions for bfloat16')
def test_mixed_precision_trains_and_tests_on_a_cpu(config, run, capsys):
    run('train.py', config, '--amp')
    trained = capsys.readouterr().out
    run('test.py', config, 'work_dirs/small/iter_4.pth', '--precision', 'bfloat16')

    assert 'BFloat16OptimWrapper' in trained
    assert iterations(trained) == [1, 2, 3, 4]
    assert re.search(r'mIoU: [\d.]+', capsys.readouterr().out)


def test_losses_and_scores_go_to_tensorboard(config, run):
    pytest.importorskip('tensorboard', reason='tensorboard is not installed')
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    # A name of its own: mmengine keeps visualizers for as long as a process lives.
    run('train.py', config, '--tensorboard', '--cfg-options', 'visualizer.name=watched')

    (folder,) = Path('work_dirs/small').glob('*/vis_data')
    events = EventAccumulator(str(folder)).Reload()
    assert [event.step for event in events.Scalars('loss')] == [1, 2, 3, 4]
    assert len(events.Scalars('mIoU')) == 1
    assert list(folder.glob('*.json'))  # the usual log is still there


def test_tensorboard_that_is_not_installed_is_named(config, run, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, 'find_spec', lambda name: None if name == 'tensorboard' else found(name)
    )

    with pytest.raises(SystemExit, match='--tensorboard needs .* pip install tensorboard'):
        run('train.py', config, '--tensorboard')


def test_the_rate_is_scaled_with_the_number_of_images(config, run, capsys):
    run('train.py', config, '--auto-scale-lr', '--cfg-options', 'train_cfg.max_iters=1')

    # 2 images at a time where the rate of 2e-4 is for 16.
    assert re.search(r'Iter\(train\).*  lr: 2\.5000e-05', capsys.readouterr().out)


def test_ctrl_c_ends_a_run_without_a_traceback(config):
    config.write_text(SEGMENTOR + "train_cfg['max_iters'] = 100000\n")
    command = [sys.executable, TOOLS / 'train.py', config]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Shells make programs in the background deaf to it, and that is handed down.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as run:
        for line in run.stdout:
            if iterations(line):
                run.send_signal(signal.SIGINT)
                break
        _, errors = run.communicate(timeout=60)

    assert run.returncode == 130
    assert 'Interrupted' in errors
    assert 'Traceback' not in errors


@pytest.mark.parametrize('kind', ['detector', 'segmentor'])
def test_the_guide_to_your_own_data_works_as_it_is_written(tmp_path, kind):
    guide = (ROOT / 'docs' / 'your_data.md').read_text()
    configs = [text for text in re.findall(r'```python\n(.*?)```', guide, re.S) if '_base_' in text]
    commands = [
        shlex.split(text.replace('\\\n', ' '))
        for text in re.findall(r'```bash\n(.*?)```', guide, re.S)
    ]
    draw, *trials = [
        command
        for command in commands
        if 'make_shapes.py' in command[1] or 'work_dirs/try' in command
    ]
    number = ['detector', 'segmentor'].index(kind)
    (tmp_path / f'my_{kind}.py').write_text(configs[number])
    (tmp_path / 'configs').symlink_to(CONFIGS)
    (tmp_path / 'tools').symlink_to(TOOLS)

    for command in (draw, trials[number]):
        subprocess.run([sys.executable, *command[1:]], cwd=tmp_path, check=True, timeout=600)

    assert f'my_{kind}.py' in trials[number]
    assert list((tmp_path / 'work_dirs' / 'try').glob('*.pth'))
