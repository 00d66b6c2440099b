"""Bases of configs by name: ``mminline::``, and ``mmseg::`` from a fork."""

import shutil
from pathlib import Path

import pytest
from mmengine.config import Config
from mmengine.config.utils import MODULE2PACKAGE

from helpers.shipped_configs import CONFIGS, load
from mminline import config_bases

NAMES = [
    'detection/mask-rcnn_inline-pvt-nano_fpn_shapes.py',
    'detection/mask-rcnn_inline-pvt-t_fpn_1x_coco.py',
    'segmentation/semantic-fpn_inline-pvt-nano_shapes.py',
    'segmentation/upernet_inline-swin-t_160k_ade20k-512x512.py',
]


@pytest.fixture
def read(tmp_path):
    """Read a config of the user's with the given text."""

    def read_text(text: str) -> Config:
        path = tmp_path / 'mine.py'
        path.write_text(text)
        return Config.fromfile(path)

    return read_text


@pytest.mark.parametrize('name', NAMES)
def test_a_config_with_our_base_is_the_base(name, read):
    # Types have to resolve as in the base, so no scope may be added to them.
    assert read(f"_base_ = 'mminline::{name}'").to_dict() == load(name[:-3].split('/')[1]).to_dict()


def test_a_config_changes_and_uses_what_its_base_has(read):
    config = read(
        f"_base_ = 'mminline::{NAMES[0]}'\n"
        'model = dict(backbone=dict(drop_path_rate=0.25))\n'
        'pipeline = _base_.train_dataloader.dataset.pipeline\n'
    )

    assert config.model.backbone.drop_path_rate == 0.25
    assert config.model.backbone.type == 'mminline.InLinePVT'
    assert config.pipeline == load('mask-rcnn_inline-pvt-nano_fpn_shapes').train_pipeline


def test_a_base_that_is_not_there_is_named(read):
    with pytest.raises(
        FileNotFoundError, match=r"mine.py has the base 'mminline::detection/no.py'"
    ):
        read("_base_ = 'mminline::detection/no.py'")


def test_configs_are_found_in_the_wheel_or_beside_a_linked_package(tmp_path, monkeypatch):
    package = tmp_path / 'mminline'
    package.mkdir()
    monkeypatch.setattr(config_bases, '__file__', str(package / 'config_bases.py'))
    assert config_bases.configs_folder() == tmp_path / 'configs'

    shutil.copytree(CONFIGS / '_base_', package / '.mim' / 'configs' / '_base_')
    assert config_bases.configs_folder() == package / '.mim' / 'configs'


def test_mmseg_is_found_on_this_stack():
    path, scope = config_bases.find_base('mmseg::_base_/models/fpn_r50.py', 'mine.py')

    assert (Path(path).name, scope) == ('fpn_r50.py', 'mmseg')
    assert Path(path).is_file()


@pytest.mark.parametrize('fork', [True, False])
def test_mmseg_of_a_fork_is_looked_for_by_its_module(fork, monkeypatch):
    # Not through importlib.metadata, which mmengine of the forks asks too.
    monkeypatch.setattr(config_bases, '_is_distribution', lambda name: not fork)
    monkeypatch.setattr(config_bases, '_find_others', lambda *_: (MODULE2PACKAGE['mmseg'], 'mmseg'))
    monkeypatch.setitem(MODULE2PACKAGE, 'mmseg', 'mmsegmentation')

    asked, _ = config_bases.find_base('mmseg::_base_/models/fpn_r50.py', 'mine.py')

    assert asked == ('mmseg' if fork else 'mmsegmentation')
