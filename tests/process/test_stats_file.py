"""The file of OZ2_STATS is written through: however a process ends, its calls are in it."""

import json
import os
import re
import signal
import subprocess
import threading

import pytest

from helpers import LIB, environment, preloaded


def files(folder):
    """The statistics in a folder by process; each must be whole."""
    read = [json.loads(path.read_text()) for path in sorted(folder.iterdir())]
    return {stats["pid"]: stats for stats in read}


@pytest.fixture
def program(build):
    return build("ends.c", "-DANY_ROUTE")


ENDS = [("_exit", 0), ("abort", -signal.SIGABRT), ("kill", -signal.SIGKILL), ("segv", -signal.SIGSEGV), ("exec", 0),
        ("return", 0)]


@pytest.mark.parametrize("end, rc", ENDS, ids=[end for end, _ in ENDS])
@pytest.mark.parametrize("options", [{}, {"OZ2_MODE": "native"}], ids=["emulated", "native"])
@pytest.mark.parametrize("size", [8, 100])
def test_all_calls_are_there(program, tmp_path, end, rc, options, size):
    """Ten calls at once, small ones that are not timed and others."""
    result = preloaded([program, end, 10, size], blas="reference", check=False, OZ2_STATS=tmp_path / "s.json", **options)
    assert result.rc == rc and result.err == "", str(result)
    (stats,) = files(tmp_path).values()
    route = "native" if options else "emulated"
    assert (stats["calls"], stats[route], stats["flops"]) == (10, 10, 20 * size**3), stats
    assert [path.name for path in tmp_path.iterdir()] == ["s.json"]


@pytest.mark.parametrize("pattern", ["%p.json", "s.json"])
def test_the_child_of_a_fork_has_a_file_of_its_own(program, tmp_path, pattern):
    preloaded([program, "child", 7, 8], blas="reference", OZ2_STATS=tmp_path / pattern)
    stats = files(tmp_path)
    assert sorted(one["calls"] for one in stats.values()) == [2, 7] and len(stats) == 2, stats
    names = sorted(path.name for path in tmp_path.iterdir())
    wanted = sorted("%d.json" % pid for pid in stats) if pattern == "%p.json" else ["s.json", "s.json.1"]
    assert names == wanted


@pytest.mark.parametrize("target", ["file", "stderr"])
def test_a_child_without_calls_writes_nothing(program, tmp_path, target):
    """Although it runs the exit handlers that its parent has registered."""
    path = tmp_path / "%p.json" if target == "file" else "stderr"
    result = preloaded([program, "idle", 1, 8], blas="reference", OZ2_STATS=path)
    if target == "file":
        (stats,) = files(tmp_path).values()
    else:
        (line,) = result.err.splitlines()
        stats = json.loads(line)
    assert stats["calls"] == 2


def test_a_relative_name_is_that_of_the_first_call(program, tmp_path):
    preloaded([program, "moved", 3, 100], blas="reference", cwd=tmp_path, OZ2_STATS="s.json")
    (stats,) = files(tmp_path).values()
    assert stats["calls"] == 4


def test_a_name_of_any_length(program, tmp_path):
    """The longer ones at exit alone, since making them a C string would need memory in the middle of a call."""
    for length, count in ((300, 5), (500, 5), (5000, 0)):
        folder = tmp_path / str(length)
        deep = folder
        while len(str(deep)) < length - 100 and length < 4000:
            deep = deep / ("d" * 90)
        deep.mkdir(parents=True)
        name = deep / "s.json" if length < 4000 else "%s/%s" % (deep, "n" * length)
        result = preloaded([program, "return", 5, 8], blas="reference", OZ2_STATS=name)
        written = [json.loads(path.read_text())["calls"] for path in folder.rglob("s.json")]
        assert written == ([count] if count else []), str(result)
        assert len(result.err.splitlines()) == (0 if count else 1), str(result)


@pytest.mark.parametrize("count", [4, 3000])
def test_one_warning_where_it_cannot_be_written(program, tmp_path, count):
    name = tmp_path / "nowhere" / "s.json"
    result = preloaded([program, "return", count, 8], blas="reference", OZ2_STATS=name)
    assert result.err == "oz2blas: warning: cannot write %s: entity not found\n" % name
    silent = preloaded([program, "return", count, 8], blas="reference", OZ2_STATS=name, OZ2_LOG="off")
    assert silent.err == ""


def test_a_full_folder_leaves_what_was_there(program, tmp_path):
    """No process has the right to a name that another one took."""
    (tmp_path / "s.json").write_text("mine")
    for _ in range(2):
        preloaded([program, "_exit", 3, 8], blas="reference", OZ2_STATS=tmp_path / "s.json")
    assert (tmp_path / "s.json").read_text() == "mine"
    assert [json.loads((tmp_path / name).read_text())["calls"] for name in ("s.json.1", "s.json.2")] == [3, 3]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_reader_sees_whole_objects_that_only_grow(program, tmp_path):
    """While two threads make calls; and one that is killed in the middle leaves its last whole state."""
    path = tmp_path / "s.json"
    env = environment(preload=(LIB,), blas="reference", OZ2_STATS=path, OZ2_MODE="native")
    process = subprocess.Popen([str(program), "busy", "100000000", "8"], env=env)
    guard = threading.Timer(60, process.kill)
    guard.start()
    try:
        seen = []
        while len(seen) < 40:
            if path.exists():
                calls = json.loads(path.read_text())["calls"]
                if not seen or calls != seen[-1]:
                    seen.append(calls)
            assert process.poll() is None, "the guard ended it, with %s" % seen
    finally:
        guard.cancel()
        process.kill()
        process.wait()
    assert seen == sorted(seen) and seen[0] > 0
    assert json.loads(path.read_text())["calls"] >= seen[-1]
    assert all(re.fullmatch(r"s\.json(\.\d+\.unfinished)?", name) for name in os.listdir(tmp_path))


def test_writing_is_bounded_by_time(program, build, tmp_path):
    """Of the calls of a busy program few are followed by a write."""
    shim = build("renames.c", "-shared", "-fPIC", libraries=())
    result = preloaded([program, "return", 20000, 64], blas="reference", preload=(LIB, shim), OZ2_MODE="native",
                       OZ2_STATS=tmp_path / "s.json")
    found = re.fullmatch(r"renames (\d+)\n", result.out)
    assert found and 5 <= int(found.group(1)) < 10000, str(result)
