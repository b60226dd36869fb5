"""scripts/install: a prefix that compilers and pkg-config understand, and an alternative
for Debian's libblas.so.3, in folders of the test."""

import os
import shutil
import subprocess

import pytest

from helpers import BLAS, LIB, ROOT, clean_environment, environment, run

PROGRAM = r"""
#include <stdio.h>
double ddot_(const int *, const double *, const int *, const double *, const int *);
void cblas_dgemm(int, int, int, int, int, int, double, const double *, int, const double *, int, double, double *, int);
#ifdef HEADER
#include <oz2blas.h>
#endif
int main(void) {
    double a[4] = {1, 2, 3, 4}, c[4];
    int n = 4, one = 1;
    cblas_dgemm(102, 111, 111, 2, 2, 2, 1.0, a, 2, a, 2, 0.0, c, 2);
    printf("%g %g\n", ddot_(&n, a, &one, a, &one), c[1]);
#ifdef HEADER
    char last[1000];
    oz2_last_call(last, sizeof last);
    puts(last);
#endif
    return 0;
}
"""


def install(*words, **variables):
    env = dict(clean_environment(), OZ2_LIB=str(LIB), **variables)
    return subprocess.run([ROOT / "scripts/install", *words], env=env, check=True, timeout=60, capture_output=True, text=True)


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def compiled(folder, *options):
    (folder / "program.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-Wall", "-o", folder / "program", folder / "program.c", *options], check=True, timeout=60)
    return folder / "program"


@pytest.mark.skipif(not shutil.which("pkg-config"), reason="no pkg-config here")
def test_prefix_and_pkg_config(tmp_path):
    prefix = tmp_path / "prefix"
    install("--prefix", prefix)
    assert {"lib/liboz2blas.so", "lib/liboz2blas.so.0", "lib/pkgconfig/oz2blas.pc", "include/oz2blas.h", "bin/oz2run",
            "share/man/man1/oz2run.1", "share/man/man7/oz2blas.7", "share/doc/oz2blas/examples/product.c"} < set(files(prefix))
    env = dict(os.environ, PKG_CONFIG_PATH=str(prefix / "lib/pkgconfig"))
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "oz2blas"], env=env, check=True, capture_output=True, text=True).stdout.split()
    program = compiled(tmp_path, "-DHEADER", *flags, "-Wl,-rpath,%s" % (prefix / "lib"))
    result = run([program], environment(OZ2_NATIVE="builtin"))
    lines = result.out.splitlines()
    assert lines[0] == "30 10" and '"route":"emulated"' in lines[1], str(result)
    # The launcher finds the library of its own prefix.
    asked = subprocess.run([prefix / "bin/oz2run", "--doctor"], env=clean_environment(), check=True, capture_output=True, text=True, timeout=60)
    assert str(prefix) in asked.stdout, asked.stdout
    # A second time over the first, and away.
    install("--prefix", prefix)
    install("--remove", "--prefix", prefix)
    assert files(prefix) == []
    assert not (prefix / "share/doc/oz2blas").exists()


def test_folder_below_which_to_write(tmp_path):
    """As for a package: the files say nothing of that folder."""
    options = ("--prefix", "/opt/oz", "--libdir", "lib/machine", "--destdir", tmp_path)
    install(*options)
    assert {"opt/oz/lib/machine/liboz2blas.so.0", "opt/oz/bin/oz2run"} < set(files(tmp_path))
    text = (tmp_path / "opt/oz/lib/machine/pkgconfig/oz2blas.pc").read_text()
    assert text.startswith("prefix=/opt/oz\nlibdir=${prefix}/lib/machine\n") and "@" not in text
    install("--remove", *options)
    assert files(tmp_path) == []


@pytest.mark.skipif(not shutil.which("update-alternatives"), reason="no Debian alternatives here")
def test_alternative_for_libblas(tmp_path):
    """A program that was linked to libblas.so.3 uses whatever the link leads to."""
    prefix, links, alternatives, admin = (tmp_path / name for name in ("prefix", "links", "alternatives", "admin"))
    for folder in (links, alternatives, admin):
        folder.mkdir()
    variables = dict(OZ2_ALTERNATIVE_LINK=str(links / "libblas.so.3"),
                     OZ2_ALTERNATIVE_OPTIONS="--altdir %s --admindir %s --log /dev/null" % (alternatives, admin))
    program = compiled(tmp_path, str(BLAS["reference"]))
    install("--prefix", prefix, "--alternatives", **variables)
    assert (links / "libblas.so.3").resolve() == (prefix / "lib/liboz2blas.so.0").resolve()
    result = run([program], environment(LD_LIBRARY_PATH=links))
    assert result.out == "30 10\n" and result.err == "", str(result)
    assert result.total("emulated") == 1, str(result)
    install("--remove", "--prefix", prefix, "--alternatives", **variables)
    assert not (links / "libblas.so.3").exists() and files(prefix) == []


def test_help_and_wrong_words():
    assert "usage:" in install("--help").stdout
    wrong = subprocess.run([ROOT / "scripts/install", "--nowhere"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "usage:" in wrong.stderr
