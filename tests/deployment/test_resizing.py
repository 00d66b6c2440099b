"""Images and masks in the size that mmcv and mmdet give them."""

import numpy as np
import pytest
import torch
from mmcv.transforms import Resize

from mminline.deployment import paste_masks, resize

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
