import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from mminline.layers import InLineAttention
from mminline.layers.reference import inline_weights, local_residual

BENCHMARKS = Path(__file__).parents[2] / 'benchmarks'


@pytest.fixture
def benchmark_modules(monkeypatch):
    """Lets a test import the modules beside the program, and forgets them afterwards."""
    monkeypatch.setattr(sys, 'modules', dict(sys.modules))
    monkeypatch.syspath_prepend(BENCHMARKS)


def run(command, *options):
    # -P: no modules from beside the script, as in `make bench`.
    program = [sys.executable, '-P', BENCHMARKS / 'run.py', command, '--threads', '1', '--quick']
    return subprocess.run([*program, *options], capture_output=True, text=True, timeout=900)


@pytest.fixture(scope='module')
def quick_run(tmp_path_factory):
    """All commands, in one process to save time: the folder of results and what was printed."""
    folder = tmp_path_factory.mktemp('benchmarks')
    done = run('all', '--repeats', '1', '--out', folder)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def load(quick_run, command):
    return json.loads((quick_run[0] / f'{command}.json').read_text())


def rows(case):
    return {row['name']: row for row in case['contenders']}


@pytest.mark.parametrize('command', ['layer', 'backbone', 'train', 'scale', 'detector'])
def test_command_measures_all_contenders_and_those_of_the_same_weights_agree(quick_run, command):
    folder, printed = quick_run
    results = load(quick_run, command)

    assert results['command'] == command
    assert results['machine']['threads'] == 1
    assert results['machine']['versions']['torch'] == torch.__version__
    for case in results['cases']:
        contenders = rows(case)
        assert next(iter(contenders)) == 'ours'
        assert contenders['ours']['ratio'] == 1
        assert 0 < contenders['usual form']['difference'] < 1e-4
        assert f'{case["name"]}\n\n|' in printed
        for name, row in contenders.items():
            assert len(row['seconds']) == 1 and row['min'] > 0
            assert row['process_bytes'] > row['peak_bytes'] > 0
            assert f'| {name} ' in printed
    assert (folder / f'{command}.png').read_bytes().startswith(b'\x89PNG')


def test_layer_covers_four_stages_and_sees_the_memory_of_softmax_weights(quick_run):
    cases = load(quick_run, 'layer')['cases']

    channels = [case['name'].split(',')[1].strip() for case in cases]
    assert channels == ['64 channels', '128 channels', '320 channels', '512 channels']
    first = rows(cases[0])
    num_tokens = (128 // 4) * (160 // 4)
    assert first['softmax']['peak_bytes'] > 2 * num_tokens**2 * 4 > first['ours']['peak_bytes']


def test_backbones_are_compared_with_those_of_mmdet(quick_run):
    pvt, swin = load(quick_run, 'backbone')['cases']

    assert 'softmax PVT (mmdet)' in rows(pvt)
    assert 'softmax Swin (mmdet)' in rows(swin)


def test_checkpointing_changes_nothing_in_a_training_step(quick_run):
    (case,) = load(quick_run, 'train')['cases']

    assert rows(case)['ours, with_cp']['difference'] < 1e-4


def test_scale_tells_the_growth_of_time_per_pixel(quick_run):
    cases = load(quick_run, 'scale')['cases']

    assert [case['shape'] for case in cases] == [[64, 64], [128, 128]]
    small, large = (rows(case)['ours']['median'] for case in cases)
    assert f'({large / small / 4:.2f}) |' in quick_run[1].split('ns per pixel (growth)')[1]


def test_detector_tells_the_share_of_the_backbone(quick_run):
    (case,) = load(quick_run, 'detector')['cases']

    ours = rows(case)
    share = ours['ours, backbone alone']['median'] / ours['ours']['median']
    assert f'{share:.0%} |' in quick_run[1].split('share of the backbone')[1]


def test_tables_can_be_printed_again_from_the_files(quick_run):
    folder, printed = quick_run
    program = [sys.executable, BENCHMARKS / 'run.py', 'table']
    done = subprocess.run(
        [*program, folder / 'scale.json', folder / 'detector.json'], capture_output=True, text=True
    )

    lines = done.stdout.splitlines()
    # Two sizes and their growth; prediction and the share of the backbone.
    assert sum(line.startswith('| usual form ') for line in lines) == 3 + 2
    assert all(line in printed for line in lines)


def test_results_that_differ_end_the_program_without_times(tmp_path):
    done = run('train', '--tolerance', '0', '--out', tmp_path)

    assert done.returncode == 1
    assert 'have to agree within 0 of the largest value' in done.stderr
    assert not list(tmp_path.iterdir())


def test_who_takes_too_long_is_left_out_from_there_on_and_the_table_says_so(tmp_path):
    done = run('scale', '--time-limit', '1e-6', '--out', tmp_path)

    assert done.returncode == 0, done.stderr
    for case in json.loads((tmp_path / 'scale.json').read_text())['cases']:
        reasons = {row['skipped'] for row in case['contenders']}
        assert reasons == {'a call takes longer than 1e-06 s'}
    assert done.stdout.count('- usual form: left out, a call takes longer than 1e-06 s.') == 2
    assert done.stderr.count('memory of usual form') == 1


@pytest.mark.parametrize(
    'arguments, message',
    [
        (['layer', '--shape', '16', '64'], 'has to be a whole number from 32 on, got 16'),
        (['train', '--batch', '0'], 'has to be a whole number from 1 on, got 0'),
        (['scale', '--shape', '64', '64'], 'unrecognized arguments'),
    ],
)
def test_arguments_that_make_no_sense_are_refused(benchmark_modules, capsys, arguments, message):
    import options

    with pytest.raises(SystemExit, match='2'):
        options.parse(arguments, 'description')
    assert message in capsys.readouterr().err


def test_options_come_from_the_user_then_from_quick_then_from_the_command(benchmark_modules):
    import options

    args = options.parse(['backbone', '--quick', '--shape', '64', '96', '--compile'], 'description')
    assert options.choose(args, 'backbone') == dict(
        shape=[64, 96], batch=1, repeats=options.QUICK['repeats'], compile=True
    )
    args = options.parse(['--repeats', '3'], 'description')
    assert args.command == 'all'
    assert options.choose(args, 'train') == dict(options.DEFAULTS['train'], repeats=3)


def test_usual_form_is_the_equation_with_explicit_weights(benchmark_modules):
    from attentions import UsualAttention

    torch.manual_seed(0)
    layer = InLineAttention(embed_dims=12, num_heads=3).double()
    x = torch.randn(2, 4 * 5, 12, dtype=torch.float64)
    q, k, v = (
        part.unflatten(-1, (3, -1)).transpose(1, 2) for part in layer.qkv(x).chunk(3, dim=-1)
    )
    mixed = (inline_weights(q, k, scale=4**-0.5) @ v).transpose(1, 2).flatten(-2)
    kernel = layer.local_kernel(x.mean(dim=1).unsqueeze(-1)).view(2, 12, 3, 3)
    values = v.transpose(1, 2).flatten(-2)
    expected = layer.proj(mixed + local_residual(values, kernel, (4, 5)))

    torch.testing.assert_close(UsualAttention(layer).double()(x, (4, 5)), expected)


@pytest.mark.parametrize('wrong', [1.01, float('nan')])
def test_check_names_who_disagrees(benchmark_modules, wrong):
    from contest import Contender
    from measure import Disagreement, check_agreement
    from programs import Inference

    def contender(name, factor):
        model = nn.Linear(2, 2)
        nn.init.constant_(model.weight, factor)
        nn.init.zeros_(model.bias)
        return Contender(name, Inference, lambda: model, group='same')

    contenders = [contender('one', 1.0), contender('other', 1.0), contender('wrong', wrong)]
    programs = {each.name: each.start('cpu') for each in contenders}
    inputs = (torch.ones(1, 2),)

    assert check_agreement('case', contenders[:2], programs, inputs, 1e-3) == {'other': 0}
    with pytest.raises(Disagreement, match='case: wrong and one have to agree within 0.001'):
        check_agreement('case', contenders, programs, inputs, 1e-3)


def test_ratio_is_the_median_of_the_rounds_not_the_ratio_of_medians(benchmark_modules):
    from measure import summarize

    # The machine got slower from round to round, for both alike.
    summary = summarize([2.0, 4.0, 80.0], baseline=[1.0, 2.0, 40.0])

    assert summary['ratio'] == 2
    assert summary['median'] == 4
    assert summary['quartiles'] == [3, 42]
    assert summary['min'] == 2


def test_failed_allocation_is_a_reason_and_other_errors_are_not(benchmark_modules):
    from memory import _explain

    error = RuntimeError("can't allocate memory: you tried to allocate 32768000000 bytes.")
    assert _explain(error) == 'does not fit in memory: asks for a tensor of 32.8 GB'
    with pytest.raises(RuntimeError, match='shapes'):
        _explain(RuntimeError('shapes'))
