"""Reports on all layers of models: measure, print a table, save the numbers, draw."""

import argparse
import csv
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from mmengine.utils import track_iter_progress

import _subjects
from mminline.analysis import (
    ExplicitAttention,
    count_confusion,
    find_layers,
    measure_locality,
    watch,
)
from mminline.analysis.confusion import bootstrap_interval
from mminline.analysis.plots import plot_confusion, plot_locality


def report_confusion(args: argparse.Namespace) -> None:
    """Count how often two clearly different queries get nearly the same weights.

    Drawn are the distribution over images of the share of confused pairs (mean over layers), and
    each layer's share. Intervals of layers and means are bootstrapped over images, an image being
    a cluster; confusion.csv has Wilson's interval for each image and layer, of random pairs.
    """
    generator = torch.Generator().manual_seed(args.seed)

    def measure(attention: ExplicitAttention) -> dict:
        found = count_confusion(
            attention,
            args.query_difference,
            args.weight_difference,
            args.pairs,
            generator,
            args.centred,
        )
        low, high = found.interval
        return dict(rate=found.rate, low=low, high=high, exact=found.exact, **found._asdict())

    rows = survey(args, measure)
    layers, images, means = summarize_confusion(rows)
    criterion = (
        f'confused: query difference at least {args.query_difference:g}, '
        f'{"centred " * args.centred}weight difference at most {args.weight_difference:g}'
    )
    print(criterion)
    pairs = {True: 'all', False: 'random', None: ''}
    print_table(
        ['model', 'layer', 'confused', '95% interval', 'pairs'],
        [
            [
                row['curve'],
                row.get('layer', 'mean'),
                *_rate_and_interval(row),
                pairs[row.get('exact')],
            ]
            for row in layers + means
        ],
    )
    names = ('query_difference', 'weight_difference', 'centred', 'pairs', 'seed')
    settings = {name: getattr(args, name) for name in names}
    save(args.out / 'confusion', rows, settings=settings, layers=layers, means=means, images=images)
    plot_confusion(images, layers, criterion, args.out / 'confusion.png')


def _rate_and_interval(row: dict) -> tuple[str, str]:
    if math.isnan(row['rate']):
        return '-', 'no different queries'
    return f'{row["rate"]:.3%}', f'{row["low"]:.3%} .. {row["high"]:.3%}'


def summarize_confusion(rows: list[dict]) -> tuple[list[dict], list[dict], list[dict]]:
    """Means over the images of each layer, over the layers of each image, and over both."""
    layers = [
        dict(curve=curve, layer=layer, exact=all(row['exact'] for row in some), **_mean_rate(some))
        for (curve, layer), some in _grouped(rows, 'curve', 'layer').items()
    ]
    images = [
        dict(curve=curve, image=image, rate=_mean_rate(some)['rate'])
        for (curve, image), some in _grouped(rows, 'curve', 'image').items()
    ]
    images = [row for row in images if not math.isnan(row['rate'])]
    if not images:
        raise ValueError('no layer has two clearly different queries: lower --query-difference')
    means = [
        dict(curve=curve, images=len(some), **_mean_rate(some))
        for (curve,), some in _grouped(images, 'curve').items()
    ]
    return layers, images, means


def _mean_rate(rows: list[dict]) -> dict:
    rates = [row['rate'] for row in rows if not math.isnan(row['rate'])]
    low, high = bootstrap_interval(rates)
    return dict(rate=float(np.mean(rates)) if rates else math.nan, low=low, high=high)


def report_locality(args: argparse.Namespace) -> None:
    """Measure the share of the attention that stays on the 3x3 keys around each query.

    It is a share of absolute weights, as those of InLine attention may be negative. With the local
    residual counted in, the kernel of each channel is added to the weights of the nine neighbours
    before the share is taken, and shares are averaged over channels. For comparison: the share
    that equal weights on all keys would have, 9/N but for borders. Where keys are a reduced grid
    (PVT, SegFormer), the neighbourhood is 3x3 of those keys, which cover more than 3x3 tokens.
    """
    generator = torch.Generator().manual_seed(args.seed)

    def measure(attention: ExplicitAttention) -> dict:
        return measure_locality(attention, args.queries, generator)._asdict()

    rows = survey(args, measure)
    layers = [
        dict(curve=curve, layer=layer, keys=some[0]['keys'], **_mean_shares(some))
        for (curve, layer), some in _grouped(rows, 'curve', 'layer').items()
    ]
    print_table(
        ['model', 'layer', 'keys', 'attention', 'with residual', 'equal weights'],
        [
            [
                row['curve'],
                row['layer'],
                row['keys'],
                f'{row["attention"]:.2%}',
                '' if row['with_residual'] is None else f'{row["with_residual"]:.2%}',
                f'{row["uniform"]:.2%}',
            ]
            for row in layers
        ],
    )
    settings = dict(queries=args.queries, seed=args.seed)
    save(args.out / 'locality', rows, settings=settings, layers=layers)
    plot_locality(layers, args.out / 'locality.png')


def _mean_shares(rows: list[dict]) -> dict:
    shares = {}
    for name in ('attention', 'with_residual', 'uniform'):
        values = [row[name] for row in rows]
        shares[name] = None if values[0] is None else float(np.mean(values))
    return shares


def survey(args: argparse.Namespace, measure: Callable[[ExplicitAttention], dict]) -> list[dict]:
    """Measure every layer of every model on every image."""
    paths = _subjects.list_images(args.images, args.limit)
    rows = []
    for subject in args.subjects:
        config = _subjects.read_config(subject, args.cfg_options, args.out)
        model = _subjects.load_model(subject, config)
        layers = find_layers(model)
        found = []

        def visit(name: str, attention: ExplicitAttention, found: list = found) -> None:
            keys = 'x'.join(map(str, attention.key_grid))
            if attention.reduction > 1:
                keys += f' (1 for {attention.reduction}x{attention.reduction} tokens)'
            found.append(dict(layer=name, kind=attention.kind, keys=keys, **measure(attention)))

        print(f'{subject.name}: {len(layers)} layers, {len(paths)} images')
        for path in track_iter_progress(paths):
            picture = _subjects.read_picture(model, config, path)
            start = len(found)
            with watch(layers, visit):
                _subjects.run(model, picture)
            for row in found[start:]:
                row['image'] = path.name
        print()
        several = len({row['kind'] for row in found}) > 1
        for row in found:
            curve = f'{subject.name} ({row["kind"]})' if several else subject.name
            rows.append(dict(model=subject.name, curve=curve, **row))
    return rows


def _grouped(rows: list[dict], *keys: str) -> dict[tuple, list[dict]]:
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def print_table(header: list[str], rows: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in [header, *rows]:
        print('  '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))


def save(stem: Path, rows: list[dict], **summary: object) -> None:
    """Write all rows as CSV, and what follows from them as JSON."""
    with open(stem.with_suffix('.csv'), 'w', newline='') as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows(rows)
    # JSON has no word for what is not a number.
    text = json.dumps(summary, indent=2).replace('NaN', 'null')
    stem.with_suffix('.json').write_text(text + '\n')
    print(f'Figure and numbers are in {stem}.png, .csv and .json.')
