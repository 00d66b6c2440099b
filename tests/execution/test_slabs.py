"""One image over several processes: maps and gradients of one process."""

import re

import pytest
import torch
from torch.testing import assert_close

from helpers.processes import run_processes
from helpers.shipped_configs import ROOT
from helpers.slabs import (
    Case,
    compute,
    count_traffic,
    list_refusals,
    look_alone,
    look_around,
    lose_peer,
    run_alone,
    run_cases,
    run_text,
    train_on_mesh,
)
from mminline import spatial_parallel
from mminline.execution.slabs import even_edges

pytestmark = pytest.mark.slow

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

# Large enough that PyTorch takes the same kernel for convolutions of a slab and of the whole.
FLOAT32_CASES = {
    f'{backbone} of {heights}': Case(heights, backbone, width=900, train=False, dtype=torch.float32)
    for backbone in ('pvt', 'swin')
    for heights in [(160, 192, 129), (320, 161)]
}


@pytest.fixture(scope='module')
def results(tmp_path_factory) -> list[dict]:
    """What each of three processes computes of all cases."""
    return run_processes(tmp_path_factory.mktemp('slabs'), 3, run_cases, CASES)


@pytest.mark.parametrize('name', CASES)
def test_slabs_equal_one_process(name, results):
    maps, gradients, _ = run_alone(CASES[name])
    parts = [result[name] for result in results if name in result]

    assert len(parts) == len(CASES[name].heights)
    for index, expected in enumerate(maps):
        assert_close(torch.cat([part[0][index] for part in parts], dim=2), expected, **EXACT)
    for key, expected in gradients.items() if CASES[name].train else ():
        own = [part[1][key] for part in parts]
        total = torch.cat(own, dim=2) if key == 'image' else sum(own)
        assert_close(total, expected, **EXACT, msg=lambda text, key=key: f'{key}: {text}')


def test_each_form_runs_on_slabs(results):
    forms = {name: part[2] for name, part in results[0].items()}

    assert forms['pvt'] == {'fused'}
    assert forms['pvt plain'] == forms['swin plain'] == {'plain'}
    assert 'streamed' in forms['pvt streamed']
    assert 'streamed' in forms['swin streamed thin']


@pytest.mark.parametrize('wrapper', ['ddp', 'fsdp2'])
@pytest.mark.parametrize('backbone', ['pvt', 'swin'])
def test_data_and_space_on_a_mesh_equal_one_process(wrapper, backbone, tmp_path):
    case = Case((32, 64), backbone, options=dict(with_cp=backbone == 'swin'))
    gradients = run_processes(tmp_path, 4, train_on_mesh, wrapper, case)
    _, expected, _ = run_alone(case)
    del expected['image']

    for own in gradients:
        assert_close({name: 2 * grad for name, grad in own.items()}, expected, **EXACT)


@pytest.mark.parametrize('num_threads', [1, 2])
def test_maps_in_float32_have_the_bits_of_one_process(num_threads, tmp_path, set_threads):
    # In which order statistics are added up depends on bands and slabs, the result does not. The
    # processes have one thread each.
    results = run_processes(tmp_path, 3, run_cases, FLOAT32_CASES)
    set_threads(num_threads)

    for name, case in FLOAT32_CASES.items():
        maps, _, forms = compute(case, case.images(), 0, 1)
        parts = [result[name][0] for result in results if name in result]
        assert len(parts) == len(case.heights)
        assert 'streamed' in forms
        for index, expected in enumerate(maps):
            assert torch.equal(torch.cat([part[index] for part in parts], dim=2), expected), name


def test_traffic_of_a_block_depends_on_channels_and_in_inference_on_rows(tmp_path):
    for index, (height, width) in enumerate([(16, 16), (16, 40), (24, 40)]):
        folder = tmp_path / str(index)
        folder.mkdir()
        for traffic in run_processes(folder, 2, count_traffic, 16, (height, width)):
            # Products in float64, and the mean of each row of both slabs.
            streamed = 8 * 16**2 + 4 * 16 * 2 * height
            assert traffic == dict(fused=4 * (16 + 16**2), streamed=streamed)


def test_what_cannot_run_over_processes_is_refused_by_all(tmp_path):
    ours, theirs = run_processes(tmp_path, 2, list_refusals)

    expected = {
        'dropout': 'drop_rate has to be 0',
        'window': 'InLineAttention with window_size=7 cannot run over several processes',
        'height': 'multiple of 32, .* got heights',
        'width': 'same width and batch, got widths',
        'small': 'at least 32 x 32 px .* got .64, 16.',
        'channels': 'shape .B, 4, H, W.',
        'padding': 'reach into the last slab, which begins at row 64',
        'softmax': 'SoftmaxAttention with window_size=None cannot run over several processes',
        'hook': 'InLineAttention has a forward hook',
        'graph': 'a recorded graph cannot hold the exchange',
        'whole': 'blocks inside spatial_parallel have to know their slab',
    }
    for messages in (ours, theirs):
        assert messages.keys() == expected.keys()
        for name, pattern in expected.items():
            assert re.search(pattern, messages[name]), messages[name]


def test_a_process_whose_peer_is_killed_ends_with_a_message(tmp_path):
    (message, seconds), nothing = run_processes(tmp_path, 2, lose_peer, str(tmp_path))

    assert nothing is None
    assert 'one of the 2 processes that share an image has ended' in message
    assert seconds < 60  # the group itself would wait for 20 minutes


def test_layers_behind_the_backbone_see_rows_of_other_slabs(tmp_path):
    results = run_processes(tmp_path, 2, look_around)
    out, gradient, _ = look_alone()

    assert_close(torch.cat([part[0] for part in results], dim=2), out, **EXACT)
    assert_close(torch.cat([part[1] for part in results], dim=2), gradient, **EXACT)


def test_the_program_of_the_guide_runs(tmp_path):
    guide = (ROOT / 'docs' / 'spatial_parallel.md').read_text()
    (program,) = re.findall(r'```python\n(.*?)```', guide, re.S)

    assert run_processes(tmp_path, 4, run_text, program) == [None] * 4
    assert len(list(tmp_path.glob('result*'))) == 4


def test_processes_have_to_know_each_other():
    with pytest.raises(ValueError, match='start them with torchrun'), spatial_parallel():
        pass


def test_even_edges_are_multiples_and_cover_the_image():
    assert even_edges(310, 3) == [0, 96, 192, 310]
    assert even_edges(64, 1) == [0, 64]
    with pytest.raises(ValueError, match='at most 2 slabs of 32 rows, got count=3'):
        even_edges(64, 3)
