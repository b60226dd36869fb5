"""What scripts/soak draws: the options of a process, and one call by its number.

Everything comes from a seed and a number, so that any call can be made again alone.
"""
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from grading import inputs  # noqa: E402

CALLS_OF_A_PROCESS = 40
# What stands between and around the elements: a signalling NaN, which nobody may read or write.
SENTINEL = 0x7FF4DEADBEEF5A5A
# Classes whose products a fixed number of moduli holds as well as a native BLAS, although it proves nothing.
TAME = {"uniform(-.5,.5)", "normal", "integers -9..9", "signs +-1", "float32 data"}


def generator(*numbers):
    return np.random.default_rng(list(numbers))


def choose(rng, weighted):
    """A key of {key: weight}."""
    keys = list(weighted)
    weights = np.array([weighted[key] for key in keys], dtype=float)
    return keys[rng.choice(len(keys), p=weights / weights.sum())]


# ---- options of a process ----

def draw_process(seed, process, engines, natives):
    """The environment of a process (OZ2_*), the BLAS to compare with, the number of threads that call."""
    rng = generator(seed, process, 1)
    mode = choose(rng, {"auto": 16, "accurate": 2, "fast": 2, "native": 1})
    moduli = "auto"
    if mode in ("accurate", "fast"):
        moduli = rng.integers(16, 21)
    elif rng.random() < 0.15:
        moduli = rng.integers(2, 21)
    native = choose(rng, {name: 1 for name in natives})
    options = {
        "MODE": mode,
        "MODULI": moduli,
        "ACCURACY": choose(rng, {"fp64": 3, "textbook": 1, "high": 1}),
        "ENGINE": choose(rng, {"auto": 2, **{engine: 1 for engine in engines}}),
        "MIN_SIZE": choose(rng, {"0": 12, "auto": 1, "48.5": 1}),
        "NUM_THREADS": choose(rng, {"auto": 1, "1": 2, "2": 2, "3": 1, "7": 1}),
        "WORKSPACE": choose(rng, {"auto": 6, "64K": 1, "1M": 2, "8M": 2, "0": 1}),
        "CHECK": choose(rng, {"off": 3, "on": 1}),
        # The other modes promise nothing, and OZ2_VERIFY finds that.
        "VERIFY": choose(rng, {"off": 6, "1": 1, "5": 1}) if mode == "auto" else "off",
        "STRASSEN": choose(rng, {"auto": 3, "1": 1, "2": 1}),
        # Warnings about a tiny workspace are wanted there, and tested elsewhere.
        "LOG": "error",
    }
    threads = int(choose(rng, {1: 3, 2: 1, 4: 1, 8: 1}))
    return {f"OZ2_{name}": str(value) for name, value in options.items()}, native, threads


# ---- data ----

def exponents(low, high):
    def make(rng, m, n, k, bits):
        one = lambda *shape: np.ldexp(rng.uniform(-1, 1, shape), rng.integers(low, high + 1, shape))
        return one(m, k), one(k, n)
    return make


def zero_lines(rng, m, n, k, bits):
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    a[rng.random(m) < 0.3] = 0
    b[:, rng.random(n) < 0.3] = 0
    a[:, rng.random(k) < 0.1] = -0.0
    return a, b


def zeros(rng, m, n, k, bits):
    return np.zeros((m, k)), rng.standard_normal((k, n))


def not_finite(share):
    def make(rng, m, n, k, bits):
        a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
        for x in (a, b):
            where = rng.random(x.shape) < share / max(x.shape)
            x[where] = rng.choice([np.nan, np.inf, -np.inf], where.sum())
        return a, b
    return make


def large_integers(rng, m, n, k, bits):
    one = lambda *shape: rng.integers(-2**52, 2**52, shape).astype(float)
    return one(m, k), one(k, n)


OWN = {
    "uniform(-.5,.5)": inputs.uniform,
    "normal": inputs.normal,
    "integers -9..9": inputs.integers,
    "large integers": large_integers,
    "wide exponents": exponents(-30, 30),
    "hopeless exponents": exponents(-500, 500),
    "all subnormal": exponents(-1074, -1030),
    "huge": exponents(990, 1023),
    "huge A alone": lambda rng, m, n, k, bits: (exponents(1000, 1023)(rng, m, n, k, 0)[0], exponents(-1022, -990)(rng, m, n, k, 0)[1]),
    "zero lines": zero_lines,
    "zeros": zeros,
    "some NaN and Inf": not_finite(0.1),
    "many NaN and Inf": not_finite(3.0),
    "one-hot": lambda rng, m, n, k, bits: (np.eye(k)[rng.integers(0, k, m)], rng.standard_normal((k, n))),
}
GRADED = {x.name: x for x in inputs.classes() if not x.only_once}


def draw_data(rng, m, n, k):
    """(name of the class, A m x k, B k x n)."""
    # The classes of tests/grading are made for sizes that are not tiny.
    if min(m, n) < 12 or k <= n + 1 or k < 12 or rng.random() < 0.5:
        name = choose(rng, {name: 4 if name in TAME else 1 for name in OWN})
        make, bits = OWN[name], 0
    else:
        name = choose(rng, {name: 1 for name in GRADED})
        make, bits = GRADED[name].make, GRADED[name].bits
    if 0 in (m, n, k):
        return name, np.ones((m, k)), np.ones((k, n))
    with np.errstate(all="ignore"):
        a, b = make(rng, m, n, k, bits)[:2]
    return name, np.ascontiguousarray(a, dtype=float), np.ascontiguousarray(b, dtype=float)


SCALARS = {1.0: 10, -1.0: 4, 0.0: 2, -0.0: 1, 2.0: 1, 0.5: 1, "random": 4, 1e-300: 0.3, -3e200: 0.3, 5e-324: 0.3, np.inf: 0.2, np.nan: 0.2}


def draw_scalar(rng, zero):
    value = choose(rng, {**SCALARS, 0.0: zero})
    return float(rng.standard_normal()) if value == "random" else float(value)


# ---- sizes ----

def draw_size(rng):
    kind = choose(rng, {"tiny": 2, "small": 4, "middle": 4, "large": 1})
    low, high = {"tiny": (0, 4), "small": (1, 48), "middle": (40, 300), "large": (300, 1500)}[kind]
    return int(rng.integers(low, high + 1))


def draw_sizes(rng, most):
    """m, n, k with at most so many multiplications."""
    while True:
        sizes = [draw_size(rng) for _ in range(3)]
        if rng.random() < 0.1:
            sizes[rng.integers(3)] = int(rng.integers(1000, 1501))
        if sizes[0] * sizes[1] * sizes[2] <= most:
            return sizes


# ---- one call ----

class Matrix:
    """A matrix in a buffer of its own, with gaps. `view` has the logical shape, rows x columns."""

    def __init__(self, values, is_stored_by_rows, gap, offset):
        rows, columns = values.shape
        lines, length = (rows, columns) if is_stored_by_rows else (columns, rows)
        self.ld = max(1, length) + gap
        self.bytes = 8 * self.ld * lines
        self.strides = (8 * self.ld, 8) if is_stored_by_rows else (8, 8 * self.ld)
        self.shape = values.shape
        room = offset + self.bytes + 64
        self.start = 64 + offset
        self.buffer = aligned(64 + room)
        self.buffer[: len(self.buffer) // 8 * 8].view(np.uint64)[:] = SENTINEL
        self.view[...] = values

    def on(self, buffer):
        return np.ndarray(self.shape, float, buffer, self.start, self.strides)

    @property
    def view(self):
        return self.on(self.buffer)

    def copy(self):
        twin = object.__new__(Matrix)
        twin.__dict__.update(self.__dict__)
        twin.buffer = aligned(len(self.buffer))
        twin.buffer[:] = self.buffer
        return twin

    @property
    def address(self):
        return self.buffer.ctypes.data + self.start


def aligned(size):
    """Zero bytes at an address that is a multiple of 64: what the native BLAS rounds may depend on it."""
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start:start + size]


@dataclass
class Call:
    number: int
    interface: str                      # fortran, column, row
    letters: tuple                      # of op(A) and op(B)
    sizes: tuple                        # m, n, k
    alpha: float
    beta: float
    data: str
    a: Matrix
    b: Matrix
    c: Matrix
    forks: bool
    repeats: bool                       # once more with another engine and number of threads
    rng: np.random.Generator            # for what is drawn afterwards

    def __str__(self):
        m, n, k = self.sizes
        return (f"call {self.number}: {self.interface} {''.join(self.letters)} m {m} n {n} k {k} alpha {self.alpha!r} lda {self.a.ld} "
                f"ldb {self.b.ld} beta {self.beta!r} ldc {self.c.ld} data '{self.data}'")


def draw_call(seed, number, most):
    rng = generator(seed, number, 2)
    m, n, k = draw_sizes(rng, most)
    interface = choose(rng, {"fortran": 4, "column": 1, "row": 2})
    letters = tuple(str(rng.choice(list("NNTCntc"))) for _ in range(2))
    alpha, beta = draw_scalar(rng, 0.7), draw_scalar(rng, 12)
    data, a, b = draw_data(rng, m, n, k)
    c = rng.standard_normal((m, n)) * choose(rng, {1.0: 6, 1e-310: 1, 1e300: 1})
    if beta == 0 or rng.random() < 0.05:
        # Not to be read where beta is 0.
        c[rng.random((m, n)) < 0.5] = np.nan
    gap = lambda: int(choose(rng, {0: 3, int(rng.integers(1, 9)): 2, 64: 1}))
    # Of bytes; 4: not even a multiple of a double, which a Fortran program can make.
    offset = lambda: int(choose(rng, {0: 3, 8: 2, 16: 1, 24: 1, 40: 1, 4: 0.5}))
    by_rows = interface == "row"
    place = lambda x, letter: Matrix(x, by_rows != (letter not in "Nn"), gap(), offset())
    return Call(number, interface, letters, (m, n, k), alpha, beta, data, place(a, letters[0]), place(b, letters[1]),
                place(c, "N"), bool(rng.random() < 0.02), bool(rng.random() < 0.2), rng)
