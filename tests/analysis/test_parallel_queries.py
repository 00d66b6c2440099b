"""The paper's first figure, number by number."""

import torch

from mminline.analysis import parallel_queries
from mminline.analysis.parallel_queries import (
    KEYS,
    LONGEST_QUERY,
    PRINTED,
    READ_OFF,
    plot_parallel_queries,
    weights_of_each_kind,
)


def test_every_printed_weight_comes_out_to_two_digits():
    weights = weights_of_each_kind()
    assert set(weights) == set(PRINTED)
    for kind, rows in PRINTED.items():
        difference = weights[kind] - torch.tensor(rows, dtype=torch.float64)
        assert difference.abs().max() < 0.005, kind


def test_coordinates_are_those_of_the_plot_within_reading_error():
    found = torch.tensor([*KEYS, LONGEST_QUERY])
    read_off = torch.tensor([*READ_OFF['keys'], READ_OFF['query']])
    assert (found - read_off).abs().max() < 0.025


def test_only_plain_linear_attention_gives_all_queries_the_same_weights():
    for kind, weights in weights_of_each_kind().items():
        spread = (weights.amax(dim=0) - weights.amin(dim=0)).max()
        assert (spread < 1e-5) == (kind == 'linear'), kind


def test_the_figure_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel_queries, 'DPI', 30)
    plot_parallel_queries(tmp_path / 'figure.png')
    assert (tmp_path / 'figure.png').read_bytes().startswith(b'\x89PNG')
