"""The inputs that are graded: named classes of matrix pairs.

A generator has the arguments (rng, m, n, k, bits) and returns A (m x k) and B (k x n), or A, B and C: then the product is C - A B. `bits`
is the spread: the binary logarithm of the largest over the smallest scale that meet in one inner product; generators without one ignore it.

Sources, by what the docstrings call them:
  grading   Demmel, Li, Langou, Pereira, Gates, Rubio-Gonzalez, "How to grade the accuracy of an implementation of the BLAS", BLIS Retreat
            2024, https://www.cs.utexas.edu/~flame/BLISRetreat2024/slides/Grading_BLAS.pdf, and Demmel and others, "How to grade the
            accuracy of the BLAS", https://arxiv.org/abs/2609.12307
  ozaki2    Ozaki, Uchino, Imamura, "Ozaki Scheme II: A GEMM-oriented emulation of floating-point matrix multiplication using an integer
            modular technique", https://arxiv.org/abs/2504.08009
  higham    Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, SIAM 2002, chapter 28 (a gallery of test matrices)
  kahan     Kahan, "Numerical Linear Algebra", Canadian Mathematical Bulletin 9 (1966)
"""
import math
import zlib
from dataclasses import dataclass
from typing import Callable, Optional

import numpy as np

LOG2_LARGEST = 1024                                  # no double is larger than 2^1024


def scales(bits, count):
    """Powers of two from 2^(bits/2) down to 2^(-bits/2), as exponents."""
    return np.rint(np.linspace(bits / 2, -bits / 2, count)).astype(int)


def one_to_two(rng, *shape):
    return 1 + rng.random(shape)


# ---- well scaled, and exact data ----

def uniform(rng, m, n, k, bits):
    return rng.random((m, k)) - 0.5, rng.random((k, n)) - 0.5


def positive(rng, m, n, k, bits):
    """U(0,1), on which the growth of the error is measured [grading]."""
    return rng.random((m, k)), rng.random((k, n))


def normal(rng, m, n, k, bits):
    return rng.standard_normal((m, k)), rng.standard_normal((k, n))


def phi(spread):
    """(rand - 0.5) exp(phi randn), the test matrices of the papers on the Ozaki scheme [ozaki2]."""
    def make(rng, m, n, k, bits):
        one = lambda *shape: (rng.random(shape) - 0.5) * np.exp(spread * rng.standard_normal(shape))
        return one(m, k), one(k, n)
    return make


def integers(rng, m, n, k, bits):
    return rng.integers(-9, 10, (m, k)).astype(float), rng.integers(-9, 10, (k, n)).astype(float)


def signs(rng, m, n, k, bits):
    return rng.choice([-1.0, 1.0], (m, k)), rng.choice([-1.0, 1.0], (k, n))


def float32(rng, m, n, k, bits):
    a, b = uniform(rng, m, n, k, bits)
    return a.astype(np.float32).astype(float), b.astype(np.float32).astype(float)


def one_hot(rng, m, n, k, bits):
    """Zeros and ones, one in eight of them a one, times normal data."""
    return (rng.integers(0, 8, (m, k)) == 0).astype(float), rng.standard_normal((k, n))


def sparse(rng, m, n, k, bits):
    one = lambda *shape: rng.standard_normal(shape) * (rng.random(shape) < 0.05)
    return one(m, k), one(k, n)


def block_diagonal(rng, m, n, k, bits):
    """Three entries on the diagonal and one block: rows with one nonzero beside full ones."""
    a, b = uniform(rng, m, n, k, bits)
    for x in (a, b):
        x[:3], x[:, :3] = 0, 0
        x[[0, 1, 2], [0, 1, 2]] = 0.7
    return a, b


def disjoint(rng, m, n, k, bits):
    """Normal data in which some rows of A and columns of B have no common support: these entries are exactly zero [grading, test 1b]."""
    a, b = normal(rng, m, n, k, bits)
    for i, j in zip(rng.permutation(m)[:min(m, n) // 2], rng.permutation(n)):
        inside = np.zeros(k, bool)
        inside[rng.permutation(k)[:rng.integers(1, k)]] = True
        a[i, inside] = 0
        b[~inside, j] = 0
    return a, b


# ---- scales along the inner dimension, across it, and both ----

def rotated_scale(rng, m, n, k, bits):
    """Is the arithmetic fixed point? Row i is a vector with falling scales, turned by i; so is column j, with the reciprocal scales, so that
    all terms of the diagonal have the same size while no row has a common scale with a column elsewhere [grading, test 2b]."""
    x, d = one_to_two(rng, k), scales(bits, k)
    y, z = np.ldexp(x, d), np.ldexp(x, -d)
    return y[(np.arange(m)[:, None] + np.arange(k)) % k], z[(np.arange(k)[:, None] + np.arange(n)) % k]


def inner_scale(rng, m, n, k, bits):
    """A D and D^-1 B: one scaling of the inner dimension, which a product does not see."""
    d = scales(bits, k)
    return np.ldexp(one_to_two(rng, m, k), d), np.ldexp(one_to_two(rng, k, n), -d[:, None])


def outer_scale(rng, m, n, k, bits):
    """Every row of A and every column of B with a scale of its own, in a random order."""
    a, b = uniform(rng, m, n, k, bits)
    return np.ldexp(a, rng.permutation(scales(bits, m))[:, None]), np.ldexp(b, rng.permutation(scales(bits, n)))


def repeated_scale(rng, m, n, k, bits, crossover=16):
    """Fixed point or Strassen down to a crossover: an inner scaling by `crossover` powers of two, repeated and shuffled, and the last row of A and
    the last column of B raised to the largest scale, which only a sum of blocks mixes with other rows [grading, test 3b]."""
    d = rng.permutation(np.resize(scales(bits, crossover), k))
    a, b = np.ldexp(one_to_two(rng, m, k), d), np.ldexp(one_to_two(rng, k, n), -d[:, None])
    a[-1] = np.ldexp(one_to_two(rng, k), d.max())
    b[:, -1] = np.ldexp(one_to_two(rng, k), d.max())
    return a, b


def decay(rng, m, n, k, bits):
    """Entries that decay away from the diagonal, to 2^-bits in the corners, as in kernels and inverses of band matrices."""
    row, column, inner = (np.linspace(0, 1, x) for x in (m, n, k))
    fall = lambda p, q: -np.rint(bits * np.abs(p[:, None] - q)).astype(int)
    return np.ldexp(rng.random((m, k)) - 0.5, fall(row, inner)), np.ldexp(rng.random((k, n)) - 0.5, fall(inner, column))


def checkerboard(rng, m, n, k, bits):
    """Fields of size 1 and 2^bits in turns: in half of the entries of the product every large number meets a small one."""
    board = lambda p, q, odd: bits * ((np.arange(p)[:, None] + np.arange(q) + odd) % 2)
    return np.ldexp(rng.random((m, k)) - 0.5, board(m, k, 0)), np.ldexp(rng.random((k, n)) - 0.5, board(k, n, 1))


def random_exponents(rng, m, n, k, bits):
    """Every exponent drawn alone from a range of `bits`."""
    one = lambda *shape: np.ldexp(one_to_two(rng, *shape) * rng.choice([-1, 1], shape), rng.integers(-(bits // 2), bits // 2 + 1, shape))
    return one(m, k), one(k, n)


def graded(rng, m, n, k, bits):
    """Rows and columns of both matrices fall by 2^-bits: large meets large."""
    fall = lambda p, q: -np.rint(bits * (np.linspace(0, 1, p)[:, None] + np.linspace(0, 1, q))).astype(int)
    return np.ldexp(rng.random((m, k)) - 0.5, fall(m, k)), np.ldexp(rng.random((k, n)) - 0.5, fall(k, n))


def bad_lines(rows, columns):
    """Normal data, but a few rows have one entry of 2^bits, at the place of which half of the columns are as small (and the same for a few
    columns): what no number of moduli holds is in these lines alone. Never more than a tenth of all lines."""
    def make(rng, m, n, k, bits):
        a, b = normal(rng, m, n, k, bits)
        most = (m + n) // 10
        in_rows = min(max(1, m // 12), most) if rows else 0
        in_columns = min(max(1, n // 12), most - in_rows) if columns else 0
        for i, h in zip(rng.permutation(m)[:in_rows], rng.permutation(k)):
            a[i, h] = math.ldexp(1.5, bits)
            b[h, ::2] = np.ldexp(b[h, ::2], -bits)
        for j, h in zip(rng.permutation(n)[:in_columns], rng.permutation(k)):
            b[h, j] = math.ldexp(1.5, bits)
            a[1::2, h] = np.ldexp(a[1::2, h], -bits)
        return a, b
    return make


# ---- matrices with a name ----

def hilbert(rng, m, n, k, bits):
    """1 / (i + j + 1) [higham]."""
    one = lambda p, q: 1 / (np.arange(p)[:, None] + np.arange(q) + 1.0)
    return one(m, k), one(k, n)


def hilbert_inverse(rng, m, n, k, bits, order=12):
    """A Hilbert matrix and its inverse, whose entries are integers with alternating signs: the product cancels to the identity [higham]."""
    i = range(1, order + 1)
    entry = lambda p, q: ((-1) ** (p + q) * (p + q - 1) * math.comb(order + p - 1, order - q) * math.comb(order + q - 1, order - p)
                          * math.comb(p + q - 2, p - 1) ** 2)
    return hilbert(rng, order, order, order, bits)[0], np.array([[float(entry(p, q)) for q in i] for p in i])


def vandermonde(rng, m, n, k, bits):
    """Powers 0 to k - 1 of nodes in (-1, 1), times the transpose for other nodes: the powers fall down to zero."""
    x, y = rng.random(m) * 2 - 1, rng.random(n) * 2 - 1
    with np.errstate(under="ignore"):
        return x[:, None] ** np.arange(k), y ** np.arange(k)[:, None]


def vandermonde_wide(rng, m, n, k, bits):
    """Powers of nodes on both sides of 1, rising up to 2^bits or falling to 2^-bits: rising rows meet falling columns."""
    node = lambda count: 2.0 ** (rng.uniform(-bits, bits, count) / (k - 1)) * rng.choice([-1, 1], count)
    x, y = node(m), node(n)
    return x[:, None] ** np.arange(k), y ** np.arange(k)[:, None]


def kahan(rng, m, n, k, bits):
    """K(theta) of order k, upper triangular: s^i times 1 on the diagonal and -c beyond it [kahan], s chosen so that s^(k-1) = 2^-bits.
    Evenly chosen rows of K times columns of K."""
    s = 2.0 ** (-bits / (k - 1))
    full = s ** np.arange(k)[:, None] * (np.eye(k) - math.sqrt(1 - s * s) * np.triu(np.ones((k, k)), 1))
    return full[np.linspace(0, k - 1, m).astype(int)], full[:, np.linspace(0, k - 1, n).astype(int)].copy()


# ---- the ends of the range ----

def subnormal_normal(rng, m, n, k, bits):
    """Subnormal rows times normal columns: the result is subnormal too."""
    a, b = uniform(rng, m, n, k, bits)
    return np.ldexp(a, -1030), b


def subnormal_huge(rng, m, n, k, bits):
    """Subnormal and huge numbers, whose products are of size 1."""
    a, b = uniform(rng, m, n, k, bits)
    return np.ldexp(a, -1022 - rng.integers(0, 40, (m, 1))), np.ldexp(b, 1023)


def subnormal_both(rng, m, n, k, bits):
    """Subnormal times subnormal: every product is far below the smallest number."""
    a, b = uniform(rng, m, n, k, bits)
    return np.ldexp(a, -1030), np.ldexp(b, -1030)


def underflow_border(rng, m, n, k, bits):
    """Results around 2^-1074, the smallest number, of normal numbers."""
    a, b = uniform(rng, m, n, k, bits)
    return np.ldexp(a, -537 - rng.integers(-30, 30, (m, 1))), np.ldexp(b, -537)


def overflow_border(rng, m, n, k, bits):
    """Results on both sides of the largest number; and some whose terms overflow while the sum need not."""
    a, b = uniform(rng, m, n, k, bits)
    top = LOG2_LARGEST // 2 + 2 - math.log2(k) / 4
    return np.ldexp(a, int(top) + rng.integers(-3, 3, (m, 1))), np.ldexp(b, int(top))


def huge_tiny(rng, m, n, k, bits):
    """Numbers near the largest one times numbers near the smallest normal one."""
    a, b = uniform(rng, m, n, k, bits)
    return np.ldexp(a, 1023), np.ldexp(b, -1021)


# ---- heavy cancellation ----

def residual(rng, m, n, k, bits):
    """[A, B] [X; -I] with B = A X as rounded by a product: all that is left is the rounding error."""
    inner = max(1, k - n)
    a, x = rng.standard_normal((m, inner)), rng.standard_normal((inner, n))
    return np.hstack([a, a @ x]), np.vstack([x, -np.eye(n)])


def residual_beta(rng, m, n, k, bits):
    """B - A X by one call with beta = 1, as iterative refinement computes its residual."""
    a, x = normal(rng, m, n, k, bits)
    return a, x, a @ x


# ---- the list ----

@dataclass(frozen=True)
class Class:
    """must_emulate: fewer than a tenth of rows and columns are hopeless by construction, so the call may not go native as a whole."""
    name: str
    make: Callable
    bits: Optional[int] = None
    family: Optional[str] = None                    # classes that differ in bits only
    must_emulate: bool = True
    longest: int = 512                              # the largest inner dimension it is run at
    only_once: bool = False                         # has a size of its own
    readme: bool = False

    def pair(self, seed, m, n, k):
        """(A, B, C or None): the same for every run that has this seed and these sizes."""
        rng = np.random.default_rng([seed, zlib.crc32(self.name.encode()), m, n, k])
        return (*self.make(rng, m, n, k, self.bits), None)[:3]


def classes():
    long = dict(longest=1 << 20)
    yield Class("uniform(-.5,.5)", uniform, readme=True, **long)
    yield Class("uniform(0,1)", positive, readme=True, **long)
    yield Class("normal", normal, readme=True, **long)
    for spread in (0.5, 1, 2, 4):
        yield Class(f"phi={spread}", phi(spread), readme=spread > 0.5, **long)
    yield Class("integers -9..9", integers, readme=True, **long)
    yield Class("signs +-1", signs, readme=True, **long)
    yield Class("float32 data", float32, readme=True, **long)
    yield Class("one-hot x normal", one_hot, readme=True, **long)
    yield Class("5% sparse", sparse, readme=True, **long)
    yield Class("block diagonal", block_diagonal, **long)
    yield Class("disjoint supports", disjoint, readme=True, **long)
    for bits in (0, 8, 16, 24, 32, 64, 256, 1000):
        yield Class(f"rotated scale 2^+-{bits // 2}", rotated_scale, bits, "rotated scale", bits <= 24, readme=bits in (16, 32))
    for bits in (16, 64, 200, 1000):
        yield Class(f"inner scale 2^+-{bits // 2}", inner_scale, bits, "inner scale", readme=bits == 200)
    for bits in (64, 1000):
        yield Class(f"rows and columns 2^+-{bits // 2}", outer_scale, bits, "rows and columns")
    for bits in (16, 64):
        # the last row and column, which have another scale, hide the inner one from a balancing by the maxima, but not by averages
        yield Class(f"shuffled scale 2^+-{bits // 2}", repeated_scale, bits, "shuffled scale")
    for bits in (8, 16, 24, 32, 64):
        yield Class(f"decay off the diagonal 2^-{bits}", decay, bits, "decay off the diagonal", bits <= 24, readme=bits == 16)
    for bits in (4, 8, 16, 32):
        yield Class(f"checkerboard 2^{bits}", checkerboard, bits, "checkerboard", bits <= 16, readme=bits > 8)
    for bits in (8, 16, 40, 64, 128):
        yield Class(f"random exponents +-{bits // 2}", random_exponents, bits, "random exponents", bits <= 40, readme=bits == 40)
    for bits in (20, 200):
        yield Class(f"graded 2^-{bits}", graded, bits)
    yield Class("bad rows 2^60", bad_lines(True, False), 60)
    yield Class("bad columns 2^60", bad_lines(False, True), 60)
    yield Class("bad rows and columns 2^60", bad_lines(True, True), 60, readme=True)
    yield Class("Hilbert", hilbert, readme=True, **long)
    yield Class("Hilbert x inverse", hilbert_inverse, only_once=True)
    yield Class("Vandermonde", vandermonde)
    for bits in (8, 24, 60):
        yield Class(f"Vandermonde 2^+-{bits}", vandermonde_wide, bits, None, bits <= 24)
    for bits in (10, 50):
        yield Class(f"Kahan 2^-{bits}", kahan, bits, readme=bits == 50)
    yield Class("subnormal x normal", subnormal_normal)
    yield Class("subnormal x huge", subnormal_huge, readme=True)
    yield Class("subnormal x subnormal", subnormal_both)
    yield Class("underflow border", underflow_border)
    yield Class("overflow border", overflow_border, readme=True)
    yield Class("huge x tiny", huge_tiny)
    yield Class("residual [A B][X; -I]", residual, **long)
    yield Class("residual, beta = 1", residual_beta, readme=True, **long)
