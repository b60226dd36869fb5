"""The CPU engines in real programs: the same bits from all of them, no trouble where the system refuses AMX, and what the time
model makes of data that need few moduli. What this machine does not have is skipped."""

import json
import os
import subprocess

import pytest

from helpers import LIB, OZ2RUN, PYTHON, environment, has_engine, run

ENGINES = [name for name in ("amx", "avx512", "avx2", "portable") if has_engine(name)]
needs_amx = pytest.mark.skipif(not has_engine("amx"), reason="this machine has no AMX")


def hash_of(result):
    return [line for line in result.out.splitlines() if line.startswith("hash ")]


def engines(result):
    return {name: sum(one["engines"].get(name, 0) for one in result.stats)
            for one in result.stats for name in one["engines"]}


@pytest.mark.parametrize("sizes", [(70, 60, 50), (1, 1, 1), (33, 65, 129), (300, 200, 150)])
@pytest.mark.parametrize("mode", ["auto", "accurate", "fast"])
def test_same_bits_from_every_engine(build, sizes, mode):
    seen = set()
    for engine in ENGINES:
        for threads in ("1", "2", "5") if engine in ("amx", "portable") else ("2",):
            env = environment(preload=[LIB], blas="reference", OZ2_ENGINE=engine, OZ2_MODE=mode, OZ2_NUM_THREADS=threads)
            result = run([build("product.c"), *sizes], env)
            assert result.out.endswith("good\n") and set(engines(result)) == {engine}, str(result)
            seen.add(tuple(hash_of(result)))
    assert len(seen) == 1 and seen.pop(), seen


def test_selftest():
    """Every engine gives the digest that every machine must give."""
    result = run([OZ2RUN, "--selftest"], environment())
    lines = result.out.splitlines()
    assert [line.split()[0] for line in lines] == ENGINES, str(result)
    assert all(line.endswith(": good") for line in lines), str(result)


FIRST_CALL = """
import json, sys
import numpy as np
rng, n = np.random.default_rng(1), 2048
data = {"signs": lambda: rng.choice([-1.0, 1.0], (n, n)), "real": lambda: rng.random((n, n)) - 0.5}[sys.argv[1]]
a, b = (np.asfortranarray(data()) for _ in "ab")
a @ b
"""


@pytest.mark.skipif(not has_engine("avx512"), reason="this machine has no AVX-512 with VNNI")
@pytest.mark.parametrize("data, route", [("signs", {"emulated": 1, "native": 0}), ("real", {"emulated": 0, "native": 1})])
def test_few_moduli_are_worth_it_where_many_are_not(data, route):
    """By the time model alone: nothing has been learned at the first call."""
    env = environment(preload=[LIB], OZ2_ENGINE="avx512", OZ2_MIN_SIZE=None, OZ2_NUM_THREADS="1", OZ2_CHECK=None)
    result = run([PYTHON, "-c", FIRST_CALL, data], env)
    (stats,) = result.stats
    assert {name: stats[name] for name in route} == route, str(result)
    if route["native"]:
        assert stats["reasons"] == {"no gain": 1}, str(result)
    else:
        assert stats["engines"] == {"avx512": 1} and stats["moduli"] == {"2": 1}, str(result)


@needs_amx
def test_in_the_child_of_a_fork():
    """The permission goes to the child with everything else of the process."""
    program = """
import ctypes, json, os, sys
import numpy as np
oz = ctypes.CDLL(sys.argv[1])
def call(n=100):
    a = np.asfortranarray(np.arange(n * n, dtype=float).reshape(n, n) % 7)
    c = np.zeros((n, n), order="F")
    i, one, zero = (ctypes.byref(x) for x in (ctypes.c_int32(n), ctypes.c_double(1), ctypes.c_double(0)))
    p = lambda x: x.ctypes.data_as(ctypes.c_void_p)
    oz.dgemm_(b"N", b"N", i, i, i, one, p(a), i, p(a), i, zero, p(c), i, ctypes.c_size_t(1), ctypes.c_size_t(1))
    text = ctypes.create_string_buffer(1000)
    oz.oz2_last_call(text, ctypes.c_size_t(1000))
    assert (c == a @ a).all()
    return json.loads(text.value)["engine"]
first = call()
child = os.fork()
if not child:
    os._exit(0 if call() == "amx" else 1)
assert os.waitpid(child, 0)[1] == 0
print(first, call())
"""
    result = run([PYTHON, "-c", program, LIB], environment(OZ2_NATIVE="builtin"))
    assert result.out == "amx amx\n", str(result)


REFUSING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>

/* arch_prctl is refused, all else goes on to the system. */
long syscall(long number, ...)
{
    long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_arch_prctl) {
        errno = EPERM;
        return -1;
    }
    long (*next)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
"""


@pytest.fixture(scope="module")
def refusing(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refusing")
    (folder / "refusing.c").write_text(REFUSING)
    made = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(folder / "refusing.so"), str(folder / "refusing.c"), "-ldl"]
    subprocess.run(made, check=True, timeout=60)
    return folder / "refusing.so"


def test_a_refused_permission_means_no_amx(build, refusing):
    env = environment(preload=[refusing, LIB], blas="reference")
    result = run([build("product.c"), 70, 60, 50], env)
    assert result.out.endswith("good\n") and result.err == "", str(result)
    assert set(engines(result)) == {next(name for name in ENGINES if name != "amx")}, str(result)


def test_a_refused_permission_and_amx_by_name(build, refusing):
    env = environment(preload=[refusing, LIB], blas="reference", OZ2_ENGINE="amx")
    result = run([build("product.c", "-DANY_ROUTE"), 70, 60, 50], env)
    assert result.out.endswith("good\n") and len(result.err.splitlines()) == 1, str(result)
    assert result.total("emulated") == 0 and "engine unavailable" in result.stats[0]["reasons"], str(result)
