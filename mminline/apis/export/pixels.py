"""Pixel values of an image file to what a backbone reads."""

from torch import Tensor, nn


class Pixels(nn.Module):
    """Channel order and normalisation of a config, for images of RGB values from 0 to 255.

    Args:
        preprocessor: Data preprocessor of the model.
        normalize: Whether to do anything; otherwise images have to be normalised already.
    """

    def __init__(self, preprocessor: nn.Module, normalize: bool = True) -> None:
        super().__init__()
        self.normalize = normalize and hasattr(preprocessor, 'mean')
        if self.normalize:
            # Files are read blue first; mean and std are for the order after the conversion.
            self.reads_rgb = converts_channels(preprocessor)
            self.register_buffer('mean', preprocessor.mean.clone())
            self.register_buffer('std', preprocessor.std.clone())

    def forward(self, image: Tensor) -> Tensor:
        if not self.normalize:
            return image
        image = image if self.reads_rgb else image.flip(1)
        return (image - self.mean) / self.std


def converts_channels(preprocessor: nn.Module) -> bool:
    """Whether a data preprocessor of mmdet (first name) or mmseg turns the order of channels."""
    names = ('_channel_conversion', 'channel_conversion')
    return any(getattr(preprocessor, name, False) for name in names)
