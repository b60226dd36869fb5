"""The exact error of every entry of a product, by integers, and what it is held to.

All sizes are relative to |A||B|: the componentwise measure of Grade A in "How to grade the accuracy of the BLAS", Demmel and others,
https://arxiv.org/abs/2609.12307. The bound of a native product is that of Jeannerod and Rump, "Improved error bounds for inner products in
floating-point arithmetic", SIAM J. Matrix Anal. Appl. 34 (2013): n u |A||B| for every order of summation, while nothing underflows.
"""
import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

# From here on (2^1024 - 2^970) a real number rounds to Inf.
OVERFLOW = (2**54 - 1) << 970


def as_integers(rows):
    """The rows as Python integers, row i in units of 2^q[i], and q."""
    mantissa, exponent = np.frexp(rows)
    m = (mantissa * 2.0**53).astype(np.int64)
    low = np.frexp((m & -m).astype(float))[1] - 1   # the position of the lowest set bit; for 0 of no use
    live = m != 0
    q = np.where(live, exponent - 53 + low, 10**6).min(1)
    q = np.where(live.any(1), q, 0)
    shift = np.where(live, exponent.astype(np.int64) - 53 - q[:, None], 0)
    out = [[x << s if s >= 0 else x >> -s for x, s in zip(xs, ss)] for xs, ss in zip(m.tolist(), shift.tolist())]
    return np.array(out, dtype=object).reshape(rows.shape), [int(x) for x in q]


def as_integer(value):
    """A finite double as (integer, exponent of its unit)."""
    mantissa, exponent = math.frexp(value)
    return int(mantissa * 2.0**53), exponent - 53


@dataclass
class Entry:
    """One entry, all sizes integers in units of 2^unit.

    error: |C - exact|, None for NaN; for Inf the distance from the exact value to the numbers that round to this Inf. size: |A||B|.
    start: |C| before the call, where it took part. terms: n of the promise, the smaller number of nonzeros of the row and of the column.
    """
    i: int
    j: int
    value: float
    error: int
    size: int
    start: int
    unit: int
    terms: int


class Exact:
    """A B and |A||B| of one pair, exactly; with c0 the product is c0 - A B."""

    def __init__(self, a, b, c0=None):
        x, qa = as_integers(a)
        y, qb = as_integers(np.ascontiguousarray(b.T))
        self.product = x.dot(y.T).tolist()
        self.size = np.abs(x).dot(np.abs(y).T).tolist()
        self.unit = [[p + q for q in qb] for p in qa]
        self.terms = np.minimum((a != 0).sum(1)[:, None], (b != 0).sum(0)[None, :]).tolist()
        self.inner = a.shape[1]
        self.c0 = None if c0 is None else c0.tolist()

    def entries(self, c):
        for i, row in enumerate(c.tolist()):
            for j, value in enumerate(row):
                yield self.entry(i, j, value)

    def entry(self, i, j, value):
        unit, exact, size, start = self.unit[i][j], self.product[i][j], self.size[i][j], 0
        if self.c0 is not None:
            start, low = as_integer(self.c0[i][j])
            base = min(unit, low) if start else unit
            exact, size, start, unit = exact << unit - base, size << unit - base, start << max(low - base, 0), base
            exact, start = start - exact, abs(start)
        error = None
        if math.isfinite(value):
            got, low = as_integer(value)
            if value and low < unit:
                exact, size, start, got, unit = exact << unit - low, size << unit - low, start << unit - low, got, low
            elif value:
                got <<= low - unit
            error = abs(got - exact)
        elif math.isinf(value):
            base = min(unit, 0)
            exact, size, start, unit = exact << unit - base, size << unit - base, start << unit - base, base
            error = max(0, (OVERFLOW << -base) - (exact if value > 0 else -exact))
        return Entry(i, j, value, error, size, start, unit, self.terms[i][j])


# ---- what an entry is held to ----

def within(entry, factor, squared, absolute, start=0):
    """error <= (factor + sqrt(squared)) u size + start u |C before| + absolute 2^-1075, decided with integers."""
    if entry.error is None:
        return False
    rest = (entry.error << 53) - factor * entry.size - start * entry.start
    if rest <= 0 or rest**2 <= squared * entry.size**2:
        return True
    # the last term matters only far down, so it is tried last; here all in units of u 2^unit
    rest -= absolute * Fraction(2) ** (53 - 1075 - entry.unit)
    return rest <= 0 or rest**2 <= squared * entry.size**2


def keeps_promise(entry, accuracy="fp64"):
    """The promise of an emulated entry: (T + 1) u |A||B| + 2^-1075; of a call with C in it: (T + 2) u |A||B| + 2u |C| + 2^-1073."""
    squared = 4 * entry.terms if accuracy == "fp64" else 0
    factor = 1 + {"fp64": 0, "textbook": max(1, entry.terms - 1), "high": 1}[accuracy]
    if entry.start:
        return within(entry, factor + 1, squared, 4, 2)
    return within(entry, factor, squared, 1)


def may_overflow(entry):
    """|A||B| is 2^1023 or more, so that a partial sum may overflow."""
    return (entry.size + entry.start).bit_length() + entry.unit >= 1024


def keeps_native_bound(entry, inner):
    """The bound of a classical floating-point product in any order, and what underflow may add: half a unit of the subnormal numbers a term.

    Where |A||B| overflows, so may a partial sum, and nothing is asked."""
    if may_overflow(entry):
        return True
    n = inner + (1 if entry.start else 0)
    return within(entry, n, 0, n, n)


def promise(terms, accuracy="fp64"):
    """T + 1, in units of u |A||B|, for print."""
    return {"fp64": 2 * math.sqrt(terms), "textbook": max(1, terms - 1), "high": 1}[accuracy] + 1


def ratio(entry):
    """error / (u (|A||B| + |C before|)) as a double, after 2^-1075 is taken from the error."""
    if entry.error is None:
        return math.inf
    size, error = entry.size + entry.start, entry.error << 53
    if size.bit_length() + entry.unit < -900:       # elsewhere that term is nothing
        error = max(0, error - Fraction(2) ** (53 - 1075 - entry.unit))
    if not error:
        return 0.0
    if not size:
        return math.inf                             # an empty sum must be zero
    try:
        return float(error / size)
    except OverflowError:
        return math.inf


# ---- a whole product ----

@dataclass
class Verdict:
    """What grade() found: the largest ratio where the promise holds, the largest of the lines that were computed natively, entries beyond."""
    worst: float = 0.0
    worst_native: float = 0.0
    promised: int = 0
    native: int = 0
    broken: list = field(default_factory=list)      # (i, j) beyond the promise, or beyond the native bound


def grade(exact, c, accuracy="fp64", rows=(), columns=(), whole=False):
    """Every entry of an emulated product: to the promise; those of native rows and columns, or all if whole, to the native bound."""
    out = Verdict()
    rows, columns = set(rows), set(columns)
    for entry in exact.entries(c):
        if whole or entry.i in rows or entry.j in columns:
            out.native += 1
            if math.isfinite(entry.value) or not may_overflow(entry):
                out.worst_native = max(out.worst_native, ratio(entry))
            kept = keeps_native_bound(entry, exact.inner)
        else:
            out.promised += 1
            out.worst = max(out.worst, ratio(entry))
            kept = keeps_promise(entry, accuracy)
        if not kept:
            out.broken.append((entry.i, entry.j))
    return out


def worst(exact, c):
    """The largest ratio of any product, held to nothing."""
    return grade(exact, c, whole=True).worst_native
