"""scripts/soak in short, and that it sees every kind of fault. A fault is put in by a BLAS that is wrong, or by a library in front of ours."""

import json
import re
import shlex

import pytest

from helpers import LIB, PYTHON, ROOT, clean_environment, environment, good, run
from test_verify import right, wrong  # noqa: F401 (fixtures)

SOAK = ROOT / "scripts" / "soak"


def soak(*arguments, check=True, **variables):
    env = {**clean_environment(), "OZ2_LIB": str(LIB), "OZ2_TEST_PYTHON": PYTHON, **variables}
    return run([SOAK, *arguments], env, check=check)


@pytest.fixture(scope="session")
def faulty(build, tmp_path_factory):
    """Found by the name in the SONAME, which the build folder lacks."""
    folder = tmp_path_factory.mktemp("soname")
    (folder / "liboz2blas.so.0").symlink_to(LIB)
    link = ("-Wl,--no-as-needed", LIB, "-Wl,-rpath,%s" % folder)
    return build("soak_fault.c", "-shared", "-fPIC", "-Wno-strict-prototypes", libraries=link)


def failed(result):
    """The kinds of failures, and the first command that makes one again."""
    assert result.rc == 1, str(result)
    return re.findall(r"^soak: FAILED seed \d+ call \d+: (.*)$", result.out, re.M), re.search(r"^  again: (scripts/soak .*)$", result.out, re.M).group(1)


def test_a_short_run(tmp_path):
    result = soak(0.15, "--seed", 3, "--json", tmp_path / "soak.json")
    told = json.loads((tmp_path / "soak.json").read_text())
    assert told["differences"] == 0 and told["calls"] == 40 * told["processes"] >= 80, str(result)
    assert told["emulated"] > 20 and told["exact"] > 100 and told["entries"] > 1000 and told["repeated"] > 0, str(result)
    assert " 0 differences" in result.out.splitlines()[-1] and result.err == "", str(result)


def test_a_wrong_native_blas(wrong, right):  # noqa: F811
    whats, again = failed(soak(0.001, "--seed", 8, "--native", wrong, check=False))
    assert any("entries differ from the native BLAS" in what for what in whats), whats
    # The command that it prints makes the same call fail again, and nothing is wrong over a BLAS that is right.
    _, *arguments = shlex.split(again)
    once_more, _ = failed(soak(*arguments, check=False))
    # Up to what the library says of the call, with the times that it took.
    assert whats[0].split("{")[0] in [what.split("{")[0] for what in once_more]
    assert "nothing differs" in soak(*[str(right) if word == str(wrong) else word for word in arguments]).out


@pytest.mark.parametrize("fault, message", [
    ("entry", "entries differ from the native BLAS"),
    ("entry", "times what is promised from the exact value"),
    ("entry", "other bits: "),
    ("gap", "bytes around C were written to"),
    ("input", "[AB] was written to"),
    ("crash", "the process ended with status -6"),
    ("say", "something was said: something"),
])
def test_a_fault(faulty, fault, message):
    """All of them in the first 40 calls of this seed."""
    whats, again = failed(soak(0.001, "--seed", 6, "--library", faulty, check=False, OZ2_FAULT=fault))
    assert any(re.search(message, what) for what in whats), whats
    assert str(faulty) in again


def test_without_a_fault(faulty):
    soak(0.001, "--seed", 6, "--library", faulty)


def test_memory_does_not_grow(build):
    """A short form of scripts/soak memory: engines change, threads come and go, 20 MB are the most."""
    result = run([build("growth.c"), 3000], environment(preload=[LIB], blas="reference"))
    good(result)
    assert re.search(r"emulated 3000 of 3000$", result.out, re.M), str(result)


def test_usage():
    assert soak(check=False).rc == 2 and soak("--help").out.startswith("usage: scripts/soak MINUTES")
    assert soak("--seed", 1, check=False).rc == 2
