"""Runs programs with the library in front of a BLAS. The tests import this.

Every program runs in a process of its own, with a timeout, in an environment
without options of ours and without thread counts of the person who tests.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "programs"
LIB = Path(os.environ.get("OZ2_LIB", ROOT / "target/release/liboz2blas.so")).resolve()
OZ2RUN = LIB.parent / "oz2run"
ARCHIVE = LIB.parent / "liboz2blas_wrap.a"
PYTHON = os.environ.get("OZ2_TEST_PYTHON", str(ROOT / "target/venv/bin/python"))


def multiarch():
    """Debian's name of this machine, part of the folders of its libraries."""
    try:
        found = subprocess.run(["gcc", "-print-multiarch"], capture_output=True, text=True)
        name = found.stdout.strip()
    except OSError:
        name = ""
    return name or os.uname().machine + "-linux-gnu"


# Files are named in full because Debian's alternatives make one of them the
# default libblas.so.3, and which one depends on what else is installed.
SYSTEM = Path("/usr/lib") / multiarch()
BLAS = {
    "reference": SYSTEM / "blas" / "libblas.so.3",
    "openblas": SYSTEM / "openblas-pthread" / "libblas.so.3",
}
# With 64-bit integers behind the same names.
BLAS64 = {
    "reference": SYSTEM / "blas64" / "libblas64.so.3",
    "openblas": SYSTEM / "openblas64-pthread" / "libblas64.so.3",
}
# Netlib's testers lie beside the reference BLAS.
NETLIB = SYSTEM / "blas"
NETLIB64 = SYSTEM / "blas64"
# The reference LAPACK, and its testers.
LAPACK = SYSTEM / "lapack"


class Result:
    """What a program did: exit status, both outputs, statistics by process."""

    def __init__(self, command, rc, out, err, stats, pid):
        self.command, self.rc, self.out, self.err, self.stats, self.pid = command, rc, out, err, stats, pid

    def own(self):
        """The statistics of the process that was started, without those of its children."""
        (own,) = [one for one in self.stats if one["pid"] == self.pid]
        return own

    def total(self, counter):
        return sum(one[counter] for one in self.stats)

    def __str__(self):
        return "%s\nexit status %s\n--- stdout\n%s\n--- stderr\n%s\n--- statistics\n%s" % (
            self.command, self.rc, self.out[-6000:], self.err[-6000:], self.stats)


def has_engine(name):
    """This machine can run the engine, as the launcher tells it."""
    told = subprocess.run([OZ2RUN, "--doctor"], capture_output=True, text=True, env=clean_environment(), timeout=60)
    return re.search(r"^engine +%s: available\b" % name, told.stdout, re.M) is not None


def host_engine():
    """What computes on the CPU if nothing is said."""
    return next(name for name in ("amx", "avx512", "avx2", "portable") if has_engine(name))


def clean_environment():
    """The environment without options of ours, but for OZ2_CHECK: `OZ2_CHECK=on scripts/test` runs all tests with the self-check.

    And without what `oz2run --calibrate` may have measured for the person who tests.
    """
    mine = re.compile(r"OZ2_(?!CHECK$)|LD_PRELOAD$|LD_LIBRARY_PATH$|.*_NUM_THREADS$|OMP_|(PMI|OMPI|SLURM)_")
    env = {name: value for name, value in os.environ.items() if not mine.match(name)}
    return {**env, "XDG_CONFIG_HOME": "/nowhere"}


def environment(preload=(), blas=None, **options):
    """OZ2_MIN_SIZE=0 unless an option says otherwise, so everything is emulated.

    preload: files for LD_PRELOAD. blas: a key of BLAS, whose folder is searched
    first. options: further variables; None removes one.
    """
    env = clean_environment()
    env["OZ2_MIN_SIZE"] = "0"
    if preload:
        env["LD_PRELOAD"] = ":".join(str(path) for path in preload)
    if blas:
        env["LD_LIBRARY_PATH"] = str(BLAS[blas].parent)
    for name, value in options.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = str(value)
    return env


def run(command, env, timeout=120, cwd=None, stdin=None, check=True):
    """Runs a command; with check, a status other than 0 fails the test.

    On a timeout its whole process group ends, forked children too. Statistics
    are collected from a folder of their own unless env has OZ2_STATS.
    """
    command = [str(word) for word in command]
    with tempfile.TemporaryDirectory() as folder:
        env = dict(env)
        env.setdefault("OZ2_STATS", folder + "/%p.json")
        process = subprocess.Popen(
            command, env=env, cwd=cwd, text=True, errors="replace", start_new_session=True,
            stdin=stdin or subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            raise AssertionError("no end in %g s: %s\n%s\n%s" % (timeout, command, out, err))
        # Whatever a program left behind, such as the stuck child of a deliberate fault.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        stats = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json*"))
                 if path.suffix != ".unfinished"]
    result = Result(command, process.returncode, out, err, stats, process.pid)
    if check:
        assert result.rc == 0, str(result)
    return result


def preloaded(command, blas=None, preload=(LIB,), timeout=120, cwd=None, stdin=None, check=True, **options):
    """run() with the library preloaded."""
    env = environment(preload=preload, blas=blas, **options)
    return run(command, env, timeout=timeout, cwd=cwd, stdin=stdin, check=check)


def good(result):
    """A C test program ended well, and the library was there (not 'plain')."""
    lines = result.out.split("\n")
    assert result.rc == 0 and "good" in lines and "plain" not in lines, str(result)
    assert result.err == "", str(result)
    return result
