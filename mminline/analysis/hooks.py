"""Find the attention layers of a model, and read them while it runs."""

import contextlib
import inspect
from collections.abc import Callable, Iterator

from torch import Tensor, nn

from ..layers.attention import KINDS, AttentionWeights
from .adapters import ADAPTERS


def find_adapter(layer: nn.Module) -> Callable[..., AttentionWeights] | None:
    """Return the function that reads a layer, or None for a layer of an unknown kind."""
    if hasattr(layer, 'attention_weights'):
        return type(layer).attention_weights
    for ancestor in type(layer).__mro__:
        if ancestor.__name__ in ADAPTERS:
            return ADAPTERS[ancestor.__name__]
    return None


def find_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Find attention layers that can be read, by stage and block, both from 1: '3.1'.

    Blocks are counted as far as they have such a layer.
    """
    layers = {}
    for name, module in model.named_modules():
        if find_adapter(module):
            # The first number in a name is the stage; blocks may start at any, so count them.
            stage = next((int(part) + 1 for part in name.split('.') if part.isdecimal()), 1)
            block = 1 + sum(key.startswith(f'{stage}.') for key in layers)
            layers[f'{stage}.{block}'] = module
    if not layers:
        kinds = [*(kind.__name__ for kind in KINDS), *ADAPTERS]
        raise ValueError(
            f'a model has to have attention layers of the kinds {kinds}, got a '
            f'{type(model).__name__} without any'
        )
    return layers


@contextlib.contextmanager
def attention_hooks(
    layers: dict[str, nn.Module], visit: Callable[[str, AttentionWeights], Tensor | None]
) -> Iterator[None]:
    """Call a function whenever one of the layers has run.

    Args:
        layers: Layers as ``find_layers`` gives them.
        visit: Called with the layer's name and its attention. What it returns replaces the mixed
            values of the layer, unless it is None.
    """

    def visit_inputs(name: str, inputs: tuple) -> Tensor | None:
        attention = read_layer(layers[name], inputs)
        mixed = visit(name, attention)
        return None if mixed is None else attention.finish(mixed)

    with _hooks(layers, visit_inputs):
        yield


@contextlib.contextmanager
def kept_inputs(layers: dict[str, nn.Module]) -> Iterator[dict[str, tuple]]:
    """Keep what each of the layers is called with, the last call of several.

    ``read_layer`` turns it into weights later, for the layers that are asked for.
    """
    kept = {}
    with _hooks(layers, kept.__setitem__):
        yield kept


def read_layer(layer: nn.Module, inputs: tuple) -> AttentionWeights:
    """Read the attention of a layer on inputs that it was called with."""
    return find_adapter(layer)(layer, *inputs)


@contextlib.contextmanager
def _hooks(
    layers: dict[str, nn.Module], visit: Callable[[str, tuple], Tensor | None]
) -> Iterator[None]:
    """Call a function with name and inputs of each layer that has run; it may give an output."""

    def make_hook(name: str) -> Callable:
        def hook(layer: nn.Module, args: tuple, kwargs: dict, output: Tensor) -> Tensor | None:
            bound = inspect.signature(layer.forward).bind(*args, **kwargs)
            return visit(name, tuple(bound.arguments.values()))

        return hook

    with contextlib.ExitStack() as stack:
        for name, layer in layers.items():
            handle = layer.register_forward_hook(make_hook(name), with_kwargs=True)
            stack.callback(handle.remove)
        yield
