"""README.md and docs/: every command in them runs, and what they quote is there.

The pages of docs/ways-in have a test of their own (test_ways_in.py).
"""

import os
import re
import shutil
import subprocess

import pytest

from helpers import BLAS, LIB, OZ2RUN, PROGRAMS, PYTHON, ROOT, SYSTEM, environment, run

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Commands that install things, change the system, or take longer than a test may: what runs them.
ELSEWHERE = {
    "scripts/test": "runs this test",
    "scripts/demo": "each release, by hand, from a clean checkout",
    "scripts/install --alternatives && update-alternatives --config libblas.so.3-x86_64-linux-gnu": "scripts/package --check, test_install.py",
    "scripts/package && apt install ./target/debian/oz2blas_*.deb": "scripts/package --check",
}
# What a command exits with where it is not 0.
STATUS = {"oz2run --replay": 1}


def commands(page):
    """The lines of the sh blocks, without comments at their end."""
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```$", page.read_text(), re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in (re.sub(r"\s+#.*", "", line).strip() for line in lines) if line and not line.startswith("#")]


def examples(page):
    """The commands of a manual page: what stands behind .TP in its examples."""
    text = page.read_text().split(".SH EXAMPLES")[1].split("\n.SH")[0].replace("\\-", "-")
    return re.findall(r"^\.TP\n(.+)$", text, re.M)


MANUAL = ROOT / "packaging/oz2run.1"
ALL = [(page, line) for page in PAGES for line in commands(page)] + [(MANUAL, line) for line in examples(MANUAL)]


def is_elsewhere(line):
    return next((name for name in ELSEWHERE if line == name or line.startswith(name + " ")), None)


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory, build):
    """A copy of the project with the programs that the commands speak of, and an environment with oz2run."""
    folder = tmp_path_factory.mktemp("docs")
    project = folder / "project"
    for name in ("project", "home", "tmp", "bin"):
        (folder / name).mkdir()
    for entry in ROOT.iterdir():
        if entry.name not in ("target", ".git"):
            (project / entry.name).symlink_to(entry)
    product = build(ROOT / "examples/product.c")
    shutil.copy(product, project / "a.out")
    shutil.copy(ROOT / "examples/product.c", project / "program.c")
    (project / "my_program.py").write_text("import numpy as np\na = np.ones((200, 200))\nassert (a @ a == 200).all()\n")
    for name, program in (("oz2run", OZ2RUN), ("python3", PYTHON)):
        (folder / "bin" / name).write_text('#!/bin/sh\nexec %s "$@"\n' % program)
        (folder / "bin" / name).chmod(0o755)
    variables = dict(
        HOME=folder / "home", XDG_CONFIG_HOME=folder / "home/.config", OZ2_LIB=LIB, OZ2_MIN_SIZE=None,
        PATH="%s:%s" % (folder / "bin", os.environ["PATH"]), LD_LIBRARY_PATH=SYSTEM / "blas",
        PKG_CONFIG_PATH=folder / "home/.local/lib/pkgconfig")
    # A call that differs, for oz2run --replay.
    wrong = build("wrong_blas.c", "-shared", "-fPIC", libraries=())
    dumping = environment(preload=[LIB], OZ2_VERIFY=1, OZ2_VERIFY_DUMP=folder / "tmp/call-4711", OZ2_NATIVE=wrong)
    run([project / "a.out"], dumping)
    assert (folder / "tmp/call-4711").exists()
    return folder, environment(**variables)


def ids(value):
    return value.name if hasattr(value, "name") else value.split(" ")[0] if isinstance(value, str) else value


@pytest.mark.parametrize("page, line", [pair for pair in ALL if not is_elsewhere(pair[1])], ids=ids)
def test_command(page, line, surroundings):
    folder, env = surroundings
    text = line.replace("/path/to/liboz2blas.so", str(LIB)).replace("/path/to/libopenblas.so.0", str(BLAS["openblas"]))
    text = text.replace("/tmp/", "%s/" % (folder / "tmp"))
    # A minute is too long here.
    text = re.sub(r"--calibrate\b(=\d+)?", "--calibrate=1", text)
    # MPI need not be installed here: without its launcher a program is rank 0. scripts/clients runs programs under mpirun.
    text = text.replace("mpirun -n 4 ", "")
    env = dict(env, OZ2_STATS="off")
    result = run(["bash", "-euo", "pipefail", "-c", text], env, cwd=folder / "project", check=False, timeout=180)
    expected = next((status for start, status in STATUS.items() if start in line), 0)
    assert result.rc == expected, str(result)
    # Statistics that are asked for come, with calls in them.
    if re.search(r"OZ2_STATS=stderr|--stats ", line):
        told = [told for told in result.err.splitlines() + report(folder) if told.startswith("{")]
        assert told and '"calls":' in told[-1], str(result)


def report(folder):
    path = folder / "project/report.txt"
    return path.read_text().splitlines() if path.exists() else []


def test_what_is_elsewhere_is_in_a_page():
    lines = {is_elsewhere(line) for _, line in ALL}
    assert set(ELSEWHERE) <= lines


def test_messages_are_those_of_the_library():
    source = "".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.rs")))
    page = (ROOT / "docs/troubleshooting.md").read_text()
    table = page.split("## Messages")[1].split("\n## ")[0]
    quoted = re.findall(r"^\| (`.*?`) \|", table, re.M)
    messages = [message for cell in quoted for message in re.findall(r"`([^`]+)`", cell)]
    assert len(messages) >= 13
    missing = [message for message in messages if message not in source]
    assert not missing, missing
    # Every kind of message is told of.
    kinds = re.search(r"pub enum Kind \{(.*?)\}", (ROOT / "src/observe/log.rs").read_text(), re.S)[1].count(",")
    assert len(quoted) >= kinds


def test_readme_has_the_options_of_the_library():
    told = subprocess.run([OZ2RUN, "--help"], check=True, capture_output=True, text=True).stdout
    library = {"OZ2_" + name.upper().replace("-", "_") for name in re.findall(r"^  --([a-z-]+) +.* \[\w+(?:; alone: \w+)?\]: ", told, re.M)}
    table = (ROOT / "README.md").read_text().split("## Options")[1].split("\n## ")[0]
    assert library == set(re.findall(r"^\| (OZ2_[A-Z_]+) \|", table, re.M))


def test_links_lead_somewhere():
    pages = [*PAGES, ROOT / "ARCHITECTURE.md", *(ROOT / "docs").glob("*/*.md")]
    for page in pages:
        for target in re.findall(r"\]\((?!http|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), "%s: %s" % (page, target)
