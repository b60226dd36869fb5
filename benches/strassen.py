#!/usr/bin/env python3
"""What Strassen's form gives: calls with 0, 1 and 2 levels in turns, in one process. Writes a report; scripts/bench strassen runs it.

    strassen.py LIBRARY --out REPORT [--sizes 4096,8192] [--rounds N] [--workspaces auto,8G]
"""
import argparse
import datetime
import os
import pathlib
import platform
import statistics

import numpy as np

from plan import Library

PHASES = ("scan", "bound", "residues", "product")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("library")
    ap.add_argument("--out", required=True)
    ap.add_argument("--sizes", default="4096,8192")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--workspaces", default="auto,8G")
    args = ap.parse_args()
    for name, value in dict(OZ2_NUM_THREADS="1", OZ2_MIN_SIZE="0", OZ2_NATIVE="builtin").items():
        os.environ.setdefault(name, value)
    library, rng = Library(args.library), np.random.default_rng(0)
    rows, engine = [], None
    for n in map(int, args.sizes.split(",")):
        a, b = (np.asfortranarray(rng.random((n, n)) - 0.5) for _ in "ab")
        c, want = np.zeros((n, n), order="F"), None
        for workspace in args.workspaces.split(","):
            library.set("WORKSPACE", workspace)
            calls = {levels: [] for levels in range(3)}
            # The first round is not counted: it gets its memory from the system.
            for round in range(args.rounds + 1):
                for levels in calls:
                    library.set("STRASSEN", str(levels))
                    # The first call finds what the last one with other levels has left in the caches.
                    library.gemm(a, b, c)
                    seconds, call = library.gemm(a, b, c)
                    assert call["route"] == "emulated" and call["strassen"] <= levels, call
                    want = c.copy() if want is None else want
                    assert np.array_equal(c, want), (n, levels)
                    if round:
                        calls[levels].append((seconds, call))
            for levels, taken in calls.items():
                engine = call["engine"]
                ratio = statistics.median(plain / with_levels for (plain, _), (with_levels, _) in zip(calls[0], taken))
                phases = (statistics.median(call["phases"][phase] for _, call in taken) * 1e3 for phase in PHASES)
                seconds = statistics.median(seconds for seconds, _ in taken)
                used = taken[0][1]
                rows.append(f"| {n} | {workspace} | {levels} | {used['strassen']} | {used['moduli']} | {' | '.join(f'{x:.0f}' for x in phases)} | "
                            f"{seconds * 1e3:.0f} | {2e-9 * n**3 / seconds:.0f} | {ratio:.3f} |")
                print(rows[-1], flush=True)
    lines = ["# What Strassen's form gives", "",
             f"m = n = k, uniform data in (-0.5, 0.5), engine {engine}, one thread. Calls with 0, 1 and 2 levels (OZ2_STRASSEN) take turns in one",
             f"process, two calls each, of which the second counts; medians of {args.rounds} turns, milliseconds. *Ratio*: the speed beside that without",
             "Strassen's form, the median of the ratios within a turn. All results had the same bits. *Levels used* are fewer where the workspace is too small ([docs/strassen.md](../strassen.md)).", "",
             "| n | OZ2_WORKSPACE | levels wanted | levels used | N | scan | bound | residues | product | total | GFLOP/s | ratio |",
             "|---:|:---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|", *rows, "",
             f"Machine: {platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} at the end. Date: {datetime.date.today()}. Command: "
             f"`scripts/bench strassen --sizes {args.sizes} --rounds {args.rounds} --workspaces {args.workspaces}`.", ""]
    pathlib.Path(args.out).write_text("\n".join(lines))


if __name__ == "__main__":
    main()
