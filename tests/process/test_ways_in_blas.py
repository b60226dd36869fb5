"""The pages of docs/ways-in about 64-bit integers, static programs and switches (test_ways_in.py has the others): every block of shell
is run as it stands, and has to end with DGEMM calls emulated."""

import re
import shutil

import pytest

from helpers import ARCHIVE, BLAS, LIB, PROGRAMS, ROOT, environment, run
from test_forwarders import FLEXIBLAS, LBT, SUFFIXED, compiled, trampoline
from test_integers import NARROW, WIDE

PAGES = ["integers", "static", "libblastrampoline", "flexiblas"]
NEEDS = {"libblastrampoline": LBT, "flexiblas": FLEXIBLAS}


def blocks(page):
    found = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "docs/ways-in" / (page + ".md")).read_text(), re.M | re.S)
    assert found, page
    return found


def prepare(page, folder):
    """What a reader has in the current folder: the library, a program."""
    for name in ("liboz2blas.so", "liboz2blas.so.0"):
        (folder / name).symlink_to(LIB)
    (folder / ARCHIVE.name).symlink_to(ARCHIVE)
    shutil.copy(PROGRAMS / "whole.f90", folder / "program.f90")
    if page == "libblastrampoline":
        trampoline(folder, WIDE, *SUFFIXED).rename(folder / "program64")
        trampoline(folder, NARROW)
    elif page == "flexiblas":
        library = "%s/lib" % FLEXIBLAS
        compiled(folder, PROGRAMS / "integers.c", NARROW, "-L" + library, "-lflexiblas", "-Wl,-rpath," + library)
        text = (ROOT / "docs/ways-in/oz2blas.conf").read_text()
        (folder / ".flexiblasrc").write_text(re.sub("(?m)^library = .*", "library = %s" % LIB, text))


@pytest.mark.parametrize("page, number", [(page, number) for page in PAGES for number in range(len(blocks(page)))])
def test_commands(page, number, tmp_path):
    if not NEEDS.get(page, True):
        pytest.skip("needs another library, see the page")
    prepare(page, tmp_path)
    block = blocks(page)[number]
    env = environment(BLAS=BLAS["openblas"], HOME=tmp_path)
    result = run(["bash", "-euc", block], env, cwd=tmp_path)
    runs = len(re.findall(r"\./program", block))
    assert result.out == "good\n" * runs and len(result.stats) == runs, str(result)
    assert all(stats["emulated"] >= 1 and stats["calls"] == stats["emulated"] for stats in result.stats), str(result)
