"""docs/ways-in: the commands of the pages, as they are there, in a copy of the project.

Every command that asks for statistics must print them, with emulated calls. The commands of deb.md and alternatives.md change
the system: `scripts/package --check` runs them in an empty one.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from helpers import LIB, PYTHON, ROOT, SYSTEM, clean_environment, environment, run

PAGES = ROOT / "docs/ways-in"
TOOLS = Path(PYTHON).parent
NEEDED = {"preload": (), "link": ("pkg-config",), "cmake": ("cmake", "pkg-config"), "meson": ("meson", "ninja", "pkg-config")}


def commands(page):
    return "\n".join(re.findall(r"^```sh\n(.*?)^```$", (PAGES / page).read_text(), re.M | re.S))


def surroundings(folder):
    """A copy of the project in which the commands may build, a home, and the tools of the test environment."""
    project, home = folder / "project", folder / "home"
    project.mkdir()
    home.mkdir()
    for entry in ROOT.iterdir():
        if entry.name not in ("target", ".git"):
            (project / entry.name).symlink_to(entry)
    search = "%s:%s" % (TOOLS, os.environ["PATH"])
    # What -lblas and -llapack stand for must not depend on the alternatives of this machine.
    (folder / "liblapack.so").symlink_to(SYSTEM / "lapack/liblapack.so.3")
    linker, loader = "%s:%s" % (folder, SYSTEM / "blas"), "%s:%s" % (SYSTEM / "blas", SYSTEM / "lapack")
    variables = dict(OZ2_LIB=LIB, HOME=home, PATH=search, OZ2_MIN_SIZE=None, LIBRARY_PATH=linker, LD_LIBRARY_PATH=loader)
    return project, environment(**variables)


@pytest.mark.parametrize("page", sorted(NEEDED))
def test_commands_of_the_page(page, tmp_path):
    project, env = surroundings(tmp_path)
    missing = [tool for tool in NEEDED[page] if not shutil.which(tool, path=env["PATH"])]
    if missing:
        pytest.skip("not on this machine: %s" % " ".join(missing))
    text = commands(page + ".md")
    result = run(["bash", "-euo", "pipefail", "-c", text], env, cwd=project)
    told = [json.loads(line) for line in result.err.splitlines() if line.startswith("{")]
    asked = len(re.findall(r"OZ2_STATS=stderr|--stats", text))
    assert asked > 0 and len(told) == asked, str(result)
    assert all(one["calls"] == one["emulated"] > 0 for one in told), str(result)
    # Those of examples/product; there are others too.
    runs = len(re.findall(r"(?:=stderr|--stats) \S*product$", text, re.M))
    assert runs > 0 and result.out.count(" 0 wrong\n") == runs, str(result)


def test_cmake_knows_no_vendor(tmp_path):
    """What the page says about BLA_VENDOR=oz2blas. If this fails, CMake has learnt it: tell it on the page."""
    project, env = surroundings(tmp_path)
    if not shutil.which("cmake", path=env["PATH"]):
        pytest.skip("no cmake on this machine")
    result = run(["cmake", "-S", "examples", "-B", "build", "-DBLA_VENDOR=oz2blas"], env, cwd=project, check=False)
    assert result.rc != 0 and "Could NOT find BLAS" in result.err, str(result)


@pytest.mark.parametrize("found_by", [
    ["-DBLAS_LIBRARIES={lib}"], ["-DBLA_VENDOR=Generic", "-DBLAS_blas_LIBRARY={lib}"]], ids=["name", "generic"])
def test_lapack_by_cmake(found_by, tmp_path):
    """A project that asks for LAPACK gets the LAPACK of the system with the products of this library."""
    project, env = surroundings(tmp_path)
    missing = [tool for tool in NEEDED["cmake"] if not shutil.which(tool, path=env["PATH"])]
    if missing:
        pytest.skip("not on this machine: %s" % " ".join(missing))
    prefix = tmp_path / "prefix"
    run(["scripts/install", "--prefix", prefix], env, cwd=project)
    source = tmp_path / "source"
    source.mkdir()
    (source / "CMakeLists.txt").write_text("""
        cmake_minimum_required(VERSION 3.18...4.0)
        project(solve Fortran)
        find_package(LAPACK REQUIRED)
        add_executable(solve %s)
        target_link_libraries(solve PRIVATE LAPACK::LAPACK)
        """ % (ROOT / "examples/solve.f90"))
    options = [word.format(lib=prefix / "lib/liboz2blas.so") for word in found_by]
    run(["cmake", "-S", source, "-B", tmp_path / "build", "-DCMAKE_LIBRARY_PATH=%s" % tmp_path, *options], env)
    run(["cmake", "--build", tmp_path / "build"], env)
    result = run([tmp_path / "build/solve"], dict(env, OZ2_MIN_SIZE="0"))
    assert result.out == "solved\n" and result.total("emulated") > 1, str(result)


def test_every_page_is_in_the_index():
    index = (PAGES / "README.md").read_text()
    for page in PAGES.glob("*.md"):
        assert page.name == "README.md" or "(%s)" % page.name in index, page
    assert "(docs/ways-in/README.md)" in (ROOT / "README.md").read_text()


def test_manual_page_has_the_options_of_the_library():
    text = subprocess.run([LIB.parent / "oz2run", "--help"], env=clean_environment(), check=True, capture_output=True, text=True).stdout
    library = re.findall(r"^  --([a-z-]+) +(.*) \[(\w+)(?:; alone: \w+)?\]: ", text, re.M)
    page = (ROOT / "packaging/oz2blas.7").read_text().replace("\\-", "-")
    manual = re.findall(r"^\.TP\n\\fBOZ2_[A-Z_]+\\fR, \\fB--([a-z-]+)\\fR \[(\w+)\]\n(.*)\n\.br$", page, re.M)
    assert len(library) > 10 and library == [(name, values, default) for name, default, values in manual]
    variables = re.findall(r"^\\fB(OZ2_[A-Z_]+)\\fR", page, re.M)
    assert variables == ["OZ2_" + name.upper().replace("-", "_") for name, _, _ in library]


@pytest.mark.parametrize("page", ["oz2run.1", "oz2blas.7"])
def test_manual_pages_are_well_formed(page):
    if not shutil.which("groff"):
        pytest.skip("no groff on this machine")
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", ROOT / "packaging" / page], check=True, capture_output=True, text=True)
    assert done.stderr == "" and "SEE ALSO" in re.sub(r".\x08|\x1b\[\d*m", "", done.stdout)
