"""The second environment: whole by itself, and on top of the main one."""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PINS = re.findall(r'^(\S+)==(\S+)$', (ROOT / 'requirements' / 'timm.txt').read_text(), re.M)


def test_the_pinned_versions_are_installed():
    assert {name: metadata.version(name).partition('+')[0] for name, _ in PINS} == dict(PINS)


@pytest.mark.parametrize('name', [name for name, _ in PINS])
def test_nothing_is_missing_though_dependencies_were_left_out(name):
    for line in metadata.requires(name) or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({'extra': ''}):
            assert requirement.specifier.contains(metadata.version(requirement.name)), line


@pytest.mark.skipif(not sys.flags.isolated, reason='make test runs it, in .venv-timm')
def test_the_stack_and_mminline_are_those_of_the_main_environment():
    main, second = ROOT / '.venv', ROOT / '.venv-timm'
    homes = {name: Path(metadata.distribution(name).locate_file('')) for name, _ in PINS}

    assert all(home.is_relative_to(second) for home in homes.values())
    for name in ('torch', 'mmengine', 'mmcv', 'mminline', 'pytest'):
        assert Path(metadata.distribution(name).locate_file('')).is_relative_to(main)


@pytest.mark.skipif(not sys.flags.isolated, reason='make test runs it, in .venv-timm')
def test_any_program_there_can_import_torchvision_and_the_stack():
    code = 'import torchvision, timm, mmseg.models, mmdet.models, mminline.timm_models'

    subprocess.run([sys.executable, '-I', '-W', 'ignore', '-c', code], check=True)
