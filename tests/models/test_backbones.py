"""The contract of all backbones: parameters, maps at any size, independence, clear refusals."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from helpers.tiny import BACKBONES, CHANNELS, PYRAMIDS, SIZES, STRIDES, build, image
from mminline.models import InLineDeiT, InLinePVT, InLineSwin

# Parameters of the published classifiers, head for 1000 classes included (arXiv:2412.06590).
PUBLISHED_PARAMETERS = [
    (InLinePVT, 'tiny', 12_032_232),
    (InLinePVT, 'small', 21_556_136),
    (InLinePVT, 'medium', 37_618_856),
    (InLinePVT, 'large', 51_154_280),
    (InLineSwin, 'tiny', 29_223_544),
    (InLineSwin, 'small', 49_793_296),
    (InLineSwin, 'base', 88_350_120),
    (InLineDeiT, 'tiny', 6_477_736),
    (InLineDeiT, 'small', 16_734_760),
    (InLineDeiT, 'base', 23_797_096),
]
# From the smallest on: odd, long, the pre-training size, twice it, its area in another shape.
SIDES = [(32, 32), (33, 33), (32, 160), (61, 97), (224, 224), (448, 448), (112, 448)]


@pytest.mark.parametrize(('backbone', 'arch', 'published'), PUBLISHED_PARAMETERS)
def test_each_size_has_the_published_number_of_parameters(backbone, arch, published):
    model = backbone(arch)
    own = sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if not name.startswith('norm')
    )
    last = model.out_channels[-1]
    final_norm = 0 if backbone is InLinePVT else 2 * last
    assert own + final_norm + 1000 * (last + 1) == published


@pytest.mark.parametrize('backbone', BACKBONES)
def test_state_dict_holds_parameters_alone(backbone):
    model = build(backbone)
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize('batch', [1, 3])
@pytest.mark.parametrize('sides', SIDES)
@pytest.mark.parametrize('backbone', BACKBONES)
def test_maps_have_a_cell_for_each_stride_begun(backbone, sides, batch):
    model = build(backbone).eval()
    with torch.no_grad():
        maps = model(image(batch, 3, *sides))
    assert isinstance(maps, tuple)
    assert model.strides == STRIDES[backbone]
    assert model.out_channels == CHANNELS[backbone]
    for feature, channels, stride in zip(maps, model.out_channels, model.strides, strict=True):
        assert feature.shape == (batch, channels, *(-(-side // stride) for side in sides))
        assert feature.isfinite().all()
        assert feature.is_contiguous()


@pytest.mark.parametrize('backbone', BACKBONES)
@pytest.mark.parametrize('sides', [(32, 32), (70, 101)])
def test_batch_of_two_equals_each_image_alone(backbone, sides):
    model = build(backbone).double().eval()
    images = image(2, 3, *sides, dtype=torch.float64)
    alone = [torch.cat(maps) for maps in zip(model(images[:1]), model(images[1:]), strict=True)]
    assert_close(list(model(images)), alone)


@pytest.mark.parametrize('backbone', BACKBONES)
@pytest.mark.parametrize('sides', [(32, 32), (70, 101), (64, 256)])
def test_inference_gives_the_values_of_training(backbone, sides):
    model = build(backbone).double().eval()
    images = image(2, 3, *sides, dtype=torch.float64)
    untouched = images.clone()
    with_graph = model(images)
    with torch.no_grad():
        assert_close(model(images), with_graph)
    with torch.inference_mode():
        assert_close(model(images), with_graph)
    assert torch.equal(images, untouched)


@pytest.mark.parametrize('backbone', BACKBONES)
def test_padding_is_zeros_at_right_and_bottom_of_the_image(backbone):
    model = build(backbone).double().eval()
    images = image(1, 3, 62, 93, dtype=torch.float64)
    assert_close(model(images), model(F.pad(images, (0, 3, 0, 2))))


@pytest.mark.parametrize('backbone', BACKBONES)
def test_copy_of_a_model_gives_the_same_maps(backbone):
    model = build(backbone).eval()
    assert_close(copy.deepcopy(model)(image(1, 3, 64, 64)), model(image(1, 3, 64, 64)))


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore::torch.jit.TracerWarning', 'ignore::DeprecationWarning')
@pytest.mark.parametrize('with_grad', [True, False])
@pytest.mark.parametrize('backbone', BACKBONES)
def test_traced_model_can_be_saved_and_gives_the_same_maps(backbone, with_grad, tmp_path):
    model, images = build(backbone).double().eval(), image(1, 3, 64, 64, dtype=torch.float64)
    with torch.set_grad_enabled(with_grad):
        traced = torch.jit.trace(model, images)
    traced.save(tmp_path / 'model.pt')
    assert_close(torch.jit.load(tmp_path / 'model.pt')(images), model(images))


@pytest.mark.parametrize('backbone', PYRAMIDS)
def test_three_stages_make_three_maps_and_a_smaller_least_image(backbone):
    arch = {key: values[:3] for key, values in SIZES.items()}
    if backbone is InLineSwin:
        arch['inline_depths'] = (1, 1, 0)
    model = backbone(arch, out_indices=(0, 1, 2))
    assert [feature.shape[2:] for feature in model(image(1, 3, 16, 16))] == [(4, 4), (2, 2), (1, 1)]


@pytest.mark.parametrize('backbone', BACKBONES)
@pytest.mark.parametrize(
    ('shape', 'message'),
    [
        ((1, 3, 31, 64), r'at least 32 x 32 px for this backbone, got \(31, 64\)'),
        ((1, 3, 64, 31), r'at least 32 x 32 px for this backbone, got \(64, 31\)'),
        ((1, 4, 64, 64), r'shape \(B, 3, H, W\), got \(1, 4, 64, 64\)'),
        ((3, 64, 64), r'shape \(B, 3, H, W\), got \(3, 64, 64\)'),
    ],
)
def test_images_that_do_not_fit_are_refused(backbone, shape, message):
    with pytest.raises(ValueError, match=message):
        build(backbone)(image(*shape))


def capture(model, modules, images):
    """Inputs and outputs of some modules in one pass."""
    seen = {}
    for module in modules:
        module.register_forward_hook(
            lambda module, inputs, output: seen.update({module: (inputs, output)})
        )
    model(images)
    return [seen[module] for module in modules]


@pytest.mark.parametrize('sides', [(64, 64), (32, 128), (128, 128), (60, 100)])
def test_position_embeddings_fit_the_grid_of_each_stage(sides):
    # 32 x 128 has as many cells as the 64 x 64 of pre-training, in another shape.
    model = build(InLinePVT, pretrain_size=64).double().eval()
    stages = list(model.stages)
    calls = capture(
        model,
        [part for stage in stages for part in (stage.embed, stage.drop)],
        image(1, 3, *sides, dtype=torch.float64),
    )
    for stage, (_, embedded), ((positioned,), _) in zip(
        stages, calls[::2], calls[1::2], strict=True
    ):
        tokens, hw_shape = embedded
        position = stage.pos_embed.permute(0, 3, 1, 2)
        if sides != (64, 64):
            position = F.interpolate(position, hw_shape, mode='bilinear', align_corners=False)
        assert_close(positioned - tokens, position.flatten(2).transpose(1, 2))


@pytest.mark.parametrize('sides', [(64, 64), (32, 128), (60, 100)])
def test_class_token_and_its_position_stand_in_front_of_the_grid_at_any_size(sides):
    model = build(InLineDeiT, pretrain_size=64).double().eval()
    (stage,) = model.stages
    (_, embedded), ((tokens,), _) = capture(
        model, [stage.embed, stage.drop], image(1, 3, *sides, dtype=torch.float64)
    )
    patches, hw_shape = embedded
    assert hw_shape == tuple(-(-side // 16) for side in sides)
    position = stage.pos_embed.permute(0, 3, 1, 2)
    if sides != (64, 64):
        position = F.interpolate(position, hw_shape, mode='bilinear', align_corners=False)
    assert_close(tokens[:, 1:] - patches, position.flatten(2).transpose(1, 2))
    assert_close(tokens[:, :1], stage.class_token + stage.class_position)


@pytest.mark.parametrize(('arch', 'side'), [('tiny', 14), ('small', 18), ('base', 28)])
def test_position_embedding_of_a_published_deit_has_the_grid_of_its_pre_training(arch, side):
    with torch.device('meta'):
        assert InLineDeiT(arch).stages[0].pos_embed.shape[1:3] == (side, side)
        assert InLineDeiT(arch, pretrain_size=(64, 96)).stages[0].pos_embed.shape[1:3] == (4, 6)


@pytest.mark.parametrize(
    ('size', 'heights', 'widths'),
    [
        (224, [56, 28, 14, 7], [56, 28, 14, 7]),
        (100, [25, 13, 7, 4], [25, 13, 7, 4]),
        ((100, 224), [25, 13, 7, 4], [56, 28, 14, 7]),
    ],
)
def test_position_embeddings_have_a_cell_for_each_of_pre_training(size, heights, widths):
    model = build(InLinePVT, pretrain_size=size)
    grids = [stage.pos_embed.shape[1:3] for stage in model.stages]
    assert grids == list(zip(heights, widths, strict=True))


@pytest.mark.parametrize('backbone', BACKBONES)
def test_fresh_linears_positions_and_tables_are_small_and_biases_zero(backbone):
    torch.manual_seed(0)
    model = backbone()
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            assert module.weight.std().item() == pytest.approx(0.02, rel=0.05), name
            assert module.bias is None or not module.bias.any(), name
        elif isinstance(module, nn.LayerNorm):
            assert (module.weight == 1).all(), name
            assert not module.bias.any(), name
    for name, parameter in model.named_parameters():
        if name.endswith(('pos_embed', 'relative_position_bias_table')):
            assert parameter.std().item() == pytest.approx(0.02, rel=0.05), name


@pytest.mark.parametrize('backbone', BACKBONES)
def test_shapes_can_be_asked_for_without_computing(backbone):
    with torch.device('meta'):
        outputs = build(backbone)(torch.empty(1, 3, 800, 1333))
    assert [output.shape[-2:] for output in outputs] == [
        (-(-800 // stride), -(-1333 // stride)) for stride in STRIDES[backbone]
    ]
