#!/usr/bin/env python3
"""The work of scripts/gpu-check: products on the GPU compared with the portable engine bit for bit, then times.

Needs numpy and the CUDA driver and cuBLAS; both are used through ctypes.
"""
import argparse
import ctypes as ct
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

import numpy as np

import gpu_product
import gpu_rns

START = time.time()
CHECK_SECONDS = 60     # for the comparison with the portable engine, which is slow
PRODUCT_SECONDS = 170  # for the product kernels, and alone:
PRODUCT_ALONE_SECONDS = 270
DEADLINE = 400
RNS_SECONDS = 60       # for the residue numbers, after all else


class Library:
    """liboz2blas.so with everything emulated."""

    def __init__(self, path):
        os.environ.update(OZ2_MIN_SIZE="0")
        self.lib = ct.CDLL(str(path))
        self.lib.oz2_version.restype = ct.c_char_p

    def option(self, name, value):
        code = self.lib.oz2_set_option(name.encode(), str(value).encode())
        assert code == 0, f"option {name}={value}: {code}"

    def last(self):
        text = ct.create_string_buffer(2048)
        self.lib.oz2_last_call(text, ct.c_size_t(2048))
        return json.loads(text.value)

    def dgemm(self, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
        number = lambda x: ct.byref(ct.c_int64(x))
        real = lambda x: ct.byref(ct.c_double(x))
        self.lib.dgemm_64_(ta.encode(), tb.encode(), number(m), number(n), number(k), real(alpha), ct.c_void_p(a), number(lda), ct.c_void_p(b),
                           number(ldb), real(beta), ct.c_void_p(c), number(ldc), ct.c_size_t(1), ct.c_size_t(1))


# ---- checks

def data(rng, kind, rows, columns):
    x = rng.random((rows, columns)) - 0.5
    if kind == "integers":
        x = rng.integers(-9, 10, (rows, columns)).astype(float)
    elif kind == "wide":
        x = x * 2.0 ** rng.integers(-8, 9, (rows, columns))
    elif kind == "sparse":
        x = x * (rng.random((rows, columns)) < 0.3)
    elif kind == "subnormal":
        x = x * 2.0**-1060
    return np.asfortranarray(x)


def product(library, engine, problem):
    ta, tb, m, n, k, alpha, beta, a, b, c = problem
    library.option("ENGINE", engine)
    out = c.copy(order="F")
    library.dgemm(ta, tb, m, n, k, alpha, a.ctypes.data, a.shape[0], b.ctypes.data, b.shape[0], beta, out.ctypes.data, out.shape[0])
    return out, library.last()


def random_problem(rng, size):
    m, n, k = (int(x) for x in rng.integers(1, size, 3))
    ta, tb = rng.choice(["N", "T"], 2)
    kinds = rng.choice(["uniform", "integers", "wide", "sparse", "subnormal"], 2)
    pad = [int(x) for x in rng.integers(0, 4, 3)]
    stored = lambda t, r, c, extra, kind: data(rng, kind, (r if t == "N" else c) + extra, c if t == "N" else r)
    a, b = stored(ta, m, k, pad[0], kinds[0]), stored(tb, k, n, pad[1], kinds[1])
    c = data(rng, "uniform", m + pad[2], n)
    alpha, beta = float(rng.choice([1.0, -1.0, 0.3])), float(rng.choice([0.0, 1.0, -0.7]))
    return (ta, tb, m, n, k, alpha, beta, a, b, c), f"{ta}{tb} {m}x{n}x{k} {kinds[0]}*{kinds[1]} alpha {alpha} beta {beta}"


def check(library, small, report):
    """Random calls on both engines; every N in the modes with a fixed one. The same bits, or the report says where not."""
    rng = np.random.default_rng(5)
    done, wrong = 0, []

    def compare(problem, what):
        nonlocal done
        got, told = product(library, "cuda", problem)
        want, told_host = product(library, "portable", problem)
        done += 1
        if told.get("engine") not in ("cuda", None) or told.get("route") != told_host.get("route"):
            wrong.append(f"{what}: routed as {told}")
        elif not np.array_equal(got.view(np.uint64), want.view(np.uint64)):
            wrong.append(f"{what}: {int((got.view(np.uint64) != want.view(np.uint64)).sum())} entries differ ({told})")

    for moduli in range(2, 21):
        for mode in ("fast", "accurate"):
            library.option("MODE", mode)
            library.option("MODULI", moduli)
            problem, what = random_problem(rng, 60 if small else 200)
            compare(problem, f"{mode} N {moduli} {what}")
    library.option("MODE", "auto")
    library.option("MODULI", "auto")
    # The inner dimension in two blocks: sums of the one are added to the residues of the other.
    k = 66000
    a, b = data(rng, "wide", 9, k), data(rng, "uniform", k, 7)
    compare(("N", "N", 9, 7, k, 1.0, 0.5, a, b, data(rng, "uniform", 9, 7)), "long inner dimension")
    limit = time.time() + (20 if small else CHECK_SECONDS)
    for _ in range(10 if small else 300):
        if time.time() > limit:
            break
        problem, what = random_problem(rng, 80 if small else 400)
        compare(problem, f"auto {what}")
    # Exact integers have one right answer, which numpy finds too: large sizes without the portable engine.
    for n in (100,) if small else (1000, 4096, 8192):
        a, b = (np.asfortranarray(rng.integers(-9, 10, (n, n)).astype(float)) for _ in range(2))
        problem = ("N", "N", n, n, n, 1.0, 0.0, a, b, np.full((n, n), np.nan, order="F"))
        got, told = product(library, "cuda", problem)
        done += 1
        if told.get("engine") != "cuda" or not np.array_equal(got, a @ b):
            wrong.append(f"exact integers {n}: {told}")
    report["checks"], report["wrong"] = done, wrong
    print(f"checks: {done} products, {len(wrong)} wrong", flush=True)
    for line in wrong[:20]:
        print("  WRONG", line, flush=True)


# ---- the device

class Cuda:
    """The few functions of the driver and of cuBLAS that timing needs."""

    def __init__(self):
        self.driver = ct.CDLL("libcuda.so.1")
        names = ["libcublas.so.13", "libcublas.so.12"]
        site = [p / "nvidia" / d / "lib" / n for p in map(pathlib.Path, sys.path) for d in ("cu13", "cublas") for n in names]
        for name in names + [str(p) for p in site if p.exists()]:
            try:
                self.blas = ct.CDLL(name)
                self.blas_name = pathlib.Path(name).name
                break
            except OSError:
                continue
        self.ok(self.driver.cuInit(0))
        device, context = ct.c_int(), ct.c_void_p()
        self.ok(self.driver.cuDeviceGet(ct.byref(device), 0))
        self.ok(self.driver.cuDevicePrimaryCtxRetain(ct.byref(context), device))
        self.ok(self.driver.cuCtxSetCurrent(context))
        self.handle = ct.c_void_p()
        self.ok(self.blas.cublasCreate_v2(ct.byref(self.handle)))
        name = ct.create_string_buffer(128)
        self.driver.cuDeviceGetName(name, 128, device)
        version, blas = ct.c_int(), ct.c_int()
        self.driver.cuDriverGetVersion(ct.byref(version))
        self.blas.cublasGetVersion_v2(self.handle, ct.byref(blas))
        self.name, self.versions = name.value.decode(), f"driver {version.value}, {self.blas_name} {blas.value}"

    def ok(self, status):
        if status:
            raise RuntimeError(f"CUDA status {status}")

    def alloc(self, bytes_):
        address = ct.c_uint64()
        self.ok(self.driver.cuMemAlloc_v2(ct.byref(address), ct.c_size_t(bytes_)))
        return address.value

    def free(self, address):
        self.ok(self.driver.cuMemFree_v2(ct.c_uint64(address)))

    def send(self, address, array):
        self.ok(self.driver.cuMemcpyHtoD_v2(ct.c_uint64(address), ct.c_void_p(array.ctypes.data), ct.c_size_t(array.nbytes)))

    def fetch(self, address, array):
        self.ok(self.driver.cuMemcpyDtoH_v2(ct.c_void_p(array.ctypes.data), ct.c_uint64(address), ct.c_size_t(array.nbytes)))

    def sync(self):
        self.ok(self.driver.cuCtxSynchronize())

    def dgemm(self, n, a, b, c):
        one, zero = ct.c_double(1), ct.c_double(0)
        self.ok(self.blas.cublasDgemm_v2(self.handle, 0, 0, n, n, n, ct.byref(one), ct.c_uint64(a), n, ct.c_uint64(b), n, ct.byref(zero), ct.c_uint64(c), n))
        self.sync()


def random_matrix(rng, n):
    """n x n, its rows repeated: making 16384^2 random numbers would take seconds."""
    tile = rng.random((min(n, 1024), n)) - 0.5
    return np.asfortranarray(np.tile(tile, (-(-n // tile.shape[0]), 1))[:n])


def median_time(call, least=3, seconds=1.0):
    call()
    times, start = [], time.time()
    while len(times) < least or (time.time() - start < seconds and len(times) < 30):
        t = time.perf_counter()
        call()
        times.append(time.perf_counter() - t)
    return statistics.median(times)


def time_device(library, cuda, sizes, report):
    rng = np.random.default_rng(6)
    library.option("ENGINE", "cuda")
    rows = []
    for n in sizes:
        if time.time() - START > DEADLINE - 60:
            print(f"no time left for n = {n}", flush=True)
            break
        x = random_matrix(rng, n)
        places = [cuda.alloc(8 * n * n) for _ in range(3)]
        cuda.send(places[0], x)
        cuda.send(places[1], np.asfortranarray(x[:, ::-1]))
        tflops = lambda t: 2e-12 * n**3 / t
        row = dict(n=n, cublas=tflops(median_time(lambda: cuda.dgemm(n, *places))))

        def run(mode, moduli):
            library.option("MODE", mode)
            library.option("MODULI", moduli)
            return tflops(median_time(lambda: library.dgemm("N", "N", n, n, n, 1.0, places[0], n, places[1], n, 0.0, places[2], n)))

        for mode, moduli in (("fast", 14), ("fast", 15), ("accurate", 14), ("accurate", 15), ("auto", "auto")):
            row[f"{mode} {moduli}"] = run(mode, moduli)
        row["auto N"] = library.last().get("moduli")
        row["engine"] = library.last().get("engine")
        for place in places:
            cuda.free(place)
        rows.append(row)
        print({k: round(v, 1) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    report["device"] = rows


def time_host(library, cuda, sizes, report):
    rng = np.random.default_rng(7)
    library.option("MODE", "auto")
    library.option("MODULI", "auto")
    rows = []
    for n in sizes:
        if time.time() - START > DEADLINE - 40:
            break
        a = random_matrix(rng, n)
        b, c = a.copy(order="F"), np.zeros((n, n), order="F")
        emulated = median_time(lambda: library.dgemm("N", "N", n, n, n, 1.0, a.ctypes.data, n, b.ctypes.data, n, 0.0, c.ctypes.data, n), 2)
        place = cuda.alloc(8 * n * n)
        copies = median_time(lambda: (cuda.send(place, a), cuda.send(place, b), cuda.fetch(place, c)), 2)
        cuda.free(place)
        rows.append(dict(n=n, tflops=2e-12 * n**3 / emulated, seconds=emulated, copies=copies))
        print(rows[-1], flush=True)
    report["host"] = rows


def phases(library_path, n):
    """Milliseconds of each phase of one call with its operands on the device: a process of its own that logs them."""
    env = dict(os.environ, OZ2_LOG="trace", OZ2_MIN_SIZE="0", OZ2_ENGINE="cuda", OZ2_MODULI="15")
    done = subprocess.run([sys.executable, __file__, "--library", library_path, "--one", str(n)], env=env, capture_output=True, text=True, timeout=60)
    # The first call of a process opens the device: only what the last call logged counts.
    last = done.stderr.rsplit("first call is over", 1)[-1]
    out = {}
    for name, nanoseconds in re.findall(r'phase="(\w+)" nanoseconds=(\d+)', last):
        out[name] = out.get(name, 0) + int(nanoseconds) * 1e-6
    return out


def one_call(library, n):
    cuda = Cuda()
    rng = np.random.default_rng(8)
    x = random_matrix(rng, n)
    places = [cuda.alloc(8 * n * n) for _ in range(3)]
    cuda.send(places[0], x)
    cuda.send(places[1], x)
    for text in ("first call is over\n", ""):
        library.dgemm("N", "N", n, n, n, 1.0, places[0], n, places[1], n, 0.0, places[2], n)
        sys.stderr.write(text)
        sys.stderr.flush()


def own_emulation(sizes):
    """cuBLAS's own FP64 emulation, which an environment variable switches on where it exists: a process of its own."""
    env = dict(os.environ, CUBLAS_EMULATE_DOUBLE_PRECISION="1", CUBLAS_EMULATION_STRATEGY="eager")
    done = subprocess.run([sys.executable, __file__, "--peer", *map(str, sizes)], env=env, capture_output=True, text=True, timeout=60)
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {}


def peer(sizes):
    cuda, out = Cuda(), {}
    rng = np.random.default_rng(6)
    for n in sizes:
        x = random_matrix(rng, n)
        places = [cuda.alloc(8 * n * n) for _ in range(3)]
        cuda.send(places[0], x)
        cuda.send(places[1], x)
        out[n] = 2e-12 * n**3 / median_time(lambda: cuda.dgemm(n, *places), 3, 0.3)
        for place in places:
            cuda.free(place)
    print(json.dumps(out))


def markdown(report):
    lines = ["# The GPU", "", f"{report['checks']} products compared with the portable engine or exact integers, {len(report['wrong'])} wrong. compute-sanitizer: {report['sanitizer']}.", ""]
    lines += [f"- {line}" for line in report["wrong"][:20]]
    columns = ["fast 14", "fast 15", "accurate 14", "accurate 15", "auto auto"]
    lines += ["TFLOPS, operands and result on the device:", "", "| n | cublasDgemm | its own emulation | " + " | ".join(columns) + " | auto N |", "|---:|" + "---:|" * (len(columns) + 3)]
    for r in report.get("device", []):
        own = report.get("own", {}).get(str(r["n"]))
        cells = [r["n"], f"{r['cublas']:.1f}", f"{own:.1f}" if own else "-", *(f"{r[c]:.1f}" for c in columns), r["auto N"]]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    for n, times in report.get("phases", {}).items():
        total = sum(times.values())
        parts = ", ".join(f"{name} {t:.2f} ({100 * t / total:.0f} %)" for name, t in times.items())
        lines += ["", f"Phases of one call on the device, n = {n}, mode auto, milliseconds, one after the other: {parts}."]
    lines += ["", "Operands and result on the host (dgemm_, mode auto), beside the copies alone from pageable memory:", "", "| n | TFLOPS | seconds | seconds of copies |", "|---:|---:|---:|---:|"]
    lines += [f"| {r['n']} | {r['tflops']:.2f} | {r['seconds']:.4f} | {r['copies']:.4f} |" for r in report.get("host", [])]
    lines += gpu_product.markdown(report)
    lines += gpu_rns.markdown(report)
    lines += ["", f"Device: {report['device_name']}, {report['versions']}. Library {report['library']}. Date: {report['date']}. Command: `scripts/gpu-check` ({report['seconds']:.0f} s).", ""]
    return "\n".join(lines)


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--library")
    ap.add_argument("--out")
    ap.add_argument("--sanitizer", default="not run")
    ap.add_argument("--small", action="store_true", help="a few small products only")
    ap.add_argument("--quick", action="store_true")
    ap.add_argument("--product", action="store_true", help="only the product kernels")
    ap.add_argument("--rehearse", action="store_true", help="everything once on tiny sizes, for the software device")
    ap.add_argument("--one", type=int, help=argparse.SUPPRESS)
    ap.add_argument("--peer", type=int, nargs="+")
    args = ap.parse_args()
    if args.peer:
        return peer(args.peer)
    library, report = Library(args.library), {}
    if args.one:
        return one_call(library, args.one)
    sizes = [64, 96] if args.rehearse else [1024, 2048, 4096] if args.quick else [1024, 2048, 4096, 8192, 16384]
    out = pathlib.Path(args.out or ".")
    if args.product:
        gpu_product.measure(args.library, report, sizes, args.rehearse, PRODUCT_ALONE_SECONDS)
        text = "\n".join(gpu_product.markdown(report)[3:]) + "\n"
        print(text)
        (out / "gpu-product.md").write_text("# The product with the reduction inside\n\n" + text)
        (out / "gpu-product.json").write_text(json.dumps(report, indent=1) + "\n")
        sys.exit(1 if report["wrong"] else 0)
    check(library, args.small or args.rehearse, report)
    if args.small:
        sys.exit(1 if report["wrong"] else 0)
    gpu_product.measure(args.library, report, sizes, args.rehearse, PRODUCT_SECONDS)
    cuda = Cuda()
    time_device(library, cuda, sizes, report)
    time_host(library, cuda, sizes, report)
    report["phases"] = {n: phases(args.library, n) for n in sizes if n in (64, 1024, 8192)}
    report["own"] = own_emulation([n for n in sizes if n <= 8192])
    gpu_rns.measure(cuda, report, args.rehearse, RNS_SECONDS)
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    report.update(device_name=cuda.name, versions=cuda.versions, library=library.lib.oz2_version().decode(), date=now, sanitizer=args.sanitizer,
                  seconds=time.time() - START)
    text = markdown(report)
    print(text)
    (out / "gpu.md").write_text(text)
    (out / "gpu.json").write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(1 if report["wrong"] else 0)


if __name__ == "__main__":
    main()
