"""What scripts/clients would overlook if it were broken: each way in which a client can be wrong must make it fail."""

import json
import os
import subprocess
from dataclasses import replace

import pytest

import compare
import main
import report
from table import CLIENTS, Client

ROOT = main.ROOT
PYTHON = os.environ.get("OZ2_TEST_PYTHON", str(ROOT / "target/venv/bin/python"))
CLIENT = Client("name", "oz2run program", (r"^energy.*",), r"energy (\S+)", "dgemm_")
PLAIN = compare.Run(0, ["energy -76.3457682211 PASSED", "energy 2 of 3"])


def totals(**changed):
    return replace(compare.Totals(processes=1, calls=5, emulated=5, flops=100, emulated_flops=100), **changed)


def problems(client=CLIENT, everything=True, plain=PLAIN, **changed):
    run = replace(compare.Run(0, list(PLAIN.lines), totals=totals()), **changed)
    return compare.judge(client, plain, run, everything)[1]


def test_the_same_is_all_right():
    assert problems() == []
    assert problems(lines=["energy -76.34576822110001 PASSED", "energy 2 of 3"]) == []


@pytest.mark.parametrize("lines, complaint", [
    (["energy -76.3457682221 PASSED", "energy 2 of 3"], "a difference of 1.3e-11"),
    (["energy -76.3457682211 FAILED", "energy 2 of 3"], "FAILED"),
    (["energy -76.3457682211 PASSED"], "1 lines in place of 2"),
    (["energy -76.3457682211 PASSED", "energy 2 of 3", "energy 4"], "3 lines in place of 2"),
    (["energy nan PASSED", "energy 2 of 3"], "nan"),
    (["energy 1e999 PASSED", "energy 2 of 3"], "in place of"),
    (["energy -76.3457682211 PASSED", "energy 2 of 4"], "in place of"),
    (["energy 76.3457682211 PASSED", "energy 2 of 3"], "in place of"),
])
def test_a_line_that_differs_fails(lines, complaint):
    told = problems(lines=lines)
    assert len(told) == 1 and complaint in told[0], told


def test_what_says_nothing_fails():
    assert "nothing to compare in what the program says" in problems(plain=compare.Run(0, []), lines=[])


def test_a_result_that_is_shown_and_not_compared_fails():
    """As a pattern of lines does that has a group by mistake, and so drops the number."""
    told = problems(replace(CLIENT, lines=(r"^(energy).*",)), plain=compare.Run(0, ["energy"]), lines=["energy"])
    assert len(told) == 1 and "in what is compared" in told[0], told


def test_the_tolerance_is_relative_above_one_and_absolute_below():
    assert compare.difference(["x 1D+6"], ["x 1000001"], 1e-5) == (pytest.approx(1e-6), [])
    assert compare.difference(["x 1e-9"], ["x 2e-9"], 1e-8) == (pytest.approx(1e-9), [])
    assert compare.difference(["x 3"], ["x 3"], 0) == (0, [])
    assert compare.difference(["x 1e999"], ["x 1e999"], 0) == (0, []) and len(compare.difference(["x 1e999"], ["x 3"], 1e-8)[1]) == 1
    worst, told = compare.difference(["x 3"], ["x 3.0000000001"], 0)
    assert worst > 0 and len(told) == 1


@pytest.mark.parametrize("changed, complaint", [
    ({"status": 1}, "exit status 1 in place of 0"),
    ({"err": "oz2blas: warning: something"}, "on stderr: oz2blas"),
    ({"err": "thread panicked"}, "on stderr: thread panicked"),
    ({"out": "energy\noz2blas: warning: something\n"}, "said: oz2blas"),
    ({"totals": compare.Totals()}, "calls in 0 processes"),
    ({"totals": totals(emulated=0)}, "nothing emulated of 5 calls"),
    ({"totals": totals(differing=2)}, "2 calls differ"),
])
def test_a_bad_guest_fails(changed, complaint):
    told = problems(**changed)
    assert len(told) == 1 and complaint in told[0], told


def test_what_is_expected_of_the_calls():
    assert problems(everything=False, totals=totals(emulated=0)) == []
    assert "calls in 1 processes, at least 2 expected" in problems(replace(CLIENT, processes=2))
    unseen = replace(CLIENT, intercepted=False)
    assert problems(unseen, totals=compare.Totals()) == []
    assert problems(unseen) == ["5 calls, where none was expected"]


def test_lines_of_stderr_that_are_there_without_the_library_too():
    assert problems(plain=replace(PLAIN, err="pid 17\n"), err="pid 18\n\n") == []
    assert problems(replace(CLIENT, noise=("^late",)), err="late by 3 s\n") == []


def test_what_of_the_output_is_compared():
    text = "time 3\n  energy   1  \nx = 5 in 7 s\n energy 2\nx = 6 in 8 s\n"
    assert compare.selected(text, (r"^ *energy.*",)) == ["energy 1", "energy 2"]
    assert compare.selected(text, (r"^(x = \d).*(s)",)) == ["x = 5 s", "x = 6 s"]


def document(**changed):
    """Statistics with what is summed."""
    engine = {"calls": 2, "flops": 60, "seconds": 0.5}
    return {"calls": 3, "emulated": 2, "flops": 100, "flagged": 0, "differing": 0, "moduli": {"14": 2}, "reasons": {"too small": 1},
            "engine_totals": {"amx": engine}, **changed}


def test_the_statistics_of_all_processes_are_summed():
    idle = document(calls=0, emulated=0, flops=0, moduli={}, reasons={}, engine_totals={})
    other = document(moduli={"14": 1, "15": 1}, reasons={"no gain": 4}, engine_totals={
        "amx": {"calls": 1, "flops": 10, "seconds": 1}, "avx512": {"calls": 1, "flops": 5, "seconds": 1}})
    sums = compare.total([document(), idle, other])
    assert (sums.processes, sums.calls, sums.emulated, sums.flops, sums.emulated_flops) == (2, 6, 4, 200, 75)
    assert sums.moduli == {"14": 3, "15": 1} and sums.reasons == {"too small": 1, "no gain": 4}
    assert sums.share() == 75 / 200 and compare.total([]).share() is None


PRODUCT = """
import os
import numpy as np
a = np.random.default_rng(1).standard_normal((60, 60))
c = a @ a
"""
REAL = Client("real", "oz2run %s -c '%sprint(\"norm\", np.linalg.norm(c))'" % (PYTHON, PRODUCT), (r"^norm.*",), r"norm (\S+)", "any",
              packages=("libc6",))
# What the program reports depends on whether something is preloaded.
FACTOR = 'linalg.norm(c) * (1 + 1e-9 * ("LD_PRELOAD" in os.environ))'
WRONG = replace(REAL, name="wrong", command=REAL.command.replace("linalg.norm(c)", FACTOR))
ESCAPED = replace(REAL, name="escaped", command=REAL.command.replace("oz2run ", "oz2run env -u LD_PRELOAD "))
SPEAK = 'os.environ.get("LD_PRELOAD") and os.write(2, b"what"); print('
NOISY = replace(REAL, name="noisy", command=REAL.command.replace("print(", SPEAK))
NOT_THERE = replace(REAL, name="not-there", packages=("no-such-package",))


@pytest.fixture
def clients(monkeypatch, tmp_path, capfd):
    """clients(table, *arguments): (exit status, what main writes) with programs of this file."""
    monkeypatch.setattr(main, "WORK", tmp_path)
    monkeypatch.setattr(main, "LIB", main.Path(os.environ.get("OZ2_LIB", main.LIB)).resolve())

    def call(table, *arguments):
        status = main.main(list(arguments), table)
        return status, capfd.readouterr().out

    return call


@pytest.mark.parametrize("client, complaint", [
    (WRONG, "a difference of 1.0e-09"), (ESCAPED, "calls in 0 processes"), (NOISY, "on stderr: what"), (NOT_THERE, "no-such-package")])
def test_a_wrong_program_fails(clients, client, complaint):
    status, out = clients([REAL, client], client.name)
    assert status == 1 and complaint in out, out


def test_a_good_program_passes_and_is_written_down(clients, tmp_path):
    page = tmp_path / "page.md"
    status, out = clients([REAL, NOT_THERE], "--all", "--write", str(page))
    assert status == 0 and "not installed: no-such-package" in out and "0 failed" in out, out
    text = page.read_text()
    assert "| real |" in text and "not-there" not in text and "| ok |" in text, text
    assert len(list((tmp_path / "real" / "emulated.statistics").iterdir())) >= 1


def test_a_native_blas_that_is_wrong_is_seen(clients, tmp_path, monkeypatch):
    """By default the product is too small and goes to the native BLAS, here one that is wrong by 1e-12 in one entry."""
    library = tmp_path / "libwrong.so"
    source = ROOT / "tests/programs/wrong_blas.c"
    names = ["-DINT=long", "-Dcblas_dgemm=scipy_cblas_dgemm64_"]
    subprocess.run(["gcc", "-shared", "-fPIC", *names, "-o", library, source, "-lm"], check=True)
    monkeypatch.setenv("OZ2_NATIVE", str(library))
    entry = replace(REAL, command=REAL.command.replace("np.linalg.norm(c)", "abs(c).max(), *c[2, :3], *c[1, :3]"), tolerance=1e-13)
    status, out = clients([entry], "real")
    assert status == 1 and "auto: " in out and "emulated: " not in out, out


def test_the_page_is_about_the_table():
    text = (ROOT / "docs/clients.md").read_text()
    for client in CLIENTS:
        assert "`%s`" % client.command.replace("|", "\\|") in text, "%s: scripts/clients --all writes docs/clients.md" % client.name


def test_the_table():
    names = [client.name for client in CLIENTS]
    assert len(set(names)) == len(names) >= 12 and sum(client.quick for client in CLIENTS) >= 6
    for client in CLIENTS:
        assert client.command.count("oz2run ") == 1 and (client.packages or client.pypi), client.name
        assert all((main.HERE / "inputs" / name).exists() for name in client.files), client.name
        # No program sees an error of 1e-8.
        assert client.tolerance <= 1e-8 or "hpcc" in client.command, client.name
    used = {name for client in CLIENTS for name in client.files}
    assert {path.name for path in (main.HERE / "inputs").iterdir() if path.is_file()} == used


def test_shares():
    assert report.percent(totals(emulated_flops=0)) == "0 %" and report.percent(compare.Totals()) == "-"
    assert report.percent(totals(emulated_flops=50)) == "50 %" and report.percent(totals()) == "100 %"
    assert json.dumps(report.row("a|b", 1)) == '"| a\\\\|b | 1 |\\n"'
