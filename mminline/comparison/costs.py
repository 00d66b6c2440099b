"""What an image costs with each kind of attention: multiply-adds, seconds and memory."""

import contextlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmengine.runner import Runner
from torch import nn
from torch.profiler import ProfilerActivity, profile

from ..analysis.complexity import measure_complexity
from ..apis import init_model

ROUNDS = 7


def measure_cost(config: Config) -> dict:
    """Measure the inference of a model of random weights on its first validation image.

    Nothing else should run meanwhile. On a GPU if there is one.

    Args:
        config: The config; its validation data is read.

    Returns:
        ``image_seconds``, the median of several rounds; ``megabytes``, the peak of what tensors
        take beside weights and image; ``gmacs``; and ``shape``, the height and width of the image.
    """
    # The faster form of heads is for our backbones only; a comparison of attention does without.
    model = init_model(config, fast=False)
    data = _first_image(config)

    def predict() -> None:
        with torch.no_grad():
            model.test_step(data)
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    predict()
    seconds = statistics.median(_time(predict) for _ in range(ROUNDS))
    peak = _peak_of_cuda(predict) if torch.cuda.is_available() else _peak_of_cpu(predict)
    shape = _image_shape(model, data)
    macs = measure_complexity(model.cpu(), shape).macs
    return dict(gmacs=macs / 1e9, image_seconds=seconds, megabytes=peak / 1e6, shape=list(shape))


def _first_image(config: Config) -> dict:
    options = dict(batch_size=1, num_workers=0, persistent_workers=False)
    with DefaultScope.overwrite_default_scope(config.get('default_scope')):
        loader = Runner.build_dataloader(dict(config.val_dataloader, **options))
    return next(iter(loader))


def _time(function: Callable[[], None]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _image_shape(model: nn.Module, data: dict) -> tuple[int, int]:
    """Height and width that the model sees, padding included."""
    inputs = model.data_preprocessor(data, training=False)['inputs']
    return tuple(inputs.shape[-2:])


def _peak_of_cuda(function: Callable[[], None]) -> int:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    function()
    return torch.cuda.max_memory_allocated() - before


def _peak_of_cpu(function: Callable[[], None]) -> int:
    """Most bytes that tensors of a call took at a time, above what was there before it."""
    with (
        _quiet_profiler(),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler,
    ):
        function()
    now = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == '[memory]':
            now += event.nbytes()
            peak = max(peak, now)
    return peak


@contextlib.contextmanager
def _quiet_profiler() -> Iterator[None]:
    """Keep the profiler from telling the terminal when it starts and stops."""
    sys.stderr.flush()
    terminal, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(nowhere)
