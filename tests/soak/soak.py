"""The driver of scripts/soak MINUTES: processes one after another, each with options of its own, until the time is over or a call fails."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import draw

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "process"))
from helpers import BLAS, LIB, clean_environment, has_engine  # noqa: E402

# Multiplications of a call: what the slowest side does in about a second.
MOST = 250_000_000
MOST_PORTABLE = 60_000_000
# A group of calls that takes longer hangs.
LONGEST = 300


class Soak:
    def __init__(self, args):
        self.args = args
        self.engines = [name for name in ("amx", "avx512", "avx2", "portable") if has_engine(name)]
        self.natives = {"reference": BLAS["reference"], "openblas": BLAS["openblas"], "builtin": "builtin"}
        if args.native:
            self.natives = {"given": args.native}
        self.totals, self.reasons, self.by_engine = Counter(), Counter(), Counter()
        self.processes = self.differences = 0

    def command(self, process, last):
        env, native, threads = draw.draw_process(self.args.seed, process, self.engines, self.natives)
        path = self.natives[native]
        beside = BLAS["reference"] if path == "builtin" else path
        most = MOST_PORTABLE if env["OZ2_ENGINE"] == "portable" else MOST
        first = process * draw.CALLS_OF_A_PROCESS
        command = [sys.executable, HERE / "worker.py", "--seed", self.args.seed, "--first", first, "--last", last, "--threads", threads, "--most", most,
                   "--library", self.args.library, "--native", beside, "--reference", BLAS["reference"], "--engines", *self.engines]
        if path == "builtin":
            command.append("--builtin")
        # For the test of this very program (tests/programs/soak_fault.c).
        fault = {"OZ2_FAULT": os.environ["OZ2_FAULT"]} if "OZ2_FAULT" in os.environ else {}
        # One thread of the native BLAS: with more, its bits depend on the load of the machine.
        env = {**clean_environment(), **fault, **env, "OZ2_NATIVE": str(path), "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        return [str(word) for word in command], env

    def process(self, number, last=None):
        """Runs a process up to the call `last`; returns what failed, as (number, what, call)."""
        last = (number + 1) * draw.CALLS_OF_A_PROCESS - 1 if last is None else last
        command, env = self.command(number, last)
        failed, begun, done = [], [number * draw.CALLS_OF_A_PROCESS], False
        with tempfile.TemporaryFile("w+") as errors:
            worker = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=errors, text=True, stdin=subprocess.DEVNULL)
            try:
                out, hung = worker.communicate(timeout=LONGEST)[0], False
            except subprocess.TimeoutExpired:
                worker.kill()
                out, hung = worker.communicate()[0], True
            errors.seek(0)
            said = errors.read()
        for line in out.splitlines():
            told = json.loads(line)
            if "begin" in told:
                begun = told["begin"]
            elif "failed" in told:
                failed.append(told["failed"])
            else:
                done = True
                self.totals.update(told["done"])
                self.reasons.update(told["reasons"])
                self.by_engine.update(told["engines"])
        if hung:
            failed.append([begun[-1], "no end in %d s" % LONGEST, "calls %s" % begun])
        elif worker.returncode or not done:
            failed.append([begun[-1], "the process ended with status %d" % worker.returncode, "calls %s\n%s" % (begun, said[-3000:])])
        elif said:
            failed.append([begun[-1], "something was said: %s" % said[-3000:], "the whole process"])
        self.processes += 1
        return failed, env

    def report(self, failed, env):
        options = " ".join(f"{name}={value}" for name, value in sorted(env.items()) if name.startswith("OZ2_"))
        for number, what, call in failed:
            self.differences += 1
            print(f"soak: FAILED seed {self.args.seed} call {number}: {what}\n  {call}\n  {options}\n  again: {self.again(number)}", flush=True)

    def again(self, number):
        words = ["scripts/soak", "--seed", self.args.seed, "--call", number]
        if self.args.native:
            words += ["--native", self.args.native]
        if self.args.library != str(LIB):
            words += ["--library", self.args.library]
        return " ".join(str(word) for word in words)

    def status(self):
        t = self.totals
        return (f"{t['calls']} calls in {self.processes} processes, {t['emulated']} emulated, {t['entries']} entries compared, {t['exact']} exactly, "
                f"{t['same bits']} calls again with the same bits, {t['forks']} forks, {self.differences} differences")

    def run(self):
        """Until the time is over; all faults of a process are reported, and the first process with one ends it."""
        start = told = time.monotonic()
        end = start + 60 * self.args.minutes
        process = 0
        while time.monotonic() < end:
            failed, env = self.process(process)
            process += 1
            if failed:
                self.report(failed, env)
                if not self.args.keep_going:
                    break
            if time.monotonic() - told >= 60:
                told += 60
                print(f"soak: {(told - start) / 60:.0f} min, seed {self.args.seed}: {self.status()}", flush=True)
        print(f"soak: seed {self.args.seed}: {self.status()}", flush=True)
        if self.args.json:
            summary = {"seed": self.args.seed, "minutes": self.args.minutes, "processes": self.processes, "differences": self.differences,
                       **self.totals, "reasons": self.reasons, "engines": self.by_engine}
            Path(self.args.json).write_text(json.dumps(summary, indent=1) + "\n")
        if not self.totals["emulated"] and not self.differences:
            print("soak: nothing was emulated", file=sys.stderr)
            return 1
        return 1 if self.differences else 0

    def replay(self):
        failed, env = self.process(self.args.call // draw.CALLS_OF_A_PROCESS, self.args.call)
        self.report(failed, env)
        if not failed:
            print(f"soak: seed {self.args.seed}: nothing differs up to call {self.args.call}; native: {dict(self.reasons)}, emulated: {dict(self.by_engine)}")
        return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(prog="scripts/soak")
    parser.add_argument("minutes", type=float, nargs="?")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3)))
    parser.add_argument("--call", type=int)
    parser.add_argument("--native")
    parser.add_argument("--library", default=str(LIB))
    parser.add_argument("--json")
    parser.add_argument("--keep-going", action="store_true")
    args = parser.parse_args()
    if (args.minutes is None) == (args.call is None):
        parser.error("MINUTES or --call, one of both")
    soak = Soak(args)
    sys.exit(soak.run() if args.call is None else soak.replay())


if __name__ == "__main__":
    main()
