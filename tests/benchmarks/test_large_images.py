"""What ``benchmarks/large_images.py`` makes of single calls that take long."""

import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / 'benchmarks'


@pytest.fixture
def large_images(monkeypatch):
    names = [path.stem for path in BENCHMARKS.glob('*.py')]
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(BENCHMARKS)
    import large_images

    yield large_images
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def measured(large_images, tmp_path, monkeypatch):
    """Measure cases of which no call is made: classes and figures of each come from a table."""
    from benchmark import Settings

    calls = {}

    def peak_memory(candidate, case, settings, output):
        classes, seconds, peak = calls[candidate.name]
        torch.save(torch.tensor(classes), output)
        return dict(call_seconds=seconds, peak_bytes=peak, process_bytes=2 * peak)

    monkeypatch.setattr(large_images, 'peak_memory', peak_memory)
    settings = Settings('cpu', 1, 1, time_limit=100.0, tolerance=1e-4)

    def measure(sides, only=None, **changes):
        names = (large_images.PARTS, large_images.AT_ONCE, large_images.SOFTMAX, large_images.SLIDE)
        calls.update({name: ([0, 1, 2, 3], 10.0, 1000) for name in names})
        calls.update({getattr(large_images, name): call for name, call in changes.items()})
        single, skipped = large_images.SingleCalls(), {}
        cases = large_images.large_cases(sides)
        for case in cases:
            case.candidates[:] = [each for each in case.candidates if only in (None, each.name)]
        return [single(case, settings, skipped) for case in cases]

    return measure


def rows(case):
    return {row['name']: row for row in case['candidates']}


def test_pixels_are_compared_with_the_same_model_at_once(measured, large_images):
    (case,) = measured([64], SLIDE=([0, 1, 9, 9], 20.0, 1000))

    found = rows(case)
    assert found[large_images.PARTS]['differing_pixels'] == 0
    assert found[large_images.SLIDE]['differing_pixels'] == 2
    assert found[large_images.SLIDE]['ratio'] == 2
    table = large_images.large_table([case])
    assert '2 (0.5) |' in table
    assert '| 64 x 64 |' in table


@pytest.mark.parametrize('name', ['PARTS', 'SLIDE'])
def test_a_candidate_can_be_measured_by_itself(name, measured, large_images):
    name = getattr(large_images, name)
    (case,) = measured([64], only=name)
    assert list(rows(case)) == [name]
    assert rows(case)[name]['median'] == 10
    assert name in large_images.large_table([case])


def test_parts_that_differ_end_the_run(measured, large_images):
    with pytest.raises(
        Exception, match='0.25 of the pixels of ours, in parts differ from ours, at once'
    ):
        measured([64], PARTS=([0, 1, 2, 9], 10.0, 1000))


def test_what_would_take_too_long_or_too_much_is_left_out(measured, large_images):
    slow, hungry = ([0, 1, 2, 3], 30.0, 1000), ([0, 1, 2, 3], 1.0, 10**15)

    small, large = measured([64, 128], SOFTMAX=slow, SLIDE=hungry, PARTS=slow)

    assert 'skipped' not in rows(small)[large_images.SOFTMAX]
    found = rows(large)
    assert found[large_images.SOFTMAX]['skipped'] == 'would take at least 120 s'
    assert 'would need at least 4000000 GB' in found[large_images.SLIDE]['skipped']
    # Ours in parts is what the table is about: it is measured in any case.
    assert 'skipped' not in found[large_images.PARTS]
    assert 'would take at least 120 s' in large_images.large_table([small, large])


@pytest.mark.slow
@pytest.mark.parametrize('shape', [(64, 64), (200, 333)])
def test_a_sliding_window_gives_the_classes_of_mmseg(large_images, shape, monkeypatch):
    import builders
    from runners import ClassMap, SlidingClassMap

    monkeypatch.setattr(SlidingClassMap, 'CROP', 96)
    config = 'semantic-fpn_inline-pvt-t_40k_ade20k-512x512.py'
    theirs = dict(mode='slide', crop_size=(96, 96), stride=(64, 64))
    (pixels_HWC,) = builders.random_pixels(*shape)

    expected = ClassMap(lambda: builders.segmentor(config, **theirs))(pixels_HWC)

    assert len(expected.unique()) > 1
    found = SlidingClassMap(lambda: builders.segmentor(config))(pixels_HWC)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ('memory', 'title'), [('peak_bytes', 'one call'), ('process_bytes', 'the process')]
)
def test_the_figure_draws_the_memory_of_its_title(
    large_images, memory, title, tmp_path, monkeypatch
):
    import plots

    drawn = []
    monkeypatch.setattr(plots.Figure, 'savefig', lambda figure, *_, **__: drawn.append(figure))
    row = dict(name='ours', median=1.0, peak_bytes=2e9, process_bytes=3e9)

    plots.plot_growth([dict(shape=[64, 64], candidates=[row])], tmp_path / 'a.png', memory)

    axes = drawn[0].axes[1]
    assert axes.lines[0].get_ydata() == pytest.approx([row[memory] / 1e9])
    assert axes.get_title() == f'Peak memory of {title}'


def test_the_time_limit_is_that_of_the_command_unless_given(large_images):
    import options
    from cases import BENCHMARKS

    assert BENCHMARKS['large'].time_limit == 1500
    assert BENCHMARKS['large'].defaults['sides'] == [2048, 4096, 8192, 16384]
    assert options.parse(['large'], '').time_limit is None
    assert options.parse(['large', '--time-limit', '7'], '').time_limit == 7


def test_pixels_that_are_drawn_in_parts_are_those_of_the_whole(large_images):
    import builders
    import numpy as np

    (pixels,) = builders.random_file(150, 20)
    whole_HWC = pixels[0:150]

    assert pixels.shape == whole_HWC.shape == (150, 20, 3)
    assert (whole_HWC[64:128] != whole_HWC[:64]).any()
    for top, bottom in [(0, 64), (10, 20), (60, 140), (128, 200), (149, 150)]:
        np.testing.assert_array_equal(pixels[top:bottom], whole_HWC[top:bottom])
