"""The life of processes: how they fork, exec, end, and what limits them. docs/process-life.md has the table.

The C programs compare every entry with exact integers and ask the library how many calls it emulated (tests/programs/life.c and others).
What exists in test_life.py is not repeated here.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import BLAS, LIB, PROGRAMS, ROOT, SYSTEM, environment, good, has_engine, preloaded, run

# -------------------------------------------------------------- forks and exec


@pytest.mark.parametrize("threads", ["auto", "3"])
def test_threads_fork_while_others_multiply(build, blas, threads):
    good(preloaded([build("fork.c"), "threads"], blas=blas, OZ2_NUM_THREADS=threads))


MCLAPPLY = """
a <- matrix(as.numeric(1:40000 %% 19 - 9), 200)
right <- function(i) all(colSums(a %*% a) == colSums(colSums(a) * a))
cat(if (right(0) && all(unlist(parallel::mclapply(1:8, right, mc.cores = 3)))) "good" else "wrong", "\\n")
"""


@pytest.mark.skipif(shutil.which("Rscript") is None, reason="no R on this machine (scripts/clients installs it)")
def test_mclapply_of_r():
    """Its children end by _exit, without statistics: the log tells of their calls."""
    result = preloaded(["Rscript", "-e", MCLAPPLY], blas="reference", OZ2_LOG="debug", OZ2_NUM_THREADS="3")
    assert result.out.split() == ["good"] and len(re.findall(r" emulated m=200 n=200 k=200 ", result.err)) == 9, str(result)


@pytest.mark.parametrize("threads", ["1", "3"])
def test_exec(build, blas, threads):
    """After a fork and at once, also while another thread multiplies. Nothing of the program before is left."""
    good(preloaded([build("life.c"), "exec"], blas=blas, OZ2_NUM_THREADS=threads))


# ------------------------------------------------------------ loading and the end


def test_open_and_close_a_hundred_times(build):
    program = build("again.c", libraries=())
    result = run([program, LIB, 100], environment(OZ2_NATIVE=BLAS["reference"], OZ2_NUM_THREADS="3"))
    text, word = result.out.splitlines()
    stats = json.loads(text)
    assert word == "good" and stats["emulated"] == stats["calls"] == 100 and result.err == "", str(result)


@pytest.mark.parametrize("how", ["exit", "_exit", "return", "signal"])
def test_end_during_calls(build, blas, how):
    """Fifty times each, 0 to 12 ms after the start; a child that hangs is ended by its alarm, with another status."""
    good(preloaded([build("ending.c"), how, 50], blas=blas, OZ2_NUM_THREADS="3"))


def test_linked_blas_is_not_opened(build, blas, tmp_path):
    """Then no moment is wrong for the end of the process. glibc tells what it opens."""
    good(preloaded([build("product.c"), 60, 50, 40], blas=blas, OZ2_DEVICES="none", LD_DEBUG="files", LD_DEBUG_OUTPUT=tmp_path / "log"))
    (log,) = [path.read_text() for path in tmp_path.iterdir()]
    assert "calling fini: %s" % BLAS[blas] in log and "opening file" not in log, log


def test_first_call_while_libgfortran_ends(build, blas):
    """Its destructor waits meanwhile. If its initialisers ran again now, it would end the process with `Duplicate key found`."""
    line = build("line.f90", "-shared", "-fPIC", libraries=())
    good(preloaded([build("held.c", libraries=(line, BLAS["reference"]))], blas=blas, OZ2_NUM_THREADS="3"))


@pytest.mark.parametrize("where", ["linked", "loaded", "nowhere"])
def test_first_call_in_a_destructor(build, blas, where, tmp_path):
    """The last destructor of all makes it. glibc tells what it opens and initialises: at that time this can crash, and is nothing.

    The reference BLAS, which has no destructors itself, still serves, though OpenBLAS could not.
    """
    native = blas == "reference"
    # The BLAS is needed by the program although that calls nothing of it.
    linked = ("-Wl,--no-as-needed", BLAS["reference"]) if where == "linked" else ()
    late = build("late.c", "-DLIBRARY", *(["-DNATIVE"] if native else []), "-shared", "-fPIC", libraries=())
    command = [build("late.c", libraries=linked), *([BLAS[blas]] if where == "loaded" else []), late]
    result = preloaded(command, blas=blas, OZ2_NUM_THREADS="3", OZ2_LOG="debug", LD_DEBUG="files", LD_DEBUG_OUTPUT=tmp_path / "log")
    assert result.out == "good\n" and result.total("emulated") == 1 and not re.search("warning|error", result.err), str(result)
    provider = LIB if where == "nowhere" else BLAS[blas]
    assert re.findall(r'forwarded name=ddot_ provider="(.*)"', result.err) == ([str(provider)] if native else []), str(result)
    before, after = (tmp_path / ("log.%d" % result.pid)).read_text().split("calling fini: ", 1)
    assert (str(BLAS[blas]) in before) == (where != "nowhere"), before
    assert "%s [0]" % late in after and not re.search("calling init|opening file", after), after


@pytest.mark.parametrize("threads", ["1", "3"])
def test_main_leaves_by_pthread_exit(build, threads):
    """The process ends with its last thread; a worker of ours that stayed would keep it for ever."""
    result = good(preloaded([build("life.c"), "main-exit"], blas="reference", OZ2_NUM_THREADS=threads, timeout=30))
    # By the exit handlers, as always.
    assert result.total("emulated") == 11, str(result)


@pytest.mark.parametrize("options", [{}, {"OZ2_NUM_THREADS": "3"}, {"OZ2_NUM_THREADS": "1", "OZ2_VERIFY": "1"}], ids=["auto", "3", "verify"])
def test_cancelled_threads(build, options):
    """Threads that wait to be cancelled finish the call that they are in."""
    program = build("life.c")
    good(preloaded([program, "cancel-first"], blas="reference", **options))
    good(preloaded([program, "cancel"], blas="reference", **options))


def test_cancelled_threads_and_a_log(build):
    """Writing is where a thread would be cancelled."""
    for mode in ("cancel-first", "cancel"):
        result = preloaded([build("life.c"), mode], blas="reference", OZ2_LOG="debug", OZ2_NUM_THREADS="2")
        assert result.out == "good\n" and "emulated" in result.err, str(result)


# --------------------------------------------------------------- limits on threads


@pytest.mark.parametrize("how", ["limit", "eperm", "eagain"])
def test_threads_are_forbidden(build, how):
    """By RLIMIT_NPROC, by a seccomp filter: one warning, and the calls are emulated by the threads that call."""
    if how == "limit" and os.getuid() != 0:
        pytest.skip("only root can become another user, whom the limit binds")
    # Where the temporary folder of root would be closed to the other user, nothing has to be opened there.
    result = preloaded([build("life.c"), "no-thread", how], blas="reference", OZ2_NUM_THREADS="4", OZ2_STATS="off")
    assert result.out == "good\n" and result.err.count("cannot start a thread") == len(result.err.splitlines()) == 1, str(result)


def test_threads_are_forbidden_later(build):
    """The team is there already."""
    good(preloaded([build("life.c"), "no-thread", "warm"], blas="reference", OZ2_NUM_THREADS="2"))


def test_filter_that_kills(build):
    """With one thread none is started, so a filter that ends the process for it does not matter."""
    good(preloaded([build("life.c"), "no-thread", "kill"], blas="reference", OZ2_NUM_THREADS="1"))


# ------------------------------------------------------------------------- stacks


@pytest.mark.parametrize("engine", ["auto", "portable"])
@pytest.mark.parametrize("kib", [64, 96, 128])
def test_small_stack(build, kib, engine):
    """The first call of all, with everything that it sets up."""
    good(preloaded([build("life.c"), "stack", kib << 10], blas="reference", OZ2_ENGINE=engine))


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("engine", ["amx", "avx512", "portable"])
def test_signals_on_an_alternate_stack(build, engine, threads):
    """Every 0.3 ms, on a stack of the size that the system recommends, also while tile registers hold numbers."""
    if not has_engine(engine):
        pytest.skip("this machine has no " + engine)
    result = good(preloaded([build("life.c"), "signals"], blas="reference", OZ2_ENGINE=engine, OZ2_NUM_THREADS=threads))
    assert all(set(one["engines"]) == {engine} for one in result.stats), str(result)


# ------------------------------------------------------------------------- OpenMP


def test_nested_regions_of_gnu(build):
    good(preloaded([build("nested.c", "-fopenmp")], blas="reference"))


def test_nested_regions_of_llvm(build, tmp_path):
    """LLVM's runtime understands what gcc compiles; a program of clang does the same calls."""
    runtime = SYSTEM / "libomp.so.5"
    if not runtime.exists():
        pytest.skip("no LLVM OpenMP runtime (libomp5)")
    source = PROGRAMS / "nested.c"
    # Without -fopenmp at the link, which would bring the runtime of gcc.
    subprocess.run(["gcc", "-std=gnu11", "-O2", "-fopenmp", "-c", "-o", tmp_path / "nested.o", source], check=True, timeout=60)
    subprocess.run(["gcc", "-o", tmp_path / "nested", tmp_path / "nested.o", runtime, BLAS["reference"], "-lm", "-ldl"], check=True, timeout=60)
    linked = subprocess.run(["ldd", tmp_path / "nested"], capture_output=True, text=True, check=True).stdout
    assert "libomp" in linked and "libgomp" not in linked
    good(preloaded([tmp_path / "nested"], blas="reference"))


# ---------------------------------------------------------------------- processors


def test_every_single_processor(build):
    for processor in sorted(os.sched_getaffinity(0))[:8]:
        program = build("product.c")
        result = good(preloaded(["taskset", "-c", processor, program, 300, 200, 150], blas="openblas", OZ2_NUM_THREADS=None))
        assert result.total("emulated") == 5, str(result)


THREADS = """
import os
n = 400
one, zero, size = (ctypes.byref(x) for x in (ctypes.c_double(1), ctypes.c_double(0), ctypes.c_int(n)))
a, c = (ctypes.c_double * (n * n))(*[1.0] * (n * n)), (ctypes.c_double * (n * n))()
lib.dgemm_(b"N", b"N", size, size, size, one, a, size, a, size, zero, c, size, ctypes.c_size_t(1), ctypes.c_size_t(1))
assert set(c) == {float(n)}
print("threads", len(os.listdir("/proc/self/task")), stats()["emulated"])
"""


@pytest.fixture
def cgroup():
    """cgroup(controller, {file: value}) makes a group (of either version) and gives the file through which a process joins."""
    made = []

    def make(controller, one, two):
        base = Path("/sys/fs/cgroup")
        unified = (base / "cgroup.controllers").exists()
        folder = (base if unified else base / controller) / ("oz2blas-test-%d" % os.getpid())
        try:
            folder.mkdir()
            made.append(folder)
            for name, value in (two if unified else one).items():
                (folder / name).write_text(value)
        except OSError as error:
            pytest.skip("no cgroup can be made here: %s" % error)
        return folder / "cgroup.procs"

    yield make
    for folder in made:
        folder.rmdir()


def within(procs, command):
    """The command, after the process has joined the group."""
    return ["sh", "-c", 'echo $$ >"$0" && exec "$@"', procs, *command]


def test_share_of_processors(cgroup):
    """The number of threads follows the quota: one and a half processors are one thread, without it there is a second one."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor")
    procs = cgroup("cpu", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "150000"}, {"cpu.max": "150000 100000"})
    command = [sys.executable, "-c", (PROGRAMS / "ctypes_oz2.py").read_text() + THREADS]
    counts = []
    for words in (within(procs, command), command):
        result = preloaded(words, blas="reference")
        counts.append(int(re.search(r"^threads (\d+) 1$", result.out, re.M).group(1)))
    assert counts[0] == 1 < counts[1], counts


def test_little_memory(build, cgroup):
    """A group with 96 MB: some 50 MB are needed beside the program's own matrices."""
    procs = cgroup("memory", {"memory.limit_in_bytes": "96M"}, {"memory.max": "96M"})
    result = good(preloaded(within(procs, [build("product.c"), 700, 600, 500]), blas="reference"))
    assert result.total("emulated") == 5, str(result)


# -------------------------------------------------------------------- checkers


VALGRIND = ["valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]
needs_valgrind = pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind")


@needs_valgrind
@pytest.mark.parametrize("engine", ["auto", "portable"])
def test_valgrind(build, engine):
    """memcheck: no error and no definite leak. The processor that valgrind shows has no AVX-512 and no AMX: auto is AVX2."""
    program = build("product.c")
    result = preloaded([*VALGRIND, program, 40, 33, 50], blas="reference", OZ2_ENGINE=engine, OZ2_NUM_THREADS="3")
    assert "good" in result.out.split() and "plain" not in result.out and result.err == "", str(result)
    (stats,) = [one for one in result.stats if one["calls"]]
    assert stats["emulated"] == 5 and set(stats["engines"]) <= ({"portable"} if engine == "portable" else {"avx2", "portable"}), str(result)


@needs_valgrind
def test_valgrind_sees_what_the_library_does(build):
    """A matrix of the program that is one element short: the library reads beyond it, and that is said of the library."""
    program = build("short.c")
    result = preloaded([*VALGRIND, program], blas="reference", OZ2_ENGINE="portable", OZ2_NUM_THREADS="1", check=False)
    assert result.rc == 9 and "Invalid read" in result.err and "oz2blas" in result.err, str(result)


@pytest.mark.parametrize("way", ["linked", "preloaded"])
@pytest.mark.parametrize("program, arguments", [("product.c", ["300", "200", "150"]), ("threads.c", ["many"]), ("fork.c", ["after"])])
def test_address_sanitizer(build, alone, way, program, arguments):
    """A host with the sanitizer: its malloc serves the library too, and its leak check at exit finds nothing of ours."""
    flags = ["-fsanitize=address", "-O1", "-g"]
    options = {"ASAN_OPTIONS": "detect_leaks=1:halt_on_error=1", "OZ2_NUM_THREADS": "3"}
    if way == "linked":
        result = run([alone(program, *flags), *arguments], environment(OZ2_NATIVE="builtin", **options))
    else:
        # The sanitizer wants to be first.
        runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout.strip()
        runtime = Path(runtime).resolve()
        result = preloaded([build(program, *flags), *arguments], blas="reference", preload=(runtime, LIB), **options)
    good(result)
    assert result.total("emulated") > 0, str(result)


# ----------------------------------------------------------------------- the table


def test_every_test_of_the_table_exists():
    rows = [line.split("|") for line in (ROOT / "docs" / "process-life.md").read_text().splitlines() if line.startswith("| ") and "`test_" in line]
    names = {re.match(r" `(test_\w+)`", row[3]).group(1) for row in rows}
    source = "".join(path.read_text() for path in sorted(Path(__file__).parent.glob("test_*.py")))
    there = set(re.findall(r"^def (test_\w+)", source, re.M))
    assert len(rows) > 25 and names <= there, names - there
    # And whoever adds one here adds a line there.
    mine = set(re.findall(r"^def (test_\w+)", Path(__file__).read_text(), re.M)) - {"test_every_test_of_the_table_exists"}
    assert mine <= names, mine - names
