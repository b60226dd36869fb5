"""Rows and columns that the native BLAS computes, in real calls: which they are, what
they hold, and what is counted. C is compared with what the native BLAS makes of the
same call, entry by entry, and the other entries with a call without the bad lines."""

import json

import pytest

from helpers import BLAS, LIB, PYTHON, environment, run

PROGRAM = """
import ctypes, json, sys
import numpy as np

oz, plain = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])
spelling, layout, kind, beta = sys.argv[3], sys.argv[4], sys.argv[5], float(sys.argv[6])
m, n, k, lda, ldb, ldc = 83, 71, 57, 0, 0, 0

def call(library, a, b, c):
    row_major = layout == "row"
    store = lambda x: np.array(x, order="C" if row_major else "F")
    a, b, c = store(a), store(b), store(c)
    ld = (k, n, n) if row_major else (m, k, m)
    p = lambda x: x.ctypes.data_as(ctypes.c_void_p)
    double = ctypes.c_double
    if spelling.startswith("cblas"):
        integer = ctypes.c_int64 if "64" in spelling else ctypes.c_int32
        order = 101 if row_major else 102
        getattr(library, spelling)(order, 111, 111, integer(m), integer(n), integer(k), double(1.5), p(a), integer(ld[0]), p(b), integer(ld[1]),
                                   double(beta), p(c), integer(ld[2]))
    else:
        i = lambda x: ctypes.byref(ctypes.c_int32(x))
        d = lambda x: ctypes.byref(double(x))
        getattr(library, spelling)(b"N", b"N", i(m), i(n), i(k), d(1.5), p(a), i(ld[0]), p(b), i(ld[1]), d(beta), p(c), i(ld[2]),
                                   ctypes.c_size_t(1), ctypes.c_size_t(1))
    return c

def told(function):
    text = ctypes.create_string_buffer(1 << 14)
    function(text, ctypes.c_size_t(1 << 14))
    return json.loads(text.value)

rng = np.random.default_rng(5)
a, b, c = rng.random((m, k)) - 0.5, rng.random((k, n)) - 0.5, rng.random((m, n))
rows, columns = [3, 32, 82], [0, 70]
if kind == "nan":
    a[3, 5], a[32, 0], a[82, 56] = np.nan, np.inf, -np.inf
    b[7, 0], b[56, 70] = np.inf, np.nan
else:
    # Large where B is small, and small where it is large: nothing is provable for these rows.
    scale = 2.0 ** np.linspace(90, -90, k).round()
    b = b / scale[:, None]
    a[rows] *= scale
    columns = []
c[4, 4] = np.nan                    # of a line that is emulated
got, last, stats = call(oz, a, b, c), told(oz.oz2_last_call), told(oz.oz2_get_stats)
want = call(plain, a, b, c)
clean_a, clean_b = a.copy(), b.copy()
clean_a[rows], clean_b[:, columns] = 0, 0
clean = call(oz, clean_a, clean_b, c)
outside = np.ones((m, n), bool)
outside[rows], outside[:, columns] = False, False
same_bits = lambda x, y: bool((x.view(np.uint64) == y.view(np.uint64)).all())
with np.errstate(all="ignore"):
    size = 1.5 * np.abs(a) @ np.abs(b) + abs(beta * np.nan_to_num(c))
    close = (np.abs(got - want) <= (2 * k + 9) * 2.0 ** -53 * size) | (got == want)
native = ~outside
finite = np.isfinite(want)
print(json.dumps(dict(last=last, stats=stats, emulated_same=same_bits(got[outside], clean[outside]),
                      native_kinds=bool((np.isnan(got) == np.isnan(want))[native].all() and (np.isinf(got) == np.isinf(want))[native].all()),
                      infinite=bool((got == want)[native & np.isinf(want)].all()), close=bool(close[native & finite].all()),
                      bad=int((~finite)[native].sum()), nan_of_c=bool(np.isnan(got[4, 4]) == (beta != 0)))))
"""


def lines(spelling, layout, kind, beta, **options):

    env = environment(blas="reference", OZ2_NATIVE=BLAS["openblas"], **options)
    result = run([PYTHON, "-c", PROGRAM, LIB, BLAS["openblas"], spelling, layout, kind, beta], env)
    assert result.err == "", str(result)
    return json.loads(result.out)


def check(answer, kind):
    last, stats = answer["last"], answer["stats"]
    assert last["route"] == "emulated" and last["reason"] is None, last
    rows, columns = [3, 32, 82], [0, 70] if kind == "nan" else []
    assert (last["native_rows"], last["native_columns"]) == (rows, columns), last
    assert (last["rows_native"], last["columns_native"]) == (3, len(columns)), last
    assert (stats["rows_native"], stats["columns_native"], stats["emulated"], stats["native"]) == (3, len(columns), 1, 0), stats
    reason, plan = ("non-finite", "plain") if kind == "nan" else ("not provable", "more bits")
    assert stats["calls_with_native_lines"] == {reason: 1}, stats
    if last["mode"] == "auto":
        assert stats["plans"] == {plan: 1} and last["plan"] == plan, (last, stats)
        assert last["bound"] == pytest.approx(2 * 57 ** 0.5 + 1)
    assert answer["emulated_same"] or kind != "nan", "emulated entries depend on the lines that are not"
    assert answer["native_kinds"] and answer["infinite"] and answer["close"] and answer["nan_of_c"], answer
    assert answer["bad"] > 100 or kind != "nan", answer


@pytest.mark.parametrize("kind", ["nan", "hopeless"])
@pytest.mark.parametrize("beta", ["0", "0.75"])
@pytest.mark.parametrize("spelling, layout", [("dgemm_", "column"), ("cblas_dgemm", "column"), ("cblas_dgemm", "row")])
def test_only_bad_lines_are_native(spelling, layout, kind, beta):
    check(lines(spelling, layout, kind, beta), kind)


@pytest.mark.parametrize("options", [dict(OZ2_ENGINE="portable", OZ2_NUM_THREADS="3"), dict(OZ2_WORKSPACE="300K"),
                                     dict(OZ2_MODE="fast"), dict(OZ2_MODE="accurate")])
def test_in_every_mode_and_with_little_memory(options):
    check(lines("dgemm_", "column", "nan", "0.75", **options), "nan")


def test_builtin():
    """Where there is no native BLAS the lines go to our own."""

    env = environment(OZ2_NATIVE="builtin")
    result = run([PYTHON, "-c", PROGRAM, LIB, BLAS["openblas"], "dgemm_", "column", "nan", "0.75"], env)
    check(json.loads(result.out), "nan")
