"""Without timm, or with a torchvision that does not fit, the bridge says what to install."""

import importlib
import sys
from importlib.util import find_spec

import pytest


@pytest.mark.parametrize('missing', ['timm', 'torchvision'])
def test_what_is_missing_is_named_with_the_command_that_installs_it(missing, monkeypatch, tmp_path):
    (tmp_path / 'timm.py').write_text(f'import {missing}' if missing != 'timm' else '')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, missing, None)

    message = rf'{missing} is missing: pip install "mminline\[timm\]"$'
    with pytest.raises(ModuleNotFoundError, match=message):
        importlib.import_module('mminline.timm_models')


def test_a_torchvision_built_for_another_torch_is_told_from_a_missing_one(monkeypatch, tmp_path):
    error = 'raise RuntimeError("operator torchvision::nms does not exist")'
    (tmp_path / 'timm.py').write_text(error)
    monkeypatch.syspath_prepend(tmp_path)

    message = r'built for the installed torch .*nms does not exist\): install both from one index'
    with pytest.raises(ImportError, match=message):
        importlib.import_module('mminline.timm_models')


@pytest.mark.skipif(not sys.flags.isolated, reason='make test runs it, in .venv')
def test_the_main_environment_has_neither_timm_nor_torchvision():
    # torchvision would break the import of mmseg beside a CPU build of torch.
    assert find_spec('torchvision') is None
    assert find_spec('timm') is None
