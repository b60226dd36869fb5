"""The NumPy and SciPy wheels and a Fortran program, as people run them: oz2run."""

import json

import pytest

from helpers import OZ2RUN, PYTHON, environment, run

COMMON = """
import ctypes, json, math
import numpy as np
get = ctypes.CDLL(None).oz2_get_stats
get.argtypes, get.restype = [ctypes.c_char_p, ctypes.c_size_t], ctypes.c_size_t

def calls():
    buffer = ctypes.create_string_buffer(16384)
    assert get(buffer, len(buffer)) < len(buffer)
    stats = json.loads(buffer.value)
    return stats["calls"], stats["emulated"]

def error(a, b, c):
    "Largest error of 200 entries in units of u |A| |B|, from exact sums of exact products."
    from fractions import Fraction as F
    worst = 0
    rng = np.random.default_rng(9)
    for i, j in zip(rng.integers(0, c.shape[0], 200), rng.integers(0, c.shape[1], 200)):
        parts = [F(float(x)) * F(float(y)) for x, y in zip(a[i], b[:, j])]
        size = sum(map(abs, parts)) / 2**53
        worst = max(worst, float(abs(F(float(c[i, j])) - sum(parts)) / size))
    return worst

rng = np.random.default_rng(5)
a = rng.uniform(-0.5, 0.5, (300, 150))
b = rng.uniform(-0.5, 0.5, (150, 200))
assert calls() == (0, 0)
"""


def python(code, **options):
    """Runs code after COMMON under oz2run; returns (statistics, printed object)."""
    result = run([OZ2RUN, PYTHON, "-c", COMMON + code], environment(**options))
    assert result.err == "", str(result)
    (stats,) = result.stats
    return stats, json.loads(result.out.splitlines()[-1])


def test_numpy_matmul():
    stats, (calls, error) = python("c = a @ b; print(json.dumps([calls(), error(a, b, c)]))")
    assert calls == [1, 1]
    assert (stats["calls"], stats["emulated"], stats["native"]) == (1, 1, 0)
    assert list(stats["moduli"].values()) == [1] and sum(stats["engines"].values()) == 1
    # |error| <= (2 sqrt k + 1) u |A||B| is promised; the plan gives more.
    assert error < 3


def test_numpy_is_native_by_default():
    """With the portable engine the time model lets every call go natively."""
    stats, (calls, error) = python(
        "c = a @ b; print(json.dumps([calls(), error(a, b, c)]))", OZ2_MIN_SIZE=None, OZ2_ENGINE="portable")
    assert calls == [1, 0] and error < 30
    assert sum(stats["reasons"].values()) == 1


@pytest.mark.parametrize("code, emulated", [
    ("c = a.T.copy().T @ b", 1),
    ("c = np.dot(a, b)", 1),
    ("c = np.einsum('ik,kj->ij', a, b, optimize=True)", 1),
    ("c = np.tensordot(a, b, 1)", 1),
])
def test_numpy_ways_to_multiply(code, emulated):
    _, (calls, error) = python(code + "; print(json.dumps([calls(), error(a, b, c)]))")
    assert calls == [emulated, emulated] and error < 3


def test_numpy_stacked_matmul():
    _, (calls, same) = python("""
x = rng.integers(-1000, 1000, (5, 60, 70)); y = rng.integers(-1000, 1000, (5, 70, 80))
z = x.astype(float) @ y.astype(float)
print(json.dumps([calls(), bool(np.array_equal(z, x @ y))]))""")
    assert calls == [5, 5] and same


def test_numpy_integers_are_exact():
    """Up to 2^53, where a float64 can still hold the sum."""
    _, (calls, same) = python("""
x = rng.integers(-2**22, 2**22, (90, 400)); y = rng.integers(-2**22, 2**22, (400, 110))
z = x.astype(float) @ y.astype(float)
print(json.dumps([calls(), bool(np.array_equal(z, x @ y))]))""")
    assert calls == [1, 1] and same


def test_numpy_nan_and_infinity():
    """Where they are, C has them too; the rest stays right."""
    _, same = python("""
np.seterr(all="ignore")  # or NumPy warns about what is meant to be here
x, y = a.copy(), b.copy()
x[3, 4] = np.nan; x[5, 6] = np.inf; y[7, 8] = -np.inf
z = x @ y
want = np.einsum('ik,kj->ij', x, y)
bad = ~np.isfinite(want)
print(json.dumps([bool(np.array_equal(np.isnan(z), np.isnan(want))),
                  bool(np.array_equal(z[bad & ~np.isnan(want)], want[bad & ~np.isnan(want)])),
                  bool(np.allclose(z[~bad], want[~bad], rtol=1e-12, atol=1e-12))]))""")
    assert same == [True, True, True]


def test_scipy_dgemm():
    stats, (calls, error) = python("""
from scipy.linalg.blas import dgemm
c = dgemm(1.0, a, b)
print(json.dumps([calls(), error(a, b, c)]))""")
    assert calls == [1, 1] and stats["emulated"] == 1 and error < 3


def test_scipy_dgemm_with_everything():
    _, (calls, same) = python("""
from scipy.linalg.blas import dgemm
x = rng.integers(-99, 99, (70, 50)).astype(float); y = rng.integers(-99, 99, (60, 70)).astype(float)
z = rng.integers(-99, 99, (50, 60)).astype(float)
c = dgemm(2.0, x, y, beta=-1.0, c=z, trans_a=True, trans_b=True)
print(json.dumps([calls(), bool(np.array_equal(c, 2 * (x.T.astype(int) @ y.T.astype(int)) - z))]))""")
    assert calls == [1, 1] and same


def test_numpy_and_scipy_in_one_process():
    """Two BLAS libraries with two integer widths lie below at the same time."""
    for options in ({}, {"OZ2_MODE": "native"}):
        stats, same = python("""
from scipy.linalg.blas import dgemm
x = rng.integers(-99, 99, (70, 50)).astype(float); y = rng.integers(-99, 99, (50, 60)).astype(float)
want = x.astype(int) @ y.astype(int)
print(json.dumps([bool(np.array_equal(r, want)) for r in (x @ y, dgemm(1.0, x, y), x @ y)]))""", **options)
        assert same == [True] * 3 and stats["calls"] == 3
        assert stats["native" if options else "emulated"] == 3


def test_fortran(build, blas):
    program = build("fortran.f90")
    result = run([OZ2RUN, program], environment(blas=blas))
    (stats,) = result.stats
    assert (stats["calls"], stats["emulated"]) == (1, 1), str(result)
    assert float(result.out.split()[1]) < 3 and result.err == "", str(result)


def test_oz2run_options(build):
    """Switches of the launcher become options of the library."""
    command = [OZ2RUN, "--mode", "accurate", "--moduli", "15", build("fortran.f90")]
    result = run(command, environment(blas="reference"))
    (stats,) = result.stats
    assert stats["moduli"] == {"15": 1}, str(result)


def test_oz2run_passes_the_exit_status():
    assert run([OZ2RUN, "sh", "-c", "exit 7"], environment(), check=False).rc == 7
    assert run([OZ2RUN, "/nowhere/program"], environment(), check=False).rc != 0


def test_oz2run_doctor():
    result = run([OZ2RUN, "--doctor"], environment())
    for word in ("portable", "OZ2_MODE", "OZ2_MIN_SIZE"):
        assert word in result.out, str(result)
