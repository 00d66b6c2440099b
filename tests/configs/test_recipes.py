"""The training recipes: what is optimized how fast, with how much decay, on which images."""

import itertools
from collections.abc import Iterator

import pytest
import torch
from mmengine.config import Config
from mmengine.hub import get_config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import PARAM_SCHEDULERS

from helpers.shipped_configs import PUBLISHED, build, load

pytestmark = pytest.mark.slow

MASK_PVT = 'mask-rcnn_inline-pvt-t_fpn_1x_coco'
MASK_SWIN = 'mask-rcnn_inline-swin-t_fpn_1x_coco'
MASK_SWIN_3X = 'mask-rcnn_inline-swin-t_fpn_3x_coco'
CASCADE_SWIN = 'cascade-mask-rcnn_inline-swin-t_fpn_1x_coco'
CASCADE_SWIN_3X = 'cascade-mask-rcnn_inline-swin-t_fpn_3x_coco'
RETINANET_PVT = 'retinanet_inline-pvt-t_fpn_1x_coco'
FPN_PVT = 'semantic-fpn_inline-pvt-t_40k_ade20k-512x512'
UPERNET_SWIN = 'upernet_inline-swin-t_160k_ade20k-512x512'
UPERNET_DEIT = 'upernet_inline-deit-t_160k_ade20k-512x512'
UPERNET_SOFTMAX_DEIT = 'upernet_deit-t_160k_ade20k-512x512'
EPOCH = 600  # iterations: longer than the warm-up, shorter than an epoch of COCO


def learning_rates(config: Config) -> Iterator[float]:
    """The learning rate of each iteration, by mmengine's schedulers on a parameter of our own."""
    optimizer = torch.optim.AdamW([torch.zeros(1)], lr=config.optim_wrapper.optimizer.lr)
    schedulers = [
        PARAM_SCHEDULERS.build(settings, default_args=dict(optimizer=optimizer))
        for settings in config.param_scheduler
    ]
    for iteration in itertools.count(1):
        yield optimizer.param_groups[0]['lr']
        for scheduler in schedulers:
            if not scheduler.by_epoch or iteration % EPOCH == 0:
                scheduler.step()


def rates_at(config: Config, *iterations: int) -> list[float]:
    last = max(iterations)
    rates = list(itertools.islice(learning_rates(config), last + 1))
    return [rates[iteration] for iteration in iterations]


@pytest.mark.parametrize(
    ('stem', 'rate', 'milestones'),
    [
        (MASK_PVT, 2e-4, (8, 11, 12)),
        (RETINANET_PVT, 1e-4, (8, 11, 12)),
        (MASK_SWIN, 1e-4, (8, 11, 12)),
        (CASCADE_SWIN, 1e-4, (8, 11, 12)),
        (MASK_SWIN_3X, 1e-4, (27, 33, 36)),
        (CASCADE_SWIN_3X, 1e-4, (27, 33, 36)),
    ],
)
def test_a_detector_warms_up_and_drops_its_rate_twice(stem, rate, milestones):
    first, second, end = milestones
    config = load(stem)

    warm_up = rates_at(config, 0, 250, 499, 500)
    before, dropped, still, twice, last = rates_at(
        config,
        EPOCH * first - 1,
        EPOCH * first,
        EPOCH * second - 1,
        EPOCH * second,
        EPOCH * end - 1,
    )

    assert config.train_cfg.max_epochs == end
    assert warm_up == pytest.approx([rate / 1000, rate * 0.501, rate, rate], rel=2e-3)
    assert [before, dropped, still, twice, last] == pytest.approx(
        [rate, rate / 10, rate / 10, rate / 100, rate / 100]
    )


def test_semantic_fpn_has_a_poly_schedule_without_warm_up():
    config = load(FPN_PVT)

    rates = rates_at(config, 0, 10000, 20000, 39999)

    assert config.train_cfg.max_iters == 40000
    expected = [2e-4 * (1 - step / 40000) ** 0.9 for step in (0, 10000, 20000)]
    assert rates == pytest.approx([*expected, 0], rel=1e-3)


def test_upernet_warms_up_and_falls_in_a_straight_line():
    config = load(UPERNET_SWIN)

    rates = rates_at(config, 0, 750, 1500, 80750, 159999)

    assert config.train_cfg.max_iters == 160000
    assert rates == pytest.approx([6e-11, 3e-5, 6e-5, 3e-5, 0], rel=2e-3)


def test_upernet_with_deit_has_the_schedule_of_swin():
    swin, deit = load(UPERNET_SWIN), load(UPERNET_DEIT)
    assert deit.param_scheduler == swin.param_scheduler
    assert deit.optim_wrapper.optimizer == swin.optim_wrapper.optimizer
    assert deit.train_cfg == swin.train_cfg


@pytest.mark.parametrize(
    ('stem', 'decay', 'exempt'),
    [
        (MASK_PVT, 1e-4, ()),
        (FPN_PVT, 1e-4, ()),
        (MASK_SWIN, 0.05, ('norm', 'relative_position_bias_table')),
        (CASCADE_SWIN, 0.05, ('norm', 'relative_position_bias_table')),
        (UPERNET_SWIN, 0.01, ('norm', 'relative_position_bias_table')),
        (UPERNET_DEIT, 0.01, ('norm', 'pos_embed', 'class_token', 'class_position')),
        (UPERNET_SOFTMAX_DEIT, 0.01, ('ln1', 'ln2', 'pos_embed', 'cls_token')),
        ('mask-rcnn_swin-t_fpn_1x_coco', 0.05, ('norm', 'relative_position_bias_table')),
    ],
)
def test_weight_decay_spares_what_the_recipe_says(stem, decay, exempt):
    config, model = load(stem), build(stem)
    names = {id(parameter): name for name, parameter in model.named_parameters()}

    optimizer = build_optim_wrapper(model, config.optim_wrapper).optimizer

    assert type(optimizer) is torch.optim.AdamW
    assert optimizer.defaults['betas'] == (0.9, 0.999)
    decays = {
        names[id(parameter)]: group['weight_decay']
        for group in optimizer.param_groups
        for parameter in group['params']
    }
    assert decays == {
        name: 0 if any(word in name for word in exempt) else decay for name in names.values()
    }
    if 'swin' in stem:
        assert {'backbone.norm3.weight', 'backbone.norm0.bias'} <= {
            name for name, value in decays.items() if value == 0
        }


@pytest.mark.parametrize('stem', PUBLISHED)
def test_sixteen_images_at_a_time_are_what_the_rate_is_for(stem):
    config = load(stem)

    assert 8 * config.train_dataloader.batch_size == config.auto_scale_lr.base_batch_size == 16


DROP_PATHS = {
    'mask-rcnn_inline-pvt-{}_fpn_1x_coco': dict(t=0.1, s=0.2, m=0.1, l=0.2),
    'mask-rcnn_inline-swin-{}_fpn_1x_coco': dict(t=0.1, s=0.1),
    'mask-rcnn_inline-swin-{}_fpn_3x_coco': dict(t=0.1, s=0.1),
    'cascade-mask-rcnn_inline-swin-{}_fpn_1x_coco': dict(t=0.1),
    'cascade-mask-rcnn_inline-swin-{}_fpn_3x_coco': dict(t=0.1, s=0.1, b=0.4),
    'semantic-fpn_inline-pvt-{}_40k_ade20k-512x512': dict(t=0.1, s=0.1, m=0.2, l=0.1),
    'upernet_inline-swin-{}_160k_ade20k-512x512': dict(t=0.3, s=0.3, b=0.5),
    'upernet_inline-deit-{}_160k_ade20k-512x512': dict(t=0.1, s=0.1, b=0.1),
}


@pytest.mark.parametrize('pattern', DROP_PATHS)
def test_drop_path_is_that_of_the_recipe(pattern):
    found = {
        size: load(pattern.format(size)).model.backbone.drop_path_rate
        for size in DROP_PATHS[pattern]
    }

    assert found == DROP_PATHS[pattern]


@pytest.mark.parametrize('stem', [MASK_SWIN, MASK_SWIN_3X, CASCADE_SWIN, CASCADE_SWIN_3X])
def test_swin_sees_the_images_that_mmdet_shows_it(stem):
    theirs = get_config('mmdet::swin/mask-rcnn_swin-t-p4-w7_fpn_ms-crop-3x_coco.py')
    for step in theirs.train_pipeline:
        step.pop('backend_args', None)

    assert load(stem).train_dataloader.dataset.pipeline == theirs.train_pipeline


def test_cascade_heads_regress_decoded_boxes_of_each_class():
    heads = load(CASCADE_SWIN).model.roi_head.bbox_head

    assert [head.bbox_coder.target_stds[0] for head in heads] == [0.1, 0.05, 0.033]
    for head in heads:
        assert (head.num_shared_convs, head.num_shared_fcs) == (4, 1)
        assert (head.reg_class_agnostic, head.reg_decoded_bbox) == (False, True)
        assert head.norm_cfg.type == 'SyncBN'
        assert head.loss_bbox == dict(type='GIoULoss', loss_weight=10.0)


@pytest.mark.parametrize('stem', [FPN_PVT, UPERNET_SWIN, UPERNET_DEIT])
def test_segmentors_know_the_classes_of_ade20k_and_test_whole_images(stem):
    model = load(stem).model

    heads = [model.decode_head, *filter(None, [model.get('auxiliary_head')])]
    assert [head.num_classes for head in heads] == [150] * len(heads)
    assert model.test_cfg == dict(mode='whole')
    assert load(stem).train_pipeline[2].scale == (2048, 512)
