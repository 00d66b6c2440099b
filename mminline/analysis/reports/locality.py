"""Report on locality: the share of the attention on near keys, layer by layer."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from .. import AttentionWeights, measure_locality
from ..locality import MAX_QUERIES
from ..plots import plot_locality
from .inputs import ModelSource
from .measure import measure_layers
from .tables import group_rows, print_table, save_rows


def report_locality(
    models: Sequence[ModelSource],
    images: Sequence[Path],
    out: Path,
    max_queries: int = MAX_QUERIES,
    seed: int = 0,
) -> None:
    """Measure the share of the attention that stays on the 3x3 keys around each query.

    It is a share of absolute weights, as those of InLine attention may be negative. With the local
    residual counted in, the kernel of each channel is added to the weights of the nine neighbours
    before the share is taken, and shares are averaged over channels. For comparison: the share
    that equal weights on all keys would have, 9/N but for borders. Where keys are a reduced grid
    (PVT, SegFormer), the neighbourhood is 3x3 of those keys, which cover more than 3x3 tokens.

    Args:
        models: Models to compare.
        images: Image files.
        out: Folder for locality.csv, .json and .png.
        max_queries: Of a map or window with more tokens, so many random ones are measured.
        seed: Of random queries.
    """
    generator = torch.Generator().manual_seed(seed)

    def measure(attention: AttentionWeights) -> dict:
        return measure_locality(attention, max_queries, generator)._asdict()

    rows = measure_layers(models, images, measure)
    layers = [
        dict(curve=curve, layer=layer, keys=some[0]['keys'], **_mean_shares(some))
        for (curve, layer), some in group_rows(rows, 'curve', 'layer').items()
    ]
    print_table(
        ['model', 'layer', 'keys', 'attention', 'with residual', 'equal weights'],
        [_table_row(row) for row in layers],
    )
    settings = dict(queries=max_queries, seed=seed)
    save_rows(out / 'locality', rows, settings=settings, layers=layers)
    plot_locality(layers, out / 'locality.png')


def _table_row(row: dict) -> list[str]:
    shares = [row['attention'], row['with_residual'], row['uniform']]
    cells = ['' if share is None else f'{share:.2%}' for share in shares]
    return [row['curve'], row['layer'], row['keys'], *cells]


def _mean_shares(rows: list[dict]) -> dict:
    shares = {}
    for name in ('attention', 'with_residual', 'uniform'):
        values = [row[name] for row in rows]
        shares[name] = None if values[0] is None else float(np.mean(values))
    return shares
