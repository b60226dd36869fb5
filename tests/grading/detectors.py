"""Yes/no tests that tell a classical floating-point product from fixed point and from Strassen-like algorithms.

Written from the descriptions in "How to grade the accuracy of an implementation of the BLAS" (slides, BLIS Retreat 2024) and "How to grade
the accuracy of the BLAS" (https://arxiv.org/abs/2609.12307). A product is any function of A and B. Errors are exact. On the inputs with
scales all terms are positive, so that a relative error and an error over |A||B| are the same.
"""
import math
from dataclasses import dataclass, field

import numpy as np

from . import inputs
from .exact import Exact, ratio


@dataclass
class Result:
    name: str
    passed: bool
    text: str                                       # what was found, in one line
    figures: dict = field(default_factory=dict)


def tolerance(n):
    """The largest relative error of an entry that the slides allow, in units of u."""
    return 10 * n


def largest_scale(n):
    """The most bits of spread with which n products of scaled numbers cannot overflow."""
    return 2 * int(inputs.LOG2_LARGEST / 2 - math.log2(n) - 2)


def ratios(product, a, b):
    """(ratio of every entry as a matrix, the product)."""
    c = product(a, b)
    return np.array([ratio(entry) for entry in Exact(a, b).entries(c)]).reshape(c.shape), c


def disjoint_patterns(product, n=48, seed=42, tries=4):
    """Classical or Strassen? Entries whose row and column have no common support must be exactly 0.0."""
    wrong = count = 0
    for trial in range(tries):
        a, b = inputs.disjoint(np.random.default_rng([seed, trial]), n, n, n, None)
        c = product(a, b)
        empty = ((a != 0).astype(int) @ (b != 0).astype(int)) == 0
        count += int(empty.sum())
        wrong += int((c[empty] != 0).sum())         # NaN too
    return Result("disjoint patterns", count > 0 and not wrong, f"{wrong} of {count} empty entries are not zero", dict(entries=count, wrong=wrong))


def rotated_sweep(product, n=32, seed=42, last=lambda: None):
    """How many bits? The rotated scales with 2^max .. 2^-max: the numbers of bits as long as every entry keeps the tolerance.

    figures["sweep"]: [max, bits, worst ratio, what last() says of the call]."""
    sweep, bits, passed = [], 0, True
    for top in (0, 1, 2, 4, 8, 16, 32, 64, 128):
        a, b = inputs.rotated_scale(np.random.default_rng(seed), n, n, n, 2 * top)
        found, _ = ratios(product, a, b)
        sweep.append([top, 2 * top + 53, float(found.max()), last()])
        passed = passed and found.max() <= tolerance(n)
        bits = sweep[-1][1] if passed else bits
    passed = bool(passed)
    return Result("rotated-scale sweep", passed, f"{bits} bits" + (", all that were tried" if passed else ""), dict(bits=bits, sweep=sweep))


def fixed_point(product, n=32, seed=42):
    """Floating or fixed point? The rotated scales with the widest spread that does not overflow."""
    bits = largest_scale(n)
    a, b = inputs.rotated_scale(np.random.default_rng(seed), n, n, n, bits)
    found, _ = ratios(product, a, b)
    worst = float(found.max())
    return Result("fixed point", worst <= tolerance(n), f"error {worst:.3g} u over a spread of {bits} bits, {tolerance(n)} u allowed", dict(worst=worst, bits=bits))


def strassen(product, n=64, seed=42, crossover=16, bits=None):
    """Fixed point, or Strassen that recurs down to blocks of `crossover`: the error in the leading block."""
    bits = largest_scale(n) if bits is None else bits
    a, b = inputs.repeated_scale(np.random.default_rng(seed), n, n, n, bits, crossover)
    found, _ = ratios(product, a, b)
    worst = float(found[:crossover, :crossover].max())
    return Result("Strassen", worst <= tolerance(n), f"error {worst:.3g} u in the leading block over a spread of {bits} bits, {tolerance(n)} u allowed",
                  dict(worst=worst, bits=bits))


def slope(sizes, worst):
    """The exponent p of a fit worst = c n^p; errors below 2^-10 u count as that."""
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(worst, 2.0**-10)), 1)[0])


def growth(product, sizes=(16, 32, 64, 128), seed=42):
    """U(0,1): the slope of log max error / (u |A||B|) against log n. At most 1 is consistent with Grade A."""
    table = []
    for n in sizes:
        a, b = inputs.positive(np.random.default_rng([seed, n]), n, n, n, None)
        found, _ = ratios(product, a, b)
        table.append([n, float(found.max()), float(found.mean())])
    found = slope(sizes, [x[1] for x in table])
    last = table[-1]
    return Result("growth of the error", found <= 1, f"slope {found:.2f}; at n = {last[0]} {last[1]:.3g} u at most, {last[2]:.3g} u on average",
                  dict(slope=found, sizes=table))


ALL = [disjoint_patterns, rotated_sweep, fixed_point, strassen, growth]
