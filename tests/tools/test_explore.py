"""``tools/explore.py``: what it refuses, and a server that starts and cleans up."""

import os
import re
import signal
import subprocess
import sys

import pytest
import torch

from helpers import explored
from helpers.server import free_port
from helpers.tiny_configs import SEGMENTOR, TOOLS


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['--demo', '{folder}'], 'there are no trained models in .*: run make demo first'),
        (['nothing.py', 'nothing.pth'], r'no checkpoint nothing.pth'),
        (['{config}', '{checkpoint}', 'nowhere'], 'there is no folder nowhere'),
        (
            ['{config}', '{checkpoint}', '--name', 'a', '--also', 'a={config}'],
            'models have to have different names, got a, a',
        ),
    ],
)
def test_mistakes_are_named(run, tmp_path, arguments, message):
    files = write_model(tmp_path)
    words = [word.format(folder=tmp_path, **files) for word in arguments]
    with pytest.raises(SystemExit, match=f'explore: .*{message}'):
        run('explore.py', *words)


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ([], 'CONFIG and CHECKPOINT are needed, or --demo FOLDER'),
        (['config.py'], 'CONFIG and CHECKPOINT are needed'),
        (['config.py', '--demo', 'folder'], 'leave CONFIG and --name out'),
        (['--demo', 'folder', '--name', 'ours'], 'leave CONFIG and --name out'),
        (['config.py', 'a.pth', '--also', 'b.py'], r'has to be NAME=CONFIG\[,CHECKPOINT\]'),
    ],
)
def test_options_that_cannot_work_are_named(run, capsys, arguments, message):
    with pytest.raises(SystemExit):
        run('explore.py', *arguments)
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.slow
@pytest.mark.parametrize('ending', [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_server_ends_cleanly_and_leaves_no_files(tmp_path, ending):
    files, folder = write_model(tmp_path), tmp_path / 'temporary'
    folder.mkdir()
    command = [sys.executable, TOOLS / 'explore.py', files['config'], files['checkpoint']]
    with subprocess.Popen(
        [*map(str, command), '--port', str(free_port())],
        env=os.environ | dict(TMPDIR=str(folder), OMP_NUM_THREADS='1'),
        stdout=subprocess.PIPE,
        text=True,
        # Whoever runs the tests in the background has these signals ignored.
        preexec_fn=restore_signals,
    ) as process:
        line = process.stdout.readline()
        assert 'Open http://127.0.0.1:' in line
        assert list(folder.glob('mminline-explore-*'))
        process.send_signal(ending)
        process.wait(timeout=60)

    assert process.returncode == 0
    assert not list(folder.glob('mminline-explore-*'))


def restore_signals() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def write_model(folder) -> dict[str, str]:
    config, checkpoint = folder / 'config.py', folder / 'model.pth'
    config.write_text(SEGMENTOR)
    torch.save(dict(state_dict=explored.build('segmentor').state_dict()), checkpoint)
    return dict(config=str(config), checkpoint=str(checkpoint))
