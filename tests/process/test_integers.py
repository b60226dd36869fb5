"""64-bit integers behind plain names: the library asks the native BLAS how wide its integers are,
and a call of which it cannot be sure is passed on unread."""

import re
import subprocess

import pytest

from helpers import BLAS64, LIB, NETLIB64, PROGRAMS, environment, good, preloaded, run

DOUBT = "integers in doubt"
WIDE, NARROW = "-DINT=int64_t", "-DINT=int32_t"
OPTION = {WIDE: "ilp64", NARROW: "lp64"}
OTHER = {WIDE: "lp64", NARROW: "ilp64"}
CALLS = {WIDE: 4, NARROW: 2}


@pytest.fixture(params=sorted(BLAS64))
def blas64(request):
    return BLAS64[request.param]


@pytest.fixture
def library(tmp_path):
    """library(file name, *flags): a BLAS of a few functions, right in all entries, under that name."""
    def make(name, *flags):
        path = tmp_path / name
        subprocess.run(["gcc", "-shared", "-fPIC", "-DRIGHT", *flags, "-o", path, PROGRAMS / "wrong_blas.c", "-lm"], check=True)
        return path

    return make


def emulated(result, count):
    assert result.total("emulated") == count and result.total("native") == 0, str(result)
    return good(result)


def unread(result, warning):
    """All calls gave the right results and were passed on, with one line."""
    assert result.out == "good\n", str(result)
    assert result.total("emulated") == 0, str(result)
    (stats,) = result.stats
    assert set(stats["reasons"]) == {DOUBT} and stats["reasons"][DOUBT] >= 2, str(result)
    assert re.fullmatch("oz2blas: warning: .*%s.*\n" % warning, result.err), str(result)


# ------------------------------------------------------------------ real libraries


@pytest.mark.parametrize("option", [None, "auto", "ilp64"])
def test_wide_libraries_of_the_system(build, blas64, option):
    program = build("integers.c", WIDE, libraries=(BLAS64["reference"],))
    emulated(preloaded([program], LD_LIBRARY_PATH=blas64.parent, OZ2_INTEGER=option), CALLS[WIDE])


def test_wide_library_and_narrow_option(build, blas64):
    program = build("integers.c", WIDE, libraries=(BLAS64["reference"],))
    result = preloaded([program], LD_LIBRARY_PATH=blas64.parent, OZ2_INTEGER="lp64")
    unread(result, "other integers than OZ2_INTEGER says")


@pytest.mark.parametrize("option", ["auto", "lp64"])
def test_narrow_libraries_of_the_system(build, blas, option):
    emulated(preloaded([build("integers.c", NARROW)], blas=blas, OZ2_INTEGER=option), CALLS[NARROW])


def test_narrow_library_and_wide_option(build, blas):
    result = preloaded([build("integers.c", NARROW)], blas=blas, OZ2_INTEGER="ilp64")
    unread(result, "other integers than OZ2_INTEGER says")


def test_forty_routines_in_fortran(build, blas64):
    program = build("whole.f90", "-fdefault-integer-8", libraries=(BLAS64["reference"],))
    result = preloaded([program], LD_LIBRARY_PATH=blas64.parent)
    assert result.out == "good\n" and result.err == "" and result.total("emulated") == 1, str(result)


@pytest.mark.parametrize("name", ["whole.f90", "integers.c"])
@pytest.mark.parametrize("below", ["builtin", *sorted(BLAS64)])
def test_linked_in_place_of_a_wide_blas(alone, below, name):
    """Nothing tells what the integers of such a program are but the option."""
    program = alone(name, "-fdefault-integer-8" if name == "whole.f90" else WIDE)
    result = run([program], environment(OZ2_NATIVE=BLAS64.get(below, below), OZ2_INTEGER="ilp64"))
    assert result.out == "good\n" and result.err == "", str(result)
    assert result.total("emulated") == (1 if name == "whole.f90" else CALLS[WIDE]), str(result)


def test_builtin_is_narrow_if_nothing_is_said(alone):
    for option in ("auto", "lp64"):
        emulated(run([alone("integers.c", NARROW)], environment(OZ2_NATIVE="builtin", OZ2_INTEGER=option)), CALLS[NARROW])


# ------------------------------------------------------------------ libraries that mislead


@pytest.mark.parametrize("name", ["libblas.so.3", "libblas64.so.3", "libopenblas64-blas64-.so"])
@pytest.mark.parametrize("width", [NARROW, WIDE])
@pytest.mark.parametrize("option", ["auto", "right", "wrong"])
def test_file_names_say_nothing(build, library, name, width, option):
    program = build("integers.c", width, libraries=(library(name, width),))
    option = {"right": OPTION[width], "wrong": OTHER[width]}.get(option, option)
    result = preloaded([program], OZ2_INTEGER=option)
    if option == OTHER[width]:
        unread(result, "other integers than OZ2_INTEGER says")
    else:
        emulated(result, CALLS[width])


@pytest.mark.parametrize("isamax", [-1, 0, 1, 2, 3])
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_library_that_does_not_answer(build, library, width, isamax):
    """None at all, or one that returns a constant. What OZ2_INTEGER says is believed then."""
    program = build("integers.c", width, libraries=(library("libblas.so.3", width, "-DISAMAX=%d" % isamax),))
    unread(preloaded([program]), "does not tell how wide its integers are")
    emulated(preloaded([program], OZ2_INTEGER=OPTION[width]), CALLS[width])


def test_answer_of_another_library_does_not_count(build, library):
    """A narrow BLAS is in the process too, even first, and it has the isamax that the wide one lacks."""
    wide = library("libwide.so", WIDE, "-DISAMAX=-1")
    narrow = library("libnarrow.so", NARROW)
    program = build("integers.c", WIDE, libraries=(wide, "-Wl,--no-as-needed", narrow))
    unread(preloaded([program]), "does not tell how wide its integers are")


# ------------------------------------------------------------------ Netlib's tester


def netlib(folder, **options):
    with open(NETLIB64 / "dblat3.in") as stdin:
        result = run([NETLIB64 / "xblat3d"], environment(**options), stdin=stdin, cwd=folder, timeout=200)
    report = (folder / "dblat3.out").read_text()
    for line in ("DGEMM  PASSED THE TESTS OF ERROR-EXITS", "DGEMM  PASSED THE COMPUTATIONAL TESTS"):
        assert line in report, report + str(result)
    assert "SUSPECT" not in report and "FAIL" not in report, report + str(result)
    assert report.count("PASSED THE COMPUTATIONAL TESTS") >= 6 and result.total("emulated") > 5000, report + str(result)


@pytest.mark.parametrize("option", ["auto", "ilp64"])
def test_netlib_preloaded(blas64, option, tmp_path):
    netlib(tmp_path, preload=(LIB,), LD_LIBRARY_PATH=blas64.parent, OZ2_INTEGER=option)


@pytest.mark.parametrize("below", ["builtin", *sorted(BLAS64)])
def test_netlib_in_place_of_libblas64(below, tmp_path):
    """The tester loads the library as its libblas64.so.3."""
    links = tmp_path / "links"
    links.mkdir()
    (links / "libblas64.so.3").symlink_to(LIB)
    netlib(tmp_path, LD_LIBRARY_PATH=links, OZ2_NATIVE=BLAS64.get(below, below), OZ2_INTEGER="ilp64")
