"""Options: bad values warn once and change nothing else; the oz2_* functions."""

import json
import os
import socket
import subprocess

import pytest

from helpers import LIB, PROGRAMS, PYTHON, good, preloaded

# A wrong value of each option, and a word of what is allowed instead.
WRONG = [
    ("OZ2_MODE", "quick", "accurate"),
    ("OZ2_MODULI", "1", "20"),
    ("OZ2_MODULI", "21", "20"),
    ("OZ2_MODULI", "fifteen", "20"),
    ("OZ2_ACCURACY", "fp32", "textbook"),
    ("OZ2_ENGINE", "abacus", "portable"),
    ("OZ2_NUM_THREADS", "-3", "auto"),
    ("OZ2_NUM_THREADS", "two", "auto"),
    ("OZ2_WORKSPACE", "12Q", "G"),
    ("OZ2_DEVICES", "first", "none"),
    ("OZ2_CHECK", "maybe", "on"),
    ("OZ2_STRASSEN", "3", "0, 1, 2"),
    ("OZ2_VERIFY", "-2", "off"),
    ("OZ2_LOG", "loud", "trace"),
    ("OZ2_INTEGER", "32", "ilp64"),
]


@pytest.fixture
def program(build):
    return build("product.c")


@pytest.fixture
def tolerant(build):
    """product.c without the demand that calls are emulated."""
    return build("product.c", "-DANY_ROUTE")


@pytest.mark.parametrize("name, value, allowed", WRONG, ids=["%s=%s" % x[:2] for x in WRONG])
def test_wrong_value(program, name, value, allowed):
    result = preloaded([program, 40, 30, 20], blas="reference", **{name: value})
    assert "good" in result.out and result.total("emulated") >= 5, str(result)
    lines = result.err.splitlines()
    assert len(lines) == 1, str(result)
    for word in (name, value, allowed):
        assert word in lines[0], str(result)


@pytest.mark.parametrize("value", ["-1", "small", "nan"])
def test_wrong_min_size(tolerant, value):
    """The default is not 0, so here nothing need be emulated."""
    result = preloaded([tolerant, 40, 30, 20], blas="reference", OZ2_MIN_SIZE=value)
    lines = result.err.splitlines()
    assert "good" in result.out, str(result)
    assert len(lines) == 1 and "OZ2_MIN_SIZE" in lines[0] and value in lines[0], str(result)


def test_silence(program):
    for name, value, _ in WRONG:
        if name != "OZ2_LOG":
            result = preloaded([program, 40, 30, 20], blas="reference", OZ2_LOG="off", **{name: value})
            good(result)


@pytest.mark.parametrize("name", sorted({x[0] for x in WRONG} | {"OZ2_MIN_SIZE", "OZ2_NATIVE", "OZ2_REPORT",
                                                                   "OZ2_CUDA_PATH", "OZ2_VERIFY_DUMP"}))
def test_empty_value(tolerant, name):
    """What an empty value means is not written down; that it does no harm is."""
    result = preloaded([tolerant, 40, 30, 20], blas="reference", **{name: ""})
    assert "good" in result.out and len(result.err.splitlines()) <= 1, str(result)


def test_native_that_is_not_there(tolerant):
    """A library that cannot be opened: told, and then found in another way."""
    for path in ("/nowhere/libblas.so", "/etc/hostname"):
        result = preloaded([tolerant, 40, 30, 20], blas="reference", OZ2_NATIVE=path, OZ2_MODE="native")
        assert "good" in result.out and path in result.err, str(result)


def test_native_that_is_the_library_itself(tolerant):
    result = preloaded([tolerant, 40, 30, 20], blas="reference", OZ2_NATIVE=LIB, OZ2_MODE="native")
    assert "good" in result.out and result.total("emulated") == 0, str(result)


def test_mode_native(tolerant, blas):
    result = preloaded([tolerant, 40, 30, 20], blas=blas, OZ2_MODE="native")
    assert result.total("emulated") == 0 and result.total("native") >= 5, str(result)


def test_engine_that_is_not_there(tolerant):
    """Never another engine in its place: the call is native, with one warning."""
    if os.path.exists("/dev/nvidia0"):
        pytest.skip("here the engine is there")
    result = preloaded([tolerant, 40, 30, 20], blas="reference", OZ2_ENGINE="cuda")
    assert "good" in result.out and len(result.err.splitlines()) == 1, str(result)
    assert result.total("emulated") == 0, str(result)
    assert any("engine" in reason for reason in result.stats[0]["reasons"]), str(result)


def test_log_levels(program):
    """Nothing but messages on stderr, and none at the default without a reason."""
    good(preloaded([program, 40, 30, 20], blas="reference"))
    quiet = preloaded([program, 40, 30, 20], blas="reference")
    loud = preloaded([program, 40, 30, 20], blas="reference", OZ2_LOG="trace")
    assert loud.out == quiet.out and loud.err != "", str(loud)


# ---------------------------------------------------------------- functions


def python(code, **options):
    """Runs Python with the functions at hand; the result of 'answer' comes back."""
    text = (PROGRAMS / "ctypes_oz2.py").read_text() + "\n" + code + "\nprint(json.dumps(answer))\n"
    result = preloaded([PYTHON, "-c", text], **options)
    return json.loads(result.out.splitlines()[-1])


def test_set_option_codes():
    code = """
answer = [set_option(*pair) for pair in [
    ("MODE", "fast"), ("mode", "accurate"), ("Min_Size", "0"), ("MODULI", "20"),
    ("COLOUR", "red"), ("", ""), ("MODULI", "21"), ("MODE", "quick"), ("NUM_THREADS", "x")]]
"""
    assert python(code) == [0, 0, 0, 0, 1, 1, 2, 2, 2]


def test_set_option_too_late():
    """The BLAS below is looked up once, so it cannot change after a call."""
    code = """
early = set_option("NATIVE", "builtin")
product(9, 8, 7)
answer = [early, set_option("NATIVE", "auto"), set_option("NUM_THREADS", "2")]
"""
    assert python(code) == [0, 3, 0]


def test_set_option_survives_null():
    assert python("answer = [set_option(None, 'x') != 0, set_option('MODE', None) != 0]") == [True, True]


def test_get_option():
    code = """
needed = lib.oz2_get_option(b"mode", None, 0)
short = ctypes.create_string_buffer(b"######", 6)
length = lib.oz2_get_option(b"MODE", short, 4)
answer = [get_option("MODE"), get_option("moduli"), needed, length, short.raw.decode()]
"""
    assert python(code, OZ2_MODE="accurate", OZ2_MODULI="14") == ["accurate", "14", 8, 8, "acc\0##"]


def test_set_wins_over_environment():
    code = """
before = last_call()
product(60, 50, 40)
first = last_call()
assert set_option("MODE", "accurate") == 0 and set_option("MODULI", "13") == 0
product(60, 50, 40)
second = last_call()
set_option("MODE", "native")
product(60, 50, 40)
answer = [before, first, second, last_call()]
"""
    before, first, second, third = python(code, OZ2_MODE="fast", OZ2_MODULI="16")
    assert before == {"route": "none"}
    assert (first["mode"], first["moduli"]) == ("fast", 16), first
    assert (second["mode"], second["moduli"]) == ("accurate", 13), second
    assert first["bound"] is None and second["bound"] is None
    assert third["route"] != second["route"] and third["reason"], third
    for call in (first, second, third):
        assert set(call) >= {"route", "reason", "engine", "mode", "moduli", "bound", "rows_native", "columns_native"}


def test_auto_mode_tells_its_bound():
    call = python("product(60, 50, 40); answer = last_call()")
    assert call["mode"] == "auto" and call["bound"] >= 1 and 2 <= call["moduli"] <= 20, call


def test_wrong_value_warns_once_for_all_threads():
    text = (PROGRAMS / "ctypes_oz2.py").read_text() + """
import threading
threads = [threading.Thread(target=product, args=(30, 20, 10)) for _ in range(20)]
[t.start() for t in threads]; [t.join() for t in threads]
"""
    result = preloaded([PYTHON, "-c", text], OZ2_MODE="quick")
    assert len(result.err.splitlines()) == 1, str(result)


def test_version():
    cargo = subprocess.run(["cargo", "metadata", "--no-deps", "--format-version=1"], capture_output=True,
                           text=True, cwd=PROGRAMS, timeout=60, check=True)
    wanted = json.loads(cargo.stdout)["packages"][0]["version"]
    assert python("answer = lib.oz2_version().decode()").startswith(wanted)


# --------------------------------------------------------------- statistics

NAMES = """version pid calls emulated native flops seconds engines moduli reasons rows_native columns_native
           strassen checked flagged repaired verified differing""".split()


def test_statistics_of_the_process():
    code = """
for _ in range(3):
    product(60, 50, 40)
set_option("MODE", "native")
product(60, 50, 40)
full = stats()
short = ctypes.create_string_buffer(b"#" * 16, 16)
length = lib.oz2_get_stats(short, 8)
lib.oz2_reset_stats()
answer = [full, length, lib.oz2_get_stats(None, 0), short.raw[7:].decode(), stats()]
"""
    full, length, after_reset, tail, zero = python(code)
    assert set(full) >= set(NAMES)
    assert (full["calls"], full["emulated"], full["native"]) == (4, 3, 1), full
    assert sum(full["moduli"].values()) == 3 and sum(full["reasons"].values()) == 1, full
    assert full["flops"] == 4 * 2 * 60 * 50 * 40 or isinstance(full["flops"], dict), full
    assert length > 100 and after_reset > 100 and tail == "\0" + "#" * 8
    assert (zero["calls"], zero["emulated"], zero["native"]) == (0, 0, 0)


def test_stats_to_stderr(program):
    result = preloaded([program, 40, 30, 20], blas="reference", OZ2_STATS="stderr")
    assert "{" not in result.out
    assert json.loads(result.err)["emulated"] >= 5, str(result)


def test_stats_file_pattern(program, tmp_path):
    pattern = tmp_path / "of-%h-%p-%r.json"
    preloaded([program, 40, 30, 20], blas="reference", OZ2_STATS=pattern, OMPI_COMM_WORLD_RANK="3")
    (path,) = tmp_path.iterdir()
    stats = json.loads(path.read_text())
    assert path.name == "of-%s-%d-3.json" % (socket.gethostname(), stats["pid"])
    assert set(stats) >= set(NAMES)


def test_stats_file_is_not_overwritten(program, tmp_path):
    path = tmp_path / "stats.json"
    path.write_text("mine")
    for _ in range(2):
        preloaded([program, 40, 30, 20], blas="reference", OZ2_STATS=path)
    assert path.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["stats.json", "stats.json.1", "stats.json.2"]
    for name in ("stats.json.1", "stats.json.2"):
        assert json.loads((tmp_path / name).read_text())["emulated"] >= 5


def test_stats_file_that_cannot_be_written(program):
    """Told, and the program ends as it would without us."""
    result = preloaded([program, 40, 30, 20], blas="reference", OZ2_STATS="/nowhere/stats.json")
    assert "good" in result.out and len(result.err.splitlines()) <= 1, str(result)
