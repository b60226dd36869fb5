"""tests/cases: 73 calls with exact expectations, 13 checks of whole processes."""

import subprocess
import sys

import pytest

from helpers import BLAS, LIB, ROOT, environment, has_engine, run

CASES = ROOT / "tests" / "cases"
ALL = "86 passed, 0 failed"
# As check_cases.py names them: the interface, then a name where the interface
# has several, without the prefix scipy_. One for each exported symbol.
EVERY_SPELLING = """c c'cblas_dgemm c64 c64'cblas_dgemm64_ c64'cblas_dgemm_64 f f'dgemm_
                    f64 f64'dgemm64_ f64'dgemm_64 f64'dgemm_64_""".split()


def check_cases(library, *arguments, env, check=True):
    command = [sys.executable, CASES / "check_cases.py", library, *arguments]
    return run(command, env, timeout=300, check=check)


def spellings(result):
    first = result.out.splitlines()[0]
    assert first.startswith("entry points: "), str(result)
    return first.split()[2:]


def passed_all(result):
    """Everything passed, and the process that ran the cases emulated them: some
    1000 calls have anything to multiply."""
    assert result.out.splitlines()[-1] == ALL, str(result)
    assert max(one["emulated"] for one in result.stats) > 500, str(result)


@pytest.mark.parametrize("native, strict", [("builtin", ["--strict"]), ("auto", [])])
def test_alone(native, strict):
    """Not strict where the library may find OpenBLAS and asks it about errors."""
    result = check_cases(LIB, "--process", *strict, env=environment(OZ2_NATIVE=native))
    passed_all(result)
    assert spellings(result) == sorted(EVERY_SPELLING)


@pytest.mark.parametrize("strict", [["--strict"], []], ids=["strict", "lax"])
def test_preloaded(strict, blas):
    if strict and blas == "openblas":
        pytest.skip("OpenBLAS itself deviates in a few cases that count as lax")
    if not strict and blas == "reference":
        pytest.skip("done with --strict")
    env = environment(preload=[LIB], blas=blas)
    result = check_cases(BLAS[blas], "--global", "--process", *strict, env=env)
    passed_all(result)


def test_64_bit_integers_without_suffix():
    """Debian's libblas64: plain names, wide integers. Nothing in a call tells."""
    env = environment(OZ2_NATIVE="builtin", OZ2_INTEGER="ilp64")
    passed_all(check_cases(LIB, "--int64", "--process", "--strict", env=env))


@pytest.mark.parametrize("engine", ["amx", "avx512", "avx2", "portable"])
def test_engine(engine):
    if not has_engine(engine):
        pytest.skip("this machine has no " + engine)
    result = check_cases(LIB, "--process", "--strict", env=environment(OZ2_NATIVE="builtin", OZ2_ENGINE=engine))
    passed_all(result)
    assert all(set(one["engines"]) <= {engine} for one in result.stats), str(result)


# What 20 moduli, the most there are, cannot hold when the number is fixed and
# nothing is proved: rows whose small entries matter although a large one stands
# beside them. One scale for each row has to cover both, so the small ones are
# rounded away. In auto mode the plan sees it, and the call goes natively.
TOO_WIDE_FOR_A_FIXED_NUMBER = {
    "mixed-row-masked",    # 1 and 2^-200 beside 2^200, which meets a zero
    "mixed-row-balanced",  # 2^498 times 2^-499 and the other way round
    "graded-20",           # falling columns of A against rising rows of B
    "eye-f53",             # an identity picks single entries out of wide columns
    "perm-f53-wide",       # so does a permutation, entries from 2^-300 to 2^300
}


@pytest.mark.parametrize("mode", ["accurate", "fast"])
def test_fixed_number_of_moduli(mode):
    env = environment(OZ2_NATIVE="builtin", OZ2_MODE=mode, OZ2_MODULI="20")
    result = check_cases(LIB, "--strict", env=env, check=False)
    failed = {line.split()[1] for line in result.out.splitlines() if line.startswith("FAIL ")}
    passed, rest = result.out.splitlines()[-1].split(" passed, ")
    assert failed <= TOO_WIDE_FOR_A_FIXED_NUMBER, str(result)
    assert int(passed) == 73 - len(failed) and rest == "%d failed" % len(failed), str(result)


# Faults of each kind: beta, transposes, single precision, subnormals, bytes
# outside C, the number of an error, flush-to-zero, short k, a stuck fork.
@pytest.mark.parametrize("bug, arguments", [
    (1, []), (5, []), (7, []), (8, []), (11, []), (14, []), (16, []), (25, []),
    (37, ["--process", "--only", "none", "--timeout", "5"]),
])
def test_cases_bite(bug, arguments, tmp_path):
    mutant = tmp_path / "mutant.so"
    subprocess.run(["gcc", "-O1", "-w", "-shared", "-fPIC", "-DBUG=%d" % bug, "-o", mutant,
                    CASES / "mutant.c", "-lm", "-lpthread"], check=True, timeout=60)
    result = check_cases(mutant, *arguments, env=environment(), check=False)
    assert result.rc == 1 and not result.out.endswith(" 0 failed\n"), str(result)
