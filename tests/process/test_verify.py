"""OZ2_VERIFY: emulated calls beside the native BLAS, and oz2run --replay.

What a difference does is shown with a native BLAS that is wrong in one entry
(tests/programs/wrong_blas.c): the library has no switch that breaks results.
"""

import json
import os
import re
import struct

import pytest

from helpers import BLAS, LIB, OZ2RUN, PROGRAMS, PYTHON, clean_environment, environment, good, preloaded, run
from test_cases import check_cases, passed_all
from test_cuda import device, gpu  # noqa: F401 (fixtures)


@pytest.fixture(scope="session")
def wrong(build):
    return build("wrong_blas.c", "-shared", "-fPIC", libraries=())


@pytest.fixture(scope="session")
def right(build):
    return build("wrong_blas.c", "-shared", "-fPIC", "-DRIGHT", libraries=())


def python(code, **options):
    """Runs code after verify.py over the reference BLAS; returns (result, statistics, printed object)."""
    text = (PROGRAMS / "verify.py").read_text() + "\n" + code + "\nprint(json.dumps(answer))\n"
    result = preloaded([PYTHON, "-c", text], blas="reference", **options)
    (stats,) = result.stats
    return result, stats, json.loads(result.out.splitlines()[-1])


def counts(stats):
    return stats["verified"], stats["differing"]


def replay(*arguments, check=False, **options):
    env = {**clean_environment(), **{name: str(value) for name, value in options.items()}}
    return run([OZ2RUN, *arguments], env, check=check)


# --------------------------------------------------------------------- counts


@pytest.mark.parametrize("every, verified", [("off", 0), ("1", 10), ("3", 3), ("10", 1), ("11", 0)])
def test_every_nth_call(every, verified):
    """The n-th is the first; native calls between do not count."""
    code = """
set_option = lib.oz2_set_option
seen = []
for i in range(10):
    multiply(9, 8, 7, matrix(9, 7), matrix(7, 8), [0.0] * 72)
    seen.append(stats()["verified"])
    set_option(b"MODE", b"native")
    multiply(9, 8, 7, matrix(9, 7), matrix(7, 8), [0.0] * 72)
    set_option(b"MODE", b"auto")
answer = seen
"""
    result, stats, seen = python(code, OZ2_VERIFY=every)
    assert counts(stats) == (verified, 0) and (stats["emulated"], stats["native"]) == (10, 10), str(result)
    n = 99 if every == "off" else int(every)
    assert seen == [(i + 1) // n for i in range(10)]
    assert result.err == "", str(result)


def test_every_call_of_many_threads(build):
    result = good(preloaded([build("threads.c"), "many"], blas="reference", OZ2_VERIFY="1"))
    assert result.total("verified") == result.total("emulated") > 5 and result.total("differing") == 0, str(result)


def test_counts_are_reset():
    code = """
multiply(3, 3, 3, matrix(3, 3), matrix(3, 3), [0.0] * 9)
first = stats()["verified"]
lib.oz2_reset_stats()
answer = [first, stats()["verified"]]
"""
    assert python(code, OZ2_VERIFY="1")[2] == [1, 0]


# ----------------------------------------------------------- nothing to report


def no_case_differs(result):
    (stats,) = [one for one in result.stats if "non-finite" in one["reasons"]]
    # Where C lies over A, the input is gone after the call.
    assert stats["emulated"] - stats["verified"] == 28 and result.total("differing") == 0, str(result)


@pytest.mark.parametrize("native", ["reference", "openblas"])
def test_cases(native):
    """Overflows, subnormals, NaN, Inf, beta, transposes, gaps, all spellings."""
    result = check_cases(LIB, env=environment(OZ2_VERIFY="1", OZ2_NATIVE=BLAS[native]))
    assert result.out.splitlines()[-1] == "73 passed, 0 failed", str(result)
    no_case_differs(result)


def test_cases_and_processes():
    """Also forks, small stacks, traps, flushing, an address space without room."""
    result = check_cases(LIB, "--process", "--strict", env=environment(OZ2_VERIFY="1", OZ2_NATIVE="builtin"))
    passed_all(result)
    no_case_differs(result)


@pytest.mark.parametrize("mode", ["flush", "rounding", "traps", "flags"])
def test_floating_point_environment(build, mode, blas):
    """The native BLAS computes in that of the program, which traps and sees nothing more than before."""
    program = build("fenv.c")
    result = good(preloaded([program, mode], blas=blas, OZ2_VERIFY="1", OZ2_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"))
    assert result.total("verified") == result.total("emulated") > 0 and result.total("differing") == 0, str(result)


@pytest.mark.parametrize("native", ["reference", "openblas", "builtin"])
def test_traps_that_only_the_comparison_would_spring(native):
    """The sum is 0, but the native BLAS has Inf - Inf on its way to it: NaN, which is no fault of the emulation."""
    code = """
libm = ctypes.CDLL("libm.so.6")
invalid_zero_overflow = 1 | 4 | 8
def zero():
    return multiply(1, 1, 2, [1e200, -1e200], [1e200, 1e200], [7.0])
libm.feclearexcept(invalid_zero_overflow)
first = zero()
flags = libm.fetestexcept(invalid_zero_overflow)
libm.feenableexcept(invalid_zero_overflow)
second = zero()
libm.fedisableexcept(invalid_zero_overflow)
answer = [first, second, flags]
"""
    result, stats, answer = python(code, OZ2_VERIFY="1", OZ2_NATIVE=BLAS.get(native, native))
    assert answer == [[0.0], [0.0], 0] and counts(stats) == (2, 0) and stats["emulated"] == 2, str(result)


def test_product(build, blas):
    """NaN in C with beta = 0, A and B the same memory, gaps, subnormals."""
    for sizes in ((300, 200, 150), (1, 1, 1), (7, 1, 64), (1, 9, 33), (129, 3, 257)):
        result = good(preloaded([build("product.c"), *sizes], blas=blas, OZ2_VERIFY="1"))
        assert (result.total("verified"), result.total("differing")) == (5, 0), str(result)


ROWS = """
inf, nan = float("inf"), float("nan")
answer = []
for row_major in (False, True):
    for beta in (0.0, -2.0):
        for value in (nan, inf, -inf):
            m, n, k = 40, 30, 20
            a, b, c = matrix(m, k), matrix(k, n), [nan] * (m * n) if beta == 0 else matrix(m, n)
            a[3], b[5] = value, value
            answer.append(bits(multiply(m, n, k, a, b, c, 1.5, beta, row_major)))
"""


def test_rows_and_columns_that_were_native():
    result, stats, _ = python(ROWS, OZ2_VERIFY="1")
    assert stats["rows_native"] == stats["columns_native"] == 12, str(result)
    assert counts(stats) == (12, 0) and result.err == "", str(result)


BETA = "answer = bits(multiply(50, 60, 70, matrix(50, 70), matrix(70, 60), matrix(50, 60), 3.0, 0.7))"


@pytest.mark.parametrize("code", [ROWS, BETA], ids=["rows", "beta"])
def test_results_stay(code, wrong):
    """Also where they differ. Over the wrong BLAS only what it does not compute itself."""
    with_rows = code is ROWS
    native = {} if with_rows else {"OZ2_NATIVE": wrong}
    plain, checked = python(code, **native), python(code, OZ2_VERIFY="1", **native)
    assert plain[2] == checked[2] and counts(plain[1]) == (0, 0)
    assert counts(checked[1]) == ((12, 0) if with_rows else (1, 1)), str(checked[0])


@pytest.mark.parametrize("mode, moduli, differs", [("fast", 20, 0), ("accurate", 20, 0), ("accurate", 8, 1)])
def test_modes_that_prove_nothing(mode, moduli, differs, right):
    """Twice the native bound is what they are held to: too few moduli are seen."""
    code = "answer = multiply(50, 60, 70, matrix(50, 70), matrix(70, 60), [0.0] * 3000)"
    _, stats, _ = python(code, OZ2_VERIFY="1", OZ2_MODE=mode, OZ2_MODULI=moduli, OZ2_LOG="off", OZ2_NATIVE=right)
    assert counts(stats) == (1, differs)


def test_blocks_of_the_comparison():
    """More elements than are taken at a time, in rows, columns and the inner dimension; a single long line. Rows and columns
    are of very different sizes, so that the bound of one is not good for another."""
    code = """
import numpy as np
gen = np.random.default_rng(4)
def call(m, n, k):
    rows, columns = 2.0 ** gen.integers(-200, 200, m), 2.0 ** gen.integers(-200, 200, n)
    a = gen.standard_normal((k, m)) * rows
    b = gen.standard_normal((n, k)) * columns[:, None]
    c = gen.standard_normal((n, m)) * rows * columns[:, None]
    pointer = lambda x: ctypes.c_void_p(x.ctypes.data)
    real = ctypes.c_double
    lib.cblas_dgemm(102, 111, 111, m, n, k, real(1), pointer(a), m, pointer(b), k, real(1), pointer(c), m)
for sizes in ((5, 600, 3), (3000, 3, 3000), (2, 2, 4500000), (5000, 900, 2)):
    call(*sizes)
answer = 0
"""
    result, stats, _ = python(code, OZ2_VERIFY="1", OZ2_NATIVE="builtin")
    assert counts(stats) == (4, 0) and stats["emulated"] == 4, str(result)


def test_matrices_on_a_device(gpu, build):  # noqa: F811
    """The host cannot read them: such calls are not verified, the others are."""
    result = gpu([build("cuda_memory.c"), 0, "hhh", "hdh", "hmm", "ddd", "hhd"], OZ2_VERIFY="1")
    assert result.total("emulated") == 15 and result.err == "", str(result)
    assert (result.total("verified"), result.total("differing")) == (6, 0), str(result)


# ---------------------------------------------------------------- differences

CALLS = """
for i in range(%d):
    multiply(9, 8, 7, matrix(9, 7), matrix(7, 8), matrix(9, 8), 1.5, 0.25, %s)
answer = 0
"""


def dumped(tmp_path, wrong, calls=1, row_major=False, **options):
    """The result of calls over the wrong BLAS, and the files that they left."""
    pattern = tmp_path / "call-%p-%r"
    result, stats, _ = python(CALLS % (calls, row_major), OZ2_VERIFY="1", OZ2_NATIVE=wrong, OZ2_VERIFY_DUMP=pattern,
                              **options)
    assert counts(stats) == (calls, calls), str(result)
    first = "call-%d-0" % stats["pid"]
    assert sorted(os.listdir(tmp_path))[0] == first
    return result, tmp_path / first


def test_the_right_one_is_not_reported(right, tmp_path):
    result, stats, _ = python(CALLS % (5, False), OZ2_VERIFY="1", OZ2_NATIVE=right, OZ2_VERIFY_DUMP=tmp_path / "call")
    assert counts(stats) == (5, 0) and result.err == "" and os.listdir(tmp_path) == [], str(result)


def test_one_line_and_ten_files(wrong, tmp_path):
    result, first = dumped(tmp_path, wrong, calls=12)
    assert sorted(os.listdir(tmp_path)) == sorted([first.name] + ["%s.%d" % (first.name, i) for i in range(1, 10)])
    (line,) = result.err.splitlines()
    assert line.startswith("oz2blas: error: OZ2_VERIFY: "), line
    for word in ("m 9 n 8 k 7 ", "alpha 1.5 ", "beta 0.25,", "mode auto", "moduli ", "plan plain", " 1 entries",
                 "row 2 column 1 ", "emulated ", "native ", "allowed ", str(first)):
        assert word in line, line


def test_row_and_column_as_the_program_has_them(wrong, tmp_path):
    result, first = dumped(tmp_path, wrong, row_major=True)
    assert "m 9 n 8 k 7 " in result.err and "row 1 column 2 " in result.err, str(result)
    again = replay("--replay", first)
    assert again.rc == 1 and "row 2 column 1 " in again.out and "row-major      yes" in again.out, str(again)


@pytest.mark.parametrize("engine", ["auto", "portable"])
def test_replay(wrong, tmp_path, engine):
    _, first = dumped(tmp_path, wrong)
    result = replay("--replay", first, OZ2_ENGINE=engine, OZ2_NATIVE="builtin")
    assert result.rc == 1 and result.err == "", str(result)
    assert "emulated bits  the same as in the file" in result.out, str(result)
    assert "differing      1 of 72 entries" in result.out and '"route":"emulated"' in result.out, str(result)
    excess = float(re.search(r"^largest +([\d.e]+) of", result.out, re.M).group(1))
    assert 10 < excess < 1e5 and "row 2 column 1 " in result.out, str(result)
    assert os.listdir(tmp_path) == [first.name]


def test_replay_keeps_the_options_of_the_call(wrong, tmp_path):
    """The same bits need the same mode; the environment and the command line say otherwise where they say anything."""
    _, first = dumped(tmp_path, wrong, OZ2_MODE="fast", OZ2_MODULI="12")
    assert "emulated bits  the same" in replay("--replay", first).out
    for result in (replay("--replay", first, OZ2_MODULI="20"), replay("--moduli", "20", "--replay", first)):
        assert re.search(r"^emulated bits  \d+ of 72 entries", result.out, re.M) and '"moduli":20' in result.out, str(result)


def test_replay_of_what_does_not_differ(wrong, tmp_path):
    """The native result of the file is put right: nothing differs any more."""
    _, first = dumped(tmp_path, wrong)
    data = first.read_bytes()
    size = 8 * 72
    first.write_bytes(data[:-size] + data[-2 * size:-size])
    result = replay("--replay", first)
    assert result.rc == 0 and "differing      0 of 72" in result.out, str(result)


def test_the_file_is_as_it_is_described(wrong, tmp_path):
    code = """
m, n, k = 9, 8, 7
a, b, c = matrix(m, k), matrix(k, n), matrix(m, n)
answer = [a, b, c, multiply(m, n, k, a, b, c, 1.5, 0.25)]
"""
    _, _, matrices = python(code, OZ2_VERIFY="1", OZ2_NATIVE=wrong, OZ2_VERIFY_DUMP=tmp_path / "call")
    head, data = (tmp_path / "call").read_bytes().split(b"\n\n", 1)
    magic, *lines = head.decode().split("\n")
    fields = dict(line.split(" ", 1) for line in lines)
    assert magic == "oz2blas call 1" and [fields[x] for x in "mnk"] == ["9", "8", "7"]
    assert fields["alpha"] == struct.pack(">d", 1.5).hex() and fields["beta"] == struct.pack(">d", 0.25).hex()
    assert fields["row-major"] == "no" and fields["transa"] == fields["transb"] == "N"
    assert fields["mode"] == "auto" and fields["accuracy"] == "fp64" and fields["engine"] and fields["version"]
    values = list(struct.unpack("<%dd" % (len(data) // 8), data))
    assert values[:-72] == sum(matrices, [])
    native, emulated = values[-72:], matrices[3]
    far = [at for at in range(72) if abs(native[at] - emulated[at]) > 1e-13]
    assert far == [2 + 9]


def test_a_file_is_not_overwritten(wrong, tmp_path):
    (tmp_path / "call").write_text("mine")
    python(CALLS % (1, False), OZ2_VERIFY="1", OZ2_NATIVE=wrong, OZ2_VERIFY_DUMP=tmp_path / "call")
    assert (tmp_path / "call").read_text() == "mine" and sorted(os.listdir(tmp_path)) == ["call", "call.1"]


def test_a_file_that_cannot_be_written(wrong):
    result, stats, _ = python(CALLS % (3, False), OZ2_VERIFY="1", OZ2_NATIVE=wrong, OZ2_VERIFY_DUMP="/nowhere/call")
    assert counts(stats) == (3, 3), str(result)
    warning, error = sorted(result.err.splitlines(), reverse=True)
    assert "warning: OZ2_VERIFY_DUMP: cannot write /nowhere/call" in warning and "error: OZ2_VERIFY: " in error


def test_no_dump_without_verification(wrong, tmp_path):
    """OZ2_VERIFY_DUMP alone does nothing."""
    result, stats, _ = python(CALLS % (1, False), OZ2_NATIVE=wrong, OZ2_VERIFY_DUMP=tmp_path / "call")
    assert counts(stats) == (0, 0) and os.listdir(tmp_path) == [] and result.err == "", str(result)


@pytest.mark.parametrize("damage", ["short", "long", "magic", "size", "empty", "missing", "folder", "no size"])
def test_damaged_file(wrong, tmp_path, damage):
    _, first = dumped(tmp_path, wrong)
    data = first.read_bytes()
    changed = {"short": data[:-1], "long": data + b"\0", "magic": b"#!/bin/sh\n" + data, "empty": b"",
               "size": data.replace(b"\nm 9\n", b"\nm 2000000000\n"), "no size": data.replace(b"\nk 7\n", b"\n")}
    if damage in changed:
        first.write_bytes(changed[damage])
    path = {"missing": tmp_path / "none", "folder": tmp_path}.get(damage, first)
    result = replay("--replay", path)
    assert result.rc == 2 and result.out == "" and len(result.err.splitlines()) == 1, str(result)
    assert result.err.startswith("oz2run: %s: " % path), str(result)


def test_replay_that_is_not_emulated(wrong, tmp_path):
    _, first = dumped(tmp_path, wrong)
    result = replay("--replay", first, OZ2_MODE="native")
    assert result.rc == 2 and "not emulated" in result.err, str(result)
    assert replay("--replay").rc == 2
