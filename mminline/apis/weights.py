"""Fill a whole model from a checkpoint, or raise."""

from collections.abc import Collection, Mapping
from pathlib import Path

from torch import Tensor, nn

from ..checkpoints import read_checkpoint, unwrap

SHOWN = 5


class IncompleteCheckpointError(ValueError):
    """A checkpoint leaves tensors of a model unfilled, as one of a bare backbone does."""


def load_weights(
    model: nn.Module, checkpoint: str | Path, parts: Collection[str] | None = None
) -> dict:
    """Fill a model completely, read without running anything that the checkpoint names.

    Args:
        model: The model.
        checkpoint: File, web address, or any other address that mmengine knows.
        parts: Children of the model to fill, such as ('backbone', 'neck'), if not all of it.

    Returns:
        The checkpoint, with its other entries such as ``meta``.
    """
    saved = read_checkpoint(checkpoint)
    weights = unwrap(saved)
    check_complete(model, weights, str(checkpoint), parts)
    model.load_state_dict(
        {name: value for name, value in weights.items() if _is_in(name, parts)}, strict=False
    )
    return saved


def check_complete(
    model: nn.Module,
    weights: Mapping[str, Tensor],
    source: str,
    parts: Collection[str] | None = None,
) -> None:
    """Raise an error that names the tensors which weights leave unfilled, if there are any.

    Args:
        model: The model.
        weights: Its weights by name.
        source: Where they come from, for the message.
        parts: Children of the model that have to be filled, if not all of it.
    """
    wanted = {name: value for name, value in model.state_dict().items() if _is_in(name, parts)}
    unfilled = [
        name if name not in weights else f'{name} ({tuple(value.shape)} is wanted)'
        for name, value in sorted(wanted.items())
        if name not in weights or weights[name].shape != value.shape
    ]
    if unfilled:
        whole = f'{", ".join(parts)} of the model' if parts else 'the whole model of the config'
        raise IncompleteCheckpointError(
            f'{source} has to hold {whole}, and {len(unfilled)} of {len(wanted)} tensors are not '
            f'there, or have another shape: {", ".join(unfilled[:SHOWN])}'
            f'{", ..." if len(unfilled) > SHOWN else "."} Is it of another config?'
        )


def _is_in(name: str, parts: Collection[str] | None) -> bool:
    return parts is None or name.split('.')[0] in parts
