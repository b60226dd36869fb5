"""The grading tools themselves: exact errors against fractions, every test can fail, and one run on the library."""
import json
import math
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from grading import detectors, exact, inputs, plot
from grading.exact import Exact

ROOT = Path(__file__).resolve().parents[2]
LIB = Path(os.environ.get("OZ2_LIB", ROOT / "target/release/liboz2blas.so")).resolve()
CLASSES = {one.name: one for one in inputs.classes()}
SMALL = (7, 6, 23)                                   # m, n, k


# ---- products that are wrong in ways the tests must see ----

def numpy_product(a, b):
    with np.errstate(all="ignore"):
        return a @ b


def strassen_product(a, b, crossover=1):
    n = len(a)
    if n <= crossover or n % 2:
        return a @ b
    h = n // 2
    (a11, a12), (a21, a22) = ((x[:, :h], x[:, h:]) for x in (a[:h], a[h:]))
    (b11, b12), (b21, b22) = ((x[:, :h], x[:, h:]) for x in (b[:h], b[h:]))
    p = lambda x, y: strassen_product(x, y, crossover)
    m1, m2, m3, m4 = p(a11 + a22, b11 + b22), p(a21 + a22, b11), p(a11, b12 - b22), p(a22, b21 - b11)
    m5, m6, m7 = p(a11 + a12, b22), p(a21 - a11, b11 + b12), p(a12 - a22, b21 + b22)
    return np.block([[m1 + m4 - m5 + m7, m3 + m5], [m2 + m4, m1 - m2 + m3 + m6]])


def strassen_16(a, b):
    return strassen_product(a, b, 16)


def fixed_point_product(a, b, bits=53):
    """Rows and columns are rounded to multiples of a unit 2^-bits below their largest number."""
    def rounded(x):
        unit = np.frexp(np.abs(x).max(1, keepdims=True))[1] - bits
        return np.ldexp(np.rint(np.ldexp(x, -unit)), unit)
    return rounded(a) @ rounded(b.T).T


def growing_product(a, b):
    """An error that grows with n^2 u."""
    return (a @ b) * (1 + len(a) ** 2 * 2.0**-53)


def dropped_term(a, b):
    return a[:, :-1] @ b[:-1]



@pytest.mark.parametrize("test", detectors.ALL, ids=lambda test: test.__name__)
def test_a_classical_product_passes(test):
    result = test(numpy_product)
    assert result.passed, result


@pytest.mark.parametrize("test, product", [
    (detectors.disjoint_patterns, strassen_product),
    (detectors.disjoint_patterns, strassen_16),
    (detectors.rotated_sweep, fixed_point_product),
    (detectors.fixed_point, fixed_point_product),
    (detectors.strassen, fixed_point_product),
    (detectors.strassen, strassen_16),
    (detectors.growth, growing_product),
    (detectors.rotated_sweep, dropped_term),
], ids=lambda x: x.__name__)
def test_a_wrong_product_is_found(test, product):
    n = dict(n=64) if product is strassen_product else {}
    with np.errstate(all="ignore"):
        result = test(product, **n)
    assert not result.passed, result


def test_the_sweep_counts_bits():
    """Fixed point with p bits holds a spread until 2^-p is no longer small against the terms."""
    found = [detectors.rotated_sweep(lambda a, b: fixed_point_product(a, b, bits)).figures["bits"] for bits in (54, 70, 90)]
    assert found == sorted(found) and found[0] < found[-1] < 2 * 128 + 53, found


def test_strassen_passes_what_is_not_made_for_it():
    """One level above the crossover does not touch the leading block of a fixed scale; the spread does."""
    assert detectors.strassen(strassen_16, bits=0).passed


def test_slope():
    sizes = [16, 32, 64]
    assert detectors.slope(sizes, [3 * n**1.5 for n in sizes]) == pytest.approx(1.5)
    assert abs(detectors.slope(sizes, [0, 0, 0])) < 1e-9


# ---- exact errors ----

def by_fractions(a, b, c0=None):
    """(exact, |A||B|, the smaller number of nonzeros) of every entry."""
    fa, fb = ([[Fraction(x) for x in row] for row in rows] for rows in (a.tolist(), b.T.tolist()))
    for i, x in enumerate(fa):
        for j, y in enumerate(fb):
            terms = [p * q for p, q in zip(x, y)]
            value = sum(terms) if c0 is None else Fraction(c0[i, j].item()) - sum(terms)
            yield i, j, value, sum(map(abs, terms)), min(sum(p != 0 for p in x), sum(q != 0 for q in y))


@pytest.mark.parametrize("name", CLASSES)
def test_errors_are_those_of_fractions(name):
    a, b, c0 = CLASSES[name].pair(1, *SMALL)
    with np.errstate(all="ignore"):
        c = a @ b if c0 is None else c0 - a @ b
    entries = list(Exact(a, b, c0).entries(c))
    assert len(entries) == c.size                    # none is left out
    for entry, (i, j, value, size, terms) in zip(entries, by_fractions(a, b, c0)):
        unit = Fraction(2) ** entry.unit
        assert (entry.i, entry.j, entry.terms, entry.size * unit) == (i, j, terms, size)
        assert entry.start * unit == (0 if c0 is None else abs(Fraction(c0[i, j].item())))
        if np.isfinite(c[i, j]):
            assert entry.error * unit == abs(Fraction(c[i, j].item()) - value)
        elif np.isinf(c[i, j]):
            assert entry.error * unit == max(0, exact.OVERFLOW - (value if c[i, j] > 0 else -value))
        else:
            assert entry.error is None
        assert exact.keeps_native_bound(entry, a.shape[1])


def entry(error, size, unit=0, terms=16, start=0, value=1.0):
    return exact.Entry(0, 0, value, error, size, start, unit, terms)


@pytest.mark.parametrize("accuracy, factor", [("fp64", 9), ("textbook", 16), ("high", 2)])
def test_the_promise_ends_where_it_says(accuracy, factor):
    """16 terms: T = 8, 15, 1."""
    size = 1 << 60                                   # u size = 2^7
    for extra, kept in ((0, True), (1, False)):
        assert exact.keeps_promise(entry(factor * 2**7 + extra, size), accuracy) is kept
        assert exact.keeps_promise(entry((factor + 1) * 2**7 + 2 * 2**5 + extra, size, start=1 << 58), accuracy) is kept
    assert exact.promise(16, accuracy) == factor


def test_the_promise_with_a_root():
    """5 terms: (2 sqrt(5) + 1) u |A||B| = 5.472135954999579 u |A||B|."""
    size = 10**12 << 53
    assert exact.keeps_promise(entry(5472135954999, size, terms=5))
    assert not exact.keeps_promise(entry(5472135955000, size, terms=5))


def test_half_of_the_smallest_number_is_allowed():
    for unit in (-1075, -1100, -1080):
        half = 2 ** (-1075 - unit)
        assert exact.keeps_promise(entry(half, 0, unit))
        assert not exact.keeps_promise(entry(half + 1, 0, unit))
        assert exact.ratio(entry(half, 1, unit)) == 0
    assert not exact.keeps_promise(entry(1, 0, -1074))
    assert exact.ratio(entry(1, 0, -1074)) == math.inf


def test_what_is_no_number_keeps_nothing():
    a, b = np.ones((1, 1)), np.ones((1, 1))
    for value in (math.nan, math.inf, -math.inf):
        found = exact.grade(Exact(a, b), np.array([[value]]))
        assert found.broken == [(0, 0)] and found.worst > 2**53
        assert exact.grade(Exact(a, b), np.array([[value]]), whole=True).broken


def test_overflow():
    """2^1023 * 2 is Inf, and so may be what is a rounding error below; Inf of the other sign is wrong."""
    a, b = np.array([[2.0**1023]]), np.array([[2.0]])
    judge = lambda value: bool(exact.grade(Exact(a, b), np.array([[value]])).broken)
    assert not judge(math.inf) and judge(-math.inf) and judge(math.nan) and judge(2.0**1023)
    largest = np.array([[sys.float_info.max]])
    assert not exact.grade(Exact(largest, np.ones((1, 1))), np.array([[math.inf]])).broken
    assert exact.grade(Exact(largest / 2, np.ones((1, 1))), np.array([[math.inf]])).broken


def test_a_dropped_term_and_the_rows_that_are_native():
    a, b, _ = CLASSES["normal"].pair(1, *SMALL)
    e, c = Exact(a, b), a @ b
    assert not exact.grade(e, c).broken
    assert len(exact.grade(e, dropped_term(a, b)).broken) == c.size
    c[2, 3] *= 1 + 2.0**-40
    assert exact.grade(e, c).broken == [(2, 3)]
    for lines in (dict(rows=[2]), dict(columns=[3]), dict(whole=True)):
        found = exact.grade(e, c, **lines)
        assert found.broken == [(2, 3)] and found.native in (6, 7, 42) and found.worst < found.worst_native
    # between the promise and the native bound: only a native line may have that
    bound = Exact(np.ones((1, 64)), np.ones((64, 1)))
    c = np.array([[64 * (1 + 40 * 2.0**-53)]])       # promise 17, native 64
    assert exact.grade(bound, c).broken and not exact.grade(bound, c, rows=[0]).broken


# ---- inputs ----

@pytest.mark.parametrize("name", CLASSES)
def test_inputs(name):
    one = CLASSES[name]
    m, n, k = SMALL
    a, b, c0 = one.pair(3, m, n, k)
    again = one.pair(3, m, n, k)
    assert np.array_equal(a, again[0]) and np.array_equal(b, again[1])
    assert np.isfinite(a).all() and np.isfinite(b).all() and a.any() and b.any()
    if not one.only_once:
        assert a.shape == (m, k) and b.shape == (k, n) and (c0 is None or c0.shape == (m, n))


def spread_of(lines):
    """The most bits between the largest and the smallest number of a line."""
    top = np.frexp(lines)[1]
    return int((top.max(1) - np.where(lines != 0, top, 10**6).min(1)).max())


@pytest.mark.parametrize("name", [x for x, one in CLASSES.items() if one.family in ("rotated scale", "inner scale", "random exponents")])
def test_the_spread_is_what_the_class_says(name):
    one = CLASSES[name]
    a, b, _ = one.pair(3, 20, 20, 200)
    for lines in (a, b.T):
        assert abs(spread_of(lines) - one.bits) <= 2, (spread_of(lines), one.bits)


def test_what_some_classes_are_for():
    pair = lambda name, m=20, n=20, k=64: CLASSES[name].pair(5, m, n, k)
    a, b, _ = pair("disjoint supports")
    empty = ((a != 0).astype(int) @ (b != 0).astype(int)) == 0
    assert empty.sum() >= 10 and a.any(1).all() and b.any(0).all()
    a, b, _ = pair("residual [A B][X; -I]")
    assert (np.abs(a @ b) < 2.0**-40 * (np.abs(a) @ np.abs(b))).all()
    a, b, _ = pair("Hilbert x inverse")
    assert [sum(Fraction(1, 1 + h) * int(y) for h, y in enumerate(column)) for column in b.T] == [1] + [0] * 11   # the first row, had it no rounding
    a, b, _ = pair("checkerboard 2^16")
    size = np.abs(a) @ np.abs(b)
    assert size[::2, ::2].max() < 2.0**24 and size[::2, 1::2].min() > 2.0**28
    a, b, _ = pair("overflow border")
    with np.errstate(all="ignore"):
        c = a @ b
    assert np.isinf(c).any() and np.isfinite(c).any()
    for name, low, high in (("subnormal x normal", -1080, -1022), ("subnormal x huge", -60, 10)):
        a, b, _ = pair(name)
        assert np.abs(a).max() < 2.0**-1022
        assert 2.0**low <= np.abs(np.ldexp(a, 60) @ b).max() * 2.0**-60 <= 2.0**high
    a, b, _ = pair("subnormal x subnormal")
    assert not (a @ b).any()


def test_the_picture():
    curves = [dict(name="a < b", k=256, auto=[14, 1.0], curve=[[8, 1e9], [14, 1.0], [20, 0.0]], promise=33.0)]
    rows = [dict(family="f", bits=bits, k=256, promise=33.0, error_native=5.0, shown=1.0, route=route) for bits, route in ((8, "emulated"), (64, "native"))]
    text = plot.svg(curves, rows)
    assert "a &lt; b" in text and text.count("<circle") == 3 and "promise" in text
    assert plot.svg([], rows) is None and plot.svg(curves, []) is None


# ---- the library ----

def run(*command, **options):
    env = {name: value for name, value in os.environ.items() if not name.startswith("OZ2_") and name != "LD_PRELOAD"}
    env.update(OZ2_LIB=str(LIB), PYTHONPATH=str(ROOT / "tests"), PYTHONDONTWRITEBYTECODE="1", **options)
    return subprocess.run([sys.executable, *map(str, command)], env=env, capture_output=True, text=True, timeout=120)


def grade(folder, *arguments, **options):
    done = run(ROOT / "scripts/grade.py", "--out", folder, *arguments, **options)
    assert (folder / "accuracy.json").exists(), done.stderr
    return done, json.loads((folder / "accuracy.json").read_text())


def test_the_library(tmp_path):
    """All of scripts/grade on small products."""
    done, report = grade(tmp_path, "--size", 12, "--k", 61)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["name"]: row for row in report["rows"]}
    assert set(rows) == set(CLASSES) and not report["failures"]
    assert rows["normal"]["route"] == "emulated" and rows["normal"]["checked"] == rows["normal"]["entries"] == 12 * 13
    assert len(report["detectors"]) == len(detectors.ALL) and all(one["passed"] for one in report["detectors"])
    assert all(one["auto"] <= one["least"] + 1 for one in report["least"]) and len(report["least"]) == 12
    assert "| normal | 61 |" in (tmp_path / "accuracy.md").read_text()
    assert "<svg" in (tmp_path / "accuracy.svg").read_text()


def test_grade_fails_where_it_must(tmp_path):
    """With 8 moduli at most nothing of this is provable."""
    done, report = grade(tmp_path, "--size", 6, "--k", 33, "--only", "uniform", OZ2_MODULI="8")
    assert done.returncode == 1 and "native as a whole" in done.stderr
    assert len(report["failures"]) == 2 and all(row["route"] == "native" for row in report["rows"])
