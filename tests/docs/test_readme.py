"""Configs and commands of the README, run as they are written."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

ROOT = Path(__file__).parents[2]
README = (ROOT / 'README.md').read_text()
SHELL = re.findall(r'```sh\n(.*?)```', README, re.S)


@pytest.mark.parametrize('library', ['mmdet', 'mmseg'])
def test_the_config_builds_a_model(tmp_path, library):
    (block,) = re.findall(rf"```python\n(_base_ = '{library}.*?)```", README, re.S)
    (tmp_path / 'config.py').write_text(block)
    config = Config.fromfile(tmp_path / 'config.py')
    init_default_scope(config.default_scope)
    model = MODELS.build(config.model)

    assert type(model.backbone).__name__ == 'InLinePVT'
    assert model.backbone.out_channels == tuple(config.model.neck.in_channels)


@pytest.mark.parametrize('command', re.findall('^make .*', '\n'.join(SHELL), re.M))
def test_make_knows_what_its_commands_ask_for(command):
    words = shlex.split(re.sub('<.*?>', 'value', command), comments=True)

    subprocess.run([*words, '--dry-run'], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
