"""Order of maps in memory: from that of tokens to the one that compiled operations of mmcv read."""

import torch
from torch import Tensor

from .decision import is_unwatched_inference
from .threads import count_band_threads, cut_range, map_bands

# Values of a piece: it is read in one order and written in another, so it has to be in the cache.
PIECE = 2**17


def to_order(map_BCHW: Tensor, memory_format: torch.memory_format) -> Tensor:
    """Do what ``contiguous`` does, in inference on a CPU in bands of rows.

    Threads that share the copy would wait actively for the next operation, and keep the cores from
    the bands of the next stage.
    """
    is_ordered = map_BCHW.is_contiguous(memory_format=memory_format)
    if is_ordered or not is_unwatched_inference(map_BCHW):
        return map_BCHW.contiguous(memory_format=memory_format)
    out_BCHW = torch.empty_like(map_BCHW, memory_format=memory_format)
    height = map_BCHW.shape[2]
    num_threads = count_band_threads(map_BCHW.device)
    rows = max(PIECE * height // map_BCHW.numel(), 1)

    def copy(band: range) -> None:
        parts = (each[:, :, band.start : band.stop].split(rows, 2) for each in (out_BCHW, map_BCHW))
        for to_BCHW, from_BCHW in zip(*parts, strict=True):
            to_BCHW.copy_(from_BCHW)

    map_bands(copy, cut_range(height, height, num_threads), num_threads)
    return out_BCHW
