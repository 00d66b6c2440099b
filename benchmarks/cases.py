"""Who meets whom: the cases of each command, our own contender first."""

from functools import partial

import contenders
from attentions import FourProducts
from contest import Case, Contender
from programs import (
    CompiledInference,
    Detection,
    DetectorBackbone,
    Inference,
    TrainStep,
    random_image,
    random_tokens,
)

from mminline.models import InLinePVT, InLineSwin
from mminline.models.backbones.archs import PVT_ARCHS

SOFTMAX_PVT = Contender('softmax PVT (mmdet)', Inference, contenders.softmax_pvt)
BACKBONE = ', backbone alone'
PLAIN_LINEAR = dict(feature_map='relu', injective=False, local_residual=False)


def layer_cases(shape: tuple[int, int], batch: int) -> list[Case]:
    """One attention layer of each stage of InLine-PVT-T."""
    sizes = PVT_ARCHS['tiny']
    cases = []
    for index, (dims, heads) in enumerate(
        zip(sizes['embed_dims'], sizes['num_heads'], strict=True)
    ):
        stride = 4 * 2**index
        layer = partial(contenders.inline_layer, dims, heads)
        softmax = partial(contenders.softmax_layer, dims, heads)
        rows = (
            Contender('ours', Inference, layer, 'inline'),
            Contender('ours, not folded', Inference, partial(layer, folded=False), 'inline'),
            Contender(
                'usual form', Inference, partial(contenders.usual_layer, dims, heads), 'inline'
            ),
            Contender('its four products', Inference, partial(FourProducts, dims)),
            Contender('plain linear attention', Inference, partial(layer, **PLAIN_LINEAR)),
            Contender('softmax, fused', Inference, partial(softmax, fused=True), 'softmax'),
            Contender('softmax', Inference, partial(softmax, fused=False), 'softmax'),
        )
        name = f'Layer of stage {index + 1}, {dims} channels'
        cases.append(Case(name, shape, partial(random_tokens, batch, dims, stride), rows))
    return cases


def backbone_cases(
    shape: tuple[int, int], batch: int, device: str, compile: bool = False
) -> list[Case]:
    """Inference of InLine-PVT-T and InLine-Swin-T."""
    linear_pvt = partial(contenders.inline_backbone, InLinePVT, **PLAIN_LINEAR)
    pvts = [Contender('plain linear attention', Inference, linear_pvt), SOFTMAX_PVT]
    swins = [Contender('softmax Swin (mmdet)', Inference, contenders.softmax_swin)]
    if contenders.timm_works():
        build = partial(contenders.timm_swin, tuple(shape))
        swins.append(Contender('softmax Swin (timm)', Inference, build))
    make_input = partial(random_image, batch)
    return [
        Case(title, shape, make_input, (*_inline_rows(family, device, compile), *others))
        for title, family, others in (
            ('PVT-T', InLinePVT, pvts),
            ('Swin-T', InLineSwin, swins),
        )
    ]


def train_cases(shape: tuple[int, int], batch: int) -> list[Case]:
    """Forward and backward of InLine-PVT-T."""
    ours = partial(contenders.inline_backbone, InLinePVT)
    rows = (
        Contender('ours', TrainStep, ours, 'inline'),
        Contender('ours, with_cp', TrainStep, partial(ours, with_cp=True), 'inline'),
        Contender(
            'ours, usual MLPs',
            TrainStep,
            partial(contenders.usual_mlp_backbone, InLinePVT),
            'inline',
        ),
        Contender('usual form', TrainStep, partial(contenders.usual_backbone, InLinePVT), 'inline'),
        Contender('softmax PVT (mmdet)', TrainStep, contenders.softmax_pvt),
    )
    return [Case('Training step of PVT-T', shape, partial(random_image, batch), rows)]


def scale_cases(sides: list[int], batch: int, device: str) -> list[Case]:
    """Inference of InLine-PVT-T, image after image larger."""
    rows = (*_inline_rows(InLinePVT, device), SOFTMAX_PVT)
    make_input = partial(random_image, batch)
    return [Case('PVT-T', (side, side), make_input, rows) for side in sorted(sides)]


def detector_cases(shape: tuple[int, int], batch: int, proposals: int) -> list[Case]:
    """Prediction of Mask R-CNN, and its backbone alone, which tells the backbone's share."""
    build = partial(contenders.detector, proposals=proposals)
    inline = partial(build, 'mask-rcnn_inline-pvt-t_fpn_1x_coco.py')
    detectors = (
        ('ours', inline, 'inline'),
        ('usual form', partial(inline, usual=True), 'inline'),
        ('softmax PVT (mmdet)', partial(build, 'mask-rcnn_pvt-t_fpn_1x_coco.py'), None),
    )
    rows = []
    for name, detector, group in detectors:
        rows.append(Contender(name, Detection, detector, group))
        rows.append(
            Contender(name + BACKBONE, DetectorBackbone, detector, group and f'{group} backbone')
        )
    return [Case('Mask R-CNN with PVT-T', shape, partial(random_image, batch), tuple(rows))]


def _inline_rows(
    family: type[InLinePVT | InLineSwin], device: str, compile: bool = False
) -> list[Contender]:
    """Our backbone as it comes, which streams on a CPU alone; the other way; the usual form."""
    ours = partial(contenders.inline_backbone, family)
    unstreamed = partial(ours, streaming=False)
    if device == 'cpu':
        rows = [('ours', Inference, ours), ('ours, not streamed', Inference, unstreamed)]
    else:
        rows = [
            ('ours', Inference, unstreamed),
            ('ours, streamed', Inference, partial(ours, streaming=True)),
        ]
    if compile:
        rows.append(('ours, compiled', CompiledInference, unstreamed))
    rows.append(('usual form', Inference, partial(contenders.usual_backbone, family)))
    return [Contender(*row, group='inline') for row in rows]
