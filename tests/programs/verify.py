# Calls through ctypes for tests/process/test_verify.py, which puts its own lines
# below these. A matrix is a list of doubles, column by column, without gaps.
import ctypes
import json
import random
import struct

lib = ctypes.CDLL(None)
lib.oz2_get_stats.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
lib.oz2_get_stats.restype = ctypes.c_size_t
rng = random.Random(11)


def matrix(rows, columns, scale=1.0):
    return [scale * rng.uniform(-1, 1) for _ in range(rows * columns)]


def multiply(m, n, k, a, b, c, alpha=1.0, beta=0.0, row_major=False):
    """C = alpha A B + beta C by cblas_dgemm; for row-major the lists hold rows."""
    array = [(ctypes.c_double * len(x))(*x) for x in (a, b, c)]
    lda, ldb, ldc = (k, n, n) if row_major else (m, k, m)
    real = ctypes.c_double
    lib.cblas_dgemm(101 if row_major else 102, 111, 111, m, n, k, real(alpha), array[0], lda, array[1], ldb,
                    real(beta), array[2], ldc)
    return list(array[2])


def bits(c):
    return struct.pack("<%dd" % len(c), *c).hex()


def stats():
    buffer = ctypes.create_string_buffer(1 << 14)
    assert lib.oz2_get_stats(buffer, len(buffer)) < len(buffer)
    return json.loads(buffer.value)
