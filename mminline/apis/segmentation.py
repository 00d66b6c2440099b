"""Class maps of segmentors without their class scores at the size of the image."""

import torch
from mmengine.structures import BaseDataElement, PixelData
from torch import nn

from .. import execution
from ..execution.score_rows import ScoreRows, from_scores

# Methods between the head's scores and the class map. What they do is done here row by row, so
# a model that has others runs as it is.
MODEL_METHODS = dict(
    predict='EncoderDecoder.predict',
    inference='EncoderDecoder.inference',
    whole_inference='EncoderDecoder.whole_inference',
    encode_decode='EncoderDecoder.encode_decode',
    postprocess_result='BaseSegmentor.postprocess_result',
    _forward='EncoderDecoder._forward',
)
HEAD_METHODS = dict(
    predict='BaseDecodeHead.predict', predict_by_feat='BaseDecodeHead.predict_by_feat'
)
# Below this size of the scores the calls for each row take longer than they save.
SMALL_BYTES = 8 << 20


def predict_class_map(model: nn.Module, batch: dict) -> BaseDataElement | None:
    """Predict as ``model.test_step`` does, but the class of each pixel only, without scores.

    Args:
        model: Any model in evaluation mode.
        batch: One image, as ``test_step`` takes it.

    Returns:
        The sample with ``pred_sem_seg``; None if the model or the image is of a kind that only
        ``test_step`` knows: no segmentor, sliding windows, one class with a threshold, flipped
        images, small ones, a GPU; or if ``MMINLINE_EXECUTION`` is plain.
    """
    if not _suits(model, batch):
        return None
    data = model.data_preprocessor(batch, False)
    scores_BCHW = model(**data, mode='tensor')
    (sample,) = data['data_samples']
    rows = _finish(from_scores(scores_BCHW[0]), sample.metainfo, model.align_corners)
    sample.set_data(dict(pred_sem_seg=PixelData(data=rows.argmax()[None])))
    return sample


def _suits(model: nn.Module, batch: dict) -> bool:
    head = getattr(model, 'decode_head', None)
    if not (_is_of_mmseg(model, MODEL_METHODS) and _is_of_mmseg(head, HEAD_METHODS)):
        return False
    meta = batch['data_samples'][0].metainfo
    height, width = meta['ori_shape']
    parameter = next(model.parameters())
    return (
        not execution.is_forced_plain()
        and parameter.device.type == 'cpu'
        and parameter.dtype == torch.float32
        and model.test_cfg.get('mode', 'whole') == 'whole'
        and model.out_channels > 1
        and not meta.get('flip')
        and 4 * model.out_channels * height * width > SMALL_BYTES
    )


def _is_of_mmseg(module: nn.Module | None, methods: dict[str, str]) -> bool:
    return all(_name(getattr(module, name, None)) == known for name, known in methods.items())


def _name(method: object) -> str | None:
    is_theirs = getattr(method, '__module__', '').startswith('mmseg.')
    return method.__qualname__ if is_theirs else None


def _finish(rows: ScoreRows, meta: dict, align_corners: bool) -> ScoreRows:
    """Resize scores to the input of the network, cut off its padding, resize them to the image."""
    rows = rows.resize(meta.get('pad_shape', meta['img_shape'])[:2], align_corners)
    left, right, top, bottom = meta.get('img_padding_size', meta.get('padding_size', [0] * 4))
    height, width = rows.shape
    rows = rows.crop(slice(top, height - bottom), slice(left, width - right))
    return rows.resize(meta['ori_shape'], align_corners)
