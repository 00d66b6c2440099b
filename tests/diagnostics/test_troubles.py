"""Known troubles of an installation are found, and named with their cure."""

import importlib.util

import pytest

from mminline.diagnostics import collect_versions, find_troubles, stacks, troubles, versions


def texts() -> str:
    return ' '.join(trouble.text for trouble in find_troubles())


def test_this_environment_has_no_serious_trouble(monkeypatch):
    monkeypatch.setenv('ONEDNN_MAX_CPU_ISA', 'AVX512_CORE_FP16')

    assert [trouble.text for trouble in find_troubles() if trouble.is_serious] == []


def test_versions_are_those_that_are_installed(installed):
    installed('mmengine', 'torch')

    assert list(collect_versions()) == ['mmengine', 'torch', 'Python', 'system']


def test_two_stacks_over_each_other_are_found(installed):
    installed('mmcv', 'onedl-mmcv', 'mmdet')
    assert stacks() == dict(classic=['mmcv', 'mmdet'], onedl=['onedl-mmcv'])
    assert 'Two stacks with the same modules are installed over each other' in texts()

    # The original mim works with the forks.
    installed('openmim', 'onedl-mmcv')
    assert 'Two stacks' not in texts()


@pytest.mark.parametrize(
    ('missing', 'found'),
    [
        ('pkg_resources', 'has no pkg_resources'),
        ('mmcv._ext', 'compiled operators of mmcv'),
        ('torchvision', 'built for another torch'),
        ('ftfy', 'mmseg imports ftfy'),
    ],
)
def test_a_module_that_is_missing_is_named(missing, found, monkeypatch):
    find_spec, imports = importlib.util.find_spec, importlib.import_module

    def import_module(name):
        if name == missing:
            raise RuntimeError('operator torchvision::nms does not exist')
        return imports(name)

    monkeypatch.setattr(
        importlib.util, 'find_spec', lambda name: None if name == missing else find_spec(name)
    )
    monkeypatch.setattr(importlib, 'import_module', import_module)

    assert found in texts()


@pytest.mark.parametrize(
    ('name', 'command'), [('mmcv', 'mmcv.py --out'), ('onedl-mmcv', 'mmcv.py --stack onedl --out')]
)
def test_the_mmcv_of_the_stack_is_to_be_built(name, command, installed, monkeypatch):
    installed(name)
    monkeypatch.setattr(troubles, '_imports', lambda module: module != 'mmcv._ext')

    (trouble,) = (trouble for trouble in find_troubles() if 'operators of mmcv' in trouble.text)
    assert command in trouble.cure


def test_processors_are_known_by_their_flags(monkeypatch):
    monkeypatch.delenv('ONEDNN_MAX_CPU_ISA', raising=False)
    monkeypatch.setattr(troubles, 'crashes', lambda: True)
    for flags, found in (
        ({'avx2'}, 'no instructions for bfloat16'),
        ({'amx_bf16', 'hypervisor'}, 'offers AMX'),
    ):
        monkeypatch.setattr(troubles, 'read_cpu_flags', lambda flags=flags: set(flags))
        assert found in texts()
    monkeypatch.setenv('ONEDNN_MAX_CPU_ISA', 'AVX512_CORE_FP16')
    assert 'AMX' not in texts()


def test_the_processor_has_a_name():
    assert versions.cpu_name()
