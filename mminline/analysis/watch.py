"""Find the attention layers of a model, and look at them while it runs."""

import contextlib
import inspect
from collections.abc import Callable, Iterator

from torch import Tensor, nn

from .adapters import ADAPTERS, Adapter
from .explicit import ExplicitAttention


def adapter_of(layer: nn.Module) -> Adapter | None:
    for ancestor in type(layer).__mro__:
        if ancestor.__name__ in ADAPTERS:
            return ADAPTERS[ancestor.__name__]
    return None


def find_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Attention layers that can be looked into, by stage and block, both from 1: '3.1'.

    Blocks are counted as far as they have such a layer.
    """
    layers = {}
    for name, module in model.named_modules():
        if adapter_of(module):
            # The first number in a name is the stage; blocks may start at any, so count them.
            stage = next((int(part) + 1 for part in name.split('.') if part.isdecimal()), 1)
            block = 1 + sum(key.startswith(f'{stage}.') for key in layers)
            layers[f'{stage}.{block}'] = module
    if not layers:
        raise ValueError(
            f'a model has to have attention layers of the kinds {list(ADAPTERS)}, got a '
            f'{type(model).__name__} without any'
        )
    return layers


@contextlib.contextmanager
def watch(
    layers: dict[str, nn.Module], visit: Callable[[str, ExplicitAttention], Tensor | None]
) -> Iterator[None]:
    """Have a function called whenever one of the layers has run.

    Args:
        layers: Layers as ``find_layers`` gives them.
        visit: Called with the layer's name and its attention. What it returns replaces the mixed
            values of the layer, unless it is None.
    """

    def make_hook(name: str, adapter: Adapter) -> Callable:
        def hook(layer: nn.Module, args: tuple, kwargs: dict, output: Tensor) -> Tensor | None:
            bound = inspect.signature(layer.forward).bind(*args, **kwargs)
            inputs = bound.arguments.values()
            mixed = visit(name, adapter.read(layer, *inputs))
            return None if mixed is None else adapter.finish(layer, mixed, *inputs)

        return hook

    with contextlib.ExitStack() as stack:
        for name, layer in layers.items():
            hook = make_hook(name, adapter_of(layer))
            handle = layer.register_forward_hook(hook, with_kwargs=True)
            stack.callback(handle.remove)
        yield
