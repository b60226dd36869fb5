"""liboz2blas_wrap.a: programs that are linked statically to a BLAS, with -Wl,--wrap=dgemm_."""

import subprocess

import pytest

from helpers import ARCHIVE, BLAS, PROGRAMS, environment, run
from test_integers import CALLS, NARROW, WIDE, unread

LIBBLAS = BLAS["reference"].parent / "libblas.a"
WRAP_BOTH = ("-Wl,--wrap=dgemm_", "-Wl,--wrap=cblas_dgemm")
# The BLAS alone is static, or everything is, at a fixed address or at any.
HOW = {"dynamic": (), "static": ("-static",), "static-pie": ("-static-pie", "-fPIE")}


def call(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, timeout=120, **options).stdout


@pytest.fixture
def linked(tmp_path):
    """linked(source, *flags, blas): a program with the archive and a static BLAS; source is a path, or the text of a C program."""
    def make(source, *flags, blas=LIBBLAS):
        if isinstance(source, str):
            (tmp_path / "source.c").write_text(source)
            source = tmp_path / "source.c"
        # The Fortran compiler links C too, with the libraries that libblas.a needs.
        call("gcc" if source.suffix == ".c" else "gfortran", "-O2", "-c", "-o", tmp_path / "program.o", source,
             *[flag for flag in flags if not flag.startswith("-Wl")])
        call("gfortran", *flags, "-o", tmp_path / "program", tmp_path / "program.o", ARCHIVE, blas)
        return tmp_path / "program"

    return make


@pytest.fixture
def archive(tmp_path):
    """archive(*flags): a static BLAS of a few functions, with -DRIGHT right in all entries."""
    def make(*flags):
        call("gcc", "-c", *flags, "-o", tmp_path / "blas.o", PROGRAMS / "wrong_blas.c")
        call("ar", "rcs", tmp_path / "own.a", tmp_path / "blas.o")
        return tmp_path / "own.a"

    return make


def is_good(result, emulated):
    assert result.out == "good\n" and result.err == "", str(result)
    assert result.total("emulated") == emulated, str(result)
    return result


@pytest.mark.parametrize("how", sorted(HOW))
def test_fortran(linked, how):
    program = linked(PROGRAMS / "whole.f90", "-Wl,--wrap=dgemm_", *HOW[how])
    needed = call("readelf", "-d", program)
    assert "blas" not in needed and ("libc.so" in needed) == (how == "dynamic"), needed
    is_good(run([program], environment()), 1)


@pytest.mark.parametrize("how", sorted(HOW))
def test_c(linked, how):
    program = linked(PROGRAMS / "integers.c", NARROW, *WRAP_BOTH, *HOW[how])
    is_good(run([program], environment()), 2)
    is_good(run([program], environment(OZ2_NATIVE="builtin")), 2)
    result = is_good(run([program], environment(OZ2_MODE="native")), 0)
    assert result.total("native") >= 2 and result.stats[0]["reasons"]["disabled"] == 2, str(result)


@pytest.mark.parametrize("how", sorted(HOW))
def test_native_is_what_the_program_was_linked_to(linked, archive, how):
    """One that is wrong in one entry is seen only if it is called."""
    program = linked(PROGRAMS / "integers.c", NARROW, *WRAP_BOTH, *HOW[how], blas=archive())
    is_good(run([program], environment()), 2)
    result = run([program], environment(OZ2_MODE="native"), check=False)
    assert result.out.startswith("dgemm_: C(2,1) ") and result.stats[0]["reasons"] == {"disabled": 1}, str(result)


def test_one_name_is_enough(linked):
    """cblas_dgemm of libblas.a calls dgemm_, which is ours."""
    is_good(run([linked(PROGRAMS / "integers.c", NARROW, WRAP_BOTH[0])], environment()), 2)


def test_without_wrap_nothing_is_ours(linked):
    result = run([linked(PROGRAMS / "integers.c", NARROW)], environment())
    assert result.out == "good\n" and result.stats == [], str(result)


@pytest.mark.parametrize("how", sorted(HOW))
def test_library_with_wide_integers(linked, archive, how):
    """It is asked, as a shared one is."""
    program = linked(PROGRAMS / "integers.c", WIDE, *WRAP_BOTH, *HOW[how], blas=archive(WIDE, "-DRIGHT"))
    is_good(run([program], environment()), CALLS[WIDE])
    unread(run([program], environment(OZ2_INTEGER="lp64")), "other integers than OZ2_INTEGER says")


def test_library_that_does_not_answer(linked, archive):
    program = linked(PROGRAMS / "integers.c", WIDE, *WRAP_BOTH, blas=archive(WIDE, "-DRIGHT", "-DISAMAX=0"))
    unread(run([program], environment()), "does not tell how wide its integers are")


WRONG = """
#include <stdio.h>
#include <string.h>
void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *, const int *,
            const double *, const int *, const double *, double *, const int *, size_t, size_t);
void xerbla_(const char *name, const int *info, size_t length)
{
    printf("%.5s %d\\n", name, *info);
    (void)length;
}
int main(void)
{
    int wrong = -1, one = 1;
    double x = 1;
    dgemm_("N", "N", &one, &wrong, &one, &x, &x, &one, &x, &one, &x, &x, &one, 1, 1);
    return 0;
}
"""


@pytest.mark.parametrize("how", sorted(HOW))
def test_error_handler_of_the_program(linked, how):
    result = run([linked(WRONG, WRAP_BOTH[0], *HOW[how])], environment())
    assert result.out == "DGEMM 4\n" and result.stats[0]["reasons"] == {"illegal argument": 1}, str(result)


def test_names_of_the_archive():
    """Nothing that a BLAS or another library could have too."""
    defined = [line.split()[-1] for line in call("nm", "-g", "--defined-only", ARCHIVE).splitlines() if " " in line]
    assert "__wrap_dgemm_" in defined and "__wrap_cblas_dgemm" in defined and "oz2_get_stats" in defined
    assert all(name.startswith(("oz2_", "__wrap_")) for name in defined), defined


RUST = """
#[unsafe(no_mangle)]
pub extern "C" fn second() -> i32 {
    std::panic::set_hook(Box::new(|_| {}));
    std::panic::catch_unwind(|| { let v = vec![1]; v[std::hint::black_box(7)] }).map_or(42, |x| x)
}
"""


@pytest.mark.parametrize("first", [True, False])
def test_beside_another_rust_library(tmp_path, first):
    (tmp_path / "second.rs").write_text(RUST)
    call("rustc", "--edition=2024", "--crate-type=staticlib", "-o", tmp_path / "second.a", tmp_path / "second.rs")
    source = (PROGRAMS / "integers.c").read_text().replace("int main(void)\n{", "int second(void);\nint main(void)\n{\n"
                                                           "    if (second() != 42)\n        return 1;", 1)
    (tmp_path / "program.c").write_text(source)
    call("gcc", "-O2", "-c", NARROW, "-o", tmp_path / "program.o", tmp_path / "program.c")
    libraries = [ARCHIVE, tmp_path / "second.a"] if first else [tmp_path / "second.a", ARCHIVE]
    call("gfortran", *WRAP_BOTH, "-o", tmp_path / "program", tmp_path / "program.o", *libraries, LIBBLAS)
    is_good(run([tmp_path / "program"], environment()), 2)
