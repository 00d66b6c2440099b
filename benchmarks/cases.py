"""Benchmark cases, and the table of benchmarks. The first candidate of a case is ours."""

from collections.abc import Callable
from functools import partial

import builders
from baselines import BaselineAttention, GlobalSoftmaxAttention, MatrixProducts, use_baseline
from benchmark import Benchmark, Candidate, Case
from detector import detector_cases
from large_images import SingleCalls, large_cases, large_table
from peers import peer_cases
from plots import plot_growth
from runners import (
    BusyInference,
    CompiledInference,
    Inference,
    LayerInference,
    TrainStep,
)
from segmentor import segmentor_cases
from speed_figure import figure_cases, plot_speed_figure, speed_table
from tables import busy_table, growth_table, parts_table

from mminline.models import InLinePVT, InLineSwin

BASELINE = 'baseline implementation'
SOFTMAX = 'softmax PVT (mmdet)'
# Backbone and largest scene of benchmarks/padding.py.
NANO = dict(
    embed_dims=(32, 64, 128, 256),
    depths=(2, 2, 2, 2),
    num_heads=(1, 2, 4, 8),
    mlp_ratios=(4, 4, 4, 4),
)
SMALL = (160, 160)
LINEAR = dict(feature_map='relu', injective=False, local_residual=False)
softmax_pvt = partial(builders.mmdet_backbone, 'PyramidVisionTransformer', num_layers=[2, 2, 2, 2])
softmax_swin = partial(builders.mmdet_backbone, 'SwinTransformer')


def layer_cases(shape: tuple[int, int], batch: int) -> list[Case]:
    """One attention layer of each stage of InLine-PVT-T."""
    backbone = InLinePVT()
    cases = []
    for stage, dims in enumerate(backbone.out_channels):
        ours = partial(builders.inline_layer, stage)
        baseline, products, softmax = (
            partial(builders.layer_baseline, kind, stage)
            for kind in (BaselineAttention, MatrixProducts, GlobalSoftmaxAttention)
        )
        candidates = (
            Candidate('ours', LayerInference, ours, 'inline'),
            Candidate('ours, called by itself', Inference, ours, 'inline'),
            Candidate(BASELINE, Inference, baseline, 'inline'),
            Candidate('matrix products only', Inference, products),
            Candidate('plain linear attention', LayerInference, partial(ours, **LINEAR)),
            Candidate('softmax, fused', Inference, partial(softmax, fused=True), 'softmax'),
            Candidate('softmax', Inference, partial(softmax, fused=False), 'softmax'),
        )
        name = f'Layer of stage {stage + 1}, {dims} channels'
        make_input = partial(builders.random_tokens, batch, dims, backbone.strides[stage])
        cases.append(Case(name, shape, make_input, candidates))
    return cases


def backbone_cases(
    shape: tuple[int, int], batch: int, compile: bool, precision: list[str]
) -> list[Case]:
    """Inference of InLine-PVT-T and InLine-Swin-T, in one or more precisions."""
    linear_pvt = partial(builders.inline_backbone, InLinePVT, **LINEAR)
    pvts = [
        *_inline_candidates(InLinePVT, compile),
        Candidate('plain linear attention', Inference, linear_pvt),
        Candidate(SOFTMAX, Inference, softmax_pvt),
    ]
    swins = [
        *_inline_candidates(InLineSwin, compile),
        Candidate('softmax Swin (mmdet)', Inference, softmax_swin),
    ]
    if builders.has_timm():
        timm_swin = partial(builders.timm_swin, tuple(shape))
        swins.append(Candidate('softmax Swin (timm)', Inference, timm_swin))
    pvts += _half_candidates(precision, Inference, InLinePVT, {SOFTMAX: softmax_pvt})
    swins += _half_candidates(
        precision, Inference, InLineSwin, {'softmax Swin (mmdet)': softmax_swin}
    )
    make_input = partial(builders.random_image, batch)
    return [Case('PVT-T', shape, make_input, pvts), Case('Swin-T', shape, make_input, swins)]


def train_cases(shape: tuple[int, int], batch: int, precision: list[str]) -> list[Case]:
    """Forward and backward pass of InLine-PVT-T, in one or more precisions."""
    ours = partial(builders.inline_backbone, InLinePVT)
    baseline_mlps = partial(ours, convert=partial(use_baseline, attention=False))
    candidates = [
        Candidate('ours', TrainStep, ours, 'inline'),
        Candidate('ours, with_cp', TrainStep, partial(ours, with_cp=True), 'inline'),
        Candidate('ours, baseline MLPs', TrainStep, baseline_mlps, 'inline'),
        Candidate(BASELINE, TrainStep, partial(ours, convert=use_baseline), 'inline'),
        Candidate(SOFTMAX, TrainStep, softmax_pvt),
        *_half_candidates(precision, TrainStep, InLinePVT, {SOFTMAX: softmax_pvt}),
    ]
    make_input = partial(builders.random_image, batch)
    return [Case('Training step of PVT-T', shape, make_input, candidates)]


def padding_cases(shape: tuple[int, int], batch: int) -> list[Case]:
    """InLine-PVT with and without ``ignore_padding``: training step, and inference of small images.

    Large images of different size, small ones, where fixed costs count most, and small ones of
    one size, where the option has nothing to do.
    """
    large = partial(builders.random_padded_images, batch)
    small = partial(builders.random_padded_images, 8, lowest=0.4)
    return [
        _padding_case(f'PVT-T, {batch} sizes', shape, large, 'tiny'),
        _padding_case('PVT nano, 8 sizes', SMALL, small, NANO),
        _padding_case('PVT nano, 8 of one size', SMALL, partial(builders.random_image, 8), NANO),
        _padding_case('PVT nano, 8 sizes', SMALL, small, NANO, Inference),
    ]


def _padding_case(
    name: str,
    shape: tuple[int, int],
    make_input: Callable,
    arch: str | dict,
    runner: type = TrainStep,
) -> Case:
    ours = partial(builders.inline_backbone, InLinePVT, arch=arch)
    candidates = [
        Candidate('ours', runner, ours),
        Candidate('ours, padding computed', runner, partial(ours, ignore_padding=False)),
    ]
    task = 'Training step' if runner is TrainStep else 'Inference'
    return Case(f'{task} of {name}', shape, make_input, candidates)


def scale_cases(sides: list[int], batch: int) -> list[Case]:
    """Inference of InLine-PVT-T on square images of growing size."""
    candidates = [*_inline_candidates(InLinePVT), Candidate(SOFTMAX, Inference, softmax_pvt)]
    make_input = partial(builders.random_image, batch)
    return [Case('PVT-T', (side, side), make_input, candidates) for side in sorted(sides)]


def busy_cases(shape: tuple[int, int], batch: int) -> list[Case]:
    """Inference of backbones beside a process that keeps a core busy."""
    backbones = {'ours': partial(builders.inline_backbone, InLinePVT), SOFTMAX: softmax_pvt}
    if builders.has_timm():
        backbones['ConvNeXt-T (timm)'] = builders.timm_convnext
    make_input = partial(builders.random_image, batch)
    return [
        Case(
            f'PVT-T{where}',
            shape,
            make_input,
            [Candidate(name, runner, build) for name, build in backbones.items()],
        )
        for where, runner in ((', free machine', Inference), (', busy neighbour', BusyInference))
    ]


def _inline_candidates(
    family: type[InLinePVT | InLineSwin], compile: bool = False
) -> list[Candidate]:
    """Our backbone by default, which streams on a CPU only; the other way; the baseline."""
    ours = partial(builders.inline_backbone, family)
    unstreamed = partial(ours, streaming=False)
    streamed = partial(ours, streaming=True)
    baseline = partial(unstreamed, convert=use_baseline)
    return [
        Candidate('ours', Inference, ours, 'inline'),
        Candidate('ours, not streamed', Inference, unstreamed, 'inline', device='cpu'),
        Candidate('ours, streamed', Inference, streamed, 'inline', device='cuda'),
        *([Candidate('ours, compiled', CompiledInference, unstreamed, 'inline')] * compile),
        Candidate(BASELINE, Inference, baseline, 'inline'),
    ]


def _half_candidates(
    precision: list[str], runner: type, family: type, others: dict[str, Callable]
) -> list[Candidate]:
    """Our backbone and others in half precision."""
    builds = {'ours': partial(builders.inline_backbone, family)} | others
    return [
        Candidate(f'{name}, {word}', runner, partial(builders.in_precision, build, word))
        for name, build in builds.items()
        for word in precision
        if word != 'float32'
    ]


BENCHMARKS = {
    'layer': Benchmark(
        'one attention layer of each stage of InLine-PVT-T',
        layer_cases,
        dict(shape=[800, 1280], batch=1, repeats=30),
    ),
    'backbone': Benchmark(
        'inference of InLine-PVT-T and InLine-Swin-T',
        backbone_cases,
        dict(
            shape=[800, 1280],
            batch=1,
            repeats=10,
            compile=False,
            precision=['float32', 'bfloat16'],
        ),
    ),
    'train': Benchmark(
        'forward and backward pass of InLine-PVT-T',
        train_cases,
        dict(shape=[512, 640], batch=2, repeats=10, precision=['float32', 'bfloat16']),
    ),
    'padding': Benchmark(
        'InLine-PVT for images of different size: training step, and inference of small ones',
        padding_cases,
        dict(shape=[800, 1067], batch=4, repeats=5),
    ),
    'scale': Benchmark(
        'inference of InLine-PVT-T at growing resolutions',
        scale_cases,
        dict(sides=[512, 1024, 2048, 4096], batch=1, repeats=5),
        summary=growth_table,
        plot=plot_growth,
        growing=True,
    ),
    'figure': Benchmark(
        'the speed figure of the paper: Swin-T with growing windows, DeiT-T on growing images',
        figure_cases,
        dict(
            windows=[7, 14, 28, 56],
            shape=[224, 224],
            sides=[224, 384, 640, 1024],
            batch=1,
            repeats=10,
        ),
        summary=speed_table,
        plot=plot_speed_figure,
    ),
    'large': Benchmark(
        'class maps of whole images of growing size, in parts and at once',
        large_cases,
        dict(sides=[2048, 4096, 8192, 16384]),
        summary=large_table,
        plot=partial(plot_growth, memory='process_bytes'),
        growing=True,
        measure=SingleCalls(),
        time_limit=1500.0,
    ),
    'detector': Benchmark(
        'prediction of Mask R-CNN with InLine backbones of size tiny, and the times of its parts',
        detector_cases,
        dict(
            shape=[800, 1280],
            batch=1,
            repeats=5,
            proposals=1000,
            precision=['float32', 'bfloat16'],
            families=['pvt', 'swin'],
        ),
        summary=parts_table,
    ),
    'segmentor': Benchmark(
        'prediction of SemanticFPN with InLine backbones of size tiny, and the times of its parts',
        segmentor_cases,
        dict(
            shape=[1024, 2048],
            repeats=3,
            precision=['float32', 'bfloat16'],
            families=['pvt', 'swin'],
        ),
        summary=parts_table,
    ),
    'peers': Benchmark(
        'inference of backbones of timm, with their accuracy on ImageNet',
        peer_cases,
        dict(shape=[800, 1280], batch=1, repeats=5),
    ),
    'busy': Benchmark(
        'inference of InLine-PVT-T beside a process that keeps a core busy',
        busy_cases,
        dict(shape=[800, 1280], batch=1, repeats=5),
        summary=busy_table,
    ),
}
