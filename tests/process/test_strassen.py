"""OZ2_STRASSEN in real processes: the levels that a call had are told, and results stay what they are."""

import json

import pytest

from helpers import LIB, PROGRAMS, PYTHON, environment, has_engine, preloaded
from test_cases import check_cases, passed_all

CALLS = """
answer = []
for value, size in [("auto", 70), ("0", 70), ("1", 70), ("2", 70), ("2", 60), ("2", 32)]:
    assert set_option("STRASSEN", value) == 0
    product(size, size, 140)
    answer.append(last_call()["strassen"])
"""


@pytest.mark.parametrize("engine", ["amx", "avx512", "avx2", "portable"])
def test_the_levels_are_told_and_the_results_are_exact(engine):
    if not has_engine(engine):
        pytest.skip("no %s here" % engine)
    text = (PROGRAMS / "ctypes_oz2.py").read_text() + "\n" + CALLS + "\nprint(json.dumps(answer))\n"
    result = preloaded([PYTHON, "-c", text], blas="reference", OZ2_ENGINE=engine)
    assert result.err == "" and result.total("emulated") == 6, str(result)
    assert json.loads(result.out.splitlines()[-1]) == [0, 0, 1, 2, 1, 0]
    assert result.total("strassen") == 3, str(result)


@pytest.mark.parametrize("levels", ["1", "2"])
def test_calls_with_exact_results(levels):
    env = environment(OZ2_NATIVE="builtin", OZ2_STRASSEN=levels)
    result = check_cases(LIB, "--process", "--strict", env=env)
    passed_all(result)
    assert result.total("emulated") > 500, str(result)
