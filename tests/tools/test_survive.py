"""Training that is killed, at any moment, goes on where its last whole checkpoint stands."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from helpers.tiny_configs import DETECTOR, SEGMENTOR, TOOLS

pytestmark = pytest.mark.slow

# Kills its process halfway through the file that the environment names.
KILLER = """
import os, signal
from pathlib import Path
from mmengine.fileio import LocalBackend

def write_half(self, content, path):
    if Path(path).name == os.environ['KILLED_WRITING']:
        Path(path).write_bytes(content[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    Path(path).write_bytes(content)

LocalBackend.put = write_half
"""
STEP = {
    'segmentor': re.compile(r'Iter\(train\) \[ *(\d+)/'),
    'detector': re.compile(r'Epoch\(train\) +\[(\d+)\]\[ *(\d+)/'),
}
LONG = {'segmentor': ['train_cfg.max_iters=30'], 'detector': ['train_cfg.max_epochs=5']}
# Two iterations of each epoch; the segmentor has a checkpoint every two.
LAST = {'segmentor': ('iter_30.pth', 30), 'detector': ('epoch_5.pth', 10)}


@pytest.fixture
def folder(shapes, tmp_path, monkeypatch) -> Path:
    (tmp_path / 'shapes').symlink_to(shapes)
    (tmp_path / 'detector.py').write_text(DETECTOR)
    (tmp_path / 'segmentor.py').write_text(SEGMENTOR)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def steps(kind: str, text: str) -> list:
    """Iterations, or pairs of epoch and iteration, that were logged."""
    found = STEP[kind].findall(text)
    return [int(match) if kind == 'segmentor' else tuple(map(int, match)) for match in found]


@pytest.mark.parametrize('kind', ['segmentor', 'detector'])
def test_a_run_killed_on_its_way_goes_on_to_the_end(folder, run, capsys, kind):
    options = ['--work-dir', 'work', '--cfg-options', 'train_cfg.val_interval=30', *LONG[kind]]
    command = [sys.executable, TOOLS / 'train.py', f'{kind}.py', *options]
    third = {'segmentor': 5, 'detector': (3, 1)}[kind]  # a step after the second checkpoint
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as first:
        for line in first.stdout:
            if steps(kind, line) and steps(kind, line)[0] >= third:
                first.kill()
                break
        first.communicate(timeout=60)
    assert first.returncode == -signal.SIGKILL
    whole = sorted(Path('work').glob('*.pth'), key=os.path.getmtime)[-1]
    reached = torch.load(whole)['meta']['iter']

    run('train.py', f'{kind}.py', '--resume', *options)
    resumed = steps(kind, capsys.readouterr().out)
    name, iterations = LAST[kind]
    run('test.py', f'{kind}.py', Path('work') / name)

    assert 4 <= reached < iterations
    assert len(resumed) == iterations - reached
    assert resumed[-1] == {'segmentor': 30, 'detector': (5, 2)}[kind]
    assert torch.load(Path('work') / name)['meta']['iter'] == iterations
    assert {'segmentor': 'mIoU: ', 'detector': 'coco/segm_mAP: '}[kind] in capsys.readouterr().out


@pytest.fixture
def kill_writing(folder):
    """Train in a process that is killed halfway through writing a file."""
    (folder / 'killer.py').write_text(KILLER)
    (folder / 'killed.py').write_text(SEGMENTOR + "custom_imports = dict(imports=['killer'])\n")

    def train(name: str, *options: str) -> subprocess.CompletedProcess:
        command = [sys.executable, TOOLS / 'train.py', 'killed.py', '--work-dir', 'work']
        environment = {**os.environ, 'PYTHONPATH': str(folder), 'KILLED_WRITING': name}
        environment['PYTHONPATH'] += os.pathsep + os.environ.get('PYTHONPATH', '')
        return subprocess.run(
            [*command, '--cfg-options', *options], env=environment, capture_output=True, text=True,
            timeout=300,
        )  # fmt: skip

    return train


def test_a_run_killed_while_it_writes_goes_on_from_the_checkpoint_before(kill_writing, run, capsys):
    result = kill_writing('iter_4.pth', 'train_cfg.val_interval=8')
    assert result.returncode == -signal.SIGKILL
    assert Path('work/last_checkpoint').read_text().endswith('iter_2.pth')

    run('train.py', 'segmentor.py', '--work-dir', 'work', '--resume')

    captured = capsys.readouterr()
    assert re.search(r'Passed over: .*cut off.*iter_4\.pth', captured.err)
    assert steps('segmentor', captured.out) == [3, 4]
    assert torch.load('work/iter_4.pth')['meta']['iter'] == 4


def test_keeping_one_checkpoint_can_leave_none_and_is_warned_of(kill_writing, run):
    # mmengine removes the old one before it writes the new one.
    result = kill_writing(
        'iter_4.pth', 'train_cfg.val_interval=8', 'default_hooks.checkpoint.max_keep_ckpts=1'
    )
    assert result.returncode == -signal.SIGKILL
    assert 'Keeping one checkpoint is risky' in result.stderr
    assert [path.name for path in Path('work').glob('*.pth')] == ['iter_4.pth']

    with pytest.raises(SystemExit, match='No checkpoint in work is whole'):
        run('train.py', 'segmentor.py', '--work-dir', 'work', '--resume')
