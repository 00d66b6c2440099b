"""Export of detectors with the softmax backbones of mmdet, at any size."""

import copy

import pytest
import torch
from mmengine.registry import MODELS, DefaultScope
from torch import nn

from helpers import tiny, tiny_detectors
from mminline.apis.export import export_model
from mminline.apis.export.open_sizes import open_sizes

PVT = dict(
    type='PyramidVisionTransformer',
    pretrain_img_size=64,
    embed_dims=8,
    num_stages=2,
    num_layers=[1, 1],
    num_heads=[1, 2],
    patch_sizes=[4, 2],
    strides=[4, 2],
    paddings=[0, 0],
    sr_ratios=[8, 1],
    mlp_ratios=[2, 2],
    out_indices=(0, 1),
)
SWIN = dict(
    type='SwinTransformer',
    embed_dims=8,
    depths=(2, 2),
    num_heads=(1, 2),
    mlp_ratio=2,
    strides=(4, 2),
    out_indices=(0, 1),
)


def build(settings: dict, scope: str) -> nn.Module:
    """Build a backbone of mmdet or mmseg whose weights all matter."""
    with DefaultScope.overwrite_default_scope(scope):
        backbone = tiny.randomize(MODELS.build(settings))
    backbone.eval()  # returns nothing here
    return backbone


@pytest.mark.parametrize('scope', ['mmdet', 'mmseg'])
@pytest.mark.parametrize('size', [(32, 32), (56, 28), (65, 97), (121, 60)])
def test_the_open_form_of_swin_gives_the_same_maps(scope, size):
    pytest.importorskip(f'{scope}.models')
    backbone = build(SWIN, scope)
    opened = copy.deepcopy(backbone)
    open_sizes(opened)

    image = tiny.image(2, 3, *size)
    with torch.no_grad():
        for found, wanted in zip(opened(image), backbone(image), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    names = {type(part).__name__ for part in opened.modules()}
    assert {'OpenWindowAttention', 'OpenPatchMerging', 'OpenPadding'} <= names
    assert not names & {'ShiftWindowMSA', 'PatchMerging', 'AdaptivePadding'}


def test_attention_with_another_scale_is_left_to_the_tracer():
    pytest.importorskip('mmdet.models')
    backbone = build(dict(SWIN, qk_scale=0.1), 'mmdet')

    open_sizes(backbone)

    assert 'ShiftWindowMSA' in {type(part).__name__ for part in backbone.modules()}


def test_a_layer_of_the_same_name_from_elsewhere_is_left_to_the_tracer():
    class PatchMerging(nn.Identity):
        adap_padding = None

    class AdaptivePadding(nn.Identity):
        padding, kernel_size, stride, dilation = 'corner', (2, 2), (2, 2), (1, 1)

    model = nn.Sequential(PatchMerging(), AdaptivePadding())

    open_sizes(model)

    assert [type(part) for part in model] == [PatchMerging, AdaptivePadding]


@pytest.mark.slow
@pytest.mark.parametrize('backbone', [PVT, SWIN], ids=['pvt', 'swin'])
def test_a_detector_is_exported_with_a_softmax_backbone(shapes, tmp_path, backbone):
    config = tiny_detectors.retinanet()
    config.model.backbone = backbone
    model = tiny_detectors.build(config, shapes)

    exported = export_model(model, tmp_path / 'model.onnx', shape=(64, 96))

    assert len(exported.differences) > 5
    assert max(exported.differences.values()) == 0
