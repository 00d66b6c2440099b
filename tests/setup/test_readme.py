"""What the README shows works as it stands there."""

import re
from pathlib import Path

import pytest
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

ROOT = Path(__file__).parents[2]
README = (ROOT / 'README.md').read_text()


@pytest.mark.parametrize('library', ['mmdet', 'mmseg'])
def test_the_config_builds_a_model(tmp_path, library):
    (block,) = re.findall(rf"```python\n(_base_ = '{library}.*?)```", README, re.S)
    (tmp_path / 'config.py').write_text(block)
    config = Config.fromfile(tmp_path / 'config.py')
    init_default_scope(config.default_scope)
    model = MODELS.build(config.model)

    assert type(model.backbone).__name__ == 'InLinePVT'
    assert model.backbone.out_channels == tuple(config.model.neck.in_channels)


def test_the_make_targets_of_its_commands_exist():
    makefile = (ROOT / 'Makefile').read_text()
    commands = [
        line for block in re.findall(r'```sh\n(.*?)```', README, re.S) for line in block.split('\n')
    ]
    named = {line.split()[1] for line in commands if line.startswith('make ')}

    assert named >= {'demo', 'test'}
    assert named <= set(re.findall(r'^([\w-]+):', makefile, re.M))
