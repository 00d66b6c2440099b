"""Build InLine-PVT-T from a config line and show what it makes of an image."""

import mmengine
import torch
from mmengine.registry import MODELS

import mminline


def main() -> None:
    backbone = MODELS.build(dict(type='mminline.InLinePVT', arch='tiny')).eval()
    image = torch.rand(1, 3, 800, 1280)
    with torch.inference_mode():
        features = backbone(image)
    print(f'mminline {mminline.__version__}, mmengine {mmengine.__version__}')
    print(f'InLine-PVT-T on an image of {image.shape[3]}x{image.shape[2]}:')
    print('stride  channels  grid')
    for stride, feature in zip(backbone.strides, features, strict=True):
        _, channels, height, width = feature.shape
        print(f'{stride:6}  {channels:8}  {width}x{height}')


if __name__ == '__main__':
    main()
