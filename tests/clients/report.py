"""docs/clients.md from the outcomes of the clients."""

import datetime
import os
import re
import subprocess
from pathlib import Path

from compare import headline

HEAD = """# Real programs

Programs that know nothing of oz2blas, each run as it is, with the library as it comes (`auto`: emulated is what is expected to gain) and
with every call emulated (`OZ2_MIN_SIZE=0`). Compared is what the program itself reports: energies, residuals, verdicts. This page is
written by `scripts/clients --all`, which installs the programs (Debian's packages as root, wheels into `target/clients/venv`), runs them
and fails if a number differs by more than the tolerance, a word or the exit status differs, a call was not intercepted or the library
wrote to stderr. `scripts/clients --quick` runs some of them in the tests; `scripts/clients NAME` one.
"""

CALLS = """
## What arrives, and what is emulated

*calls*: DGEMM calls that the library saw, with those of an empty dimension. *flops*: those of the calls. *in auto*, *in all*: share of
the flops in calls that were emulated, at least in part, in the two runs. *moduli*: the numbers of moduli most used when all is emulated.
*native because*: the most frequent reason among calls that were not emulated then (docs/statistics.md has all), quick returns aside.

| client | program | symbol | calls | GFLOP | in auto | in all | moduli | native because |
|:---|:---|:---|---:|---:|---:|---:|:---|:---|
"""

RESULTS = """
## What the programs say

*compared*: lines of output. *without* and *with*: one number of them, with every call emulated. *difference*: the largest of all numbers,
in auto and all emulated, relative to max(1, |x|). *auto/plain*, *all/plain*: wall time of the whole program, one run each. Emulating
everything takes longer where the calls are small; it is here for the results.

| client | compared | without | with | difference | tolerance | seconds plain | auto/plain | all/plain | result |
|:---|---:|---:|---:|---:|---:|---:|---:|---:|:---|
"""

COMMANDS = """
## How to turn it on

`oz2run` before the program is all; with MPI after `mpirun`, so that the launcher itself is left alone. These commands were run, in a
folder with the inputs (`tests/clients/inputs`); `--min-size 0` after `oz2run`, or OZ2_MIN_SIZE=0 in the environment, emulates every call,
and `--stats` tells at exit whether calls arrived. Across machines, mpirun hands variables on with `-x OZ2_MIN_SIZE`. Programs with MPI
and those for which the table of threads says so had OMP_NUM_THREADS and OPENBLAS_NUM_THREADS set to that number; *own*: as many as the
program takes. `$LIBS` is /usr/lib/x86_64-linux-gnu.

| client | threads | command | remarks |
|:---|---:|:---|:---|
"""

NOT_CAUGHT = """
## What is not intercepted, and why

- **jax**, and whatever multiplies by code of its own (Eigen, oneDNN, Accelerate's own kernels): no BLAS symbol is called.
- **LAPACK inside the wheels** (NumPy, SciPy), inside MKL and PyTorch: `solve`, `inv`, `cholesky`, `qr`, `eigh`, `svd` call the DGEMM of
  their own library directly. Debian's OpenBLAS does so for LU and Cholesky, the reference LAPACK for nothing: with
  `LD_PRELOAD=$LIBS/lapack/liblapack.so.3` before `oz2run` they are seen in programs that use the plain names (octave-lapack above).
- **Other routines**: `a @ a.T` in NumPy and `crossprod` in R are `dsyrk`; complex products are `zgemm`, so plane-wave codes with k
  points. They reach the native BLAS as before.
- **A handle**: `ctypes.CDLL("libblas.so.3").dgemm_` and Julia look a name up in one library; preloading is past by then. [Debian's
  alternatives](ways-in/alternatives.md) and [libblastrampoline](ways-in/libblastrampoline.md) are ways for those.
- **set-user-id programs**: the loader ignores LD_PRELOAD. **Static BLAS**: [docs/ways-in/static.md](ways-in/static.md).
- R's `%*%` looks for NaN first, and does not call the BLAS where there is one (`options(matprod = "blas")` does).
- Children that leave by `_exit` (R's `mclapply`, `os.fork`) are intercepted; what they did since the statistics were written is not in
  the table.
"""


def percent(totals):
    """The share of the flops that was emulated."""
    share = totals.share()
    return "-" if share is None else "0 %" if share == 0 else "%.2g %%" % (100 * share) if share < 0.995 else "%.0f %%" % (100 * share)


def row(*cells):
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |\n"


def first(command):
    """What a command prints, or nothing."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()
    except OSError:
        return ""


def machine(lib, versions, load, arguments):
    """When, where and what, as a list."""
    cpu = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.M)
    system = re.search(r'^PRETTY_NAME="(.*)"', Path("/etc/os-release").read_text(), re.M)
    engines = re.findall(r"^engine +(\w+): available", first([lib.parent / "oz2run", "--doctor"]), re.M)
    root = Path(__file__).resolve().parents[2]
    mine = {name: value for name, value in os.environ.items() if re.match("OZ2_(?!LIB|TEST)", name)}
    return "\n%s, %s, %d CPUs, engines %s; load at the start %.1f.\n%s, OpenBLAS %s, oz2blas %s.\nMade by `scripts/clients %s`%s.\n" % (
        datetime.date.today(), cpu[1] if cpu else "unknown CPU", os.cpu_count(), ", ".join(engines) or "none", load,
        system[1] if system else "unknown system", versions.get("libopenblas0-pthread", "not there"),
        first(["git", "-C", root, "describe", "--always", "--dirty"]) or "of an unknown revision", arguments,
        "".join(" with %s=%s" % item for item in sorted(mine.items())))


def reason(totals):
    """The most frequent Reason of calls that multiply something."""
    common = [name for name, _ in totals.reasons.most_common() if name != "quick return"]
    return common[0] if common else ""


def page(outcomes, lib, versions, load, arguments):
    """The text of docs/clients.md."""
    calls, results, commands, failures = "", "", "", ""
    for outcome in outcomes:
        client = outcome.client
        package = (client.packages or client.pypi)[0]
        commands += row(client.name, client.threads or "own", "`%s`" % client.command, client.remark)
        failures += "".join("- %s: %s\n" % (client.name, problem) for problem in outcome.problems)
        if not outcome.differences:
            continue
        plain, auto, all_emulated = (outcome.runs[mode] for mode in ("plain", "auto", "emulated"))
        totals = all_emulated.totals
        calls += row(
            client.name, "%s %s" % (package, versions.get(package, "")), client.symbol, totals.calls, "%.3g" % (totals.flops / 1e9),
            percent(auto.totals), percent(totals), ", ".join(sorted((n for n, _ in totals.moduli.most_common(3)), key=int)), reason(totals))
        results += row(
            client.name, len(plain.lines), *(headline(run.lines, client.headline) or "-" for run in (plain, all_emulated)),
            "%.1e" % max(outcome.differences.values()), "%.0e" % client.tolerance, "%.1f" % plain.seconds,
            "%.2f" % (auto.seconds / plain.seconds), "%.2f" % (all_emulated.seconds / plain.seconds), "FAIL" if outcome.problems else "ok")
    if failures:
        failures = "\n## Failures\n\n" + failures
    return HEAD + machine(lib, versions, load, arguments) + failures + CALLS + calls + RESULTS + results + COMMANDS + commands + NOT_CAUGHT
