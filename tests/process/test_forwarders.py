"""Libraries that lead BLAS names on to a BLAS which they open: oz2blas as that BLAS.

tests/programs/forwarder.c does it in the way of libblastrampoline and of FlexiBLAS. With the real ones, where a folder or a file is
named by LIBBLASTRAMPOLINE and FLEXIBLAS_PREFIX in the environment (docs/ways-in tells how to get them).
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from helpers import BLAS, BLAS64, LIB, PROGRAMS, ROOT, environment, run
from test_integers import CALLS, NARROW, WIDE

SUFFIXED = ("-Ddgemm_=dgemm_64_", "-Dcblas_dgemm=cblas_dgemm64_")
BELOW = ["auto", "builtin", "reference", "openblas"]
LBT = os.environ.get("LIBBLASTRAMPOLINE")
FLEXIBLAS = os.environ.get("FLEXIBLAS_PREFIX")

WRONG = """
#include <stdio.h>
#include <stddef.h>
void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *, const int *,
            const double *, const int *, const double *, double *, const int *, size_t, size_t);
int main(void)
{
    int wrong = -1, one = 1;
    double x = 1;
    setvbuf(stdout, NULL, _IONBF, 0);
    dgemm_("N", "N", &one, &wrong, &one, &x, &x, &one, &x, &one, &x, &x, &one, 1, 1);
    puts("returned");
    return 0;
}
"""


@pytest.fixture
def linked(build, tmp_path):
    """linked(kind, *flags): a program that calls DGEMM, linked to a forwarder; flags may name a further source."""
    def make(kind, *flags, source=PROGRAMS / "integers.c"):
        forwarder = build("forwarder.c", "-shared", "-fPIC", "-Wno-pedantic", *(["-DLBT"] if kind == "lbt" else []), libraries=())
        return compiled(tmp_path, source, *flags, forwarder, "-Wl,-rpath,%s" % forwarder.parent)

    return make


def compiled(folder, source, *flags):
    subprocess.run(["gcc", "-O2", "-o", folder / "program", source, *flags], check=True, timeout=60)
    return folder / "program"


def native(below, wide=False):
    return (BLAS64 if wide else BLAS).get(below, below)


def called(result, said, count):
    lines = result.out.splitlines()
    assert lines == [said, "good"] and result.err == "", str(result)
    assert result.total("emulated") == count and result.total("calls") == count, str(result)


NARROW_SAID = "suffix '', 32-bit integers, complex results by value, CBLAS"
WIDE_SAID = "suffix '%s', 64-bit integers, complex results by value, CBLAS"


@pytest.mark.parametrize("below", BELOW)
@pytest.mark.parametrize("kind", ["lbt", "flexiblas"])
def test_plain_names_come_first(linked, kind, below):
    result = run([linked(kind, NARROW)], environment(BACKEND=LIB, OZ2_NATIVE=native(below)))
    called(result, NARROW_SAID, CALLS[NARROW])


@pytest.mark.parametrize("below", ["auto", "builtin"])
@pytest.mark.parametrize("kind", ["lbt", "flexiblas"])
def test_suffix_chooses_wide_integers(linked, kind, below):
    result = run([linked(kind, WIDE, *SUFFIXED)], environment(BACKEND="%s!64_" % LIB, OZ2_NATIVE=below))
    called(result, WIDE_SAID % "64_", CALLS[WIDE])


@pytest.mark.parametrize("below", ["builtin", *sorted(BLAS64)])
@pytest.mark.parametrize("kind", ["lbt", "flexiblas"])
def test_option_makes_plain_names_wide(linked, kind, below):
    env = environment(BACKEND=LIB, OZ2_INTEGER="ilp64", OZ2_NATIVE=native(below, wide=True))
    called(run([linked(kind, WIDE)], env), WIDE_SAID % "", CALLS[WIDE])


@pytest.mark.parametrize("mode", ["auto", "native"])
@pytest.mark.parametrize("below", BELOW)
@pytest.mark.parametrize("kind", ["lbt", "flexiblas"])
def test_illegal_argument(linked, tmp_path, kind, below, mode):
    """The report of the BLAS below or our own: a forwarder's handler that calls ours must not be called by it."""
    (tmp_path / "wrong.c").write_text(WRONG)
    program = linked(kind, source=tmp_path / "wrong.c")
    result = run([program], environment(BACKEND=LIB, OZ2_NATIVE=native(below), OZ2_MODE=mode), timeout=20)
    assert re.search("DGEMM", result.out + result.err) and "comes back" not in result.out, str(result)
    assert result.stats[0]["reasons"] == {"illegal argument": 1}, str(result)


# ------------------------------------------------------------------ the real ones


def trampoline(folder, *flags):
    return compiled(folder, PROGRAMS / "integers.c", *flags, LBT, "-Wl,-rpath,%s" % Path(LBT).parent)


@pytest.mark.skipif(not LBT, reason="LIBBLASTRAMPOLINE is not set")
@pytest.mark.parametrize("below", BELOW)
@pytest.mark.parametrize("libraries, flags, width", [
    ("{0}", (), NARROW), ("{0}!64_", SUFFIXED, WIDE), ("{0}!64_;{0}", SUFFIXED, WIDE), ("{0}!64_;{0}", (), NARROW)])
def test_libblastrampoline(tmp_path, libraries, flags, width, below):
    below = "auto" if width == WIDE and below in BLAS else below
    env = environment(LBT_DEFAULT_LIBS=libraries.format(LIB), LBT_VERBOSE="1", OZ2_NATIVE=native(below))
    result = run([trampoline(tmp_path, width, *flags)], env)
    assert "good" in result.out.splitlines() and "forwarded 352 symbols" in result.out, str(result)
    assert result.total("emulated") == result.total("calls") == CALLS[width], str(result)


@pytest.mark.skipif(not LBT, reason="LIBBLASTRAMPOLINE is not set")
def test_libblastrampoline_over_openblas(tmp_path):
    """As Julia has it: the BLAS is there already, and oz2blas takes its place in part."""
    env = environment(LBT_DEFAULT_LIBS="%s;%s" % (BLAS["openblas"], LIB), OZ2_LOG="debug")
    result = run([trampoline(tmp_path, NARROW)], env)
    assert result.out == "good\n" and result.total("emulated") == CALLS[NARROW], str(result)
    assert re.search('integers name="dgemm_" provider=".*openblas', result.err), str(result)


@pytest.mark.skipif(not FLEXIBLAS, reason="FLEXIBLAS_PREFIX is not set")
@pytest.mark.parametrize("below", BELOW)
def test_flexiblas(tmp_path, below):
    """The committed snippet, with the path of this build."""
    text = (ROOT / "docs/ways-in/oz2blas.conf").read_text()
    (tmp_path / "rc").write_text(re.sub("(?m)^library = .*", "library = %s" % LIB, text))
    library = "%s/lib" % FLEXIBLAS
    program = compiled(tmp_path, PROGRAMS / "integers.c", NARROW, "-L" + library, "-lflexiblas", "-Wl,-rpath," + library)
    env = environment(FLEXIBLAS="OZ2BLAS", FLEXIBLAS_CONFIG=tmp_path / "rc", OZ2_NATIVE=native(below))
    result = run([program], env)
    assert result.out == "good\n" and result.err == "" and result.total("emulated") == CALLS[NARROW], str(result)
    (tmp_path / "wrong.c").write_text(WRONG)
    program = compiled(tmp_path, tmp_path / "wrong.c", "-L" + library, "-lflexiblas", "-Wl,-rpath," + library)
    result = run([program], env, timeout=20)
    assert "DGEMM" in result.out + result.err and result.stats[0]["reasons"] == {"illegal argument": 1}, str(result)
