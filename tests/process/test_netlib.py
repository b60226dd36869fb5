"""Netlib's testers of the BLAS, all DGEMM calls emulated.

They compare each result with a bound of 16 rounding errors, and their own
xerbla must see each wrong argument. All but DGEMM is forwarded to the BLAS
below, so those testers tell that a call arrives and comes back unchanged.
"""

import re

import pytest

from helpers import BLAS, NETLIB, environment, preloaded, run

# The default input stops at size 9; these are up to the tester's limit of 65.
LARGER_FORTRAN = [("6                 NUMBER OF VALUES OF N", "9                 NUMBER OF VALUES OF N"),
                  ("0 1 2 3 5 9 ", "0 1 2 3 7 17 33 50 65 ")]
LARGER_C = [("6                 NUMBER OF VALUES OF N", "9                 NUMBER OF VALUES OF N"),
            ("1 2 3 5 7 9 ", "1 2 3 7 17 31 33 50 65 ")]


def input_file(name, changes, folder):
    text = (NETLIB / name).read_text()
    for old, new in changes:
        assert text.count(old) == 1, (name, old)
        text = text.replace(old, new)
    path = folder / "input"
    path.write_text(text)
    return path


def netlib(name, input_path, folder, **options):
    with open(input_path) as stdin:
        return preloaded([NETLIB / name], stdin=stdin, cwd=folder, timeout=200, **options)


def judge(result, report, good_lines):
    for line in good_lines:
        assert line in report, report + str(result)
    assert "SUSPECT" not in report and "FAILED" not in report, report + str(result)
    # The rest of the 17496 calls or more is of size 0 or has alpha = 0.
    assert result.total("emulated") > 5000, str(result)


@pytest.mark.parametrize("changes", [[], LARGER_FORTRAN], ids=["default", "larger"])
def test_fortran(changes, blas, tmp_path):
    result = netlib("xblat3d", input_file("dblat3.in", changes, tmp_path), tmp_path, blas=blas)
    report = (tmp_path / "dblat3.out").read_text()
    judge(result, report, ["DGEMM  PASSED THE TESTS OF ERROR-EXITS", "DGEMM  PASSED THE COMPUTATIONAL TESTS"])


@pytest.mark.parametrize("changes", [[], LARGER_C], ids=["default", "larger"])
def test_cblas_over_reference(changes, tmp_path):
    result = netlib("xdcblat3", input_file("din3", changes, tmp_path), tmp_path, blas="reference")
    judge(result, result.out, ["cblas_dgemm  PASSED THE TESTS OF ERROR-EXITS",
                               "cblas_dgemm  PASSED THE COLUMN-MAJOR COMPUTATIONAL TESTS",
                               "cblas_dgemm  PASSED THE ROW-MAJOR    COMPUTATIONAL TESTS"])


def test_cblas_over_openblas(tmp_path):
    """The tester needs a data symbol that only the reference BLAS has, so that
    one is loaded and OpenBLAS is named as the BLAS below. Without error exits:
    those of OpenBLAS do not call the handler that the tester brings."""
    changes = [("T        LOGICAL FLAG, T TO TEST ERROR EXITS", "F        LOGICAL FLAG, T TO TEST ERROR EXITS")]
    result = netlib("xdcblat3", input_file("din3", changes, tmp_path), tmp_path, blas="reference",
                    OZ2_NATIVE=BLAS["openblas"])
    judge(result, result.out, ["cblas_dgemm  PASSED THE COLUMN-MAJOR COMPUTATIONAL TESTS",
                               "cblas_dgemm  PASSED THE ROW-MAJOR    COMPUTATIONAL TESTS"])


# ------------------------------------------------------------- what is forwarded

PRECISIONS = "sdcz"


def forwarded(result):
    """The functions that were looked for, by the log."""
    return set(re.findall(r"forwarded name=(\w+)", result.err))


def plain_report(name, stdin, blas, folder, report):
    """What the tester says without the library."""
    with open(stdin) as file:
        result = run([NETLIB / name], environment(blas=blas), stdin=file, cwd=folder, timeout=200)
    return (folder / report).read_text() if report else result.out


def stable(report):
    """A report without the ratios, in which the last digits may differ."""
    return re.sub(r"\d+\.\d+", "x", report)


@pytest.mark.parametrize("level", [1, 2, 3])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_forwarded_fortran(precision, level, blas, tmp_path):
    name = "xblat%d%s" % (level, precision)
    file = "%sblat%d" % (precision, level)
    stdin = NETLIB / (file + ".in") if level > 1 else "/dev/null"
    quiet = precision + str(level) == "d3"  # a line for every DGEMM otherwise
    result = netlib(name, stdin, tmp_path, blas=blas, OZ2_LOG="warn" if quiet else "debug")
    report = (tmp_path / (file + ".out")).read_text() if level > 1 else result.out
    assert report.count("PASS") >= 8, report + str(result)
    assert "FAIL" not in report and "SUSPECT" not in report, report + str(result)
    report_file = file + ".out" if level > 1 else None
    assert stable(report) == stable(plain_report(name, stdin, blas, tmp_path, report_file))
    if not quiet:
        assert precision + {1: "scal_", 2: "gemv_", 3: "symm_"}[level] in forwarded(result), str(result)


@pytest.mark.parametrize("below", sorted(BLAS))
@pytest.mark.parametrize("level", [1, 2, 3])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_forwarded_cblas(precision, level, below, tmp_path):
    """Over OpenBLAS as in test_cblas_over_openblas."""
    name = "x%scblat%d" % (precision, level)
    stdin = "/dev/null"
    if level > 1:
        changes = [("T        LOGICAL FLAG, T TO TEST ERROR EXITS", "F        LOGICAL FLAG, T TO TEST ERROR EXITS")]
        stdin = input_file("%sin%d" % (precision, level), changes if below == "openblas" else [], tmp_path)
    options = {"OZ2_NATIVE": BLAS["openblas"]} if below == "openblas" else {}
    quiet = precision + str(level) == "d3"
    result = netlib(name, stdin, tmp_path, blas="reference", OZ2_LOG="warn" if quiet else "debug", **options)
    assert result.out.count("PASS") >= 8, str(result)
    assert "FAIL" not in result.out and "SUSPECT" not in result.out, str(result)
    if not quiet:
        found = forwarded(result)
        assert any(x.startswith("cblas_" + precision) for x in found), str(result)
        # cblas_xerbla and what the tester calls itself come from the BLAS that the program is linked to.
        providers = set(re.findall(r'forwarded name=cblas_[sdcz]\w+ provider="(.*)"', result.err))
        assert len(providers) == 1 and below in providers.pop().replace("/blas/", "/reference/"), str(result)


# ------------------------------------------------------------ the embedded BLAS

@pytest.mark.parametrize("letter", PRECISIONS)
@pytest.mark.parametrize("cblas", [False, True], ids=["fortran", "cblas"])
def test_embedded_level_1(letter, cblas, tmp_path):
    program = "x%scblat1" % letter if cblas else "xblat1%s" % letter
    result = preloaded([NETLIB / program], cwd=tmp_path, timeout=200, blas="reference", OZ2_NATIVE="builtin")
    assert result.rc == 0 and "FAIL" not in result.out, str(result)
    assert result.out.count("----- PASS -----") >= 10, str(result)


@pytest.mark.parametrize("letter", PRECISIONS)
@pytest.mark.parametrize("level", [2, 3])
@pytest.mark.parametrize("cblas", [False, True], ids=["fortran", "cblas"])
def test_embedded(letter, level, cblas, tmp_path):
    """The sizes are such that level 3 works in several blocks."""
    name = "%sin%d" % (letter, level) if cblas else "%sblat%d.in" % (letter, level)
    text, count = re.subn(r"^.*NUMBER OF VALUES OF N\n.* VALUES OF N$",
                          "6 NUMBER OF VALUES OF N\n0 1 3 8 33 40 VALUES OF N", (NETLIB / name).read_text(), flags=re.M)
    assert count == 1, name
    (tmp_path / "input").write_text(text)
    program = "x%scblat%d" % (letter, level) if cblas else "xblat%d%s" % (level, letter)
    result = netlib(program, tmp_path / "input", tmp_path, blas="reference", OZ2_NATIVE="builtin")
    report = result.out if cblas else (tmp_path / ("%sblat%d.out" % (letter, level))).read_text()
    assert result.rc == 0 and "SUSPECT" not in report and "FAIL" not in report, report + str(result)
    routines = {2: {"s": 16, "d": 16, "c": 17, "z": 17}, 3: {"s": 6, "d": 6, "c": 9, "z": 9}}[level][letter]
    assert report.count("PASSED THE TESTS OF ERROR-EXITS") == routines, report
    assert report.count("COMPUTATIONAL TESTS (") == routines * (2 if cblas else 1), report
