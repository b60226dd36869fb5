#!/usr/bin/env python3
"""Every CPU engine beside a current OpenBLAS, for data that need few moduli and many. Writes engines.md, engines.json and engines.svg;
scripts/bench engines runs it.

    engines.py LIBRARY --openblas FILE --out FOLDER [--size N] [--rounds N] [--threads 1,2]
"""
import argparse
import ctypes
import datetime
import json
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import time

ENGINES = ["amx", "avx512", "avx2", "portable"]
COLOURS = ["#d55e00", "#0072b2", "#009e73", "#cc79a7"]


def classes(n):
    """(name, N that the plan takes in the end, a, b); Fortran order."""
    import numpy as np

    rng, order = np.random.default_rng(1), np.asfortranarray
    integers = lambda most: order(rng.integers(-most, most + 1, (n, n)).astype(float))
    real = lambda: order(rng.random((n, n)) - 0.5)
    yield "integers -60..60", integers(60), integers(60)
    yield "integers -8000..8000", integers(8000), integers(8000)
    yield "zeros and ones x real", order((rng.random((n, n)) < 0.5).astype(float)), real()
    yield "uniform", real(), real()


def gemm(function, a, b, c):
    """Seconds of C = A B."""
    i = lambda x: ctypes.byref(ctypes.c_int32(x))
    d = lambda x: ctypes.byref(ctypes.c_double(x))
    p = lambda x: x.ctypes.data_as(ctypes.c_void_p)
    n = a.shape[0]
    start = time.perf_counter()
    function(b"N", b"N", i(n), i(n), i(n), d(1.0), p(a), i(n), p(b), i(n), d(0.0), p(c), i(n), ctypes.c_size_t(1), ctypes.c_size_t(1))
    return time.perf_counter() - start


def child(args):
    """Measures with one number of threads, in a process of its own; prints JSON."""
    import numpy as np

    library, peer = ctypes.CDLL(args.library), ctypes.CDLL(args.openblas)
    set_option = lambda name, value: library.oz2_set_option(name.encode(), value.encode())
    text = ctypes.create_string_buffer(1 << 13)
    last = lambda: (library.oz2_last_call(text, ctypes.c_size_t(1 << 13)), json.loads(text.value))[1]
    c = np.zeros((args.size, args.size), order="F")
    results = []
    for name, a, b in classes(args.size):
        times = {"openblas": []}
        calls = {}
        for turn in range(args.rounds):
            times["openblas"].append(gemm(peer.scipy_dgemm_, a, b, c))
            for engine in ENGINES:
                # The portable engine takes seconds.
                if engine == "portable" and turn > 0:
                    continue
                set_option("ENGINE", engine)
                seconds = gemm(library.dgemm_, a, b, c)
                call = last()
                if call["route"] == "emulated" and call["engine"] == engine:
                    times.setdefault(engine, []).append(seconds)
                    calls[engine] = call
        median = {who: statistics.median(seconds) for who, seconds in times.items()}
        for engine, call in calls.items():
            phases = {phase: seconds * 1e3 for phase, seconds in call["phases"].items()}
            results.append(dict(data=name, engine=engine, moduli=call["moduli"], milliseconds=median[engine] * 1e3,
                                openblas=median["openblas"] * 1e3, ratio=median["openblas"] / median[engine], phases=phases))
    print(json.dumps(dict(results=results, megabytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)))


def plot(results):
    """Ratio to OpenBLAS against the number of moduli, one thread."""
    width, height, left, bottom = 560, 360, 60, 50
    x = lambda n: left + (width - left - 20) * n / 16
    y = lambda ratio: height - bottom - (height - bottom - 20) * min(ratio, 4) / 4
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for n in range(2, 17, 2):
        parts.append(f'<text x="{x(n):.0f}" y="{height - 30}" text-anchor="middle">{n}</text>')
    for ratio in range(5):
        parts.append(f'<line x1="{left}" x2="{width - 20}" y1="{y(ratio):.0f}" y2="{y(ratio):.0f}" stroke="#{"777" if ratio == 1 else "ddd"}"/>')
        parts.append(f'<text x="{left - 8}" y="{y(ratio) + 4:.0f}" text-anchor="end">{ratio}</text>')
    parts.append(f'<text x="{width / 2:.0f}" y="{height - 8}" text-anchor="middle">moduli N</text>')
    parts.append(f'<text transform="translate(18 {height / 2:.0f}) rotate(-90)" text-anchor="middle">speed / OpenBLAS</text>')
    for number, engine in enumerate(ENGINES):
        points = sorted((r["moduli"], r["ratio"]) for r in results if r["engine"] == engine and r["threads"] == 1)
        path = " ".join(f"{x(n):.1f},{y(ratio):.1f}" for n, ratio in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[number]}" stroke-width="2"/>')
        parts += [f'<circle cx="{x(n):.1f}" cy="{y(ratio):.1f}" r="3.5" fill="{COLOURS[number]}"/>' for n, ratio in points]
        parts.append(f'<text x="{width - 110}" y="{36 + 17 * number}" fill="{COLOURS[number]}">{engine}</text>')
    return "\n".join(parts + ["</svg>", ""])


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("library")
    ap.add_argument("--openblas", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--size", type=int, default=2048)
    ap.add_argument("--rounds", type=int, default=9)
    ap.add_argument("--threads", default="1,2")
    ap.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = ap.parse_args()
    if args.child:
        return child(args)
    results, memory = [], {}
    for threads in args.threads.split(","):
        env = dict(os.environ, OZ2_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads, OZ2_MIN_SIZE="0", OZ2_NATIVE="builtin")
        command = [sys.executable, __file__, args.library, "--openblas", args.openblas, "--out", args.out,
                   "--size", str(args.size), "--rounds", str(args.rounds), "--child"]
        told = json.loads(subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout)
        results += [dict(threads=int(threads), **result) for result in told["results"]]
        memory[threads] = told["megabytes"]
    doctor = subprocess.run([pathlib.Path(args.library).with_name("oz2run"), "--doctor"], capture_output=True, text=True).stdout
    rates = [line.split(None, 1)[1] for line in doctor.splitlines() if line.startswith("engine") and "TOPS" in line]
    machine = next((line.split(None, 1)[1] for line in doctor.splitlines() if line.startswith("CPU")), platform.machine())
    lines = ["# The CPU engines", "", f"m = n = k = {args.size}, every call emulated by the named engine, beside OpenBLAS (wheel scipy-openblas32) in the same",
             f"process, in turns; medians of {args.rounds} (one call for the portable engine). *to OpenBLAS*: above 1 the emulation is faster.",
             "", "Products and their reduction, in the first caches (`oz2run --doctor`): " + "; ".join(rates) + ".", "",
             "| data | N | engine | threads | ms | OpenBLAS ms | to OpenBLAS | scan | bound | residues | product |", "|:---|---:|:---|---:|---:|---:|---:|---:|---:|---:|---:|"]
    for r in results:
        phases = " | ".join(f"{r['phases'][phase]:.1f}" for phase in ("scan", "bound", "residues", "product"))
        lines.append(f"| {r['data']} | {r['moduli']} | {r['engine']} | {r['threads']} | {r['milliseconds']:.1f} | {r['openblas']:.1f} | {r['ratio']:.2f} | {phases} |")
    peak = ", ".join(f"{megabytes} MB with {threads} thread(s)" for threads, megabytes in memory.items())
    lines += ["", "![Speed against the number of moduli](engines.svg)", "", f"Largest memory of the whole process (matrices of all data included): {peak}.", "",
              f"Machine: {machine}, {os.cpu_count()} processors. Date: {datetime.date.today()}. Command: `scripts/bench engines`.", ""]
    out = pathlib.Path(args.out)
    (out / "engines.md").write_text("\n".join(lines))
    (out / "engines.json").write_text(json.dumps(dict(machine=machine, date=str(datetime.date.today()), size=args.size, memory=memory, results=results), indent=1) + "\n")
    (out / "engines.svg").write_text(plot(results))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
