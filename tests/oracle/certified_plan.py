#!/usr/bin/env python3
"""Reference for NUMERICS.md sections 1-3 (mode auto, steps 1-4, 5a-5c): scan, certificate, choice of the number of moduli.

Integers decide everything, exact rationals referee the result. An oracle for tests on small matrices, not a design for production code.

    python3 certified_plan.py             # table over input classes: N, bits, error beside native
    python3 certified_plan.py --fuzz 500  # random small products: uniqueness and the promise, entry by entry

Needs numpy.
"""
import argparse
import math
import random
from fractions import Fraction

import numpy as np

MODULI = [256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197, 193, 191, 181, 179, 173]
H = []                   # H[N-1]: the largest |C'| that N moduli may carry
_p = 1
for _m in MODULI:
    _p *= _m
    H.append((_p - 1) // 2 - (_p >> 32))
UNPROVABLE = 10**4       # bits wanted by an entry whose lower bound is zero


class Rows:
    """One operand by rows (B is passed transposed) as odd-or-not mantissas and exponents, with the integer statistics of the scan."""

    def __init__(self, a, shift=None):
        mant, exp = np.frexp(a)
        self.m = (mant * 2.0**53).astype(np.int64)
        self.q = np.where(self.m != 0, exp.astype(np.int64) - 53, 0)
        if shift is not None:
            self.q = np.where(self.m != 0, self.q + shift, 0)
        self.absent = self.m == 0
        self.nz = (~self.absent).sum(1)
        low_bit = np.where(self.absent, 1, self.m & -self.m)
        top = np.where(self.absent, -10**9, self.q + 53)                      # |x| < 2^top for normal mantissas (53 bits)
        self.exponent = top                                                    # least integer with |x| < 2^it
        self.e = np.where(self.nz > 0, top.max(1), 0)
        # frexp, because a vectorised log2 may return 28.999... for 2^29: no floating-point logarithm decides anything
        lsb = np.where(self.absent, 10**9, self.q + np.frexp(low_bit.astype(float))[1].astype(np.int64) - 1).min(1)
        self.exact = np.where(self.nz > 0, self.e - 7 - lsb, 0)               # may be negative

        def digit(bits):                                                       # floor(|x| 2^(bits-e))
            right = np.clip(-(self.q + bits - self.e[:, None]), 0, 63)
            return np.where(self.absent, 0, np.abs(self.m) >> right)

        self.d1 = digit(7)
        self.d2 = digit(14) & 127
        self.sum = self.d1.sum(1)


def ceil_lg(x, g):
    """Least integer c of any sign with x <= 2^c g."""
    c = x.bit_length() - g.bit_length()
    while not (x <= g << c if c >= 0 else x << -c <= g):
        c += 1
    while x <= g << (c - 1) if c >= 1 else x << (1 - c) <= g:
        c -= 1
    return c


def plan(a, b, balanced=False, digits=1, most=20):
    """Steps 1-4 on the given operands; a dict with n = None where `most` moduli do not suffice."""
    ra, cb = Rows(a), Rows(np.ascontiguousarray(b.T))
    if balanced:                                                               # step 5c, relative to row and column exponents
        ea = np.where(ra.absent, -10**9, ra.exponent - ra.e[:, None]).max(0)
        fb = np.where(cb.absent, -10**9, cb.exponent - cb.e[:, None]).max(0)
        d = np.where((ea > -10**8) & (fb > -10**8), (fb - ea) // 2, 0)
        ra, cb = Rows(a, d), Rows(np.ascontiguousarray(b.T), -d)
    else:
        d = []
    g = ra.d1 @ cb.d1.T
    lower = g << 14
    if digits == 2:                                                            # step 5b
        lower = lower + ((ra.d1 @ cb.d2.T + ra.d2 @ cb.d1.T) << 7) + ra.d2 @ cb.d2.T
    common = (~ra.absent).astype(np.int64) @ (~cb.absent).astype(np.int64).T   # step 5a
    few = np.minimum(ra.nz[:, None], cb.nz[None, :])
    upper = g + ra.sum[:, None] + cb.sum[None, :] + few
    m, n = g.shape

    def need(i, j, numerator):
        if not lower[i, j]:
            return UNPROVABLE
        return ceil_lg(int(numerator) << 14, int(lower[i, j])) + 53 - (1 + ((int(few[i, j]).bit_length() - 1) >> 1))

    na = [min(max([0] + [need(i, j, cb.sum[j] + cb.nz[j]) for j in range(n) if common[i, j]]), int(ra.exact[i])) if ra.nz[i] else None
          for i in range(m)]
    nb = [min(max([0] + [need(i, j, ra.sum[i] + ra.nz[i]) for i in range(m) if common[i, j]]), int(cb.exact[j])) if cb.nz[j] else None
          for j in range(n)]
    pairs = [(na[i] + nb[j], int(upper[i, j])) for i in range(m) for j in range(n) if na[i] is not None and nb[j] is not None]

    def fits(h, extra):
        return all((u << x + 2 * extra if x + 2 * extra >= 0 else -(-u >> -(x + 2 * extra))) <= h for x, u in pairs)

    count = next((i + 1 for i in range(1, most) if fits(H[i], 0)), None)
    out = dict(n=count, rows=ra, columns=cb, few=few, d=[int(x) for x in d], way=["plain", "more bits", "balanced", "balanced, more bits"][2 * balanced + digits - 1])
    if count:
        # Where every line is exact, more bits would be zeros.
        exact = all(x is None or x == int(e) for needs, lines in ((na, ra), (nb, cb)) for x, e in zip(needs, lines.exact))
        spare = 0
        while pairs and not exact and spare < 200 and fits(H[count - 1], spare + 1):
            spare += 1
        out["s"] = [0 if x is None else x + spare + 7 - int(e) for x, e in zip(na, ra.e)]
        out["t"] = [0 if x is None else x + spare + 7 - int(f) for x, f in zip(nb, cb.e)]
        out["bits"] = max([x + spare + 7 for x in na if x is not None] + [0]), max([x + spare + 7 for x in nb if x is not None] + [0])
    return out


def plan_auto(a, b):
    """The order of NUMERICS.md: first the plain steps, then 5b, 5c, 5c with 5b, while more than 16 moduli are asked for; the best of the tried."""
    tried = []
    for balanced, digits in ((False, 1), (False, 2), (True, 1), (True, 2)):
        tried.append(plan(a, b, balanced, digits))
        if tried[-1]["n"] and tried[-1]["n"] <= 16:
            break
    return min(tried, key=lambda p: p["n"] or 99), [p["n"] for p in tried]


def round_half_even(m, shift):
    """RN_int(m 2^shift) for Python integers."""
    if shift >= 0:
        return m << shift
    s, sign = -shift, -1 if m < 0 else 1
    q, r = divmod(abs(m), 1 << s)
    half = 1 << (s - 1)
    return sign * (q + (r > half or (r == half and q & 1)))


def scaled(rows, shift):
    return np.array([[round_half_even(int(x), int(q) + s) if x else 0 for x, q in zip(mr, qr)] for mr, qr, s in zip(rows.m, rows.q, shift)], dtype=object)


def check(a, b):
    """(plan, tried, worst emulated error, worst native error), in units of u |A||B|; asserts uniqueness and the promise of every entry."""
    p, tried = plan_auto(a, b)
    product = scaled(p["rows"], p["s"]).dot(scaled(p["columns"], p["t"]).T) if p["n"] else None
    native = a @ b
    fa, fb = [[Fraction(x) for x in r] for r in a.tolist()], [[Fraction(x) for x in c] for c in b.T.tolist()]
    worst = worst_native = 0.0
    for i, x in enumerate(fa):
        for j, y in enumerate(fb):
            terms = [v * w for v, w in zip(x, y) if v and w]
            true, size = sum(terms), sum(map(abs, terms))
            if p["n"]:
                c = int(product[i, j])
                assert abs(c) <= H[p["n"] - 1], "uniqueness broken"
                error = abs(Fraction(c) * Fraction(2) ** (-p["s"][i] - p["t"][j]) - true)
                assert size or not error, "an empty entry has an error"
                if size:
                    error = float(error / size * 2**53)
                    assert error <= 2 * math.sqrt(p["few"][i, j]), "promise broken"
                    worst = max(worst, error)
            if size and np.isfinite(native[i, j]):
                worst_native = max(worst_native, float(abs(Fraction(float(native[i, j])) - true) / size * 2**53))
    return p, tried, worst, worst_native


def report(name, a, b):
    p, tried, worst, native = check(a, b)
    tried = " ".join("-" if n is None else str(n) for n in tried)
    print(f"{name:22s} k={a.shape[1]:5d}  N tried {tried:12s}"
          + (f" bits {p['bits'][0]}/{p['bits'][1]}  error/(u|A||B|): emulated {worst:6.3f}" if p["n"] else " not provable:            ") + f"  native {native:7.3f}")


def fuzz_products(count, seed=1):
    """Random small products (a, b), from signs and short integers to subnormal numbers."""
    rng = random.Random(seed)
    for _ in range(count):
        m, n, k = rng.randint(1, 4), rng.randint(1, 4), rng.choice([1, 2, 3, 7, 20, 60])
        kind = rng.randint(0, 6)

        def x():
            if kind == 0 or rng.random() < 0.2:
                return float(rng.randint(-9, 9))
            if kind == 1:
                return rng.choice([0.0, 1.0, -1.0])
            if kind == 2:
                return math.ldexp(rng.random() - 0.5, rng.randint(-1070, -1000))
            if kind == 3:
                return math.ldexp(1.0, rng.randint(-40, 40))
            return math.ldexp(rng.random() - 0.5, rng.randint(-kind * 6, kind * 6)) * (rng.random() < 0.8)

        yield np.array([[x() for _ in range(k)] for _ in range(m)]), np.array([[x() for _ in range(n)] for _ in range(k)])


def fuzz(count):
    with np.errstate(all="ignore"):
        for a, b in fuzz_products(count):
            check(a, b)
    print(f"{count} random products: uniqueness and promise hold on every entry")


def input_classes(rng, m, k):
    """The input classes of the accuracy tables: (name, a, b) with a m x k and b k x m. The order of the draws is part of the tables."""
    uni = lambda *s: rng.random(s) - 0.5
    yield "uniform(-.5,.5)", uni(m, k), uni(k, m)
    yield "uniform(0,1)", rng.random((m, k)), rng.random((k, m))
    yield "normal", rng.standard_normal((m, k)), rng.standard_normal((k, m))
    for phi in (0.5, 1, 2, 4):
        spread = lambda *s: uni(*s) * np.exp(phi * rng.standard_normal(s))
        yield f"phi={phi}", spread(m, k), spread(k, m)
    yield "integers -9..9", rng.integers(-9, 10, (m, k)).astype(float), rng.integers(-9, 10, (k, m)).astype(float)
    yield "signs +-1", rng.choice([-1.0, 1.0], (m, k)), rng.choice([-1.0, 1.0], (k, m))
    yield "float32 data", uni(m, k).astype(np.float32).astype(float), uni(k, m).astype(np.float32).astype(float)
    yield "one-hot x normal", (rng.integers(0, 8, (m, k)) == 0).astype(float), rng.standard_normal((k, m))
    sparse = lambda *s: rng.standard_normal(s) * (rng.random(s) < 0.05)
    yield "5% sparse", sparse(m, k), sparse(k, m)
    if min(m, k) > 3:
        block = np.zeros((m, k))
        block[3:, 3:] = uni(m - 3, k - 3)
        block[0, 0] = block[1, 1] = block[2, 2] = 0.7
        yield "block diagonal", block, np.ascontiguousarray(block.T)
    for w in (8, 16, 32, 100):
        d = 2.0 ** np.linspace(w, -w, k).round()
        yield f"inner scale 2^+-{w}", (1 + rng.random((m, k))) * d, (1 + rng.random((k, m))) / d[:, None]
        idx = (np.arange(m)[:, None] + np.arange(k)) % k
        v = 1 + rng.random(k)
        yield f"rotated scale 2^+-{w}", (v * d)[idx], (v / d)[idx].T.copy()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--rows", type=int, default=20)
    ap.add_argument("--fuzz", type=int, default=0)
    args = ap.parse_args()
    if args.fuzz:
        return fuzz(args.fuzz)
    rng = np.random.default_rng(0)
    for k in (64, 256, 2048):
        for name, x, y in input_classes(rng, args.rows, k):
            report(name, x, y)


if __name__ == "__main__":
    main()
