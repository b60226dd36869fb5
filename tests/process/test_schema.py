"""docs/statistics.schema.json, docs/statistics.md and the library say the same, and what the library writes is valid."""

import json
import re

import jsonschema
import pytest

from helpers import OZ2RUN, PROGRAMS, PYTHON, ROOT, preloaded, run, clean_environment
from test_statistics import names

SCHEMA = json.loads((ROOT / "docs/statistics.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def test_the_schema_is_one_and_explains_every_name():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    everything = [*SCHEMA["properties"].values(), *SCHEMA["$defs"].values(),
                  *SCHEMA["$defs"]["totals"]["properties"].values()]
    assert all(len(one["description"]) > 4 and "\n" not in one["description"] for one in everything)


def test_names_are_those_of_the_page():
    described = names("The statistics of the process")
    assert SCHEMA["required"] == described
    assert list(SCHEMA["properties"]) == described + ["ranks"]
    assert [reason["const"] for reason in SCHEMA["$defs"]["reason"]["oneOf"]] == names("Reasons")


def rust(path, pattern):
    """The quoted words in the only place of a source file that a pattern finds."""
    (found,) = re.findall(pattern, (ROOT / path).read_text(), re.S)
    return re.findall(r'"([^"]+)"', found)


def test_lists_are_those_of_the_library():
    assert SCHEMA["$defs"]["engine"]["enum"] == rust("src/engine/mod.rs", r"NAMES: \[&str; 5\] = \[(.*?)\]")
    plans = rust("src/ozaki/plan.rs", r"The name in the statistics; never changes\.(.*?)\n    }\n")
    assert SCHEMA["$defs"]["plan"]["enum"] == plans
    reasons = rust("src/route/mod.rs", r"The name in the statistics; never changes\.(.*?)\n    }\n")
    assert [reason["const"] for reason in SCHEMA["$defs"]["reason"]["oneOf"]] == reasons


def test_what_the_library_says_is_valid():
    """Emulated and native calls, nothing yet, after a reset, and the child of a fork."""
    code = (PROGRAMS / "ctypes_oz2.py").read_text() + """
import os
found = [stats()]
product(40, 30, 20)
set_option("MODE", "fast")
product(40, 30, 20)
set_option("MODE", "native")
product(9, 9, 9)
product(70, 70, 70)
found.append(stats())
lib.oz2_reset_stats()
found.append(stats())
read, write = os.pipe()
if os.fork() == 0:
    set_option("MODE", "auto")
    product(40, 30, 20)
    os.write(write, json.dumps(stats()).encode())
    os._exit(0)
os.close(write)
found.append(json.loads(os.read(read, 100000)))
print(json.dumps(found))
"""
    result = preloaded([PYTHON, "-c", code], blas="reference", OZ2_CHECK="on", OZ2_VERIFY="1")
    found = json.loads(result.out) + result.stats
    assert [one["calls"] for one in found[:4]] == [0, 4, 0, 1] and len(found) >= 5, str(result)
    for one in found:
        VALIDATOR.validate(one)


@pytest.mark.parametrize("change", [
    {"calls": -1}, {"pid": "7"}, {"engines": {"abacus": 1}}, {"moduli": {"21": 1}}, {"reasons": {"bored": 1}},
    {"plans": {"clever": 1}}, {"new": 1}, {"engine_totals": {"amx": {"calls": 1}}}], ids=str)
def test_other_objects_are_not(change):
    result = preloaded([PYTHON, "-c", "import numpy; numpy.dot(numpy.ones((9, 9)), numpy.ones((9, 9)) + 1)"])
    (good,) = result.stats
    VALIDATOR.validate(good)
    assert not VALIDATOR.is_valid({**good, **change})
    assert not VALIDATOR.is_valid({name: value for name, value in good.items() if name != "calls"})


# ------------------------------------------------------------------ --merge


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What two ranks of an MPI program wrote: rank 1 makes more calls, and other ones."""
    folder = tmp_path_factory.mktemp("ranks")
    for rank, turns in (("0", 2), ("1", 6)):
        code = (PROGRAMS / "ctypes_oz2.py").read_text() + """
for turn in range(%d):
    set_option("MODE", "auto")
    product(40, 30, 20)
    set_option("MODE", "native")
    product(70, 70, 70)
""" % turns
        preloaded([PYTHON, "-c", code], blas="reference", OZ2_STATS=folder / "rank-%r.json", OMPI_COMM_WORLD_RANK=rank)
    files = sorted(folder.iterdir())
    assert [path.name for path in files] == ["rank-0.json", "rank-1.json"]
    return files


def merge(*words, check=True):
    return run([OZ2RUN, "--merge", *words], clean_environment(), check=check)


def test_the_sum_of_ranks(ranks):
    """Every number is the sum of both, name by name."""
    one, two = [json.loads(path.read_text()) for path in ranks]
    total = json.loads(merge("--json", *ranks).out)
    VALIDATOR.validate(total)
    assert total["ranks"] == 2 and total["pid"] is None and total["version"] == one["version"]

    def add(a, b):
        if isinstance(a, dict):
            return {key: add(a[key], b[key]) if key in a and key in b else a.get(key, b.get(key)) for key in {**a, **b}}
        return a + b

    for name in set(one) - {"version", "pid"}:
        want, got = add(one[name], two[name]), total[name]
        if name in ("seconds", "engine_totals", "reason_totals"):
            want, got = [re.sub(r"\d+\.\d+", "t", json.dumps(x, sort_keys=True)) for x in (want, got)]
        assert got == want, name
    assert abs(total["seconds"] - one["seconds"] - two["seconds"]) < 1e-5
    assert set(total) == set(one) | {"ranks"}


def test_the_summary_for_people(ranks):
    result = merge(*ranks)
    for line in (r"ranks +2", r"calls +16: 8 emulated, 8 native", r"flops +.* emulated", r"time +.* in DGEMM, over all ranks",
                 r"slowest +.* 12 calls: .*rank-1\.json", r"fastest +.* 4 calls: .*rank-0\.json", r"imbalance +1\.\d\d, .*",
                 r"reasons +disabled: 8", r"moduli +\d+: 8", r"strassen +0 calls with levels of it", r"verified +0 calls, 0 differing"):
        assert re.search("^%s$" % line, result.out, re.M), (line, str(result))
    assert result.err == ""


def test_files_that_cannot_be_read_are_named_and_the_rest_is_merged(ranks, tmp_path):
    broken, other, missing = tmp_path / "broken.json", tmp_path / "other.json", tmp_path / "missing.json"
    text = ranks[0].read_text()
    broken.write_text(text[:100])
    other.write_text(re.sub(r'"version":"[^"]+"', '"version":"0.0.7"', text))
    result = merge("--json", broken, ranks[0], other, missing, ranks[1], check=False)
    lines = result.err.splitlines()
    assert result.rc == 1 and len(lines) == 3, str(result)
    for line, path, word in zip(lines, (broken, other, missing), ("not JSON", "version 0.0.7", "cannot read")):
        assert str(path) in line and word in line, line
    assert json.loads(result.out) == json.loads(merge("--json", *ranks).out)
    nothing = merge(broken, check=False)
    assert (nothing.rc, nothing.out) == (1, "") and len(nothing.err.splitlines()) == 1
    assert merge(check=False).rc == 2
