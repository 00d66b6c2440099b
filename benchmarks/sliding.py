"""Prediction of a segmentor by a sliding window."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


@torch.inference_mode()
def slide(
    model: nn.Module,
    image_BCHW: Tensor,
    meta: dict,
    crop: int,
    report: Callable[[str, int, int], None] = lambda *_: None,
) -> Tensor:
    """Predict classes by windows that overlap by a third, mmseg's usual setting.

    mmseg pads the scores of each window to the size of the image before it adds them, which takes
    hours for large images; here they are added in place. The sums are the same.

    Args:
        model: The segmentor.
        image_BCHW: One image as its data preprocessor makes it.
        meta: Description of the image.
        crop: Side of a window.
        report: Called after each row of windows.
    """
    stride, sides = crop * 2 // 3, image_BCHW.shape[2:]
    rows, columns = (
        [
            max(min(start, side - crop), 0)
            for start in range(0, max(side - crop, 0) + stride, stride)
        ]
        for side in sides
    )
    scores_CHW = torch.zeros(model.out_channels, *sides)
    count_HW = torch.zeros(sides)
    for number, top in enumerate(rows, start=1):
        for left in columns:
            window = (..., slice(top, top + crop), slice(left, left + crop))
            part_BCHW = image_BCHW[window]
            # Not a tuple: by the type, heads know it as the size to resize scores to.
            metas = [dict(meta, img_shape=part_BCHW.shape[2:])]
            scores_CHW[window] += model.encode_decode(part_BCHW, metas)[0]
            count_HW[window] += 1
        report('sliding window', number, len(rows))
    return scores_CHW.div_(count_HW).argmax(dim=0)
