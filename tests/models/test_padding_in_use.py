"""Padding as mmdet and mmseg make it, in graphs and counters, and over several processes."""

from pathlib import Path

import pytest
import torch
from mmengine.config import ConfigDict
from torch.testing import assert_close

from helpers.padded import batch_of, padded_batch, train_in_one_of_two
from helpers.tiny import BACKBONES, build, gradients, weighted_sum
from mminline import execution
from mminline.analysis import measure_complexity
from mminline.models import InLinePVT

pytestmark = pytest.mark.slow

SCALING = dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], bgr_to_rgb=True)
MEAN, STD = (torch.tensor(SCALING[name]).view(3, 1, 1) for name in ('mean', 'std'))
SIZES = [(50, 77), (81, 40), (33, 96)]


def draw_photographs():
    """Pixels of all values from 0 to 255; the first image is black."""
    generator = torch.Generator().manual_seed(0)
    images = [
        torch.randint(256, (3, *size), dtype=torch.uint8, generator=generator) for size in SIZES
    ]
    images[0].zero_()
    return images


def assert_maps_of_each_alone(backbone, batch, images):
    maps = backbone(batch)
    for index, pixels in enumerate(images):
        normalized = (pixels.flip(0) - MEAN) / STD
        assert torch.equal(batch[index, :, : pixels.shape[1], : pixels.shape[2]], normalized)
        for part, alone in zip(maps, backbone(normalized[None]), strict=True):
            rows, columns = alone.shape[2:]
            assert_close(part[index, :, :rows, :columns], alone[0], rtol=1e-5, atol=1e-5)
            assert not part[index, :, rows:].any() and not part[index, :, :, columns:].any()


@pytest.mark.parametrize('kind', BACKBONES)
@pytest.mark.parametrize(
    ('options', 'shape'),
    [
        (dict(), (81, 96)),
        (dict(pad_size_divisor=32), (96, 96)),
        (dict(pad_size_divisor=32, pad_value=1), (96, 96)),
        (dict(batch_augments=[dict(type='BatchFixedSizePad', size=(130, 150))]), (130, 150)),
    ],
    ids=['as large as the largest', 'pad_size_divisor', 'pad_value', 'BatchFixedSizePad'],
)
def test_batches_of_mmdet_change_nothing(kind, options, shape):
    from mmdet.models import DetDataPreprocessor
    from mmdet.structures import DetDataSample
    from mmdet.utils import register_all_modules

    register_all_modules()
    preprocessor = DetDataPreprocessor(**SCALING, **options)
    samples = [DetDataSample(metainfo=dict(img_shape=size)) for size in SIZES]
    images = draw_photographs()
    batch = preprocessor(dict(inputs=images, data_samples=samples), training=True)['inputs']

    assert batch.shape == (3, 3, *shape)
    backbone = build(kind, pad_value=options.get('pad_value', 0.0)).eval()
    assert_maps_of_each_alone(backbone, batch, images)


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('value', [0, 0.5])
def test_batches_of_mmseg_change_nothing(training, value):
    from mmseg.models import SegDataPreProcessor
    from mmseg.structures import SegDataSample

    preprocessor = SegDataPreProcessor(
        **SCALING,
        size=(128, 128),
        pad_val=value,
        test_cfg=dict(size_divisor=32),
    )
    samples = [SegDataSample(metainfo=dict(img_shape=size)) for size in SIZES]
    images = draw_photographs()
    if not training:  # mmseg takes images of one size alone then
        images, samples = images[1:2], samples[1:2]
    batch = preprocessor(dict(inputs=images, data_samples=samples), training=training)['inputs']

    assert batch.shape[2:] == ((128, 128) if training else (96, 64))
    assert_maps_of_each_alone(build(InLinePVT, pad_value=value).eval(), batch, images)


def test_detectors_see_each_image_alone_in_tests_and_their_augmentation():
    from mmdet.apis import inference_detector, init_detector
    from mmdet.models import DetTTAModel
    from mmdet.structures import DetDataSample

    config = Path(__file__).parents[2] / 'configs/detection/mask-rcnn_inline-pvt-nano_fpn_shapes.py'
    detector = init_detector(str(config), device='cpu')
    detector.roi_head.mask_head = None  # mmdet merges boxes only
    outputs = []
    detector.backbone.register_forward_hook(lambda *args: outputs.append(args[2]))
    images = [draw_photographs()[1], draw_photographs()[2]]

    def sample(pixels, flip):
        shape = tuple(pixels.shape[1:])
        sizes = dict(img_shape=shape, ori_shape=shape, scale_factor=(1.0, 1.0))
        return DetDataSample(metainfo=dict(sizes, flip=flip, flip_direction='horizontal'))

    flipped = [pixels.flip(2) for pixels in images]
    samples = [[sample(pixels, flip) for pixels in images] for flip in (False, True)]
    options = ConfigDict(nms=dict(type='nms', iou_threshold=0.5), max_per_img=10)
    with torch.no_grad():
        augmented = DetTTAModel(module=detector, tta_cfg=options).eval()
        augmented.test_step(dict(inputs=[images, flipped], data_samples=samples))
        whole = torch.zeros(3, 128, 77, dtype=torch.uint8)  # as large as the config wants it
        inference_detector(detector, whole.permute(1, 2, 0).numpy())
        seen = [*zip(images, [outputs[0]] * 2, (0, 1), strict=True)]
        seen += [*zip(flipped, [outputs[1]] * 2, (0, 1), strict=True), (whole, outputs[2], 0)]
        assert [maps[0].shape[2:] for maps in outputs] == [(24, 24), (24, 24), (32, 24)]
        for pixels, maps, index in seen:
            alone = detector.backbone._run_stages(((pixels.flip(0) - MEAN) / STD)[None])
            for part, own in zip(maps, alone, strict=True):
                rows, columns = own.shape[2:]
                assert_close(part[index, :, :rows, :columns], own[0], rtol=1e-4, atol=1e-4)
                assert part[index].count_nonzero() == own.count_nonzero()


def pairs():
    """A backbone with and one without the option, of the same weights."""
    return [build(InLinePVT, ignore_padding=ignores).eval() for ignores in (True, False)]


def test_a_trace_computes_padding_like_pixels():
    model, plain = pairs()
    batch = padded_batch()
    traced = torch.jit.trace(model, batch, check_trace=False)

    for images in (batch, batch.flip(0)):
        assert_close(traced(images), plain(images), rtol=1e-4, atol=1e-4)


def test_a_compiled_backbone_computes_padding_like_pixels():
    # Two stages: the symbolic sizes of four take a minute to trace.
    arch = dict(embed_dims=(8, 16), depths=(1, 2), num_heads=(2, 2), mlp_ratios=(2, 2))
    model, plain = (
        build(InLinePVT, arch=arch, out_indices=(0, 1), ignore_padding=ignores).eval()
        for ignores in (True, False)
    )
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend='eager')
    with torch.no_grad():
        assert_close(compiled(padded_batch()), plain(padded_batch()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('kind', BACKBONES)
def test_counters_of_flops_see_an_unpadded_image(kind):
    model, plain = (build(kind, ignore_padding=ignores) for ignores in (True, False))

    assert measure_complexity(model, (96, 128)) == measure_complexity(plain, (96, 128))
    shapes = [tuple(part.shape) for part in model.to('meta')(torch.zeros(1, 3, 96, 70).to('meta'))]
    assert shapes[0] == (1, 8, -(-96 // model.strides[0]), -(-70 // model.strides[0]))


def test_a_counter_sees_what_is_computed():
    from torch.utils.flop_counter import FlopCounterMode

    counts = []
    for model in pairs():
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(padded_batch())
        counts.append(counter.get_total_flops())
    assert 0.5 * counts[1] < counts[0] < 0.8 * counts[1]


def test_values_are_read_where_there_are_some():
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    batch = torch.zeros(2, 3)
    answers = []

    def ask(image):
        answers.append(execution.can_read(image))
        return image.sum()

    ask(batch)
    with torch.no_grad():
        ask(batch)
    torch.func.grad(ask)(batch)
    torch.func.vmap(lambda factor: factor * ask(batch))(torch.ones(4))
    assert answers == [True] * 4
    answers.clear()

    ask(batch.to('meta'))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        ask(torch.zeros(2, 3))
        ask(batch)
    ask(mode.from_tensor(batch))
    torch.func.vmap(ask)(batch)
    torch.func.vmap(torch.func.grad(ask))(batch)
    make_fx(ask)(batch)
    torch.jit.trace(ask, batch, check_trace=False)
    torch.compile(ask, backend='eager')(batch)
    assert answers == [False] * len(answers) and len(answers) >= 8


def test_transforms_of_torch_func_give_the_same_gradients():
    model = build(InLinePVT).double()
    batch = padded_batch(torch.float64)
    weighted_sum(model(batch)).backward()
    parameters = {name: value.detach() for name, value in model.named_parameters()}

    def loss(values):
        return weighted_sum(torch.func.functional_call(model, values, (batch,)))

    assert_close(torch.func.grad(loss)(parameters), gradients(model))


def test_processes_with_other_sizes_average_their_gradients(tmp_path):
    torch.multiprocessing.spawn(train_in_one_of_two, (str(tmp_path),), nprocs=2)
    means = {}
    for rank in range(2):
        model = build(InLinePVT).double()
        weighted_sum(model(batch_of(rank))).backward()
        for name, gradient in gradients(model).items():
            means[name] = means.get(name, 0) + gradient / 2

    for rank in range(2):
        assert_close(torch.load(tmp_path / f'{rank}.pth'), means)
