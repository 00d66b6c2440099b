"""The model index: complete, true, and readable for mim."""

import sys
from pathlib import Path

import pytest
import yaml
from mim.commands import search
from modelindex.load_model_index import load as load_index

from helpers.shipped_configs import CONFIGS, DETECTORS, PUBLISHED, ROOT, SEGMENTORS, load
from mminline.checkpoints.download import PUBLISHED as WEIGHTS

pytestmark = pytest.mark.slow

METAFILES = [CONFIGS / task / 'metafile.yml' for task in ('detection', 'segmentation')]
MODELS = {
    model['Name']: model
    for path in METAFILES
    for model in yaml.safe_load(path.read_text())['Models']
}


@pytest.fixture(scope='module')
def table():
    """The index as mim sees it."""
    return search.convert2df(load_index(str(ROOT / 'model-index.yml')))


def test_every_config_for_public_data_is_in_the_index():
    assert sorted(MODELS) == sorted(PUBLISHED)
    for name, model in MODELS.items():
        assert Path(model['Config']).stem == name
        assert (ROOT / model['Config']).is_file()


def test_no_two_files_share_a_name_for_mim_to_confuse():
    names = [path.name for path in CONFIGS.rglob('*.py')]

    assert len(names) == len(set(names))
    assert len(DETECTORS) + len(SEGMENTORS) + len(list(CONFIGS.glob('_base_/*/*.py'))) == len(names)


def test_mim_reads_every_model_with_its_collection(table):
    assert set(table.index) == set(PUBLISHED)
    assert set(table['model']) == {
        'inline-pvt', 'inline-swin', 'inline-deit', 'pvt', 'swin', 'deit'
    }  # fmt: skip
    assert set(search.filter_by_models(table, ['InLine-PVT']).index) == {
        name for name in PUBLISHED if 'inline-pvt' in name
    }
    assert table.loc['mask-rcnn_pvt-t_fpn_1x_coco', 'coco/paper_box_ap'] == 36.7


def test_mim_can_download_the_weights_of_every_model_under_names_of_their_own(table):
    # mim names a file after what follows the last slash of its address.
    selected = search.select_by(table, ['weight', 'config'])
    files = {}
    for name, address in selected['weight'].items():
        files.setdefault(address.split('/')[-1], set()).add(address)
        assert address.endswith('.pth'), name

    assert all(len(addresses) == 1 for addresses in files.values())


@pytest.mark.parametrize('name', MODELS)
def test_weights_are_those_that_the_config_starts_from(name):
    checkpoint = load(name).model.backbone.init_cfg.checkpoint
    address = MODELS[name]['Weights']

    if checkpoint.startswith('inline://'):
        model = checkpoint.removeprefix('inline://')
        assert address == f'{WEIGHTS[model].url}#/inline-{model}.pth'
    elif checkpoint.startswith('pretrain/'):  # made from the published file
        assert address.split('/')[-1] == checkpoint.split('/')[-1]
    else:
        assert address == checkpoint


@pytest.mark.parametrize('name', MODELS)
def test_metadata_is_that_of_the_config(name):
    config, metadata = load(name), MODELS[name]['Metadata']

    assert metadata['Batch Size'] == config.auto_scale_lr.base_batch_size
    if name in DETECTORS:
        assert metadata['Training Data'] == 'COCO'
        assert metadata['Epochs'] == config.train_cfg.max_epochs
    else:
        assert metadata['Training Data'] == 'ADE20K'
        assert metadata['Iterations'] == config.train_cfg.max_iters


def test_scores_are_marked_as_the_papers():
    names = {
        name
        for model in MODELS.values()
        for result in model.get('Results', [])
        for name in result['Metrics']
    }

    assert names == {
        'paper box AP', 'paper mask AP', 'paper mIoU', 'paper mAcc',
        'paper (second-hand) mIoU', 'paper (second-hand) mAcc',
    }  # fmt: skip


def test_the_tables_of_the_readme_are_up_to_date(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / 'tools')
    import model_zoo

    readme = model_zoo.README.read_text()

    assert model_zoo.METAFILES == METAFILES
    assert model_zoo.listed(readme, [path.read_text() for path in METAFILES]) == readme
    sys.modules.pop('model_zoo')
