"""Threads, forks, limits and surroundings: right results, no hang, no crash.

The C programs compare every entry of every product with exact integers and ask
the library how many calls it emulated; see tests/programs.
"""

import pytest

from helpers import LIB, OZ2RUN, PROGRAMS, PYTHON, environment, good, preloaded, run

# --------------------------------------------------------------------- forks


@pytest.mark.parametrize("mode", ["fresh", "after", "thread", "nested", "busy"])
@pytest.mark.parametrize("threads", ["auto", "4"])
def test_fork(build, mode, threads):
    good(preloaded([build("fork.c"), mode], blas="reference", OZ2_NUM_THREADS=threads))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_with_numpy(method):
    env = environment(OZ2_NUM_THREADS="3")
    result = run([OZ2RUN, PYTHON, PROGRAMS / "pool.py", method], env)
    assert result.out.split() == ["good"], str(result)


# ------------------------------------------------------------------- threads


@pytest.mark.parametrize("mode", ["many", "small", "exit", "leave"])
@pytest.mark.parametrize("threads", ["auto", "5"])
def test_threads_of_the_program(build, mode, threads):
    good(preloaded([build("threads.c"), mode], blas="reference", OZ2_NUM_THREADS=threads))


def test_threads_of_the_program_without_blas(alone):
    """The builtin BLAS must fit into 128 KiB of stack too."""
    for mode in ("small", "many", "leave"):
        good(run([alone("threads.c"), mode], environment(OZ2_NATIVE="builtin")))
        native = environment(OZ2_NATIVE="builtin", OZ2_MODE="native")
        good(run([alone("threads.c", "-DANY_ROUTE"), mode], native))


def test_openmp_region(build):
    program = build("openmp.c", "-fopenmp")
    result = good(preloaded([program], blas="reference"))
    (line,) = [x for x in result.out.splitlines() if x.startswith("threads ")]
    before, after = line.split()[1:]
    assert before == after, "threads were started inside a parallel region: " + line


def test_bits_do_not_depend_on_threads(build, blas):
    """Nor on the BLAS below, as everything is emulated."""
    program = build("product.c")
    hashes = set()
    for threads in ("1", "2", "3", "7"):
        result = good(preloaded([program, 310, 270, 290], blas=blas, OZ2_NUM_THREADS=threads))
        hashes.add(result.out.split()[1])
    hashes.add(good(preloaded([program, 310, 270, 290], blas=blas, OMP_NUM_THREADS="2")).out.split()[1])
    hashes.add(good(preloaded([program, 310, 270, 290], blas=blas, OZ2_WORKSPACE="2M")).out.split()[1])
    assert len(hashes) == 1


def test_one_core(build):
    good(preloaded(["taskset", "-c", "0", build("product.c"), 300, 200, 150], blas="reference"))
    good(preloaded(["taskset", "-c", "1", build("threads.c"), "many"], blas="reference", OZ2_NUM_THREADS="4"))


def test_no_thread_can_be_started(build, tmp_path):
    shim = build("nothread.c", "-shared", "-fPIC", libraries=())
    result = preloaded([build("product.c"), 300, 200, 150], blas="reference", preload=(LIB, shim), OZ2_NUM_THREADS="4")
    assert "good" in result.out and result.total("emulated") == 5, str(result)
    assert len(result.err.splitlines()) <= 1, str(result)


# -------------------------------------------------------------------- limits


@pytest.mark.parametrize("state", ["cold", "warm"])
@pytest.mark.parametrize("mib", [1, 2, 4, 8, 16, 64, 256])
def test_address_space_limit(build, mib, state):
    """Not over OpenBLAS, which waits for ever where it gets no memory."""
    good(preloaded([build("limits.c"), mib, state], blas="reference", OZ2_NUM_THREADS="4", OZ2_LOG="off"))


@pytest.mark.parametrize("mode", ["auto", "native"])
def test_address_space_limit_without_blas(alone, mode):
    """With the self-check the memory ends elsewhere: in threads that had just been started, once."""
    for mib, check in ((1, "off"), (1, "on"), (1, "on"), (1, "on"), (8, "on"), (64, "off")):
        env = environment(OZ2_NATIVE="builtin", OZ2_LOG="off", OZ2_MODE=mode, OZ2_CHECK=check)
        good(run([alone("limits.c"), mib, "cold"], env))


def test_small_workspace(build):
    for size in ("64K", "1M", "0"):
        program = build("product.c", "-DANY_ROUTE")
        result = preloaded([program, 300, 200, 150], blas="reference", OZ2_WORKSPACE=size, OZ2_LOG="off")
        good(result)


def test_no_workspace_is_all_that_is_said(build):
    """Not that an engine is missing, only because none is left to try."""
    program = build("product.c", "-DANY_ROUTE")
    result = preloaded([program, 300, 200, 150], blas="reference", OZ2_WORKSPACE="0")
    lines = result.err.splitlines()
    assert result.out.endswith("good\n") and lines, str(result)
    assert all("no workspace" in line for line in lines), str(result)


# ------------------------------------------------------------------- no BLAS


@pytest.mark.parametrize("native", ["auto", "builtin"])
def test_no_blas_at_all(alone, native):
    """A program linked to the library alone, emulated and then natively."""
    command = [alone("product.c"), 300, 200, 150]
    good(run(command, environment(OZ2_NATIVE=native)))
    command[0] = alone("product.c", "-DANY_ROUTE")
    result = good(run(command, environment(OZ2_NATIVE=native, OZ2_MODE="native")))
    assert result.total("emulated") == 0 and result.total("native") == 5, str(result)


# -------------------------------------------------------------------- errors


@pytest.mark.parametrize("mode", ["number", "jump"])
def test_error_handler_of_the_program(build, blas, mode):
    good(preloaded([build("xerbla.c"), mode], blas=blas))


@pytest.mark.parametrize("mode", ["number", "jump"])
@pytest.mark.parametrize("native", ["auto", "builtin"])
def test_error_handler_without_blas(alone, mode, native):
    good(run([alone("xerbla.c"), mode], environment(OZ2_NATIVE=native)))


def test_error_handler_over_reference_with_builtin(build):
    good(preloaded([build("xerbla.c"), "number"], blas="reference", OZ2_NATIVE="builtin"))


# ------------------------------------------------- floating-point environment


@pytest.mark.parametrize("mode", ["flush", "rounding", "traps", "flags"])
@pytest.mark.parametrize("threads", ["1", "4"])
def test_floating_point_environment(build, mode, threads):
    good(preloaded([build("fenv.c"), mode], blas="reference", OZ2_NUM_THREADS=threads))


@pytest.mark.parametrize("mode", ["traps", "flags"])
def test_floating_point_environment_of_native_calls(build, alone, mode):
    """What the library does around a native call, as counting and timing, may
    raise nothing either."""
    good(preloaded([build("fenv.c", "-DANY_ROUTE"), mode], blas="reference", OZ2_MODE="native"))
    good(run([alone("fenv.c", "-DANY_ROUTE"), mode], environment(OZ2_NATIVE="builtin", OZ2_MODE="native")))


# -------------------------------------------------------- product of all sorts


def test_product(build, blas):
    """NaN in C with beta = 0, A and B the same memory, gaps, subnormals."""
    for sizes in ((300, 200, 150), (1, 1, 1), (7, 1, 64), (1, 9, 33), (65, 64, 63), (129, 3, 257)):
        good(preloaded([build("product.c"), *sizes], blas=blas))
