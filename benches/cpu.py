#!/usr/bin/env python3
"""Times DGEMM: OpenBLAS, our builtin, and the emulation, taking turns in one process; medians and ratios.

Each number of threads is a process of its own, because libraries read it once. Started by scripts/bench cpu.
"""
import argparse
import ctypes as ct
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHAPES = [(n, n, n) for n in (64, 128, 256, 512, 1024, 2048)] + [(2048, 2048, 128), (64, 2048, 2048)]
EMULATED_UP_TO = 1024  # the portable engine needs seconds beyond
REPEATS = 9
# OpenBLAS keeps its threads spinning after a call; the next contender would share the cores with them.
REST = 0.3


def openblas():
    import scipy_openblas32
    folder = pathlib.Path(scipy_openblas32.get_lib_dir())
    library = ct.CDLL(str(next(folder.glob("libscipy_openblas*.so"))))
    library.scipy_openblas_get_corename.restype = ct.c_char_p
    library.scipy_openblas_get_config.restype = ct.c_char_p
    return library


def caller(function, m, n, k, a, b, c):
    integer = lambda x: ct.byref(ct.c_int32(x))
    real = lambda x: ct.byref(ct.c_double(x))
    at = lambda x: x.ctypes.data_as(ct.c_void_p)
    arguments = [b"N", b"N", integer(m), integer(n), integer(k), real(1.0), at(a), integer(m), at(b), integer(k), real(0.0),
                 at(c), integer(m), ct.c_size_t(1), ct.c_size_t(1)]
    return lambda: function(*arguments)


def measure(threads):
    """Rows of one process, as JSON on stdout."""
    import numpy as np
    peer = openblas()
    ours = ct.CDLL(str(ROOT / "target/release/liboz2blas.so"))
    ours.oz2_last_call.argtypes = [ct.c_char_p, ct.c_size_t]
    option = lambda name, value: ours.oz2_set_option(name.encode(), value.encode())
    rng = np.random.default_rng(0)
    rows = []
    for m, n, k in SHAPES:
        a, b, c = (np.asfortranarray(rng.random(s) - 0.5) for s in ((m, k), (k, n), (m, n)))
        emulate = max(m, n, k) <= EMULATED_UP_TO
        contenders = {"openblas": caller(peer.scipy_dgemm_, m, n, k, a, b, c), "builtin": caller(ours.dgemm_, m, n, k, a, b, c)}
        if emulate:
            contenders["portable"] = contenders["builtin"]
        times = {name: [] for name in contenders}
        # Small products are timed in batches, so that the clock and Python do not count.
        batch = {name: 1 for name in contenders}
        for turn in range(-1, REPEATS):
            for name, call in contenders.items():
                option("MODE", "auto" if name == "portable" else "native")
                if threads > 1:
                    time.sleep(REST)
                call()
                start = time.perf_counter()
                for _ in range(batch[name]):
                    call()
                took = (time.perf_counter() - start) / batch[name]
                if turn < 0:
                    batch[name] = max(1, min(200, int(0.01 / took)))
                else:
                    times[name].append(took)
        moduli = None
        if emulate:
            text = ct.create_string_buffer(1024)
            ours.oz2_last_call(text, 1024)
            moduli = json.loads(text.value)["moduli"]
        medians = {name: statistics.median(x) for name, x in times.items()}
        # The ratio of each turn, since the machine changes from turn to turn; then their median.
        ratio = {name: statistics.median(p / q for p, q in zip(times["openblas"], times[name])) for name in times}
        rows.append(dict(m=m, n=n, k=k, threads=threads, moduli=moduli, ratio=ratio,
                         gflops={name: 2e-9 * m * n * k / t for name, t in medians.items()}))
        print(f"{m} x {n} x {k}, {threads} threads: " + ", ".join(f"{x} {r:.3f}" for x, r in ratio.items()), file=sys.stderr)
    config = peer.scipy_openblas_get_config().decode().split(" USE")[0].split(" NO_")[0]
    print(json.dumps(dict(rows=rows, openblas=f"{config}, kernel {peer.scipy_openblas_get_corename().decode()}")))


def markdown(report):
    head = ["m x n x k", "threads", "OpenBLAS GFLOP/s", "builtin GFLOP/s", "ratio", "portable GFLOP/s", "ratio", "N"]
    lines = ["# DGEMM on the CPU", "",
             "The builtin DGEMM and the emulation by the portable engine (OZ2_MIN_SIZE=0, uniform data) beside OpenBLAS. Contenders take turns in one",
             f"process; medians of {REPEATS} turns; a ratio is the median over the turns of our speed by OpenBLAS's in the same turn.", "",
             "| " + " | ".join(head) + " |", "|:---|" + "---:|" * 7]
    for r in report["rows"]:
        g, ratio = r["gflops"], r["ratio"]
        portable = [f"{g['portable']:.2f}", f"{ratio['portable']:.4f}", r["moduli"]] if "portable" in g else ["-"] * 3
        cells = [f"{r['m']} x {r['n']} x {r['k']}", r["threads"], f"{g['openblas']:.1f}", f"{g['builtin']:.1f}", f"{ratio['builtin']:.2f}", *portable]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines += ["", f"Machine: {report['machine']}, {report['cores']} cores. Peer: {report['openblas']}. Date: {report['date']}. Command: `scripts/bench cpu`.", ""]
    return "\n".join(lines)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", default=str(ROOT / "docs/measured"), help="where cpu.md and cpu.json go")
    ap.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    ap.add_argument("--process", type=int, metavar="THREADS", help=argparse.SUPPRESS)
    args = ap.parse_args()
    if args.process:
        return measure(args.process)
    parts = []
    for threads in args.threads:
        count = str(threads)
        env = dict(os.environ, OZ2_MIN_SIZE="0", OZ2_NATIVE="builtin", OZ2_NUM_THREADS=count, OPENBLAS_NUM_THREADS=count, OMP_NUM_THREADS=count)
        done = subprocess.run([sys.executable, __file__, "--process", count], env=env, check=True, stdout=subprocess.PIPE, text=True)
        parts.append(json.loads(done.stdout))
    machine = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    report = dict(rows=[row for part in parts for row in part["rows"]], openblas=parts[0]["openblas"], machine=machine, cores=os.cpu_count(),
                  date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"))
    text = markdown(report)
    print(text)
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "cpu.md").write_text(text)
    (out / "cpu.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
