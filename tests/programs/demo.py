"""Multiplies matrices of several classes with NumPy's a @ b and prints one line
each, fields separated by tabs: class, size, seconds, error, moduli, route.

The error is the largest of |C - AB| / (u |A||B|), u = 2^-53, over 400 entries;
AB is summed exactly. Moduli and route come from oz2_last_call where the library
is loaded.
"""

import ctypes
import json
import time
from fractions import Fraction

import numpy as np

N = 768


def classes(random):
    """Name and two matrices of each class of input."""
    shape = (2, N, N)
    yield "uniform", random.uniform(-0.5, 0.5, shape)
    yield "normal", random.standard_normal(shape)
    yield "integers -9..9", random.integers(-9, 10, shape).astype(float)
    yield "float32 data", random.uniform(-0.5, 0.5, shape).astype(np.float32).astype(float)
    # Wide exponents, as in the papers on the scheme.
    yield "exp(normal)", random.uniform(-0.5, 0.5, shape) * np.exp(random.standard_normal(shape))
    yield "exp(2 normal)", random.uniform(-0.5, 0.5, shape) * np.exp(2 * random.standard_normal(shape))


def error(a, b, c, random):
    worst = 0.0
    for i, j in random.integers(0, N, (400, 2)):
        # Integer arithmetic on a common scale, as sums of Fractions are slow.
        x, y = scaled(a[i]), scaled(b[:, j])
        products = [p * q for p, q in zip(x[0], y[0])]
        scale = Fraction(1, 2 ** (x[1] + y[1]))
        gap = abs(Fraction(float(c[i, j])) - sum(products) * scale)
        size = sum(map(abs, products)) * scale
        worst = max(worst, float(gap * 2**53 / size) if size else 0.0)
    return worst


def scaled(vector):
    """Integers p and an exponent e with vector = p / 2^e, exactly."""
    ratios = [float(x).as_integer_ratio() for x in vector]
    e = max(q.bit_length() - 1 for _, q in ratios)
    return [p << (e - (q.bit_length() - 1)) for p, q in ratios], e


def what_happened():
    try:
        ask = ctypes.CDLL(None).oz2_last_call
    except AttributeError:
        return "-", "not loaded"
    ask.argtypes, ask.restype = [ctypes.c_char_p, ctypes.c_size_t], ctypes.c_size_t
    buffer = ctypes.create_string_buffer(4096)
    ask(buffer, len(buffer))
    call = json.loads(buffer.value)
    route = call["route"]
    if call.get("reason"):
        route += ": " + call["reason"]
    return str(call.get("moduli") or "null"), route


def main():
    random = np.random.default_rng(20240)
    for name, (a, b) in classes(random):
        best = float("inf")
        for _ in range(2):  # the first call pays for the start of threads
            start = time.perf_counter()
            c = a @ b
            best = min(best, time.perf_counter() - start)
        happened = what_happened()
        print(name, N, "%.4f" % best, "%.3f" % error(a, b, c, random), *happened, sep="\t")


if __name__ == "__main__":
    main()
