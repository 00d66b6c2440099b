"""Which detectors can become a graph: those whose steps between the layers are known here."""

from collections.abc import Iterator

from torch import nn

from .regions import stages

# A subclass may do anything else, so names have to be equal.
RPN_HEADS = ('RPNHead',)
DENSE_HEADS = ('RetinaHead',)
ROI_HEADS = ('StandardRoIHead', 'CascadeRoIHead')
BOX_HEADS = ('Shared2FCBBoxHead', 'Shared4Conv1FCBBoxHead', 'ConvFCBBoxHead', 'BBoxHead')
MASK_HEADS = ('FCNMaskHead',)
ANCHORS = ('AnchorGenerator',)
CODERS = ('DeltaXYWHBBoxCoder',)
EXTRACTORS = ('SingleRoIExtractor',)
NMS_OPTIONS = {'type', 'iou_threshold', 'class_agnostic', 'split_thr'}


def check_detector(model: nn.Module) -> None:
    """Raise a ValueError with the reason if a detector cannot be exported as a whole."""
    reason = next(reasons_against(model), None)
    if reason:
        raise ValueError(
            f'this {type(model).__name__} cannot be exported as a whole: {reason}. '
            'Its features can: what=features'
        )


def reasons_against(model: nn.Module) -> Iterator[str]:
    """List what keeps a detector from being exported."""
    if not getattr(model, 'with_neck', False):
        yield 'it has no neck'
    if not hasattr(model.data_preprocessor, 'pad_size_divisor'):
        yield f"its data preprocessor, a {type(model.data_preprocessor).__name__}, is not mmdet's"
    if hasattr(model, 'roi_head'):
        yield from _unknown('rpn_head', model.rpn_head, RPN_HEADS)
        yield from _in_dense_head(model.rpn_head)
        yield from _in_roi_head(model.roi_head)
    elif hasattr(model, 'bbox_head'):
        yield from _unknown('bbox_head', model.bbox_head, DENSE_HEADS)
        yield from _in_dense_head(model.bbox_head)
        yield from _in_test_cfg(model.bbox_head.test_cfg)
    else:
        yield 'it has neither a bbox_head nor a roi_head'


def _in_dense_head(head: nn.Module) -> Iterator[str]:
    yield from _unknown('prior_generator', head.prior_generator, ANCHORS)
    yield from _in_coder(head)
    yield from _in_nms(head.test_cfg.nms)


def _in_roi_head(head: nn.Module) -> Iterator[str]:
    yield from _unknown('roi_head', head, ROI_HEADS)
    if head.with_shared_head:
        yield 'its roi_head has a shared head'
    for part in stages(head.bbox_head):
        yield from _unknown('bbox_head', part, BOX_HEADS)
        yield from _in_coder(part)
        if part.custom_activation:
            yield f'the scores of its loss, {type(part.loss_cls).__name__}, are no softmax'
    if head.with_mask:
        for part in stages(head.mask_head):
            yield from _unknown('mask_head', part, MASK_HEADS)
        yield from _in_extractors(head.mask_roi_extractor)
    yield from _in_extractors(head.bbox_roi_extractor)
    yield from _in_nms(head.test_cfg.nms)
    yield from _in_test_cfg(head.test_cfg)


def _in_extractors(part: nn.Module) -> Iterator[str]:
    for extractor in stages(part):
        yield from _unknown('roi_extractor', extractor, EXTRACTORS)
        for layer in extractor.roi_layers:
            yield from _unknown('roi_layer', layer, ('RoIAlign',))
            if layer.pool_mode != 'avg':
                yield f'regions are pooled by {layer.pool_mode}, not avg'


def _in_coder(head: nn.Module) -> Iterator[str]:
    yield from _unknown('bbox_coder', head.bbox_coder, CODERS)
    if head.bbox_coder.add_ctr_clamp:
        yield 'its bbox_coder clamps centres'


def _in_nms(cfg: dict) -> Iterator[str]:
    kind = cfg.get('type', 'nms')
    if kind != 'nms':
        yield f'boxes are suppressed by {kind}, and ONNX has the plain nms only'
    if more := set(cfg) - NMS_OPTIONS:
        yield f'its nms has the options {", ".join(sorted(more))}'


def _in_test_cfg(cfg: dict) -> Iterator[str]:
    if cfg.get('max_per_img', -1) <= 0:
        yield 'max_per_img of its test_cfg has to be a number of detections'


def _unknown(role: str, part: object, known: tuple[str, ...]) -> Iterator[str]:
    name = type(part).__name__
    if name not in known:
        yield f'its {role} is a {name}, not a {" or ".join(known)}'
