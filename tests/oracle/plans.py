#!/usr/bin/env python3
"""Test cases for the plan, as a text stream: small matrix pairs with the plan that every engine must choose for them.

    python3 plans.py > cases.txt     # the summary goes to stderr
    python3 plans.py --check         # recompute a few hundred small cases from the text of the definition, with fractions; no stream

Format, one record a case, fields separated by blanks, one line each:

    case NAME m n k
    a X X ...              m*k doubles as 16 hex digits (the bit pattern, most significant digit first), row by row
    b X X ...              k*n doubles, row by row
    plan N WAY             or "plan none": then the lines s, t and d are absent; the way with _ for blanks
    s I I ...              m integers
    t I I ...              n integers
    d I I ...              k integers, or none where nothing is balanced
    fast N s I ... t I ... or "fast N range": one line for every N of --fixed, ascending
    accurate N s I ... t I ...  or "accurate N range": likewise

The last line is "end COUNT", so that a stream that was cut short does not pass as a short one.

The plan is plan_auto(a, b) of certified_plan.py beside this file (mode auto, steps 1 to 5c; --check looks at steps 1 to 4). The modes fast and
accurate are computed here, in Python integers. Needs numpy.
"""
import argparse
import math
import random
import sys
from collections import Counter
from fractions import Fraction

import numpy as np

sys.dont_write_bytecode = True                      # a test leaves no __pycache__ in the sources
from certified_plan import H, MODULI, fuzz_products, input_classes, plan, plan_auto

MOST = len(MODULI)
UNIT = 2.0**-1074                                  # the smallest subnormal number
HUGE = math.ldexp(2.0 - 2.0**-52, 1023)            # the largest finite number


# ---- the modes fast and accurate, in integers ----

class Scan:
    """What the modes fast and accurate read of one operand, by rows; a row without a nonzero has live = False."""

    def __init__(self, rows):
        self.e, self.digits, self.mask, self.nz = [], [], [], []
        for row in rows:
            parts = [(abs(int(f * 2.0**53)), x) for f, x in map(math.frexp, row)]
            e = max((x for m, x in parts if m), default=0)
            self.e.append(e)
            # |x| = m 2^(x-53) and 2^(x-e) <= 1, so floor(|x| 2^(7-e)) is one shift to the right
            self.digits.append([m >> (46 + e - x) if m else 0 for m, x in parts])
            self.mask.append([m != 0 for m, _ in parts])
            self.nz.append(sum(self.mask[-1]))
        self.live = [z > 0 for z in self.nz]
        self.sum = [sum(d) for d in self.digits]
        self.squares = [sum((d + 1) ** 2 for d, z in zip(ds, zs) if z) for ds, zs in zip(self.digits, self.mask)]


def largest_s(total, h):
    """The largest integer s, of any sign, with 4^s total <= h; total > 0."""
    s = (h.bit_length() - total.bit_length()) // 2 + 1
    while not (total << 2 * s <= h if s >= 0 else total <= h << -2 * s):
        s -= 1
    return s


def exponents(ra, cb, row_sizes, column_sizes, count):
    """(s, t), or None (Reason `range`) where some sigma or tau is below -1. A size of None: nothing to bound, sigma = 0."""
    h, sides = H[count - 1], []
    for scan, sizes in ((ra, row_sizes), (cb, column_sizes)):
        sigma = [(0 if z is None else largest_s(z, h)) if live else None for live, z in zip(scan.live, sizes)]
        if any(x is not None and x < -1 for x in sigma):
            return None
        sides.append([0 if x is None else x + 7 - e for x, e in zip(sigma, scan.e)])
    return sides


def fast_sizes(ra, cb):
    return ra.squares, cb.squares


def accurate_sizes(ra, cb):
    u = [[sum(map(int.__mul__, da, db)) + sa + sb + min(za, zb) if za and zb else 0 for db, sb, zb in zip(cb.digits, cb.sum, cb.nz)]
         for da, sa, za in zip(ra.digits, ra.sum, ra.nz)]
    # a nonzero row meets no maximum where every column is zero: its exponent changes nothing, and is that of sigma = 0
    return [max(row, default=0) or None for row in u], [max(column, default=0) or None for column in zip(*u)]


# ---- cases ----

def full(rng, bits=53):
    """A random number in [1/2, 1) of `bits` bits, the last one set (so it is not exact with fewer), and a random sign."""
    m = (1 << bits - 1) | rng.getrandbits(bits) | 1
    return rng.choice((-1, 1)) * math.ldexp(m, -bits)


def grid(m, n, entry):
    return np.array([[entry(i, j) for j in range(n)] for i in range(m)], dtype=float).reshape(m, n)


def class_cases(seed):
    rng = np.random.default_rng(seed)
    for k, rows in ((1, 20), (7, 13), (64, 17), (256, 9), (2048, 6)):
        for index, (name, a, b) in enumerate(input_classes(rng, rows, k)):
            yield f"class:{name.replace(' ', '_')}:k={k}", a, np.ascontiguousarray(b[:, : rows - index % 3])


def fuzz_cases(count, seed):
    for index, (a, b) in enumerate(fuzz_products(count, seed)):
        yield f"fuzz:{seed}:{index}", a, b


def adversarial_cases(rng):
    ints = lambda m, n, top=9: grid(m, n, lambda i, j: rng.randint(-top, top))
    real = lambda m, n: grid(m, n, lambda i, j: rng.gauss(0, 1))
    dense = lambda m, n: grid(m, n, lambda i, j: full(rng))

    # nothing at all, here and there
    zero = np.zeros((3, 5))
    for name, a, b in (("zero_a", zero, real(5, 4)), ("zero_b", real(4, 5), zero.T), ("zero_ab", zero, zero.T), ("minus_zero", -zero, -zero.T),
                       ("one_by_one_zero", np.zeros((1, 1)), np.ones((1, 1))), ("zero_b_integers", ints(3, 5), zero.T),
                       ("zero_a_subnormal_b", zero, real(5, 2) * 2.0**-1060)):
        yield name, a, b
    a, b = real(5, 6), real(6, 5)
    a[1] = 0
    a[3] = -0.0
    b[:, 0] = -0.0
    b[:, 4] = 0
    yield "zero_rows_and_columns", a, b
    c = ints(5, 6)
    c[2] = 0
    yield "zero_row_integers", c, b
    one = np.zeros((4, 6))
    one[2, 3] = 0.7
    yield "one_nonzero_each", one, np.ascontiguousarray(one.T)
    yield "one_nonzero_apart", one, np.ascontiguousarray(np.roll(one, 1, 1).T)

    # supports
    hot = grid(6, 8, lambda i, h: float(h == (3 * i + 1) % 8))
    yield "one_hot_ones", hot, real(8, 5)
    yield "one_hot_reals", hot * dense(6, 8), np.ascontiguousarray(hot.T) * dense(8, 6)
    yield "one_hot_both_scales", hot * grid(6, 8, lambda i, h: math.ldexp(full(rng), 97 * i - 200)), real(8, 5)
    even = grid(4, 8, lambda i, h: full(rng) * (h % 2 == 0))
    odd = grid(8, 4, lambda h, j: full(rng) * (h % 2 == 1))
    yield "disjoint_all", even, odd
    mixed = odd.copy()
    mixed[:, 1] = [full(rng) for _ in range(8)]
    yield "disjoint_some", even, mixed
    yield "disjoint_integers", np.rint(even * 9) * 1.0, np.rint(odd * 9) * 1.0
    yield "meet_in_one_tiny", *tiny_meeting(rng, 6, -3)
    for w in (-6, -7, -8, -40, -300):               # from -7 on the lower bound of the entry is zero though its supports meet
        yield f"meet_at_2^{w}", *tiny_meeting(rng, 6, w)
    yield "meet_exact_row", *tiny_meeting(rng, 6, -9, exact=True)
    yield "sparse_rows_unequal", grid(5, 64, lambda i, h: full(rng) * (h < 4**i)), grid(64, 5, lambda h, j: full(rng) * (h < 3**j))

    # ends of the range of exponents
    sub = grid(4, 6, lambda i, h: UNIT * rng.randint(-1000, 1000))
    yield "subnormal_rows", sub, real(6, 4)
    yield "subnormal_both", sub, np.ascontiguousarray(sub.T)
    yield "smallest_subnormal", np.full((2, 3), UNIT), np.full((3, 2), -UNIT)
    yield "subnormal_and_huge_rows", np.vstack([sub, real(2, 6) * 1e300]), np.hstack([real(6, 2), np.ascontiguousarray(sub.T)])
    yield "1e300", real(4, 6) * 1e300, real(6, 4) * 1e300
    yield "1e-300", real(4, 6) * 1e-300, real(6, 4) * 1e-300
    yield "1e300_and_1e-300", real(4, 6) * 1e300, real(6, 4) * 1e-300
    yield "largest", np.full((2, 3), HUGE), np.full((3, 2), -HUGE)
    yield "largest_and_smallest_in_a_row", np.array([[HUGE, UNIT], [UNIT, HUGE]]), np.array([[1.0, 1.5], [0.75, 1.0]])
    yield "largest_and_smallest_crossed", np.array([[HUGE, UNIT], [UNIT, HUGE]]), np.array([[UNIT, HUGE], [HUGE, UNIT]])
    yield "normal_limit", grid(3, 5, lambda i, h: rng.choice((2.0**-1022, 2.0**-1022 - UNIT, 2.0**-1021, 3 * UNIT))), dense(5, 3)
    yield "every_row_its_scale", grid(8, 6, lambda i, h: math.ldexp(full(rng), 290 * i - 1070)), grid(6, 7, lambda h, j: math.ldexp(full(rng), 1000 - 300 * j))

    # a step below a power of two: the exponent e, and the digit 127 against 64
    for x in (-1074, -1023, -1022, -1, 0, 1, 7, 512, 1023):
        top = math.ldexp(1.0, x)
        below = top - math.ldexp(1.0, max(x - 53, -1074))
        above = top + math.ldexp(1.0, max(x - 52, -1074))
        yield f"power_2^{x}", grid(3, 4, lambda i, h: rng.choice((top, -top))), grid(4, 3, lambda h, j: rng.choice((1.0, -1.0)))
        yield f"below_2^{x}", grid(3, 4, lambda i, h: below if i else rng.choice((top, below))), grid(4, 3, lambda h, j: rng.choice((1.0, 1.0 - 2.0**-53, 0.5)))
        yield f"around_2^{x}", grid(4, 3, lambda i, h: rng.choice((top, below, above))), grid(3, 5, lambda h, j: full(rng))
    yield "digit_edges", grid(4, 16, lambda i, h: (h + 112) / 128 - (i % 2) * 2.0**-40), grid(16, 4, lambda h, j: (h + 1) / 128 - (j % 2) * 2.0**-40)

    # integers that grow, on both sides and on one
    for p in range(1, 54):
        long = lambda m, n: grid(m, n, lambda i, j: rng.choice((-1, 1)) * (rng.getrandbits(p) | 1))
        yield f"integers_{p}_bits", long(3, 5), long(5, 2)
        if p in (1, 2, 4, 7, 8, 9, 16, 24, 31, 40, 46, 52, 53):
            yield f"integers_{p}_bits_left", long(3, 9), dense(9, 4)
            yield f"integers_{p}_bits_right", dense(3, 9), long(9, 4)
            yield f"integers_{p}_bits_times_powers", long(4, 6), grid(6, 3, lambda h, j: math.ldexp(rng.choice((-1, 1)), rng.randint(-9, 9)))
    yield "exact_and_inexact_rows", np.vstack([ints(2, 9), dense(2, 9), ints(1, 9, 1) + 0.5]), np.hstack([dense(9, 2), ints(9, 2)])
    yield "short_at_odd_scales", ints(4, 7) * 2.0**333, ints(7, 3) * 2.0**-777
    yield "float32_left", np.float32(real(4, 32)).astype(float), real(32, 4)

    # floor(lg 2 sqrt(n)) steps at powers of four; n is the smaller number of nonzeros of the pair
    for n in (1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 255, 256, 257):
        yield f"inner_{n}", dense(3, n), dense(n, 3)
        yield f"inner_{n}_of_300", grid(2, 300, lambda i, h: full(rng) * (h < n)), dense(300, 3)

    # scales along the inner dimension and across
    for w in (1, 2, 3, 4, 5, 6, 7, 8, 12, 24, 50, 200, 500):
        line = lambda h, k: round(w - 2 * w * h / (k - 1))
        yield f"inner_scale_{w}", grid(4, 9, lambda i, h: math.ldexp(full(rng), line(h, 9))), grid(9, 3, lambda h, j: math.ldexp(full(rng), -line(h, 9)))
        yield f"same_scale_{w}", grid(4, 9, lambda i, h: math.ldexp(full(rng), line(h, 9))), grid(9, 3, lambda h, j: math.ldexp(full(rng), line(h, 9)))
        yield f"rotated_scale_{w}", grid(5, 9, lambda i, h: math.ldexp(full(rng), line((h + i) % 9, 9))), grid(9, 5, lambda h, j: math.ldexp(full(rng), -line((h + j) % 9, 9)))
        yield f"rotated_integers_{w}", grid(3, 9, lambda i, h: math.ldexp(1.0 + i, line((h + i) % 9, 9))), grid(9, 2, lambda h, j: math.ldexp(3.0, -line((h + j) % 9, 9)))

    # shapes: one row, one column, one inner step, many zeros between
    yield "dot", dense(1, 40), dense(40, 1)
    yield "outer", dense(7, 1), dense(1, 5)
    yield "tall", dense(40, 2), dense(2, 1)
    yield "wide", dense(1, 2), dense(2, 40)
    yield "spread_zeros", grid(6, 50, lambda i, h: full(rng) * (rng.random() < 0.1)), grid(50, 6, lambda h, j: full(rng) * (rng.random() < 0.1))


def tiny_meeting(rng, k, w, exact=False):
    """Row 0 of A and column 0 of B are both large only where the other is 2^w or zero."""
    a, b = grid(2, k, lambda i, h: full(rng)), grid(k, 2, lambda h, j: full(rng))
    for h in range(k):
        small = math.ldexp(1.0 if exact else abs(full(rng)), w)
        a[0, h], b[h, 0] = (1.0 if exact else full(rng), small) if h % 2 else (small, 1.0 if exact else full(rng))
    return a, b


def split_products(total):
    """Pairs (x, y) of 1..128 whose products sum to total, the first pair with both at least 65."""
    pairs = [(128, 128) if total >= 128 * 128 else (65, 65)]
    total -= pairs[0][0] * pairs[0][1]
    assert total >= 0
    while total:
        x = min(128, total)
        y = min(128, total // x)
        pairs.append((x, y))
        total -= x * y
    return pairs


def split_squares(total):
    """Numbers of 1..128, the first at least 65, whose squares sum to total."""
    xs = []
    while total:
        xs.append(min(128, math.isqrt(total)))
        total -= xs[-1] ** 2
    assert xs[0] >= 65
    return xs


def edge_cases(rng):
    """Inequalities met exactly and missed by one: 2^x U <= H_N (steps 3 and 4, mode accurate), 4^s SA <= H_N (mode fast), x <= 2^c G (step 1)."""
    for count in range(2, MOST + 1):
        h = H[count - 1]
        x0 = max(2, h.bit_length() - 15)            # H_N / 2^x0 has 13 to 15 bits, which short rows can sum to
        for x in (x0, x0 + 1) if count > 2 else (x0,):
            for off in (-1, 0, 1):
                for lower in (0, 2):                # the same U with two bits fewer: the largest d is then 0 or 1 by the same margin
                    if x - lower >= 2:
                        yield f"edge_U_N={count}_x={x - lower}_off={off}", *edge_product(rng, (h >> x) + off, x - lower, apart=x > x0)
    # U = H_2 itself and one more, with nothing to shift: integers whose last bit is set, digits of one and more
    for off, last in (("0", ((63, 2),)), ("+1", ((59, 2), (3, 3)))):
        pairs = ((128, 128), (127, 127), *last)
        yield f"edge_U_N=2_x=0_off={off}", grid(1, len(pairs), lambda i, h: pairs[h][0] - 1), grid(len(pairs), 1, lambda h, j: pairs[h][1] - 1)
    # the same with x = -1: the integers of A are even, 2^-1 U is H_2 and half more
    for off, last in (("0", (127, 2)), ("+1", (3, 85))):
        pairs = ((127, 128),) * 4 + (last,)
        yield f"edge_U_N=2_x=-1_off={off}", grid(1, 5, lambda i, h: pairs[h][0] - 1), grid(5, 1, lambda h, j: pairs[h][1] - 1)
    # the last sigma that two moduli hold is -1: U = 4 H_2 and one more, and so SA and SB
    for off in (0, 1):
        yield f"edge_range_U_off={off}", *edge_product(rng, (H[1] << 2) + off, 4)
        row = split_squares((H[1] << 2) + off)
        squares = grid(1, len(row), lambda i, h: row[h] - 1.0 or 0.25)
        yield f"edge_range_SA_off={off}", squares, dense_column(rng, len(row))
        yield f"edge_range_SB_off={off}", dense_column(rng, len(row)).T.copy(), squares.T.copy()
    for count in (2, 3, 4, 5, 6, 10, 15, 20):
        h = H[count - 1]
        s = (h.bit_length() - 13) // 2 if count > 2 else 0
        rows = [split_squares((h >> 2 * s) + off) for off in (-1, 0, 1)]
        k = max(map(len, rows))
        # digit + 1 = x: an integer below 128; a digit of zero still is a nonzero there
        entry = lambda r, i: 0.0 if i >= len(r) else r[i] - 1.0 or 0.25
        m = grid(3, k, lambda i, h: entry(rows[i], h))
        for i in range(3):
            m[i, 0] += 0.5                          # so that no row loses its leading digit
        yield f"edge_squares_N={count}", m, np.ascontiguousarray(m[::-1].T)
    for c in range(0, 6):
        for off in (-1, 0, 1):
            total = (64 << c) + off                 # cs + nz, against G = 64
            digits = [1]
            total -= 1
            while total > 128 * 2 + 2:
                digits.append(127)
                total -= 128
            # what is left, digit + 1 each, one of them with a digit of 64 or more where that is possible
            digits += [min(127, total - 2)] if total > 2 else []
            total = (64 << c) + off - sum(d + 1 for d in digits)
            while total > 0:
                digits.append(min(127, total - 1))
                total -= digits[-1] + 1
            k = len(digits)
            if max(digits) < 64:
                continue
            low = lambda: math.ldexp(rng.randint(1, 2**38) | 1, -40)
            # bits far down, so that the row is not exact with fewer bits than the ratio asks for
            a = grid(1, k, lambda i, h: 64 + low() if h == 0 else low() * 2.0**-60)
            b = grid(k, 1, lambda h, j: digits[h] + low())
            yield f"edge_ratio_c={c}_off={off}", a, b
            yield f"edge_ratio_c={c}_off={off}_turned", np.ascontiguousarray(b.T), np.ascontiguousarray(a.T)


def dense_column(rng, k):
    """A column whose digits are 0 or 1 but for one, so that SB is small."""
    return grid(k, 1, lambda h, j: 1.0 if h == 0 else abs(full(rng)) / 64)


def edge_product(rng, total, x, apart=False):
    """2 x 2 outputs where entry (0,0) has U = total and its row and column, both exact, need x bits together; the others decide nothing.

    apart: one nonzero on each side meets a zero, so that more nonzeros are counted than products.
    """
    pairs = split_products(total - 1 - apart)
    left = rng.randint(1, x - 1)
    lows = math.ldexp(1.0, -left), math.ldexp(1.0, left - x)
    k = len(pairs) + 1
    a, b = np.zeros((2, k)), np.zeros((k, 2))
    for h, (p, q) in enumerate(pairs):
        # exponent 7, so the digit of an integer is itself; a digit of zero belongs to a nonzero that is too small for it
        a[0, h], b[h, 0] = p - 1.0 or lows[0], q - 1.0 or lows[1]
    a[0, k - 1], b[k - 1, 0] = lows
    # a partner that is large only where the row is small: its lower bound is zero, so the row needs all its own bits
    a[1, k - 1] = b[k - 1, 1] = 64.0
    if apart:
        a, b = np.pad(a, ((0, 0), (0, 2))), np.pad(b, ((0, 2), (0, 0)))
        a[0, k], b[k + 1, 0] = lows
    return a, b


def landing_cases(rng, wanted=3):
    """Random products until every N of 2..20 and `none` has been met `wanted` times by them."""
    met = Counter()
    outcomes = list(range(2, MOST + 1)) + [None]
    for turn in range(20000):
        missing = [x for x in outcomes if met[x] < wanted]
        if not missing:
            return
        target = rng.choice(missing) or MOST + 1
        m, n, k = rng.randint(1, 4), rng.randint(1, 4), rng.randint(2, 16)
        if target <= 14:                            # both sides exact with a few bits more or less than fit
            p = max(1, min(52, round(3.9 * target - 2 + rng.gauss(0, 2))))
            a, b = (grid(r, c, lambda i, j: full(rng, max(1, p - rng.randint(0, 3)))) for r, c in ((m, k), (k, n)))
        else:
            phi = max(0.1, rng.gauss(0.35 * (target - 13), 0.5))
            a, b = (grid(r, c, lambda i, j: full(rng) * math.exp(phi * rng.gauss(0, 1))) for r, c in ((m, k), (k, n)))
        got = plan(a, b)["n"]
        if met[got] < wanted:
            met[got] += 1
            yield f"land_{got or 'none'}_{met[got]}", a, b
    raise SystemExit(f"no case found for N in {missing}")


def all_cases(count, seed):
    rng = random.Random(seed)
    for group in (adversarial_cases(rng), edge_cases(rng), landing_cases(rng), fuzz_cases(count, seed), class_cases(seed)):
        for name, a, b in group:
            assert np.isfinite(a).all() and np.isfinite(b).all() and a.shape[1] == b.shape[0], name
            yield name, a, b


# ---- the stream ----

def hexes(x):
    text = np.ascontiguousarray(x).astype(">f8").tobytes().hex()
    return " ".join(text[i:i + 16] for i in range(0, len(text), 16))


def integers(xs):
    return " ".join(str(int(x)) for x in xs)


def write(out, name, a, b, fixed, seen):
    (m, k), n = a.shape, b.shape[1]
    p, _ = plan_auto(a, b)
    seen["auto", p["n"]] += 1
    lines = [f"case {name} {m} {n} {k}", "a " + hexes(a), "b " + hexes(b)]
    if p["n"]:
        seen["way", p["way"]] += 1
        lines += [f"plan {p['n']} {p['way'].replace(' ', '_')}", "s " + integers(p["s"]), "t " + integers(p["t"]), "d " + integers(p["d"])]
    else:
        lines.append("plan none")
    ra, cb = Scan(a.tolist()), Scan(b.T.tolist())
    for mode, sizes in (("fast", fast_sizes(ra, cb)), ("accurate", accurate_sizes(ra, cb))):
        for count in fixed:
            st = exponents(ra, cb, *sizes, count)
            seen[mode, count, st is not None] += 1
            lines.append(f"{mode} {count} " + ("range" if st is None else f"s {integers(st[0])} t {integers(st[1])}"))
    out.write("\n".join(lines) + "\n")


# ---- the slow check: from the text of the definition, with fractions, and with nothing of the above, and of certified_plan the list of moduli ----

def text_power(x):
    return Fraction(2) ** x


def text_least(holds, start):
    """The least integer c with holds(c), for a predicate that is false below and true from some c on."""
    c = start
    while holds(c):
        c -= 1
    while not holds(c):
        c += 1
    return c


def text_scan(rows):
    out = []
    for row in rows:
        xs = [abs(Fraction(*float(x).as_integer_ratio())) for x in row]
        support = {h for h, x in enumerate(xs) if x}
        if not support:
            out.append(dict(support=support, e=0, digits=[0] * len(xs), sum=0, nz=0, exact=0, squares=0))
            continue
        guess = lambda x: x.numerator.bit_length() - x.denominator.bit_length()
        e = max(text_least(lambda c: xs[h] < text_power(c), guess(xs[h])) for h in support)
        # the lowest set bit of x: the largest power of two of which x is a multiple
        lsb = min(-text_least(lambda c: (xs[h] * text_power(c)).denominator == 1, -guess(xs[h])) for h in support)
        digits = [math.floor(x * text_power(7 - e)) for x in xs]
        out.append(dict(support=support, e=e, digits=digits, sum=sum(digits), nz=len(support), exact=e - 7 - lsb,
                        squares=sum((digits[h] + 1) ** 2 for h in support)))
    return out


def text_range(count):
    p = math.prod(MODULI[:count])
    return math.floor(Fraction(p - 1, 2)) - math.floor(Fraction(p, 2**32))


def text_all(a, b, fixed):
    """(N, s, t) of mode auto, and {(mode, N): (s, t) or None}."""
    ra, cb = text_scan(a.tolist()), text_scan(b.T.tolist())
    bound_g = lambda r, c: sum(x * y for x, y in zip(r["digits"], c["digits"]))
    bound_u = lambda r, c: bound_g(r, c) + r["sum"] + c["sum"] + min(r["nz"], c["nz"])

    def need(one, other):
        if not one["nz"]:
            return 0
        most = Fraction(0)
        for o in other:
            if not (one["support"] & o["support"]):
                continue
            g = bound_g(one, o)
            if not g:
                return one["exact"]                 # no finite number of bits is proved to do: only the exact row is
            least = text_least(lambda c: o["sum"] + o["nz"] <= text_power(c) * g, 0)
            four_n = 4 * min(one["nz"], o["nz"])    # floor(lg 2 sqrt n): the largest c with 4^c <= 4 n
            floor = text_least(lambda c: 4 ** (c + 1) > four_n, 1)
            most = max(most, least + 53 - floor)
        return min(int(most), one["exact"])

    na, nb = [need(r, cb) for r in ra], [need(c, ra) for c in cb]
    u = [(x + y, bound_u(r, c)) for x, r in zip(na, ra) for y, c in zip(nb, cb) if r["nz"] and c["nz"]]
    fits = lambda h, d: all(text_power(x + 2 * d) * v <= h for x, v in u)
    best = next((c for c in range(2, MOST + 1) if fits(text_range(c), 0)), None)
    auto = (None, None, None)
    if best:
        d = 0
        exact = all(x == one["exact"] for needs, lines in ((na, ra), (nb, cb)) for x, one in zip(needs, lines) if one["nz"])
        while u and not exact and fits(text_range(best), d + 1):
            d += 1
        auto = best, [x + d + 7 - r["e"] if r["nz"] else 0 for x, r in zip(na, ra)], [y + d + 7 - c["e"] if c["nz"] else 0 for y, c in zip(nb, cb)]

    fixed_modes = {}
    for count in fixed:
        h = text_range(count)
        for mode in ("fast", "accurate"):
            sides, ok = [], True
            for ones, others, order in ((ra, cb, 1), (cb, ra, -1)):
                side = []
                for one in ones:
                    sigma = 0
                    if not one["nz"]:
                        side.append(0)
                        continue
                    if mode == "fast":
                        size = one["squares"]
                    else:
                        size = max((bound_u(*(one, o)[::order]) for o in others if o["nz"]), default=None)
                    if size is not None:
                        sigma = text_least(lambda s: Fraction(4) ** (s + 1) * size > h, 0)
                    ok &= sigma >= -1
                    side.append(sigma + 7 - one["e"])
                sides.append(side)
            fixed_modes[mode, count] = tuple(sides) if ok else None
    return auto, fixed_modes


def check(count, seed, fixed, limit=400):
    done, seen = 0, Counter()
    for name, a, b in all_cases(count, seed):
        if (a.shape[0] + b.shape[1]) * a.shape[1] > limit:
            continue
        p = plan(a, b)
        auto, modes = text_all(a, b, fixed)
        assert auto == ((p["n"], p["s"], p["t"]) if p["n"] else (None, None, None)), f"{name}: plan {p['n']}, {p.get('s')}, {p.get('t')}, by the text {auto}"
        ra, cb = Scan(a.tolist()), Scan(b.T.tolist())
        for mode, sizes in (("fast", fast_sizes(ra, cb)), ("accurate", accurate_sizes(ra, cb))):
            for n in fixed:
                st = exponents(ra, cb, *sizes, n)
                assert modes[mode, n] == (None if st is None else tuple(st)), f"{name}: {mode} {n}: {st}, by the text {modes[mode, n]}"
        check_promise(name, a, b, p, modes)
        done += 1
        seen[auto[0]] += 1
    print(f"{done} cases agree with the text of the definition; N met: " + show(seen))


def check_promise(name, a, b, p, modes):
    """What all this is for: no entry of the integer product leaves the range, in any mode; in mode auto every entry keeps its bound."""
    fa, fb = ([[Fraction(*x.as_integer_ratio()) for x in row] for row in rows] for rows in (a.tolist(), b.T.tolist()))
    plans = [(n, *st) for (_, n), st in modes.items() if st]
    if p["n"]:
        plans.insert(0, (p["n"], p["s"], p["t"]))
    for index, (n, s, t) in enumerate(plans):
        # round() of a Fraction goes to the nearest, halves to even
        rows, columns = ([[round(x * text_power(e)) for x in row] for row, e in zip(side, es)] for side, es in ((fa, s), (fb, t)))
        for i, x in enumerate(rows):
            for j, y in enumerate(columns):
                c = sum(map(int.__mul__, x, y))
                assert abs(c) <= text_range(n), f"{name}: entry {i},{j} out of range with N = {n}"
                if index == 0 and p["n"]:
                    terms = [v * w for v, w in zip(fa[i], fb[j]) if v and w]
                    error, size = abs(c * text_power(-s[i] - t[j]) - sum(terms)), sum(map(abs, terms))
                    few = min(sum(v != 0 for v in fa[i]), sum(w != 0 for w in fb[j]))
                    assert (error * 2**53) ** 2 <= 4 * few * size**2, f"{name}: entry {i},{j} breaks the promise"


def show(seen):
    return " ".join(f"{'none' if x is None else x}:{seen[x]}" for x in sorted(seen, key=lambda x: x or 99))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--fuzz", type=int, default=400, metavar="COUNT", help="products of the fuzz (default 400)")
    ap.add_argument("--seed", type=int, default=1, help="seed of everything random (default 1)")
    ap.add_argument("--fixed", default="2,3,5,10,15,20", metavar="N,N,...", help="the numbers of moduli for the modes fast and accurate (default 2,3,5,10,15,20)")
    ap.add_argument("--check", action="store_true", help="recompute the small cases from the text of the definition, with fractions, and print no stream")
    args = ap.parse_args()
    fixed = sorted({int(x) for x in args.fixed.split(",")})
    if fixed[0] < 2 or fixed[-1] > MOST:
        ap.error("--fixed: numbers of moduli are 2..20")
    if args.check:
        return check(args.fuzz, args.seed, fixed)
    seen, total = Counter(), 0
    for name, a, b in all_cases(args.fuzz, args.seed):
        write(sys.stdout, name, a, b, fixed, seen)
        total += 1
    print(f"end {total}", flush=True)
    auto = Counter({key[1]: c for key, c in seen.items() if key[0] == "auto"})
    print(f"{total} cases; plan N: {show(auto)}", file=sys.stderr)
    print("way: " + ", ".join(f"{key[1]} {c}" for key, c in seen.items() if key[0] == "way"), file=sys.stderr)
    for mode in ("fast", "accurate"):
        print(f"{mode}, range: " + " ".join(f"{n}:{seen[mode, n, False]}" for n in fixed), file=sys.stderr)
    missing = [n for n in [*range(2, MOST + 1), None] if not auto[n]]
    if missing:
        sys.exit(f"no case with N in {missing}")


if __name__ == "__main__":
    main()
