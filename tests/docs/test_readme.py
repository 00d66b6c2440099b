"""Configs and commands of the README, run as they are written."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import mmcv
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from mminline.apis import init_model

pytestmark = pytest.mark.slow

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


def test_the_python_example_predicts_draws_and_saves(tmp_path, monkeypatch):
    (example,) = re.findall(r'```python\n(import mmcv\nfrom mminline.apis.*?)```', README, re.S)
    monkeypatch.chdir(tmp_path)
    mmcv.imwrite(np.full((64, 96, 3), 128, np.uint8), 'photo.jpg')
    config = ROOT / 'configs' / 'detection' / 'mask-rcnn_inline-pvt-nano_fpn_shapes.py'
    model = init_model(config, device='cpu')
    torch.save(dict(state_dict=model.state_dict()), 'checkpoint.pth')
    exec(example.replace("'config.py'", repr(str(config))), {})

    assert mmcv.imread('drawn.jpg').shape == (64, 96, 3)
    assert json.loads(Path('result.json').read_text()).keys() == {'height', 'width', 'instances'}


@pytest.mark.parametrize('command', re.findall('^make .*', '\n'.join(SHELL), re.M))
def test_make_knows_what_its_commands_ask_for(command):
    words = shlex.split(re.sub('<.*?>', 'value', command), comments=True)

    subprocess.run([*words, '--dry-run'], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
