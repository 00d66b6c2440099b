"""Ways to run a model. A runner is called to be timed; ``results`` is what has to agree."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def run_layer(layer: nn.Module, x_BLC: Tensor, hw_shape: tuple[int, int]) -> Tensor:
    """Run one layer in the way that the backbones run it."""
    from mminline import execution

    return execution.run(layer, x_BLC, hw_shape)


class Inference:
    """Forward pass without gradients.

    Args:
        build: Builds the model.
    """

    def __init__(self, build: Callable[[], nn.Module]) -> None:
        self.model = build()
        self.model.eval()  # not chained: that of mmdet's Swin returns None

    @torch.no_grad()
    def __call__(self, *inputs) -> Tensor | Iterable[Tensor]:
        return self.model(*inputs)

    def results(self, *inputs) -> dict[str, Tensor]:
        """Outputs by name."""
        outputs = self(*inputs)
        return _named([outputs] if isinstance(outputs, Tensor) else outputs)


class LayerInference(Inference):
    """Forward pass of a layer through ``mminline.execution``."""

    @torch.no_grad()
    def __call__(self, x_BLC: Tensor, hw_shape: tuple[int, int]) -> Tensor:
        return run_layer(self.model, x_BLC, hw_shape)


class CompiledInference(Inference):
    """Forward pass through ``torch.compile``."""

    def __init__(self, build: Callable[[], nn.Module]) -> None:
        super().__init__(build)
        self.model.compile()


class BusyInference(Inference):
    """Forward pass while another process keeps a core busy."""

    # It also ends if this process does.
    NEIGHBOUR = 'import os; parent = os.getppid()\nwhile os.getppid() == parent: pass'

    def __call__(self, *inputs) -> Tensor | Iterable[Tensor]:
        command = [sys.executable, '-c', self.NEIGHBOUR]
        neighbour = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return super().__call__(*inputs)
        finally:
            neighbour.kill()
            neighbour.wait()


class TrainStep:
    """Forward and backward pass, without the optimizer, which costs the same for all.

    Args:
        build: Builds the model.
    """

    def __init__(self, build: Callable[[], nn.Module]) -> None:
        self.model = build()
        self.model.train()

    def __call__(self, image: Tensor) -> tuple[Tensor, ...]:
        self.model.zero_grad(set_to_none=True)
        outputs = self.model(image)
        # The gradient of half the sum of squares: a loss that needs no tensors of its own.
        torch.autograd.backward(outputs, [output.detach() for output in outputs])
        return outputs

    def results(self, image: Tensor) -> dict[str, Tensor]:
        """Outputs, and gradients of the image and of all parameters, by name."""
        image = image.clone().requires_grad_()
        outputs = self(image)
        gradients = {name: parameter.grad for name, parameter in self.model.named_parameters()}
        return _named(output.detach() for output in outputs) | gradients | {'image': image.grad}


class InferenceOfParts(Inference):
    """Prediction of a whole model.

    Subclasses say how to call the model, and what has to agree. ``part_seconds`` has the seconds
    of its parts in each call, on a CPU.
    """

    # Name of each part, and the method of the model that runs it.
    PARTS: dict[str, tuple[str, str]]

    def __init__(self, build: Callable[[], nn.Module]) -> None:
        super().__init__(build)
        self.part_seconds: list[dict[str, float]] = []
        for name, (part, method) in self.PARTS.items():
            module = getattr(self.model, part)
            setattr(module, method, partial(self._time, name, getattr(module, method)))

    def _time(self, name: str, function: Callable, *args, **kwargs) -> Any:
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            self.part_seconds[-1][name] = time.perf_counter() - start

    @torch.no_grad()
    def __call__(self, *inputs) -> Any:
        self.part_seconds.append({})
        return self.call(*inputs)

    @torch.no_grad()
    def results(self, *inputs) -> dict[str, Tensor]:
        """What has to agree, by name."""
        self.part_seconds.append({})
        return self.measure_results(*inputs)


class Detection(InferenceOfParts):
    """Prediction of a detector, from the image to boxes and masks of its size."""

    PARTS = {
        'backbone': ('backbone', 'forward'),
        'neck': ('neck', 'forward'),
        'RPN': ('rpn_head', 'predict'),
        'boxes': ('roi_head', 'predict_bbox'),
        'masks': ('roi_head', 'predict_mask'),
    }

    def call(self, image: Tensor) -> list:
        from mmdet.structures import DetDataSample

        shape = tuple(image.shape[-2:])
        sizes = dict.fromkeys(('img_shape', 'ori_shape', 'pad_shape', 'batch_input_shape'), shape)
        samples = [DetDataSample(metainfo=dict(sizes, scale_factor=(1, 1))) for _ in image]
        return self.model(image, samples, mode='predict')

    def measure_results(self, image: Tensor) -> dict[str, Tensor]:
        """Outputs of the neck: after it, rounding changes which boxes are selected."""
        self.call(image)
        return _named(self.model.extract_feat(image))


class ClassMap(Inference):
    """Class map of a segmentor by ``test_step``, as mmseg computes it."""

    @torch.no_grad()
    def __call__(self, pixels_HWC: np.ndarray) -> Tensor:
        (sample,) = self.model.test_step(_batch(pixels_HWC))
        return sample.pred_sem_seg.data[0]

    def results(self, pixels_HWC: np.ndarray) -> dict[str, Tensor]:
        """Class of each pixel."""
        return dict(classes=self(pixels_HWC).to(torch.uint8))


class ClassMapInParts(ClassMap):
    """Class map of a segmentor by ``mminline.large``, written to a file part by part."""

    def __call__(self, pixels_HWC: np.ndarray) -> Tensor:
        from mminline import large

        with tempfile.TemporaryDirectory() as folder:
            file = large.predict(self.model, pixels_HWC, out=Path(folder) / 'classes.npy')
            return torch.from_numpy(np.load(file))


class SlidingClassMap(ClassMap):
    """Class map of a segmentor by a sliding window of 512 px, with the sums of mmseg."""

    CROP = 512

    @torch.no_grad()
    def __call__(self, pixels_HWC: np.ndarray) -> Tensor:
        from sliding import slide

        data = self.model.data_preprocessor(_batch(pixels_HWC))
        meta = data['data_samples'][0].metainfo
        classes_HW = slide(self.model, data['inputs'], meta, self.CROP)
        return classes_HW[: pixels_HWC.shape[0], : pixels_HWC.shape[1]]


def _batch(pixels_HWC: np.ndarray) -> dict:
    """Make the argument of ``test_step`` of a segmentor."""
    from mmseg.structures import SegDataSample

    shape = pixels_HWC.shape[:2]
    sample = SegDataSample(metainfo=dict(ori_shape=shape, img_shape=shape))
    image = torch.from_numpy(pixels_HWC[0 : shape[0]]).permute(2, 0, 1)
    return dict(inputs=[image], data_samples=[sample])


def _named(outputs: Iterable[Tensor]) -> dict[str, Tensor]:
    return {f'output {index}': output for index, output in enumerate(outputs)}
