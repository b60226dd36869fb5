"""Netlib's level-3 testers, all DGEMM calls emulated.

They compare each result with a bound of 16 rounding errors, and their own
xerbla must see each wrong argument. Only lines about DGEMM are ours; the rest
of the level-3 BLAS goes past the library to the BLAS below.
"""

import pytest

from helpers import BLAS, NETLIB, preloaded

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
