"""Measurements of attention layers while models run on images."""

from collections.abc import Callable, Sequence
from pathlib import Path

from torch import nn

from .. import AttentionWeights, attention_hooks, find_layers
from ..model_input import run_features
from .inputs import InputImage, ModelSource, read_images

Measure = Callable[[AttentionWeights], dict]


def measure_layers(
    models: Sequence[ModelSource], images: Sequence[Path], measure: Measure
) -> list[dict]:
    """Measure every attention layer of every model on every image.

    Args:
        models: The models.
        images: Image files.
        measure: From the attention of a layer to numbers by name.

    Returns:
        A row for each model, image and layer. Kinds of attention that one model mixes are
        different curves.
    """
    rows = []
    for source in models:
        model = source.load()
        layers = find_layers(model)
        print(f'{source.name}: {len(layers)} layers, {len(images)} images')
        found = [
            row
            for image in read_images(model, images)
            for row in _measure_image(model, layers, image, measure)
        ]
        is_mixed = len({row['kind'] for row in found}) > 1
        for row in found:
            curve = f'{source.name} ({row["kind"]})' if is_mixed else source.name
            rows.append(dict(model=source.name, curve=curve, **row))
    return rows


def _measure_image(
    model: nn.Module, layers: dict[str, nn.Module], image: InputImage, measure: Measure
) -> list[dict]:
    rows = []

    def add_row(name: str, attention: AttentionWeights) -> None:
        keys = 'x'.join(map(str, attention.key_grid))
        if attention.reduction > 1:
            keys += f' (1 for {attention.reduction}x{attention.reduction} tokens)'
        row = dict(layer=name, kind=attention.kind, keys=keys, **measure(attention))
        rows.append(dict(row, image=image.path.name))

    with attention_hooks(layers, add_row):
        run_features(model, image.input.inputs_1CHW)
    return rows
