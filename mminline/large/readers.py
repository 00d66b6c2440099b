"""Image files, read in bands of rows where their format allows it."""

import contextlib
import functools
import struct
from pathlib import Path

import numpy as np

from ..predictions import read_image

TIFF = ('.tif', '.tiff')


def open_image(path: str | Path) -> 'np.ndarray | TiffImage':
    """Open an image file for ``predict``, blue first.

    A ``.npy`` file is mapped, and a TIFF is read tile by tile or strip by strip, if tifffile is
    installed and can decode it. Other files are read at once.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f'There is no image {path}.')
    if path.suffix.lower() == '.npy':
        return _map_array(path)
    if path.suffix.lower() in TIFF:
        with contextlib.suppress(ImportError, _Unreadable):
            return TiffImage(path)
    try:
        return read_image(path)
    except ValueError as error:
        raise ValueError(f'{path} cannot be read: {error}') from None


def _map_array(path: Path) -> np.ndarray:
    try:
        image_HWC = np.load(path, mmap_mode='r')
    except (EOFError, ValueError) as error:
        raise ValueError(f'{path} cannot be read: {error}') from None
    if image_HWC.ndim != 3 or image_HWC.shape[2] != 3 or image_HWC.dtype != np.uint8:
        raise ValueError(
            f'{path} has to hold pixels (height, width, 3) of type uint8, got '
            f'{image_HWC.shape} of type {image_HWC.dtype}'
        )
    return image_HWC


class _Unreadable(Exception):
    """A kind of TIFF that is left to OpenCV."""


class TiffImage:
    """Rows of a TIFF, blue first, decoded when they are asked for by ``image[top:bottom]``.

    Args:
        path: File with 8 bits a channel, grey or in colour, whose channels are not kept apart.
    """

    def __init__(self, path: str | Path) -> None:
        from tifffile import TiffFile, TiffFileError

        self.path = Path(path)
        try:
            self._file = TiffFile(path)
            self._page = page = self._file.pages[0]
        except (TiffFileError, IndexError, struct.error) as error:
            raise ValueError(f'{path} cannot be read as a TIFF: {error}') from None
        ends = np.add(page.dataoffsets, page.databytecounts)
        if not len(ends) or max(ends) > self.path.stat().st_size:
            raise ValueError(f'{path} cannot be read: it is cut off')
        if page.dtype != np.uint8 or page.planarconfig != 1 or page.photometric not in (1, 2):
            raise _Unreadable
        self.shape = (*page.shape[:2], 3)
        # Compressions that need another package are found now.
        self._decode(int(np.argmax(page.databytecounts)))

    def __getitem__(self, rows: slice) -> np.ndarray:
        top, bottom, _ = rows.indices(self.shape[0])
        band_HWC = np.zeros((bottom - top, *self.shape[1:]), np.uint8)
        segment_rows, columns = self._page.chunks[0], self._page.chunked[1]
        for row in range(top // segment_rows, -(-bottom // segment_rows)):
            first, last = max(row * segment_rows, top), min((row + 1) * segment_rows, bottom)
            for column in range(columns):
                part_HWC = self._decode(row * columns + column)
                left = column * self._page.chunks[1]
                width = min(part_HWC.shape[1], self.shape[1] - left)
                band_HWC[first - top : last - top, left : left + width] = part_HWC[
                    first - row * segment_rows : last - row * segment_rows, :width
                ]
        return band_HWC

    @functools.cached_property
    def _empty(self) -> np.ndarray:
        """Pixels of a part that the file leaves out, as GDAL does with SPARSE_OK."""
        nodata = self._page.nodata
        value = nodata if 0 <= nodata <= 255 else 0
        return np.full((*self._page.chunks[:2], 3), value, np.uint8)

    def _decode(self, index: int) -> np.ndarray:
        """Decode a tile or strip to colours, blue first."""
        page, file = self._page, self._file.filehandle
        if not page.databytecounts[index]:
            return self._empty
        file.seek(page.dataoffsets[index])
        data = file.read(page.databytecounts[index])
        try:
            (part_HWC,), *_ = page.decode(data, index, jpegtables=page.jpegtables)
        except ValueError as error:
            if 'imagecodecs' in str(error):
                raise _Unreadable from None
            raise ValueError(f'{self.path} cannot be read: {error}') from None
        except Exception as error:  # each compression has errors of its own
            raise ValueError(f'{self.path} cannot be read: it is damaged ({error})') from None
        if part_HWC.shape[2] < 3:
            return np.repeat(part_HWC[..., :1], 3, axis=2)
        return part_HWC[..., 2::-1]
