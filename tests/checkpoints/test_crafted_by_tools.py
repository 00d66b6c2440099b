"""Crafted files are refused by the programs, too."""

import importlib.util
from pathlib import Path

import pytest
import torch

from helpers.crafted import CRAFTED
from helpers.tiny_configs import SEGMENTOR
from mminline.checkpoints import UnsafeCheckpointError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec('mmseg') is None, reason='needs mmsegmentation'),
]
write_call, _ = CRAFTED['call of the system']
REFUSED = r'crafted\.pth.* is refused, and nothing in it was run: it asks for \w+\.system\.'


@pytest.fixture
def config(shapes, tmp_path, monkeypatch) -> Path:
    """A small segmentor in a folder of its own, with the data and a crafted file beside it."""
    (tmp_path / 'shapes').symlink_to(shapes)
    (tmp_path / 'small.py').write_text(SEGMENTOR)
    monkeypatch.chdir(tmp_path)
    write_call(Path('crafted.pth'), Path('mark'))
    return Path('small.py')


@pytest.fixture
def image(config) -> Path:
    return Path('shapes/images/train/000000.png')


def refuses(run, *arguments) -> None:
    with pytest.raises((UnsafeCheckpointError, SystemExit), match=REFUSED):
        run(*arguments)
    assert not Path('mark').exists()


def test_a_run_is_not_resumed_from_it(config, run):
    refuses(run, 'train.py', config, '--resume', 'crafted.pth')


@pytest.mark.parametrize('place', ['file', 'http'], indirect=True)
def test_a_run_does_not_begin_with_it(config, run, place):
    address = place(Path('crafted.pth'))
    refuses(run, 'train.py', config, '--cfg-options', f'load_from={address}')


@pytest.mark.parametrize('place', ['file', 'http'], indirect=True)
def test_a_backbone_does_not_begin_with_it(config, run, place):
    initial = f"dict(type='Pretrained',checkpoint='{place(Path('crafted.pth'))}')"
    with Path('small.py').open('a') as file:
        file.write(f'\nmodel["backbone"]["init_cfg"] = {initial}\n')
    refuses(run, 'train.py', config)


def test_it_is_not_tested(config, run):
    refuses(run, 'test.py', config, 'crafted.pth')


@pytest.mark.parametrize('place', ['file', 'http'], indirect=True)
def test_no_image_is_predicted_with_it(config, run, place, image):
    refuses(run, 'infer.py', config, place(Path('crafted.pth')), image)


def test_resuming_by_itself_passes_over_it(config, run, capsys):
    run('train.py', config, '--work-dir', 'work')
    Path('crafted.pth').replace('work/iter_6.pth')
    capsys.readouterr()

    run(
        'train.py',
        config,
        '--work-dir',
        'work',
        '--resume',
        '--cfg-options',
        'train_cfg.max_iters=5',
    )

    captured = capsys.readouterr()
    assert 'Passed over: work/iter_6.pth is refused' in captured.err
    assert 'Iter(train) [5/5]' in captured.out
    assert not Path('mark').exists()
    assert torch.load('work/iter_4.pth')['meta']['iter'] == 4
