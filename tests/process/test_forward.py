"""The rest of the BLAS: every name of src/abi/forward.names leads to the native
function of the same name, and a call through it arrives as it was made."""

import re
import shutil
import subprocess

import pytest

from helpers import BLAS, LIB, PYTHON, ROOT, environment, good, preloaded, run


def table():
    """(handlers, routines), read apart from build.rs."""
    names = {"handlers": [], "routines": []}
    for line in (ROOT / "src" / "abi" / "forward.names").read_text().splitlines():
        if line.startswith("["):
            kind, *patterns = line[1:-1].split()
        elif line and not line.startswith("#"):
            names[kind] += [pattern.replace("*", word) for word in line.split() for pattern in patterns]
    return names["handlers"], names["routines"]


def defined(library):
    """The functions that a library defines."""
    shown = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return {words[-1].split("@")[0] for words in map(str.split, shown.splitlines()) if words[-2] in "TWi"}


@pytest.fixture(scope="session")
def numbered(tmp_path_factory):
    """A file with a number for each name that slots_native.c does not have."""
    mine = {"dgemv_", "dger_", "cdotc_", "zdotu_", "dsdot_", "cblas_xerbla", "dtrsm_", "dsyrk_", "drot_", "dnrm2_"}
    handlers, routines = table()
    folder = tmp_path_factory.mktemp("names")
    pairs = list(enumerate([name for name in handlers + routines if name not in mine], 1))
    (folder / "names.h").write_text("".join("NAME(%d, %s)\n" % pair for pair in pairs))
    (folder / "names.txt").write_text("".join("%d %s\n" % pair for pair in pairs))
    return folder


@pytest.fixture(scope="session")
def native(build):
    """A library with the functions that slots.c calls."""
    return build("slots_native.c", "-shared", "-fPIC", libraries=())


@pytest.fixture(scope="session")
def everything(build, numbered):
    """A library with every name of the table."""
    return build("slots_native.c", "-shared", "-fPIC", '-DNAMES="%s"' % (numbered / "names.h"), libraries=())


# ------------------------------------------------------------------ the table


def test_table_is_what_is_exported():
    """Besides it there is only DGEMM and what is ours."""
    handlers, routines = table()
    others = defined(LIB) - set(handlers) - set(routines)
    assert len(handlers + routines) == len(set(handlers + routines))
    assert set(handlers + routines) <= defined(LIB)
    assert {name for name in others if not name.startswith("oz2_")} == {
        "dgemm_", "dgemm_64_", "dgemm_64", "dgemm64_", "cblas_dgemm", "cblas_dgemm64_", "cblas_dgemm_64", "scipy_dgemm_",
        "scipy_dgemm_64_", "scipy_cblas_dgemm", "scipy_cblas_dgemm64_"}


def test_reference_blas_is_covered():
    """All of its functions; what else it exports are data."""
    assert defined(BLAS["reference"]) <= defined(LIB)


def test_names_could_not_be_anything_else():
    """A name without prefix or suffix could be a function of any program."""
    for name in defined(LIB):
        assert re.search(r"_$|_64$|^cblas_|^scipy_cblas_|^oz2_", name), name


def test_every_name_is_the_function_of_that_name(alone, everything, numbered):
    result = good(run([alone("slots.c"), "names", numbered / "names.txt"], environment(OZ2_NATIVE=everything)))
    (found,) = re.findall(r"^(\d+) names$", result.out, re.M)
    assert int(found) == len(sum(table(), [])) - 10


# ------------------------------------------------------------------ the calls


def test_calls_arrive_as_they_were_made(alone, native):
    """Registers, stack, hidden results, variadic calls: before and after the
    slots have their functions."""
    result = good(run([alone("slots.c"), "abi"], environment(OZ2_NATIVE=native)))
    lines = result.out.splitlines()
    assert lines[:-1] == ["4 name 1 2.5 three 4.5 5 6.5 7.5 8.5 9.5 10.5 11.5 12.5"] * 2, str(result)


def test_calls_arrive_preloaded(build, native):
    """The BLAS that the program is linked to comes after the library."""
    good(preloaded([build("slots.c", libraries=(native,)), "abi"], OZ2_NATIVE=native))


def test_threads_meet_at_a_slot(alone, native):
    for _ in range(20):
        good(run([alone("slots.c"), "threads"], environment(OZ2_NATIVE=native)))


def test_forks_while_slots_are_resolved(alone, everything, numbered):
    good(run([alone("slots.c"), "forks", numbered / "names.txt"], environment(OZ2_NATIVE=everything)))


# -------------------------------------------------------------- what is found


MISSING = "scipy_cblas_zgemm_batch_strided64_"


@pytest.mark.parametrize("native_choice", ["auto", "builtin"])
def test_missing_routine_says_one_line(alone, native_choice):
    """No BLAS has it under this name, so ten calls return 0."""
    result = run([alone("slots.c"), "late"], environment(OZ2_NATIVE=native_choice))
    assert result.out == "good\n", str(result)
    assert re.fullmatch(r"oz2blas: error: %s is in no BLAS .*\n" % MISSING, result.err), str(result)


def test_library_that_comes_later_is_found(alone, everything):
    result = run([alone("slots.c"), "late", everything], environment())
    assert result.out == "good\n", str(result)
    assert len(result.err.splitlines()) == 1, str(result)


def test_two_copies_do_not_call_each_other(build, tmp_path):
    """Two installations, both preloaded: each passes over the other."""
    copy = tmp_path / "copy.so"
    shutil.copy(LIB, copy)
    good(preloaded([build("handlers.c"), "call"], blas="openblas", preload=(LIB, copy), check=False))
    good(preloaded([build("product.c", "-DANY_ROUTE"), 30, 20, 10], blas="reference", preload=(LIB, copy), OZ2_MODE="native"))


SWITCH = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
static double (*backend)(const int *, const double *, const int *, const double *, const int *);
void flexiblas_switch(void) {}
double ddot_(const int *n, const double *x, const int *incx, const double *y, const int *incy)
{
    static int depth;
    if (!backend) {
        void *handle = dlopen(getenv("BACKEND"), RTLD_NOW | RTLD_LOCAL);
        backend = handle ? dlsym(handle, "ddot_") : NULL;
        if (!backend) { puts(dlerror()); exit(1); }
    }
    if (++depth > 1) { puts("comes back"); exit(1); }
    double result = backend(n, x, incx, y, incy);
    depth--;
    return result;
}
"""
DOT = """
#include <stdio.h>
double ddot_(const int *n, const double *x, const int *incx, const double *y, const int *incy);
int main(void)
{
    double x[] = {1, 2, 3};
    int n = 3, one = 1;
    for (int i = 0; i < 2; i++)
        printf("%g\\n", ddot_(&n, x, &one, x, &one));
}
"""


@pytest.mark.parametrize("preload", [False, True], ids=["backend", "in front"])
def test_switch_between_libraries(tmp_path, preload):
    """One like FlexiBLAS has loaded the library as its BLAS: it is not the
    native BLAS, or calls would go round for ever. Below a preloaded library it is."""
    (tmp_path / "switch.c").write_text(SWITCH)
    (tmp_path / "dot.c").write_text(DOT)
    for command in (["-shared", "-fPIC", "-o", "libswitch.so", "switch.c", "-ldl"],
                    ["-o", "dot", "dot.c", "-L.", "-lswitch", "-Wl,-rpath," + str(tmp_path)]):
        subprocess.run(["gcc", "-O2", *command], check=True, cwd=tmp_path)
    env = environment(blas="reference", preload=(LIB,) if preload else (), OZ2_LOG="debug",
                      BACKEND=BLAS["reference"] if preload else LIB)
    result = run([tmp_path / "dot"], env)
    (provider,) = re.findall(r'forwarded name=ddot_ provider="(.*)"', result.err)
    assert result.out == "14\n14\n", str(result)
    assert ("libswitch" in provider) == preload, str(result)


# ------------------------------------------------------------------- handlers


@pytest.mark.parametrize("where", ["program", "library", "library, BLAS named"])
@pytest.mark.parametrize("mode", ["call", "blas", "cblas"])
def test_error_handlers_of_the_program(build, blas, where, mode):
    """Also if they are in a library, which comes after ours in the order of the loader."""
    if (blas, mode) == ("openblas", "cblas"):
        pytest.skip("OpenBLAS calls xerbla_ for the CBLAS too, with other numbers")
    if where == "program":
        program = build("handlers.c", "-DOWN")
    else:
        own = build("handlers.c", "-DOWN", "-DLIBRARY", "-shared", "-fPIC", libraries=())
        program = build("handlers.c", libraries=(own, BLAS["reference"]))
    result = preloaded([program, mode], blas=blas, OZ2_NATIVE=BLAS[blas] if "named" in where else None)
    want = {"call": "own DGEMV 1", "blas": "own DGEMV 2", "cblas": "own cblas_dgemv 1"}
    assert result.out.splitlines() == [want[mode], "good"], str(result)


@pytest.mark.parametrize("mode", ["call", "blas"])
def test_error_handler_of_the_native_blas(build, blas, mode):
    """Without one of the program: what the native one says, and the reference
    BLAS ends the program, as without the library."""
    program = build("handlers.c")
    plain = run([program, mode], environment(blas=blas), check=False)
    ours = preloaded([program, mode], blas=blas, check=False)
    assert (plain.rc, plain.out, plain.err) == (ours.rc, ours.out, ours.err), str(ours)
    assert "DGEMV" in ours.out + ours.err


@pytest.mark.parametrize("mode", ["call", "blas"])
def test_error_handlers_with_a_named_blas(alone, mode):
    """Linked to the library, the BLAS by OZ2_NATIVE; the program's handler is
    that of a BLAS which was loaded after the program was bound."""
    result = run([alone("handlers.c", "-DOWN"), mode], environment(OZ2_NATIVE=BLAS["reference"]))
    assert result.out.splitlines() == ["own DGEMV %d" % (1 if mode == "call" else 2), "good"], str(result)


# ------------------------------------------------------- without any other BLAS

def test_handlers_and_lsame_without_a_blas():
    """What a program calls itself and neither it nor a BLAS defines."""
    code = """
import ctypes, sys
oz = ctypes.CDLL(sys.argv[1])
six = ctypes.byref(ctypes.c_int32(6))
wide = ctypes.byref(ctypes.c_int64(-7))
print([oz.lsame_(a, b, ctypes.c_size_t(1), ctypes.c_size_t(1)) for a, b in ((b"N", b"n"), (b"t", b"T"), (b"N", b"T"))])
oz.xerbla_(b"DSYRK ", six, ctypes.c_size_t(6))
oz.xerbla_64_(b"DSYRK ", wide, ctypes.c_size_t(6))
oz.xerbla_array_(b"ZGETRF", six, six)
oz.cblas_xerbla(ctypes.c_int(9), b"cblas_dtrsm", b"")
"""
    result = run([PYTHON, "-c", code, LIB], environment(OZ2_NATIVE="builtin"))
    assert result.out == "[1, 1, 0]\n", str(result)
    said = [line.strip(" *") for line in result.err.splitlines()]
    said_of = lambda name, place: "On entry to %s parameter number %d had an illegal value" % (name, place)
    assert said == [said_of("DSYRK", 6), said_of("DSYRK", -7), said_of("ZGETRF", 6), said_of("cblas_dtrsm", 9)], str(result)


@pytest.mark.parametrize("below", ["builtin", *sorted(BLAS)])
@pytest.mark.parametrize("source, gemms", [("whole.f90", 1), ("whole.c", 2)])
def test_linked_in_place_of_libblas(source, gemms, below, tmp_path):
    """Forty routines in a program that is linked with -loz2blas and no other BLAS."""
    for name in ("liboz2blas.so", "liboz2blas.so.0"):
        (tmp_path / name).symlink_to(LIB)
    program = tmp_path / "whole"
    compiler = "gfortran" if source.endswith("f90") else "gcc"
    subprocess.run([compiler, "-O1", "-Wall", "-o", program, ROOT / "tests/programs" / source, "-L%s" % tmp_path, "-loz2blas",
                    "-Wl,-rpath,%s" % tmp_path], check=True, timeout=120)
    needed = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True).stdout
    assert "liboz2blas.so.0" in needed and "libblas" not in needed, needed
    result = run([program], environment(OZ2_NATIVE=BLAS.get(below, below)))
    assert result.out == "good\n" and result.err == "", str(result)
    assert result.total("emulated") == gemms, str(result)
