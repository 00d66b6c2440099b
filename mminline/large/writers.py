"""Class maps written to a file band by band: PNG, tiled TIFF, or NumPy's format."""

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ..predictions import check_folder, whole_file

TILE = 256


def save_class_map(
    path: str | Path, bands: Iterable[np.ndarray], shape: tuple[int, int], dtype: np.dtype
) -> Path:
    """Write bands of rows as they come.

    The file gets its name when it is complete, see ``whole_file``.

    Args:
        path: File; its suffix chooses the format: ``.png``, ``.tif`` or ``.tiff``, ``.npy``.
        bands: Rows from top to bottom.
        shape: Height and width of the class map.
        dtype: Its type, uint8 or uint16.
    """
    path = Path(path)
    write = check_suffix(path)
    with whole_file(path) as unfinished:
        write(unfinished, bands, shape, dtype)
    return path


def check_suffix(path: Path) -> Callable:
    """Return how a file is written, or say which suffixes there are."""
    if path.suffix.lower() not in WRITERS:
        raise ValueError(f'a class map has to be a file {", ".join(WRITERS)}, got {path.name}')
    return WRITERS[path.suffix.lower()]


def check_output(path: Path) -> None:
    """Raise an error if a class map could not be written, before it is computed."""
    write = check_suffix(path)
    if path.is_dir():
        raise ValueError(f'a class map has to be a file, and {path} is a folder')
    if write is _write_tiff and find_spec('tifffile') is None:
        raise ModuleNotFoundError(
            f'{path} cannot be written without tifffile: pip install "mminline[large]", or choose '
            '.png or .npy'
        )
    check_folder(path.parent)


def _write_npy(
    path: Path, bands: Iterable[np.ndarray], shape: tuple[int, int], dtype: np.dtype
) -> None:
    # Not through a memory map: on a full disk that kills the process.
    header = dict(
        descr=np.lib.format.dtype_to_descr(dtype), fortran_order=False, shape=tuple(shape)
    )
    with path.open('wb') as file:
        np.lib.format.write_array_header_1_0(file, header)
        for band_HW in bands:
            file.write(np.ascontiguousarray(band_HW))


def _write_png(
    path: Path, bands: Iterable[np.ndarray], shape: tuple[int, int], dtype: np.dtype
) -> None:
    """Write a grey PNG; its pixels are one compressed stream that can be written in parts."""
    height, width = shape
    with path.open('wb') as file:
        file.write(b'\x89PNG\r\n\x1a\n')
        file.write(
            _chunk(b'IHDR', struct.pack('>IIBBBBB', width, height, 8 * dtype.itemsize, *[0] * 4))
        )
        stream = zlib.compressobj(level=3)
        for band_HW in bands:
            rows = np.ascontiguousarray(band_HW, dtype.newbyteorder('>')).view(np.uint8)
            # A zero in front of each row: its bytes are not predicted from others.
            rows = np.pad(rows.reshape(len(band_HW), -1), ((0, 0), (1, 0)))
            file.write(_chunk(b'IDAT', stream.compress(rows)))
        file.write(_chunk(b'IDAT', stream.flush()))
        file.write(_chunk(b'IEND', b''))


def _chunk(name: bytes, content: bytes) -> bytes:
    return (
        struct.pack('>I', len(content))
        + name
        + content
        + struct.pack('>I', zlib.crc32(name + content))
    )


def _write_tiff(
    path: Path, bands: Iterable[np.ndarray], shape: tuple[int, int], dtype: np.dtype
) -> None:
    from tifffile import TiffWriter

    with TiffWriter(path, bigtiff=np.prod(shape) * dtype.itemsize > 2**31) as writer:
        writer.write(
            _tiles(bands),
            shape=tuple(shape),
            dtype=dtype,
            tile=(TILE, TILE),
            compression='zlib',
            photometric='minisblack',
            metadata=None,
        )


def _tiles(bands: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Cut bands of any height into tiles, row by row of tiles."""
    rest = None
    for band_HW in bands:
        rest = band_HW if rest is None else np.concatenate([rest, band_HW])
        while len(rest) >= TILE:
            yield from _row_of_tiles(rest[:TILE])
            rest = rest[TILE:]
    if rest is not None and len(rest):
        yield from _row_of_tiles(rest)


def _row_of_tiles(rows_HW: np.ndarray) -> Iterator[np.ndarray]:
    missing = (TILE - len(rows_HW), -rows_HW.shape[1] % TILE)
    rows_HW = np.pad(rows_HW, ((0, missing[0]), (0, missing[1])))
    for left in range(0, rows_HW.shape[1], TILE):
        yield rows_HW[:, left : left + TILE]


WRITERS = {'.png': _write_png, '.tif': _write_tiff, '.tiff': _write_tiff, '.npy': _write_npy}
