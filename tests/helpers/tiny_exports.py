"""Models small enough to export in a test, and exported files as their users open them."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

MEAN, STD = [120.0, 110.0, 100.0], [60.0, 55.0, 50.0]
DIMS = (8, 16)
PVT = dict(embed_dims=DIMS, depths=(1, 1), num_heads=(1, 2), mlp_ratios=(2, 2))
# One InLine block, then two of softmax windows, of which the second is shifted.
SWIN = dict(PVT, depths=(1, 2), inline_depths=(1, 0))
FPN_HEAD = dict(type='FPNHead', in_index=[0, 1], in_channels=[8, 8], feature_strides=[4, 8])
UPER_HEAD = dict(type='UPerHead', in_index=[0, 1], in_channels=list(DIMS), pool_scales=(1, 6))


def segmentor(backbone: str, arch: dict, head: dict, neck: bool, **options) -> dict:
    """Make the settings of a small segmentor."""
    model = dict(
        type='EncoderDecoder',
        data_preprocessor=dict(type='SegDataPreProcessor', mean=MEAN, std=STD, bgr_to_rgb=True),
        backbone=dict(type=f'mminline.{backbone}', arch=arch, out_indices=(0, 1), **options),
        decode_head=dict(
            channels=8,
            num_classes=5,
            norm_cfg=dict(type='SyncBN'),
            align_corners=False,
            loss_decode=dict(type='CrossEntropyLoss'),
            **head,
        ),
        test_cfg=dict(mode='whole'),
    )
    if neck:
        model['neck'] = dict(type='FPN', in_channels=list(DIMS), out_channels=8, num_outs=2)
    return model


def pixels(*shape: int) -> Tensor:
    """Make a random image batch, the same for the same shape."""
    return torch.randint(256, shape, generator=torch.Generator().manual_seed(0)).float()


def normalized(image: Tensor) -> Tensor:
    """Normalise as the models do."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    return (image - mean) / std


def open_file(path: str | Path) -> Callable[[Tensor], list[Tensor]]:
    """Open an exported file with whatever its users run it with."""
    if Path(path).suffix == '.onnx':
        import onnxruntime

        session = onnxruntime.InferenceSession(path)
        return lambda image: [
            torch.from_numpy(part) for part in session.run(None, {'image': image.numpy()})
        ]
    module = torch.export.load(path).module()

    def run(image: Tensor) -> list[Tensor]:
        with torch.no_grad():
            outputs = module(image)
        return [outputs] if isinstance(outputs, Tensor) else outputs

    return run


def compare_features(
    path: str | Path,
    extract: Callable[[Tensor], tuple[Tensor, ...]],
    shapes: list[tuple[int, int, int]],
) -> None:
    """Compare an exported file with the features of a model at several sizes."""
    run = open_file(path)
    for batch, *side in shapes:
        image = pixels(batch, 3, *side)
        with torch.no_grad():
            expected = extract(normalized(image))
        for part, wanted in zip(run(image), expected, strict=True):
            torch.testing.assert_close(part, wanted, rtol=1e-4, atol=1e-4)
