"""What an image costs with each kind of attention: multiply-adds, seconds and memory."""

import statistics
import time
from collections.abc import Callable

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

    Nothing else should run meanwhile. Seconds are the median of several rounds.

    Args:
        config: The config; its validation data is read.

    Returns:
        ``gmacs`` and ``megabytes`` (peak of tensors beside weights and image), ``image_seconds``,
        and ``shape``, the height and width of the image.
    """
    model = init_model(config, device='cpu')
    with DefaultScope.overwrite_default_scope(config.get('default_scope')):
        loader = Runner.build_dataloader(
            dict(config.val_dataloader, batch_size=1, num_workers=0, persistent_workers=False)
        )
    data = next(iter(loader))

    def predict() -> None:
        with torch.no_grad():
            model.test_step(data)

    predict()
    seconds = statistics.median(_time(predict) for _ in range(ROUNDS))
    shape = _image_shape(model, data)
    return dict(
        gmacs=measure_complexity(model, shape).macs / 1e9,
        image_seconds=seconds,
        megabytes=_peak_bytes(predict) / 1e6,
        shape=list(shape),
    )


def _time(function: Callable[[], None]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _image_shape(model: nn.Module, data: dict) -> tuple[int, int]:
    """Height and width that the model sees, padding included."""
    inputs = model.data_preprocessor(data, training=False)['inputs']
    return tuple(inputs.shape[-2:])


def _peak_bytes(function: Callable[[], None]) -> int:
    """Most bytes that tensors of a call took at a time, above what was there before it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        function()
    now = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == '[memory]':
            now += event.nbytes()
            peak = max(peak, now)
    return peak
