"""Images, scores and masks in the size that mmcv, mmseg and mmdet give them."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmcv.transforms import Resize

from mminline.deployment import paste_masks, resize
from mminline.deployment.class_maps import classify, resize_scores

IMAGE = np.random.default_rng(0).integers(256, size=(37, 90, 3), dtype=np.uint8)


@pytest.mark.parametrize('image', [IMAGE, IMAGE.swapaxes(0, 1)])
@pytest.mark.parametrize(
    'rule',
    [
        dict(scale=[128, 128], keep_ratio=True),
        dict(scale=[133, 80], keep_ratio=True),
        dict(scale=[50, 200], keep_ratio=True),
        dict(scale=[64, 48], keep_ratio=False),
        dict(scale_factor=[0.7, 0.7], keep_ratio=True),
    ],
)
def test_images_are_resized_as_mmcv_does(image, rule):
    options = {
        name: tuple(value) if isinstance(value, list) else value for name, value in rule.items()
    }
    results = Resize(**options).transform(dict(img=image))

    np.testing.assert_array_equal(resize(image, rule), results['img'])


def test_images_stay_as_they_are_without_a_rule():
    assert resize(IMAGE, {}) is IMAGE


@pytest.mark.parametrize('align_corners', [False, True])
@pytest.mark.parametrize(('input_size', 'size'), [((44, 60), (61, 83)), ((45, 61), (20, 1))])
def test_scores_are_resized_and_compared_as_mmseg_does(align_corners, input_size, size):
    scores = np.random.default_rng(0).normal(size=(5, 11, 15)).astype(np.float32)
    wanted = torch.from_numpy(scores)[None]
    for step in (input_size, size):
        wanted = F.interpolate(wanted, step, mode='bilinear', align_corners=align_corners)

    found = resize_scores(resize_scores(scores[2], input_size, align_corners), size, align_corners)
    np.testing.assert_allclose(found, wanted[0, 2].numpy(), atol=1e-5)
    classes = classify(scores, input_size, size, align_corners, None)
    assert (classes != wanted[0].argmax(dim=0).numpy()).mean() < 2e-3
    one_class = classify(scores[:1], input_size, size, align_corners, 0.3)
    assert (one_class != (wanted[0, 0].sigmoid() > 0.3).numpy()).mean() < 2e-3


def test_masks_are_pasted_as_mmdet_does():
    paste = pytest.importorskip('mmdet.models.roi_heads.mask_heads.fcn_mask_head')._do_paste_mask
    generator = np.random.default_rng(0)
    masks = generator.random((30, 28, 28), dtype=np.float32)
    corners = generator.uniform(-5, 60, size=(30, 4)).astype(np.float32)
    boxes = np.concatenate([corners[:, :2], corners[:, :2] + np.abs(corners[:, 2:])], axis=1)
    boxes[0, 2:] = boxes[0, :2] + 0.5  # smaller than a pixel
    boxes[1] = [-9, -9, -5, -5]  # outside of the image

    wanted, _ = paste(
        torch.from_numpy(masks)[:, None], torch.from_numpy(boxes), 50, 70, skip_empty=False
    )

    pasted = paste_masks(masks, boxes, (50, 70), 0.5)
    near = np.abs(wanted.numpy() - 0.5) < 1e-4  # rounding decides
    assert ((pasted == (wanted.numpy() >= 0.5)) | near).all()
    assert near.mean() < 1e-3
