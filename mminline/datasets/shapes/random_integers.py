"""Random integers from a key: the same on every machine and with every NumPy."""

import numpy as np


class RandomIntegers:
    """A stream of random integers.

    NumPy promises the raw words of PCG64 for good, but not what ``Generator`` makes of them, so
    the integers are made here.

    Args:
        key: Integers from 0 on that name the stream; other keys, other streams.
    """

    def __init__(self, *key: int):
        self._bits = np.random.PCG64(np.random.SeedSequence(key))

    def integer(self, low: int, high: int) -> int:
        """Draw one of ``low`` .. ``high``, both included."""
        return low + (self._bits.random_raw() * (high - low + 1) >> 64)

    def array(self, shape: tuple[int, ...], count: int) -> np.ndarray:
        """Draw an array of integers from 0 to ``count - 1``."""
        words = self._bits.random_raw(int(np.prod(shape))).reshape(shape)
        return ((words >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)).astype(np.int32)

    def permutation(self, count: int) -> list[int]:
        """Shuffle the integers below ``count``."""
        return np.argsort(self._bits.random_raw(count), kind='stable').tolist()
