"""scripts/clients after everything is installed: runs the clients of table.py, compares, writes docs/clients.md. --help tells more."""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import report
from compare import Run, judge, selected, total
from table import CLIENTS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / "target" / "clients"
VENV = WORK / "venv"
LIB = Path(os.environ.get("OZ2_LIB", ROOT / "target/release/liboz2blas.so")).resolve()
LIMIT = 400  # seconds of one run

# What a run sets; every other option of ours in the environment is for both runs with the library.
MODES = {"plain": {}, "auto": {"OZ2_MIN_SIZE": "auto"}, "emulated": {"OZ2_MIN_SIZE": "0"}}

# mpirun as root, with more ranks than cores, in containers that forbid its way of copying between processes.
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


def environment(client, mode, statistics):
    """The environment of a run, without thread counts and preloads of the person who runs it."""
    foreign = re.compile(r"LD_PRELOAD$|LD_LIBRARY_PATH$|.*_NUM_THREADS$|OMP_|(PMI|OMPI|SLURM)_")
    env = {name: value for name, value in os.environ.items() if not foreign.match(name) or name == "OZ2_NUM_THREADS"}
    folders = [LIB.parent, *([VENV / "bin"] if client.pypi else [])]
    env.update(MPI, **MODES[mode], OZ2_STATS="%s/%%h-%%p.json" % statistics, PYTHONDONTWRITEBYTECODE="1", LC_ALL="C.UTF-8",
               PATH=":".join([*map(str, folders), env.get("PATH", ""), "/usr/sbin"]),
               LIBS="/usr/lib/%s-linux-gnu" % os.uname().machine)
    if client.threads:
        env.update(OMP_NUM_THREADS=str(client.threads), OPENBLAS_NUM_THREADS=str(client.threads))
    return env


def execute(command, env, folder):
    """(exit status, stdout, stderr, seconds) of a line of shell; its processes end with it. 124: it took too long."""
    start = time.monotonic()
    with open(folder / "stdout", "w+", errors="replace") as out, open(folder / "stderr", "w+", errors="replace") as err:
        process = subprocess.Popen(["bash", "-o", "pipefail", "-c", command], cwd=folder, env=env, start_new_session=True,
                                   stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        try:
            status = process.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            status = 124
        finally:
            seconds = time.monotonic() - start
            # All of its group; also after Ctrl-C.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        err.seek(0)
        return status, out.read(), err.read(), seconds


def run(client, mode):
    """One run of a client, in the folder "now", which is called as the mode afterwards: messages with its name are the same in all."""
    home = WORK / client.name
    now, statistics = home / "now", home / (mode + ".statistics")
    shutil.rmtree(now, ignore_errors=True)
    shutil.copytree(home / "inputs", now)
    statistics.mkdir()
    command = client.command if mode != "plain" else client.command.replace("oz2run ", "")
    status, out, err, seconds = execute(command, environment(client, mode, statistics), now)
    text = out + "".join((now / name).read_text(errors="replace") for name in client.outputs if (now / name).exists())
    totals = total(json.loads(path.read_text()) for path in sorted(statistics.iterdir()))
    now.rename(home / mode)
    return Run(status, selected(text, client.lines), out, err, seconds, totals)


def prepare(client):
    """The inputs of a client, in a folder that its runs copy. Returns what went wrong."""
    home = WORK / client.name
    shutil.rmtree(home, ignore_errors=True)
    (home / "inputs").mkdir(parents=True)
    for name in client.files:
        shutil.copy(HERE / "inputs" / name, home / "inputs")
    if not client.prepare:
        return None
    status, out, err, _ = execute(client.prepare, environment(client, "plain", home), home / "inputs")
    return "%s: %s" % (client.prepare, (err or out).strip()[-500:]) if status else None


class Outcome:
    """What became of a client: its runs by mode, largest difference by mode, problems."""

    def __init__(self, client):
        self.client, self.runs, self.differences, self.problems = client, {}, {}, []

    def compute(self):
        wrong = prepare(self.client)
        if wrong:
            self.problems.append(wrong)
            return self
        self.runs = {mode: run(self.client, mode) for mode in MODES}
        plain = self.runs["plain"]
        if plain.status != 0:
            self.problems.append("plain: exit status %s: %s" % (plain.status, plain.err.strip()[-300:]))
        for mode in "auto", "emulated":
            self.differences[mode], problems = judge(self.client, plain, self.runs[mode], mode == "emulated")
            self.problems += ["%s: %s" % (mode, problem) for problem in problems]
        return self

    def line(self):
        """A line of the table on stdout."""
        if not self.differences:
            return "%-16s FAIL" % self.client.name
        plain, auto, emulated = (self.runs[mode] for mode in MODES)
        return "%-16s %-4s %8.1f %8.1f %8.1f %10.1e %9d %7s %7s" % (
            self.client.name, "FAIL" if self.problems else "ok", plain.seconds, auto.seconds, emulated.seconds,
            max(self.differences.values()), emulated.totals.calls, report.percent(auto.totals), report.percent(emulated.totals))


def installed_packages():
    """Debian's packages that are installed, with their versions."""
    try:
        listed = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version}\n"], capture_output=True, text=True)
    except OSError:
        return {}
    words = (line.split(" ") for line in listed.stdout.splitlines())
    return {name: version for status, name, version in words if status == "installed"}


def installed_wheels():
    """The packages of the clients' virtual environment, with their versions."""
    code = "import importlib.metadata as m\nfor d in m.distributions(): print(d.metadata['Name'].lower(), d.version)"
    try:
        listed = subprocess.run([VENV / "bin/python", "-c", code], capture_output=True, text=True)
    except OSError:
        return {}
    return dict(line.split(" ") for line in listed.stdout.splitlines())


def missing(client, packages, wheels):
    """(Debian's packages, wheels) that a client lacks."""
    return [name for name in client.packages if name not in packages], [name for name in client.pypi if name not in wheels]


def options(arguments, clients):
    parser = argparse.ArgumentParser(prog="scripts/clients", usage="see scripts/clients --help")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--write", type=Path, metavar="FILE")
    # For scripts/clients: "client package..." for every client that lacks some.
    parser.add_argument("--missing", choices=["debian", "pypi"])
    chosen = parser.parse_args(arguments)
    unknown = set(chosen.names) - {client.name for client in clients}
    if unknown:
        parser.error("no client %s; --list lists them" % " ".join(sorted(unknown)))
    if bool(chosen.names) + chosen.quick + chosen.all + chosen.list != 1:
        parser.error("one of --quick, --all, --list and names")
    if chosen.all and not chosen.write:
        chosen.write = ROOT / "docs" / "clients.md"
    return chosen


def main(arguments, clients=CLIENTS):
    """0: every client is all right. 1: one failed, or could not be installed (with --all such a one is left out)."""
    chosen = options(arguments, clients)
    if chosen.list:
        for client in clients:
            packages = [*client.packages, *("PyPI:" + name for name in client.pypi)]
            print("%-16s %-6s %s\n%24s%s" % (client.name, "quick" if client.quick else "", " ".join(packages), "", client.command))
        return 0
    clients = [client for client in clients if chosen.all or client.name in chosen.names or (chosen.quick and client.quick)]
    packages, wheels = installed_packages(), installed_wheels()
    if chosen.missing:
        for client in clients:
            names = missing(client, packages, wheels)[chosen.missing == "pypi"]
            if names:
                print(client.name, *names)
        return 0

    failed, outcomes, start, load = False, [], time.monotonic(), os.getloadavg()[0]
    print("%-16s %-4s %8s %8s %8s %10s %9s %7s %7s" % (
        "client", "", "plain s", "auto s", "all s", "difference", "calls", "auto", "all"), flush=True)
    for client in clients:
        lacking = sum(missing(client, packages, wheels), [])
        if lacking:
            print("%-16s not installed: %s" % (client.name, " ".join(lacking)), flush=True)
            failed |= not chosen.all
            continue
        outcome = Outcome(client).compute()
        outcomes.append(outcome)
        print(outcome.line(), *outcome.problems[:10], sep="\n    ", flush=True)
        failed |= bool(outcome.problems)
    print("%d clients in %d s, %d failed; what they wrote is in %s" % (
        len(outcomes), time.monotonic() - start, sum(bool(outcome.problems) for outcome in outcomes), WORK))
    if chosen.write:
        chosen.write.write_text(report.page(outcomes, LIB, {**packages, **wheels}, load, " ".join(arguments)))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
