"""Pixel values of an image file to what a backbone reads."""

from torch import Tensor, nn


class Pixels(nn.Module):
    """Channel order and normalisation of a config, for images of RGB values from 0 to 255.

    Args:
        preprocessor: Data preprocessor of the model; one without mean and std changes no values.
        normalize: Whether to do anything; otherwise images have to be normalised already.
    """

    def __init__(self, preprocessor: nn.Module, normalize: bool = True) -> None:
        super().__init__()
        self.normalize = normalize
        # Files are read blue first; mean and std are for the order after the conversion.
        self.reads_rgb = converts_channels(preprocessor)
        self.has_mean = hasattr(preprocessor, 'mean')
        if normalize and self.has_mean:
            self.register_buffer('mean', preprocessor.mean.clone())
            self.register_buffer('std', preprocessor.std.clone())

    def forward(self, image: Tensor) -> Tensor:
        if not self.normalize:
            return image
        if not self.reads_rgb and image.shape[1] == 3:
            image = image.flip(1)
        return (image - self.mean) / self.std if self.has_mean else image

    def describe(self) -> str:
        """Say in words what the values of an image have to be."""
        order = 'RGB' if self.normalize or self.reads_rgb else 'BGR'
        is_raw = self.normalize or not self.has_mean
        return f'{order} values{" from 0 to 255" if is_raw else ", normalised as in the config"}'


def converts_channels(preprocessor: nn.Module) -> bool:
    """Whether a data preprocessor of mmdet (first name) or mmseg turns the order of channels."""
    names = ('_channel_conversion', 'channel_conversion')
    return any(getattr(preprocessor, name, False) for name in names)
