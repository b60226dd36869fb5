#!/usr/bin/env python3
"""What the plan costs: scan, bound and plan of the mode auto beside the mode fast with as many moduli, and calls whose data need the
further steps of the search; and what the self-check costs. Writes a report; scripts/bench plan runs it.

    plan.py LIBRARY --out REPORT [--size N] [--rounds N]
"""
import argparse
import ctypes
import datetime
import json
import os
import pathlib
import platform
import statistics
import time

import numpy as np


class Library:
    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        self.library.oz2_last_call.restype = ctypes.c_size_t

    def set(self, name, value):
        assert self.library.oz2_set_option(name.encode(), value.encode()) == 0, (name, value)

    def gemm(self, a, b, c):
        """Seconds of C = A B, and what the library tells of it."""
        i = lambda x: ctypes.byref(ctypes.c_int32(x))
        d = lambda x: ctypes.byref(ctypes.c_double(x))
        p = lambda x: x.ctypes.data_as(ctypes.c_void_p)
        (m, k), n = a.shape, b.shape[1]
        start = time.perf_counter()
        self.library.dgemm_(b"N", b"N", i(m), i(n), i(k), d(1.0), p(a), i(m), p(b), i(k), d(0.0), p(c), i(m), ctypes.c_size_t(1), ctypes.c_size_t(1))
        seconds = time.perf_counter() - start
        text = ctypes.create_string_buffer(1 << 13)
        self.library.oz2_last_call(text, ctypes.c_size_t(1 << 13))
        return seconds, json.loads(text.value)


def classes(rng, n):
    """(name, a, b); Fortran order."""
    order = np.asfortranarray
    uniform = lambda: order(rng.random((n, n)) - 0.5)
    spread = lambda phi: order((rng.random((n, n)) - 0.5) * np.exp(phi * rng.standard_normal((n, n))))
    sparse = lambda share: order(rng.standard_normal((n, n)) * (rng.random((n, n)) < share))
    powers = lambda w: 2.0 ** np.linspace(w, -w, n).round()
    yield "uniform", uniform(), uniform()
    one = uniform()
    one[n // 3, n // 5] = np.nan
    yield "uniform, one NaN", one, uniform()
    yield "phi = 1", spread(1), spread(1)
    yield "phi = 2", spread(2), spread(2)
    yield "inner scale 2^+-100", order(uniform() * powers(100)), order(uniform() / powers(100)[:, None])
    yield "5 % sparse", sparse(0.05), sparse(0.05)
    turn = (np.arange(n)[:, None] + np.arange(n)) % n
    yield "powers of two, rotated, 2^+-16", order(powers(16)[turn]), order((1 / powers(16))[turn].T)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("library")
    ap.add_argument("--out", required=True)
    ap.add_argument("--size", type=int, default=2048)
    ap.add_argument("--rounds", type=int, default=40)
    args = ap.parse_args()
    for name, value in dict(OZ2_NUM_THREADS="1", OZ2_MIN_SIZE="0", OZ2_NATIVE="builtin").items():
        os.environ.setdefault(name, value)
    library, n, rng = Library(args.library), args.size, np.random.default_rng(0)
    c = np.zeros((n, n), order="F")
    lines = ["# What the plan costs", ""]

    a, b = (np.asfortranarray(rng.random((n, n)) - 0.5) for _ in "ab")
    call = library.gemm(a, b, c)[1]
    moduli, engine = call["moduli"], call["engine"]

    def pairs(first, second, moduli):
        """Median milliseconds with each of two sets of options in turns, and the median ratio of a pair in percent above 1."""
        times = []
        for _ in range(args.rounds):
            for options in (first, second):
                for name, value in options.items():
                    library.set(name, value)
                seconds, call = library.gemm(a, b, c)
                assert call["moduli"] == moduli, call
                times.append(seconds)
        for name in {**first, **second}:
            library.set(name, "off" if name == "CHECK" else "auto")
        x, y = times[::2], times[1::2]
        return statistics.median(x) * 1e3, statistics.median(y) * 1e3, (statistics.median(s / t for s, t in zip(x, y)) - 1) * 100

    auto, fast, cost = pairs({"MODE": "auto", "MODULI": "auto"}, {"MODE": "fast", "MODULI": str(moduli)}, moduli)
    on, off, check = pairs({"MODE": "accurate", "CHECK": "on"}, {"MODE": "accurate", "CHECK": "off"}, 15)
    lines += [f"Uniform data, m = n = k = {n}, N = {moduli}, engine {engine}, one thread: the mode auto takes {auto:.1f} ms, the mode fast",
              f"with as many moduli {fast:.1f} ms (medians of {args.rounds} turns). The plan costs **{cost:.1f} %** (median of the ratios of pairs).", "",
              f"The self-check: mode accurate with 15 moduli {on:.1f} ms with OZ2_CHECK=on, {off:.1f} ms without: **{check:.1f} %**. In the mode auto one modulus more", "comes on top, as a rule.", "",
              "Other data, best of 7 calls in milliseconds; *native*: the builtin BLAS, which computes native lines too; *search*: bound and plan.", "",
              "| data | total | native | scan | search | residues | product | N | plan | native lines |", "|:---|---:|---:|---:|---:|---:|---:|---:|:---|---:|"]
    for name, a, b in classes(rng, n):
        seconds, call = min((library.gemm(a, b, c) for _ in range(7)), key=lambda x: x[0])
        library.set("MODE", "native")
        native = min(library.gemm(a, b, c)[0] for _ in range(4))
        library.set("MODE", "auto")
        phases = [f"{call['phases'][x] * 1e3:.0f}" for x in ("scan", "bound", "residues", "product")] if "phases" in call else ["-"] * 4
        what = [str(call["moduli"]), call["plan"]] if call["route"] == "emulated" else ["-", "native: " + call["reason"]]
        lines.append(f"| {name} | {seconds * 1e3:.0f} | {native * 1e3:.0f} | {' | '.join(phases)} | {' | '.join(what)} | {call['rows_native'] + call['columns_native']} |")
    lines += ["", f"Machine: {platform.machine()}, {os.cpu_count()} processors. Date: {datetime.date.today()}. Command: `scripts/bench plan`.", ""]
    pathlib.Path(args.out).write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
