"""Tell whether a module is exactly as its constructor left it.

A form that reads the weights of a layer in place of calling it would pass by whatever else was
attached to that layer: an adapter, a quantised weight, a hook, a patched method.
"""

import re
from collections.abc import Collection

import torch
from torch import Tensor, nn

# Hooks that run with the module; those of state dicts do not matter here.
HOOKS = tuple(name for name in vars(nn.Module()) if re.search('(for|back)ward.*_hooks$', name))


def find_change(module: nn.Module, kind: type, methods: Collection[str]) -> str | None:
    """Describe the first change to a module, or return None.

    Args:
        module: The module.
        kind: Class it was built from.
        methods: Names of methods that nobody may have replaced on the instance.
    """
    if type(module) is not kind:
        return f'is a {type(module).__name__}, not a {kind.__name__}'
    state = vars(module)
    for name in methods:
        if name in state:
            return f'has its {name} replaced'
    for name in HOOKS:
        if state[name]:
            return f'has a {name.strip("_").removesuffix("s").replace("_", " ")}'
    return None


def find_oddity(tensor: Tensor) -> str | None:
    """Describe a tensor that brings operations of its own: quantised, sharded, sparse."""
    if type(tensor) not in (Tensor, nn.Parameter):
        return f'of type {type(tensor).__name__}'
    return None if tensor.layout is torch.strided else f'in the layout {tensor.layout}'


@torch.compiler.assume_constant_result
def is_plain_linear(module: nn.Module) -> bool:
    """Whether a linear may be read as its weight and bias in place of being called."""
    if find_change(module, nn.Linear, ('forward',)) or module.bias is None:
        return False
    return not find_oddity(module.weight) and not find_oddity(module.bias)
