"""Files of the kinds that mmengine, the model zoos and other projects write are read.

Stands on mmengine alone, so that it runs on each stack that is supported.
"""

import argparse

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.runner import CheckpointLoader

from helpers.tiny_runner import make_runner

# What stands beside the weights.
MMDET_3 = {
    'meta': {
        'cfg': "model = dict(type='FasterRCNN')",
        'dataset_meta': {'CLASSES': ('person', 'car'), 'PALETTE': [(220, 20, 60), (0, 0, 142)]},
        'seed': 42,
        'experiment_name': 'faster-rcnn',
        'time': '20230101_000000',
        'mmengine_version': '0.7.0',
        'epoch': 12,
        'iter': 87960,
    },
    'message_hub': {
        'log_scalars': {'train/loss': HistoryBuffer([0.5, 0.25], [1, 1])},
        'runtime_info': {'best_score': np.float32(0.5), 'last': np.float64(0.25)},
        'resumed_keys': {},
    },
}
MMSEG_1 = {
    'meta': {
        'dataset_meta': {
            'classes': ('wall', 'sky'),
            'palette': np.array([[120, 120, 120], [6, 230, 230]]),
            'label_map': None,
            'reduce_zero_label': True,
        }
    },
    'param_schedulers': [{'base_values': [0.01], 'last_step': 1, '_global_step': 2}],
    'optimizer': {'state': {}, 'param_groups': [{'lr': 0.01, 'params': []}]},
}
MMCV_1 = {
    'meta': {
        'env_info': 'sys.platform: linux\nPython: 3.7.7\nOpenCV: 4.4.0',
        'seed': None,
        'exp_name': 'pspnet.py',
        'mmcv_version': '1.3.9',
        'time': 'Sat Aug 21 05:05:43 2021',
        'hook_msgs': {'best_score': np.float64(41.5), 'best_ckpt': 'best.pth'},
        'config': 'norm_cfg = dict(type="SyncBN")',
        'CLASSES': ['wall', 'sky'],
        'PALETTE': np.array([[1, 2, 3]], np.uint8),
    },
}
OTHERS = {'args': argparse.Namespace(lr=0.1), 'epoch': 299}
ZOO = {'mmdet 3': MMDET_3, 'mmseg 1': MMSEG_1, 'mmcv 1': MMCV_1, 'others': OTHERS}


@pytest.mark.parametrize('zipped', [True, False])
@pytest.mark.parametrize('project', ZOO)
@pytest.mark.parametrize('place', ['file', 'http'], indirect=True)
def test_files_as_in_the_model_zoos_are_read(project, zipped, place, tmp_path):
    weights = {'backbone.conv1.weight': torch.randn(2, 3)}
    content = {**ZOO[project], 'state_dict': weights}
    # mmengine does not check the hash in a name either: its own are not those of the files.
    path = tmp_path / 'model_20200130-047c8118.pth'
    torch.save(content, path, _use_new_zipfile_serialization=zipped)

    loaded = CheckpointLoader.load_checkpoint(place(path), map_location='cpu')

    torch.testing.assert_close(loaded.pop('state_dict'), weights)
    if log := loaded.pop('message_hub', None):
        assert log['log_scalars']['train/loss'].mean() == 0.375
        assert log['runtime_info'] == {'best_score': 0.5, 'last': 0.25}
    expected = {key: value for key, value in ZOO[project].items() if key != 'message_hub'}
    assert repr(loaded) == repr(expected)


@pytest.mark.parametrize('schedule', ['cos', 'linear'])
def test_training_resumes_with_each_part_that_mmengine_saves(schedule, tmp_path):
    def run(max_epochs: int, **options):
        runner = make_runner(
            tmp_path,
            max_epochs,
            param_scheduler=[
                dict(type='LinearLR', start_factor=0.1, by_epoch=False, end=2),
                dict(
                    type='OneCycleLR',
                    eta_max=0.1,
                    total_steps=8,
                    by_epoch=False,
                    anneal_strategy=schedule,
                ),
            ],
            custom_hooks=[dict(type='EMAHook')],
            **options,
        )
        runner.message_hub.update_info('scores', [np.float32(0.5), np.int64(3), np.bool_(True)])
        runner.train()
        return runner

    run(1)
    resumed = run(2, resume=True)

    assert resumed.iter == 4
    assert len(resumed.message_hub.get_scalar('train/loss').data[0]) == 4
    function = resumed.param_schedulers[1].anneal_func
    assert function.__name__ == f'_annealing_{schedule}'


def test_what_mmengine_publishes_under_a_hash_is_read_from_the_web(server, cache, tmp_path):
    make_runner(
        tmp_path,
        default_hooks=dict(
            checkpoint=dict(type='CheckpointHook', interval=1, published_keys=['state_dict'])
        ),
    ).train()
    (published,) = tmp_path.glob('epoch_1-*.pth')
    server.serve(f'/{published.name}', published.read_bytes())

    loaded = CheckpointLoader.load_checkpoint(f'{server.root}/{published.name}')

    assert loaded.keys() == {'state_dict'}
