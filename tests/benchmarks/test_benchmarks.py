import json
import math
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn

from mminline.layers import InLineAttention
from mminline.layers.reference import inline_weights, local_residual

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parents[2] / 'benchmarks'


@pytest.fixture
def benchmark_modules(monkeypatch):
    """Lets a test import the modules beside the program, and forgets them afterwards."""
    names = [path.stem for path in BENCHMARKS.glob('*.py')]
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield
    for name in names:
        sys.modules.pop(name, None)


def run(command, *options, cwd=None):
    program = [sys.executable, BENCHMARKS / 'run.py', command, '--threads', '1', '--quick']
    command = [*program, *options]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=900)


@pytest.fixture(scope='module')
def decoy(tmp_path_factory):
    """Folder with another mminline, which a program that runs in it must not import."""
    folder = tmp_path_factory.mktemp('decoy')
    (folder / 'mminline').mkdir()
    (folder / 'mminline' / '__init__.py').write_text('raise RuntimeError("the wrong mminline")')
    return folder


@pytest.fixture(scope='module')
def quick_run(tmp_path_factory, decoy):
    """All commands, in one process to save time: the folder of results and what was printed."""
    folder = tmp_path_factory.mktemp('benchmarks')
    done = run('all', '--repeats', '1', '--out', folder, cwd=decoy)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def load(quick_run, command):
    return json.loads((quick_run[0] / f'{command}.json').read_text())


def rows(case):
    return {row['name']: row for row in case['candidates']}


@pytest.mark.parametrize(
    'command', ['layer', 'backbone', 'train', 'scale', 'detector', 'segmentor']
)
def test_command_measures_all_candidates_and_those_of_the_same_weights_agree(quick_run, command):
    folder, printed = quick_run
    results = load(quick_run, command)

    assert results['command'] == command
    assert results['machine']['threads'] == 1
    assert results['machine']['versions']['torch'] == torch.__version__
    for case in results['cases']:
        candidates = rows(case)
        assert next(iter(candidates)) == 'ours'
        assert candidates['ours']['ratio'] == 1
        assert 0 < candidates['baseline implementation']['difference'] < 1e-4
        assert f'{case["name"]}\n\n|' in printed
        for name, row in candidates.items():
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


@pytest.mark.parametrize('command', ['backbone', 'train'])
def test_backbones_are_measured_in_half_precision_too(quick_run, command):
    case = rows(load(quick_run, command)['cases'][0])
    assert case['ours, bfloat16']['median'] > 0
    assert case['softmax PVT (mmdet), bfloat16']['median'] > 0


def test_candidates_of_another_device_are_not_measured(quick_run):
    for case in load(quick_run, 'backbone')['cases']:
        assert 'ours, not streamed' in rows(case)
        assert 'ours, streamed' not in rows(case)


def test_checkpointing_changes_nothing_in_a_training_step(quick_run):
    (case,) = load(quick_run, 'train')['cases']

    assert rows(case)['ours, with_cp']['difference'] < 1e-4


def test_scale_tells_the_growth_of_time_per_pixel(quick_run):
    cases = load(quick_run, 'scale')['cases']

    assert [case['shape'] for case in cases] == [[64, 64], [128, 128]]
    small, large = (rows(case)['ours']['median'] for case in cases)
    assert f'({large / small / 4:.2f}) |' in quick_run[1].split('ns per pixel (growth)')[1]


def test_large_compares_parts_with_the_whole(quick_run):
    folder, printed = quick_run
    cases = load(quick_run, 'large')['cases']

    assert [case['shape'] for case in cases] == [[64, 64], [128, 128]]
    for case in cases:
        found = rows(case)
        assert found['ours, in parts']['differing_pixels'] == 0
        # The window is larger than the image.
        assert found['softmax PVT, slide']['differing_pixels'] == 0
        assert 'differing_pixels' not in found['softmax PVT, at once']
    assert '| 128 x 128 |' in printed.split('differing pixels')[1]
    assert (folder / 'large.png').read_bytes().startswith(b'\x89PNG')


def test_figure_compares_windows_and_sides_with_softmax_attention(quick_run):
    folder, printed = quick_run
    cases = load(quick_run, 'figure')['cases']

    assert [case['name'] for case in cases] == [
        'Swin-T, window 7, image of 160 x 128',
        'DeiT-T, image of 64 x 64',
        'DeiT-T, image of 128 x 128',
    ]
    table = printed.split('softmax / InLine')[1]
    for case in cases:
        assert list(rows(case)) == ['InLine', 'softmax, fused']
        assert f'{rows(case)["softmax, fused"]["ratio"]:.2f} |' in table
    assert (folder / 'figure.png').read_bytes().startswith(b'\x89PNG')


@pytest.mark.parametrize('family', ['PVT', 'Swin'])
def test_detector_tells_the_shares_of_its_parts_in_each_precision(quick_run, family):
    cases = {case['name']: case for case in load(quick_run, 'detector')['cases']}
    title = f'Mask R-CNN with {family}-T, image of 160 x 128'

    detectors = rows(cases[title])
    assert {'ours, bfloat16', f'softmax {family} (mmdet), bfloat16'} < detectors.keys()
    assert detectors['ours, fast=False']['difference'] < 1e-4
    printed = quick_run[1].split(f'{title}, parts')[1]
    for row in detectors.values():
        assert set(row['parts']) == {'backbone', 'neck', 'RPN', 'boxes', 'masks'}
        assert 0 < sum(row['parts'].values()) <= row['median']
        assert f'({row["parts"]["backbone"] / row["median"]:.0%})' in printed


@pytest.mark.parametrize('family, library', [('PVT', 'mmdet'), ('Swin', 'mmseg')])
def test_segmentor_gives_the_classes_of_mmseg_and_the_times_of_its_parts(
    quick_run, family, library
):
    cases = {case['name']: case for case in load(quick_run, 'segmentor')['cases']}

    segmentors = rows(cases[f'SemanticFPN with {family}-T, 150 classes, image of 160 x 128'])
    # Classes are compared too, and one other class would be a difference of 1 / 149.
    assert segmentors["ours, mmseg's predict"]['difference'] < 1e-4
    assert {'ours, bfloat16', f'softmax {family} ({library}), bfloat16'} < segmentors.keys()
    for row in segmentors.values():
        assert set(row['parts']) == {'backbone', 'neck', 'decode_head'}


def test_peers_are_listed_with_their_accuracy(quick_run):
    (case,) = load(quick_run, 'peers')['cases']

    assert next(iter(rows(case))) == 'InLine-PVT-S, 82.0 %'
    if find_spec('timm'):
        peers = {'ConvNeXt-T, 82.1 %', 'EfficientViT-B2, 82.1 %', 'ResNet-50, 80.4 %'}
        assert peers < rows(case).keys()


def test_tables_can_be_printed_again_from_the_files(quick_run):
    folder, printed = quick_run
    # -P: Python does not look for modules beside the script.
    program = [sys.executable, '-P', BENCHMARKS / 'run.py', 'table']
    done = subprocess.run(
        [*program, folder / 'scale.json', folder / 'detector.json'], capture_output=True, text=True
    )

    lines = done.stdout.splitlines()
    # Two sizes and their growth; prediction and its parts, with two backbones.
    assert sum(line.startswith('| baseline implementation ') for line in lines) == 3 + 4
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
        reasons = {row['skipped'] for row in case['candidates']}
        assert reasons == {'a call takes longer than 1e-06 s'}
    assert (
        done.stdout.count('- baseline implementation: left out, a call takes longer than 1e-06 s.')
        == 2
    )
    assert done.stderr.count('memory of baseline implementation') == 1


@pytest.mark.parametrize(
    'arguments, message',
    [
        (['layer', '--shape', '16', '64'], 'has to be a whole number from 32 on, got 16'),
        (['train', '--batch', '0'], 'has to be a whole number from 1 on, got 0'),
        (['scale', '--shape', '64', '64'], 'unrecognized arguments'),
        (['detector', '--precision', 'float32', 'float16'], 'precision=float16 needs a GPU'),
    ],
)
def test_arguments_that_make_no_sense_are_refused(benchmark_modules, capsys, arguments, message):
    import options

    with pytest.raises(SystemExit, match='2'):
        options.parse(arguments, 'description')
    assert message in capsys.readouterr().err


def test_options_come_from_the_user_then_from_quick_then_from_the_command(benchmark_modules):
    import options
    from cases import BENCHMARKS

    args = options.parse(['backbone', '--quick', '--shape', '64', '96', '--compile'], 'description')
    chosen = dict(shape=[64, 96], repeats=options.QUICK['repeats'], compile=True)
    assert options.choose(args, 'backbone') == BENCHMARKS['backbone'].defaults | chosen
    args = options.parse(['--repeats', '3'], 'description')
    assert args.command == 'all'
    assert options.choose(args, 'train') == BENCHMARKS['train'].defaults | dict(repeats=3)


def test_one_entry_adds_a_benchmark(benchmark_modules, monkeypatch, tmp_path, capsys):
    import measure
    import run
    from benchmark import Benchmark, Candidate, Case
    from builders import random_image
    from runners import Inference

    def make_cases(shape, channels, bias):
        candidate = Candidate('ours', Inference, partial(nn.Conv2d, 3, channels, 1, bias=bias))
        return [Case('Convolution', shape, partial(random_image, 1), [candidate])]

    defaults = dict(shape=[64, 64], repeats=3, channels=4, bias=False)
    entry = Benchmark('one convolution', make_cases, defaults)
    monkeypatch.setitem(run.BENCHMARKS, 'convolution', entry)
    memory = dict(peak_bytes=1, process_bytes=2, call_seconds=0.1)
    monkeypatch.setattr(measure, 'peak_memory', lambda *_: dict(memory))
    run.main(['convolution', '--quick', '--channels', '5', '--out', str(tmp_path)])

    results = json.loads((tmp_path / 'convolution.json').read_text())
    assert results['options'] == dict(shape=[128, 160], channels=5, bias=False)
    assert len(results['cases'][0]['candidates'][0]['seconds']) == 2
    assert (tmp_path / 'convolution.png').exists()
    assert 'Convolution, image of 160 x 128\n\n|' in capsys.readouterr().out
    with pytest.raises(SystemExit, match='0'):
        run.main(['--help'])
    assert 'one convolution' in capsys.readouterr().out


def test_times_alone_of_some_candidates(benchmark_modules, monkeypatch, tmp_path):
    import run
    from benchmark import Benchmark, Candidate, Case
    from builders import random_image
    from runners import Inference

    def make_cases(shape):
        names = ('ours', 'other', 'third')
        candidates = [Candidate(name, Inference, partial(nn.Conv2d, 3, 4, 1)) for name in names]
        return [Case('Convolution', shape, partial(random_image, 1), candidates)]

    entry = Benchmark('convolutions', make_cases, dict(shape=[64, 64], repeats=3))
    monkeypatch.setitem(run.BENCHMARKS, 'convolution', entry)
    command = ['convolution', '--no-memory', '--out', str(tmp_path), '--only']
    run.main([*command, 'third', 'other'])

    results = json.loads((tmp_path / 'convolution.json').read_text())
    (case,) = results['cases']
    assert list(rows(case)) == ['other', 'third']
    assert all('peak_bytes' not in row and len(row['seconds']) == 3 for row in case['candidates'])
    with pytest.raises(SystemExit, match='has to name some of ours, other, third; got ohter'):
        run.main([*command, 'ohter'])


def test_cases_without_a_named_candidate_are_left_out(benchmark_modules, monkeypatch, tmp_path):
    import run
    from benchmark import Benchmark, Candidate, Case
    from builders import random_image
    from runners import Inference
    from tables import parts_table

    def make_cases(shape):
        names = dict(First=('ours', 'other'), Second=('ours', 'third'), Third=('third',))
        candidate = partial(Candidate, runner=Inference, build=partial(nn.Conv2d, 3, 4, 1))
        return [
            Case(title, shape, partial(random_image, 1), [candidate(name) for name in named])
            for title, named in names.items()
        ]

    entry = Benchmark('convolutions', make_cases, dict(shape=[64, 64]), summary=parts_table)
    monkeypatch.setitem(run.BENCHMARKS, 'convolution', entry)
    command = ['convolution', '--no-memory', '--out', str(tmp_path), '--only']
    run.main([*command, 'ours', 'other'])

    cases = json.loads((tmp_path / 'convolution.json').read_text())['cases']
    assert [list(rows(case)) for case in cases] == [['ours', 'other'], ['ours']]
    assert (tmp_path / 'convolution.png').exists()
    with pytest.raises(SystemExit, match='some of ours, other, third; got fourth'):
        run.main([*command, 'ours', 'fourth'])


def test_layer_runs_as_in_a_backbone(benchmark_modules, monkeypatch):
    from runners import LayerInference

    calls = []
    monkeypatch.setattr('mminline.execution.run', lambda *args: calls.append(args))
    layer, x = nn.Identity(), torch.ones(1, 6, 4)
    LayerInference(lambda: layer)(x, (2, 3))

    assert calls == [(layer, x, (2, 3))]


def test_baseline_is_the_equation_with_explicit_weights(benchmark_modules):
    from baselines import BaselineAttention

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

    torch.testing.assert_close(BaselineAttention(layer).double()(x, (4, 5)), expected)


@pytest.mark.parametrize('wrong', [1.01, float('nan')])
def test_check_names_the_candidate_that_disagrees(benchmark_modules, wrong):
    from benchmark import Candidate
    from measure import Disagreement, check_agreement
    from runners import Inference

    def start(name, factor):
        model = nn.Linear(2, 2)
        nn.init.constant_(model.weight, factor)
        nn.init.zeros_(model.bias)
        candidate = Candidate(name, Inference, lambda: model, group='same')
        return candidate, candidate.start('cpu')

    runners = dict([start('one', 1.0), start('other', 1.0)])
    inputs = (torch.ones(1, 2),)

    assert check_agreement('case', runners, inputs, 1e-3) == {'other': 0}
    runners |= dict([start('wrong', wrong)])
    with pytest.raises(Disagreement, match='case: wrong and one have to agree within 0.001'):
        check_agreement('case', runners, inputs, 1e-3)


@pytest.mark.parametrize('broken', ['first', 'second'])
def test_nan_in_any_result_is_a_difference(benchmark_modules, broken):
    from measure import largest_difference

    reference = dict(first=torch.ones(2), second=torch.ones(2))
    results = reference | {broken: torch.tensor([1.0, float('nan')])}

    assert math.isnan(largest_difference(reference, results))


def test_ratio_is_the_median_of_the_rounds_not_the_ratio_of_medians(benchmark_modules):
    from timing import summarize

    # The machine got slower from round to round, for both.
    summary = summarize([2.0, 6.0, 80.0], reference=[1.0, 2.0, 40.0])

    assert summary['ratio'] == 2
    assert summary['ratio_quartiles'] == [2, 2.5]
    assert summary['median'] == 6
    assert summary['quartiles'] == [4, 43]
    assert summary['min'] == 2


def test_failed_allocation_is_a_reason_and_other_errors_are_not(benchmark_modules):
    from memory import _explain

    error = RuntimeError("can't allocate memory: you tried to allocate 32768000000 bytes.")
    assert _explain(error) == 'does not fit in memory: asks for a tensor of 32.8 GB'
    with pytest.raises(RuntimeError, match='shapes'):
        _explain(RuntimeError('shapes'))
