"""pool.py METHOD: NumPy products in the parent and in worker processes."""

import ctypes
import json
import multiprocessing
import sys

import numpy as np


def emulated():
    """Calls that the library emulated in this process."""
    get = ctypes.CDLL(None).oz2_get_stats
    get.argtypes, get.restype = [ctypes.c_char_p, ctypes.c_size_t], ctypes.c_size_t
    buffer = ctypes.create_string_buffer(16384)
    assert get(buffer, len(buffer)) < len(buffer)
    return json.loads(buffer.value)["emulated"]


def work(seed):
    """An exact product; true if it is right and was emulated."""
    before = emulated()
    random = np.random.default_rng(seed)
    a = random.integers(-99, 100, (210 + seed, 150))
    b = random.integers(-99, 100, (150, 190))
    right = np.array_equal(a.astype(float) @ b.astype(float), a @ b)
    return bool(right) and emulated() == before + 1


def main():
    assert work(1)
    with multiprocessing.get_context(sys.argv[1]).Pool(3) as pool:
        assert all(pool.map(work, range(24), chunksize=1))
    assert work(2)
    print("good")


if __name__ == "__main__":
    main()
