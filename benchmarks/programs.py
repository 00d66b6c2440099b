"""Ways to run a model: each is called to be timed, and ``results`` is what has to agree."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn


class Inference:
    """A forward pass without gradients."""

    def __init__(self, build: Callable[[], nn.Module]) -> None:
        self.model = build()
        self.model.eval()

    @torch.no_grad()
    def __call__(self, *inputs) -> Tensor | Iterable[Tensor]:
        return self.model(*inputs)

    def results(self, *inputs) -> dict[str, Tensor]:
        """Outputs by name."""
        outputs = self(*inputs)
        return _named([outputs] if isinstance(outputs, Tensor) else outputs)


class CompiledInference(Inference):
    """The same through ``torch.compile``."""

    def __init__(self, build: Callable[[], nn.Module]) -> None:
        super().__init__(build)
        self.model.compile()


class TrainStep:
    """Forward and backward, without an optimizer, which would cost the same for all."""

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


class Detection:
    """Prediction of a detector, from the image to boxes and masks of its size."""

    def __init__(self, build: Callable[[], nn.Module]) -> None:
        self.model = build()
        self.model.eval()

    @torch.no_grad()
    def __call__(self, image: Tensor) -> list:
        from mmdet.structures import DetDataSample

        shape = tuple(image.shape[-2:])
        sizes = dict.fromkeys(('img_shape', 'ori_shape', 'pad_shape', 'batch_input_shape'), shape)
        samples = [DetDataSample(metainfo=dict(sizes, scale_factor=(1, 1))) for _ in image]
        return self.model.predict(image, samples)

    @torch.no_grad()
    def results(self, image: Tensor) -> dict[str, Tensor]:
        """Maps of the neck: behind it the choice of boxes turns rounding into other boxes."""
        return _named(self.model.extract_feat(image))


class DetectorBackbone(Inference):
    """The backbone of a detector alone."""

    def __init__(self, build: Callable[[], nn.Module]) -> None:
        super().__init__(lambda: build().backbone)


def random_image(batch: int, height: int, width: int) -> tuple[Tensor]:
    """Input of a backbone."""
    return (torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(0)),)


def random_tokens(
    batch: int, embed_dims: int, stride: int, height: int, width: int
) -> tuple[Tensor, tuple[int, int]]:
    """Input of a layer for an image of the given size."""
    hw_shape = (-(-height // stride), -(-width // stride))
    generator = torch.Generator().manual_seed(0)
    shape = (batch, hw_shape[0] * hw_shape[1], embed_dims)
    return torch.randn(shape, generator=generator), hw_shape


def _named(outputs: Iterable[Tensor]) -> dict[str, Tensor]:
    return {f'output {index}': output for index, output in enumerate(outputs)}
