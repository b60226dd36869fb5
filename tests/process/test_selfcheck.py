"""OZ2_CHECK=on in real processes: what it counts and tells, and that results stay what they are.

What it finds is tested where faults can be put in: tests/selfcheck (CPU) and tests/cuda.rs (software device).
"""

import json

import pytest

from helpers import LIB, PROGRAMS, PYTHON, environment, good, has_engine, preloaded
from test_cases import check_cases, passed_all
from test_cuda import device, gpu  # noqa: F401 (fixtures)


def python(code, start=None, **options):
    """Runs code after ctypes_oz2.py over the reference BLAS; returns (statistics, printed object)."""
    text = (PROGRAMS / "ctypes_oz2.py").read_text() + "\n" + code + "\nprint(json.dumps(answer))\n"
    command = [PYTHON, "-c", text]
    result = start(command, good=False, **options) if start else preloaded(command, blas="reference", **options)
    assert result.err == "", str(result)
    (stats,) = result.stats
    return stats, json.loads(result.out.splitlines()[-1])


CALLS = """
answer = []
for value in ("off", "on", "off"):
    assert set_option("CHECK", value) == 0
    product(50, 40, 30)
    answer.append(last_call())
"""


@pytest.mark.parametrize("engine", ["amx", "avx512", "avx2", "portable"])
def test_the_check_is_counted_and_told(engine):
    if not has_engine(engine):
        pytest.skip("no %s here" % engine)
    stats, calls = python(CALLS, OZ2_ENGINE=engine)
    assert (stats["emulated"], stats["checked"], stats["flagged"], stats["repaired"]) == (3, 1, 0, 0)
    assert [call["peak"] is None for call in calls] == [True, False, True]
    assert 0 < calls[1]["peak"] < 1
    # Eight bits more of room: one modulus as a rule, two at most.
    assert calls[0]["moduli"] < calls[1]["moduli"] <= calls[0]["moduli"] + 2


def test_the_check_on_a_gpu(gpu):  # noqa: F811
    stats, calls = python(CALLS, start=gpu)
    assert (stats["engines"], stats["checked"], stats["flagged"]) == ({"cuda": 3}, 1, 0)
    assert 0 < calls[1]["peak"] < 1


def test_a_native_call_is_not_checked():
    stats, call = python("set_option('MODE', 'native'); product(9, 9, 9); answer = last_call()", OZ2_CHECK="on")
    assert (stats["native"], stats["checked"], call["route"]) == (1, 0, "native")


def test_calls_with_exact_results():
    env = environment(OZ2_NATIVE="builtin", OZ2_CHECK="on")
    result = check_cases(LIB, "--process", "--strict", env=env)
    passed_all(result)
    assert max(one["checked"] for one in result.stats) > 500, str(result)


def test_many_threads(build):
    result = good(preloaded([build("threads.c"), "many"], blas="reference", OZ2_CHECK="on"))
    assert result.total("checked") == result.total("emulated") > 5 and result.total("flagged") == 0, str(result)
