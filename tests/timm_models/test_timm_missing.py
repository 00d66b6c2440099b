"""Without timm and torchvision mminline works, and the bridge to timm says what to install."""

import importlib
import subprocess
import sys
from unittest.mock import patch

import pytest

import mminline  # noqa: F401

pytestmark = pytest.mark.slow

# make test isolates Python, so that the installed wheel is tested and not the source tree.
PYTHON = [sys.executable, '-I'] if sys.flags.isolated else [sys.executable]


@pytest.fixture
def fake_timm(monkeypatch, tmp_path):
    """A function that puts a module of a given text in the place of timm."""
    monkeypatch.syspath_prepend(tmp_path)
    with patch.dict(sys.modules):
        for name in [*sys.modules]:
            if name.partition('.')[0] == 'timm' or name.startswith('mminline.timm_models'):
                del sys.modules[name]
        yield (tmp_path / 'timm.py').write_text


@pytest.mark.parametrize('missing', ['timm', 'torchvision'])
def test_what_is_missing_is_named_with_the_command_that_installs_it(missing, fake_timm):
    fake_timm(f'import {missing}')
    sys.modules[missing] = None

    message = rf'{missing} is missing: pip install "mminline\[timm\]"$'
    with pytest.raises(ModuleNotFoundError, match=message):
        importlib.import_module('mminline.timm_models')


def test_a_torchvision_built_for_another_torch_is_told_from_a_missing_one(fake_timm):
    fake_timm('raise RuntimeError("operator torchvision::nms does not exist")')

    message = r'built for the installed torch .*nms does not exist\): install both from one index'
    with pytest.raises(ImportError, match=message):
        importlib.import_module('mminline.timm_models')


def test_backbones_work_beside_the_stack_where_neither_can_be_imported():
    code = (
        'import sys; sys.modules.update(timm=None, torchvision=None)\n'
        'import mmdet.models, mmseg.models, torch\n'
        'from mmengine.registry import MODELS\n'
        'from mmengine.utils.dl_utils import collect_env\n'
        'backbone = MODELS.build(dict(type="mminline.InLinePVT", arch="tiny"))\n'
        'assert len(backbone(torch.rand(1, 3, 64, 64))) == 4\n'
        'assert "TorchVision" not in collect_env()'
    )

    subprocess.run([*PYTHON, '-W', 'ignore', '-c', code], check=True)
