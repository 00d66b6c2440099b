"""Summaries of a comparison: means, spreads, and differences seed by seed."""

import pytest
from mmengine.config import Config

from mminline.comparison.budget import use_budget
from mminline.comparison.results import differs, print_table, summarize

COST = dict(gmacs=1.5, image_seconds=0.02, megabytes=3.0, shape=[64, 64])


def result(kind, seed, score):
    return dict(
        kind=kind,
        seed=seed,
        curve=[[1, dict(aAcc=0.9, mIoU=score / 2)], [2, dict(aAcc=0.9, mIoU=score)]],
        losses=[[2, 1.0]],
        parameters=2_000_000,
        seconds=5.0,
    )


def rows_of(metric=None, **scores):
    results = [
        result(kind, seed, score)
        for kind, values in scores.items()
        for seed, score in enumerate(values)
    ]
    return summarize(results, dict.fromkeys(scores, COST), metric)


def test_differences_are_taken_seed_by_seed():
    # Seeds differ by far more than kinds, and by the same for both.
    first, second = rows_of(inline=[0.2, 0.4, 0.6], mala=[0.25, 0.46, 0.64])

    assert first['mIoU'] == pytest.approx(0.4)
    assert second['deviation'] == pytest.approx(0.195, abs=1e-3)
    assert second['difference'] == pytest.approx(0.05)
    assert second['difference_deviation'] == pytest.approx(0.01)
    assert differs(second)
    assert not differs(first)


def test_any_score_of_the_evaluator_can_be_compared():
    (row,) = rows_of(metric='aAcc', inline=[0.2, 0.4])
    assert (row['metric'], row['aAcc'], row['deviation']) == ('aAcc', 0.9, 0.0)
    with pytest.raises(ValueError, match=r"one of \['aAcc', 'mIoU'\].*got metric='mAP'"):
        rows_of(metric='mAP', inline=[0.2])


def test_a_difference_within_its_noise_or_of_one_seed_is_none():
    assert not differs(rows_of(inline=[0.2, 0.4, 0.6], mala=[0.25, 0.36, 0.65])[1])
    assert not differs(rows_of(inline=[0.2], mala=[0.9])[1])


def test_the_table_marks_clear_differences(capsys):
    print_table(rows_of(inline=[0.2, 0.4, 0.6], mala=[0.25, 0.46, 0.64], hydra=[0.1, 0.5, 0.6]))

    _, first, mala, hydra, legend = capsys.readouterr().out.splitlines()
    assert ' '.join(first.split()) == 'inline 0.400 0.200 2.00 1.5 20.0 3.0 5'
    assert ' '.join(mala.split()) == 'mala 0.450 0.195 +0.050 0.010 * 2.00 1.5 20.0 3.0 5'
    assert '*' not in hydra
    assert legend.startswith('difference: from inline, seed by seed')


def test_every_schedule_ends_with_the_budget():
    config = Config(
        dict(
            train_cfg=dict(type='IterBasedTrainLoop', max_iters=1000, val_interval=200),
            param_scheduler=[
                dict(type='LinearLR', by_epoch=False, begin=0, end=50),
                dict(type='CosineAnnealingLR', by_epoch=False, begin=50, T_max=950, end=1000),
            ],
        )
    )
    use_budget(config, 100, evaluations=4)
    warm_up, cosine = config.param_scheduler
    assert (warm_up.end, cosine.begin, cosine.T_max, cosine.end) == (5, 5, 95, 100)
    assert config.train_cfg.val_interval == 25
    assert config.default_hooks.checkpoint.interval == 100
