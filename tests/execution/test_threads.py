"""Bands on several threads: the same result, in the caller's modes, with nothing left behind."""

import os
import subprocess
import sys
import threading

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from mminline.execution import cache, streamed, threads
from mminline.layers import Block, InLineAttention, SoftmaxAttention
from mminline.models import InLinePVT


@pytest.fixture
def three_threads(monkeypatch):
    # A row a band, so that there are several runs of several bands.
    monkeypatch.setattr(cache, 'band_bytes', lambda device: 1)
    monkeypatch.setattr(streamed, 'count_band_threads', lambda device: 3)


def make_block(attention):
    block = Block(attention, attention.qkv.in_features, 4)
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return block.double().eval()


@pytest.mark.parametrize(
    'attention',
    [
        InLineAttention(16, 4),
        InLineAttention(16, 4, local_residual=False),
        SoftmaxAttention(16, 4),
        SoftmaxAttention(16, 4, shifted=True),
    ],
)
@pytest.mark.parametrize('hw_shape', [(1, 40), (4, 3), (61, 5), (151, 2)])
def test_blocks_over_threads_equal_the_plain_ones(attention, hw_shape, three_threads):
    torch.manual_seed(0)
    block = make_block(attention)
    x_BLC = torch.randn(2, hw_shape[0] * hw_shape[1], 16, dtype=torch.float64)

    expected = block(x_BLC, hw_shape)
    with torch.no_grad():
        out = streamed.run(block, x_BLC, hw_shape, one_pass=False, dtype=x_BLC.dtype)

    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)


def test_tokens_in_front_of_the_grid_go_with_the_first_band(three_threads):
    torch.manual_seed(0)
    block = make_block(InLineAttention(16, 4, num_extra_tokens=1))
    x_BLC = torch.randn(2, 1 + 40 * 3, 16, dtype=torch.float64)

    expected = block(x_BLC, (40, 3))
    with torch.no_grad():
        out = streamed.run(block, x_BLC, (40, 3), one_pass=False, dtype=x_BLC.dtype)

    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_the_result_does_not_depend_on_which_thread_is_first(three_threads):
    block = make_block(InLineAttention(16, 4)).float()
    x_BLC = torch.randn(1, 200 * 4, 16)
    first = streamed.run(block, x_BLC, (200, 4), one_pass=False, dtype=x_BLC.dtype)
    for _ in range(5):
        assert torch.equal(
            streamed.run(block, x_BLC, (200, 4), one_pass=False, dtype=x_BLC.dtype), first
        )


def modes(_=None):
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled('cpu'),
        torch.get_autocast_dtype('cpu'),
    )


def modes_in_threads():
    return set(threads.map_bands(modes, range(12), num_threads=3))


def test_bands_run_in_the_modes_of_the_caller():
    with torch.no_grad():
        assert modes_in_threads() == {modes()}
        with torch.autocast('cpu', torch.float16):
            assert modes_in_threads() == {modes()}
        assert modes_in_threads() == {modes()}
    with torch.inference_mode():
        assert modes_in_threads() == {modes()}


def test_results_are_in_the_order_of_the_bands_and_errors_are_raised():
    assert threads.map_bands(lambda band: 2 * band, range(50), 3) == list(range(0, 100, 2))
    with pytest.raises(ZeroDivisionError):
        threads.map_bands(lambda band: 1 / band, [1, 0, 2], 3)


def test_operations_of_a_band_stay_on_one_core_and_others_keep_their_threads():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        numbers = threads.map_bands(lambda band: torch.get_num_threads(), range(12), 3)
        assert set(numbers) == {1}
        assert torch.get_num_threads() == 3
        in_new_thread = []
        thread = threading.Thread(target=lambda: in_new_thread.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert in_new_thread == [3]
    finally:
        torch.set_num_threads(before)


def test_a_call_between_bands_runs_on_one_core_in_the_modes_of_the_caller():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        with torch.inference_mode():
            assert threads.call_on_one_core(lambda: (torch.get_num_threads(), *modes()), 3) == (
                1,
                *modes(),
            )
            assert threads.call_on_one_core(torch.get_num_threads, 1) == 3
        with pytest.raises(ZeroDivisionError):
            threads.call_on_one_core(lambda: 1 / 0, 3)
    finally:
        torch.set_num_threads(before)


def run_script(script):
    subprocess.run([sys.executable, '-I', '-c', script], check=True, timeout=120)


def test_threads_that_start_after_the_first_bands_have_all_cores():
    run_script(
        'import threading, torch\n'
        'from mminline.execution.threads import map_bands\n'
        'torch.set_num_threads(4)\n'
        'map_bands(lambda band: None, range(2), 4)\n'  # takes at most two of the threads
        'map_bands(lambda band: torch.ones(9).sum(), range(100), 4)\n'
        'numbers = []\n'
        'thread = threading.Thread(target=lambda: numbers.append(torch.get_num_threads()))\n'
        'thread.start(); thread.join()\n'
        'assert numbers == [4], numbers\n'
    )


def test_a_thread_that_outlives_the_main_thread_can_predict():
    run_script(
        'import os, threading, time\n'
        'from mminline.execution.threads import map_bands\n'
        'def predict():\n'
        '    while threading.main_thread().is_alive(): time.sleep(0.01)\n'
        '    try: assert map_bands(abs, range(9), 2) == list(range(9))\n'
        '    except BaseException: os._exit(1)\n'
        'map_bands(abs, range(9), 2)\n'
        'threading.Thread(target=predict).start()\n'
    )


def test_work_that_is_left_when_python_ends_is_done():
    run_script(
        'import os, threading, time\n'
        'from concurrent.futures import ThreadPoolExecutor\n'
        'from mminline.execution.threads import map_bands\n'
        'map_bands(abs, range(9), 2)\n'
        'def predict():\n'
        '    time.sleep(1)\n'  # the main thread is at its end, and has closed the pools
        '    try: assert map_bands(abs, range(9), 2) == list(range(9))\n'
        '    except BaseException: os._exit(1)\n'
        'ThreadPoolExecutor(1).submit(predict)\n'
    )


def test_without_further_threads_the_caller_does_the_work(monkeypatch):
    def refuse(thread):
        if sum(each.name.startswith('mminline-band') for each in threading.enumerate()):
            raise RuntimeError("can't start new thread")
        start(thread)

    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, 'start', refuse)
    threads._make_pool.cache_clear()
    before = torch.get_num_threads()

    assert threads.map_bands(lambda band: 2 * band, range(9), 2) == list(range(0, 18, 2))
    assert torch.get_num_threads() == before


def test_weights_are_cast_once_for_all_bands():
    weight = torch.randn(4, 4, requires_grad=True)

    def cast(_):
        with torch.autocast('cpu', enabled=False):
            pass
        return F.linear(torch.ones(1, 4), weight).dtype

    before = torch.clear_autocast_cache
    calls = []
    torch.clear_autocast_cache = lambda: calls.append(None)
    try:
        with torch.no_grad(), torch.autocast('cpu', torch.bfloat16):
            assert set(threads.map_bands(cast, range(8), 2)) == {torch.bfloat16}
        assert len(calls) == 1
    finally:
        torch.clear_autocast_cache = before


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='forks')
def test_a_forked_process_has_threads_of_its_own():
    script = (
        'import os, torch\n'
        'from mminline.execution.threads import map_bands\n'
        'work = lambda band: float((torch.ones(8) * band).sum())\n'
        'assert map_bands(work, range(9), 2) == [8.0 * band for band in range(9)]\n'
        'child = os.fork()\n'
        'assert map_bands(work, range(9), 2) == [8.0 * band for band in range(9)]\n'
        'if child: assert os.waitpid(child, 0)[1] == 0\n'
    )
    run_script(script)


class Watch(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def test_one_band_at_a_time_where_threads_would_do_harm(monkeypatch):
    cpu = torch.device('cpu')
    monkeypatch.setattr(torch, 'get_num_threads', lambda: 2)
    monkeypatch.setattr(os, 'sched_getaffinity', lambda process: {0, 1}, raising=False)
    assert threads.count_band_threads(cpu) == 2
    assert threads.count_band_threads(torch.device('cuda')) == 1
    with torch.profiler.profile():
        assert threads.count_band_threads(cpu) == 1
    with Watch():
        assert threads.count_band_threads(cpu) == 1
    monkeypatch.setattr(os, 'sched_getaffinity', lambda process: {0}, raising=False)
    assert threads.count_band_threads(cpu) == 1
    monkeypatch.setattr(os, 'sched_getaffinity', lambda process: set(range(64)), raising=False)
    monkeypatch.setattr(torch, 'get_num_threads', lambda: threads.MOST_THREADS + 1)
    assert threads.count_band_threads(cpu) == 1


@torch.no_grad()
def test_a_profile_shows_the_operations_of_the_blocks(monkeypatch):
    monkeypatch.setattr(cache, 'band_bytes', lambda device: 1)
    before = torch.get_num_threads()
    arch = dict(embed_dims=(16,), depths=(2,), num_heads=(2,), mlp_ratios=(4,))
    model = InLinePVT(arch, out_indices=(0,)).eval()
    try:
        torch.set_num_threads(2)
        with torch.profiler.profile() as profile:
            model(torch.randn(1, 3, 64, 64))
    finally:
        torch.set_num_threads(before)
    assert 'aten::native_layer_norm' in {event.key for event in profile.key_averages()}


@torch.no_grad()
def test_autocast_reaches_the_bands(three_threads):
    block = make_block(InLineAttention(16, 4)).float()
    x_BLC = torch.randn(1, 200 * 4, 16)
    expected = streamed.run(block, x_BLC, (200, 4), one_pass=False, dtype=x_BLC.dtype)
    with torch.autocast('cpu', torch.float16):
        out = streamed.run(block, x_BLC, (200, 4), one_pass=False, dtype=torch.float16)
    assert out.dtype == torch.float32
    error = (out - expected).abs().max() / expected.abs().max()
    assert 1e-6 < error < 1e-2
