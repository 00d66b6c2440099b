"""One image over several processes: maps and gradients of one process."""

import pytest
import torch
from torch.testing import assert_close

from helpers.processes import run_processes
from helpers.slabs import Case, run_alone, run_cases

EXACT = dict(rtol=1e-9, atol=1e-9)
# Slabs of 8 + 8 + 40 rows of cells of stride 4, and of 1 + 1 + 5 of stride 32: windows have 7.
THIN = (32, 32, 160)
UNEVEN = (64, 96, 54)
CASES = {
    'pvt': Case(UNEVEN),
    'pvt thin': Case(THIN),
    'pvt last row alone': Case((64, 1)),
    'pvt relu': Case((64, 33), options=dict(feature_map='relu')),
    'pvt linear relu': Case((32, 64), options=dict(feature_map='relu', injective=False)),
    'pvt linear exp': Case((64, 32), options=dict(feature_map='exp', injective=False)),
    'pvt without local residual': Case((32, 64), options=dict(local_residual=False)),
    'pvt computed twice': Case((64, 32), options=dict(with_cp=True)),
    'pvt drop path': Case((32, 64), options=dict(drop_path_rate=0.5)),
    'pvt padded': Case((64, 64), sizes=((70, 72), (128, 50))),
    'pvt padding kept': Case((64, 64), options=dict(ignore_padding=False), sizes=((64, 72),)),
    'pvt plain': Case(UNEVEN, hooked=True),
    'pvt plain, linear, twice': Case(
        (32, 64), options=dict(feature_map='exp', injective=False, with_cp=True), hooked=True
    ),
    'pvt streamed': Case(UNEVEN, train=False),
    'pvt streamed, padded': Case((64, 64), train=False, sizes=((100, 72), (100, 50))),
    'pvt inference, relu': Case((64, 33), options=dict(feature_map='relu'), train=False),
    'swin': Case(UNEVEN, 'swin', width=61),
    'swin thin': Case(THIN, 'swin'),
    'swin computed twice': Case((64, 96), 'swin', options=dict(with_cp=True, drop_path_rate=0.3)),
    'swin padded': Case((64, 64), 'swin', sizes=((128, 40), (81, 72))),
    'swin plain': Case(THIN, 'swin', hooked=True),
    'swin streamed': Case(UNEVEN, 'swin', train=False),
    'swin streamed thin': Case(THIN, 'swin', train=False),
}


@pytest.fixture(scope='module')
def results(tmp_path_factory) -> list[dict]:
    """What each of three processes computes of all cases."""
    return run_processes(tmp_path_factory.mktemp('slabs'), 3, run_cases, CASES)


@pytest.mark.parametrize('name', CASES)
def test_slabs_equal_one_process(name, results):
    maps, gradients = run_alone(CASES[name])
    parts = [result[name] for result in results if name in result]

    assert len(parts) == len(CASES[name].heights)
    for index, expected in enumerate(maps):
        assert_close(torch.cat([part[0][index] for part in parts], dim=2), expected, **EXACT)
    for key, expected in gradients.items() if CASES[name].train else ():
        own = [part[1][key] for part in parts]
        total = torch.cat(own, dim=2) if key == 'image' else sum(own)
        assert_close(total, expected, **EXACT, msg=lambda text, key=key: f'{key}: {text}')
