#!/usr/bin/env python3
"""The product kernels with the reduction inside (kernels/product_*.cu) on a GPU, for scripts/gpu_check.py: are they right, and how fast.

Every step is a process of its own with a limit, so that a kernel that hangs or breaks its context costs seconds. The simplest kernel
comes first, and of each the smallest product: one element a line of B, so that the result shows A, and a wrong field of a
descriptor can be read off it. Timed are kernels alone, on planes that are there; then whole calls through the library.
"""
import argparse
import ctypes as ct
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import threading
import time

import numpy as np

PTX = pathlib.Path(__file__).resolve().parent.parent / "kernels" / "ptx"
MODULI = [256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197, 193, 191, 181, 179, 173]
PLANES = 14
# Entry: file, rows of a tile, blocks of a cluster, threads, dynamic shared memory, blocks on a multiprocessor. Simplest first.
VARIANTS = {
    "oz2_product_mma": ("product_mma.compute_80", 128, 1, 128, 0, 2),
    "oz2_product_wgmma_128_1": ("product_wgmma.compute_90a", 128, 1, 384, 197888, 1),
    "oz2_product_wgmma_256_1": ("product_wgmma.compute_90a", 256, 1, 384, 197888, 1),
    "oz2_product_wgmma_128_2": ("product_wgmma.compute_90a", 128, 2, 384, 197888, 1),
    "oz2_product_wgmma_256_2": ("product_wgmma.compute_90a", 256, 2, 384, 197888, 1),
}
CUBLAS = "cuBLAS, then reduce"
PAIRS, SINGLES = "oz2_product_wgmma_256_2", "oz2_product_wgmma_256_1"
SMALL_PAIRS, SMALL_TILES = "oz2_product_wgmma_128_2", "oz2_product_wgmma_128_1"
THIN = [(16384, 16384, 512), (16384, 128, 16384), (512, 512, 65536)]
CHECK_SECONDS, TIME_SECONDS, CALL_SECONDS = 30, 35, 35
# Whole calls, each way in a process of its own: what is in the environment, what the log must say, and the levels of Strassen's form
# that a call must tell.
USED = "the fused product agrees with cuBLAS and is used"
WAYS = {
    "cuBLAS": ({"OZ2_CUDA_PRODUCT": "cublas"}, "", 0),
    "fused": ({"OZ2_CUDA_PRODUCT": "fused", "OZ2_CUDA_GRAPHS": "0"}, USED, 0),
    "fused, graphs": ({"OZ2_CUDA_PRODUCT": "fused"}, USED, 0),
    "fused, Strassen 1": ({"OZ2_CUDA_PRODUCT": "fused", "OZ2_STRASSEN": "1"}, USED, 1),
    "fused, Strassen 2": ({"OZ2_CUDA_PRODUCT": "fused", "OZ2_STRASSEN": "2"}, USED, 2),
}


# ---- a step, in its own process

class Planes:
    """Operands and result of one product of `planes` planes on the device: rows x columns, inner dimension `pitch`."""

    def __init__(self, cuda, shape, planes, a=None, b=None):
        self.cuda, self.shape, self.planes = cuda, shape, planes
        rows, columns, pitch = shape
        assert rows % 64 == 0 and columns % 32 == 0 and pitch % 32 == 0
        self.a, self.b, self.plain_a = (cuda.alloc(planes * lines * pitch) for lines in (rows, columns, rows))
        self.out, self.modulus_of = cuda.alloc(planes * rows * columns), cuda.alloc(4 * planes)
        self.sums = None
        cuda.send(self.modulus_of, np.arange(planes, dtype=np.int32))
        if a is None:  # any bytes: what matters is that they are as random as residues, which is what takes power
            block = np.random.default_rng(1).integers(-127, 128, 32 << 20, dtype=np.int8)
            for place, size in ((self.a, planes * rows * pitch), (self.b, planes * columns * pitch), (self.plain_a, planes * rows * pitch)):
                cuda.send(place, block[:size])
                done = min(size, block.nbytes)
                while done < size:  # an odd distance, so that planes and lines differ
                    part = min(done - 4099 * 16, size - done)
                    cuda.ok(cuda.driver.cuMemcpyDtoD_v2(ct.c_uint64(place + done), ct.c_uint64(place + 16 * 977), ct.c_size_t(part)))
                    done += part
        else:
            order = np.arange(rows)
            place = order - order % 64 + 8 * (order % 16 // 2) + 2 * (order % 64 // 16) + order % 2
            permuted = np.empty_like(a)
            permuted[:, place] = a
            cuda.send(self.a, permuted)
            cuda.send(self.plain_a, a)
            cuda.send(self.b, b)

    def free(self):
        for place in (self.a, self.b, self.plain_a, self.out, self.modulus_of, self.sums):
            if place:
                self.cuda.free(place)

    def result(self):
        rows, columns, _ = self.shape
        out = np.empty((self.planes, columns, rows), np.int8)
        self.cuda.fetch(self.out, out)
        return out


class Kernels:
    """Modules, loaded when they are needed, and launches."""

    def __init__(self, cuda):
        self.cuda, self.functions, self.modules = cuda, {}, {}
        device, count = ct.c_int(), ct.c_int()
        cuda.ok(cuda.driver.cuDeviceGet(ct.byref(device), 0))
        cuda.ok(cuda.driver.cuDeviceGetAttribute(ct.byref(count), 16, device))
        self.multiprocessors = count.value

    def function(self, name, file, shared=0):
        if name not in self.functions:
            if file not in self.modules:
                module = ct.c_void_p()
                self.cuda.ok(self.cuda.driver.cuModuleLoadData(ct.byref(module), (PTX / f"{file}.ptx").read_bytes() + b"\0"))
                self.modules[file] = module
            function = ct.c_void_p()
            self.cuda.ok(self.cuda.driver.cuModuleGetFunction(ct.byref(function), self.modules[file], name.encode()))
            if shared:
                self.cuda.ok(self.cuda.driver.cuFuncSetAttribute(function, 8, shared))
            self.functions[name] = function
        return self.functions[name]

    def launch(self, function, grid, threads, shared, parameters):
        pointers = (ct.c_void_p * len(parameters))(*[ct.addressof(parameter) for parameter in parameters])
        self.cuda.ok(self.cuda.driver.cuLaunchKernel(function, grid[0], grid[1], 1, threads, 1, 1, shared, None, pointers, None))

    def tensor_map(self, address, sizes, box_lines):
        room = ct.create_string_buffer(128 + 64)
        start = -(-ct.addressof(room) // 64) * 64
        map_ = (ct.c_uint64 * 16).from_address(start)
        map_.room = room
        sizes_, strides = (ct.c_uint64 * 3)(*sizes), (ct.c_uint64 * 2)(sizes[0], sizes[0] * sizes[1])
        boxes, steps = (ct.c_uint32 * 3)(128, box_lines, 1), (ct.c_uint32 * 3)(1, 1, 1)
        encode = self.cuda.driver.cuTensorMapEncodeTiled
        self.cuda.ok(encode(ct.c_void_p(start), 0, 3, ct.c_uint64(address), sizes_, strides, boxes, steps, 0, 3, 3, 0))
        return map_

    def fused(self, name, p, add=0, band=8, most_blocks=1 << 30):
        """One launch of a variant; returns a function that repeats it."""
        file, tile_rows, cluster, threads, shared, resident = VARIANTS[name]
        function, (rows, columns, pitch) = self.function(name, file, shared), p.shape
        tiles = p.planes * -(-rows // tile_rows) * -(-columns // (128 * cluster))
        most = max(min(self.multiprocessors * resident, most_blocks) // cluster, 1)
        numbers = [ct.c_int32(x) for x in (rows, columns, pitch, p.planes)]
        operands = [ct.c_uint64(p.a), ct.c_uint64(p.b)]
        if "wgmma" in name:
            operands = [self.tensor_map(p.a, (pitch, rows, p.planes), tile_rows // cluster),
                        self.tensor_map(p.b, (pitch, columns, p.planes), 128)]
        parameters = [*operands, *numbers, ct.c_uint64(p.modulus_of), ct.c_uint64(p.out), ct.c_int32(add), ct.c_int32(band)]
        again = lambda: self.launch(function, (min(tiles, most) * cluster, 1), threads, shared, parameters)
        again()
        return again

    def cublas(self, p, add=0):
        """The product by cuBLAS into 32-bit sums, and their reduction; returns a function that repeats both."""
        rows, columns, pitch = p.shape
        entries = rows * columns
        p.sums = p.sums or self.cuda.alloc(4 * p.planes * entries)
        one, zero = ct.c_int32(1), ct.c_int32(0)
        function = self.function("oz2_reduce", "reduce.compute_80")
        address, long, number = ct.c_uint64, ct.c_int64, ct.c_int32
        parameters = [address(p.sums), long(entries), address(p.out), long(entries), long(entries)]
        parameters += [number(0), number(p.planes), number(add)]

        def both():
            self.cuda.ok(self.cuda.blas.cublasGemmStridedBatchedEx(
                self.cuda.handle, 1, 0, rows, columns, pitch, ct.byref(one), address(p.plain_a), 3, pitch, long(rows * pitch),
                address(p.b), 3, pitch, long(columns * pitch), ct.byref(zero), address(p.sums), 10, rows, long(entries), p.planes, 72, -1))
            self.launch(function, (min(2**31 - 1, -(-entries // 1024)), p.planes), 256, 0, parameters)

        both()
        return both


def random_residues(rng, planes, lines, pitch):
    low = np.array([-(MODULI[l] // 2) for l in range(planes)], np.int16)
    count = np.array([MODULI[l] for l in range(planes)])
    return np.stack([(rng.integers(0, count[l], (lines, pitch)) + low[l]).astype(np.int8) for l in range(planes)])


def expected(a, b):
    """Canonical residues of the products, planes x columns x rows: sums of integers below 2^53, so exact in doubles."""
    out = np.empty((a.shape[0], b.shape[1], a.shape[1]), np.int8)
    for l in range(a.shape[0]):
        p = MODULI[l]
        r = (b[l].astype(float) @ a[l].astype(float).T).astype(np.int64) % p
        out[l] = np.where(r > (p - 1) // 2, r - p, r)
    return out


def tell_difference(name, what, got, want):
    wrong = np.argwhere(got != want)
    l, j, i = wrong[0]
    text = f"{what}: {len(wrong)} of {got.size} wrong, the first at plane {l} column {j} row {i}: {got[l, j, i]}, not {want[l, j, i]}"
    if got.shape[1] >= 64 and got.shape[2] >= 64 and "one-hot" in what:
        # Column j should be element j of every line of A.
        columns = [j for j in range(64) if (got[0, j] != want[0, j]).any()]
        rows = [i for i in range(64) if (got[0, :, i] != want[0, :, i]).any()]
        text += (f"; wrong columns (elements of A) {columns[:20]}, wrong rows {rows[:20]}. Columns in blocks of 16: swizzle; from 32 on: "
                 "steps along the line; rows from 8 on: stride field; rows in blocks of 64: permutation")
    print(f"WRONG {name} {text}", flush=True)


def check(kernels, name, rehearse):
    """Everything about a variant from the simplest on; stops at the first mistake."""
    rng, cuda = np.random.default_rng(3), kernels.cuda
    all_ = 1 << 30
    cases = [("one step, one-hot", (64, 64, 32), 1, "one-hot", all_), ("one tile, one-hot", (256, 128, 128), 2, "one-hot", all_),
             ("one tile", (256, 128, 128), 1, "random", all_), ("the ring wraps", (256, 128, 1056), 2, "random", all_),
             ("ragged, several tiles a block", (320, 416, 416), 3, "random", 2), ("the largest sums", (128, 32, 4096), 3, "extreme", all_)]
    for what, shape, planes, kind, most in cases:
        rows, columns, pitch = shape
        if rehearse and pitch > 2000:
            continue
        a, b = random_residues(rng, planes, rows, pitch), random_residues(rng, planes, columns, pitch)
        if kind == "one-hot":
            b = np.zeros_like(b)
            b[:, np.arange(min(columns, pitch)), np.arange(min(columns, pitch))] = 1
        elif kind == "extreme":
            a[:] = b[:] = np.array([-(MODULI[l] // 2) for l in range(planes)], np.int8)[:, None, None]
        p, want = Planes(cuda, shape, planes, a, b), expected(a, b)
        cuda.send(p.out, np.full(want.shape, 0x5A, np.int8))
        kernels.fused(name, p, most_blocks=most)
        cuda.sync()
        got = p.result()
        if not np.array_equal(got, want):
            return tell_difference(name, what, got, want)
        kernels.fused(name, p, add=1, most_blocks=most)
        cuda.sync()
        l = np.array(MODULI[:planes])[:, None, None]
        twice = (2 * want.astype(int)) % l
        twice = np.where(twice > (l - 1) // 2, twice - l, twice)
        if not np.array_equal(p.result(), twice):
            return tell_difference(name, what + ", on top of the first", p.result(), twice.astype(np.int8))
        p.free()
        print(f"{name} {what}: right", flush=True)
    # Large ones against cuBLAS, three times: what depends on time shows then.
    large = [((1024, 1024, 1024), PLANES), ((512, 512, 65536), 3), ((4096, 4096, 4096), 4)]
    for shape, planes in [((128, 96, 160), 3)] if rehearse else large:
        p = Planes(cuda, shape, planes)
        cuda.ok(cuda.driver.cuMemcpyDtoD_v2(ct.c_uint64(p.plain_a), ct.c_uint64(p.a), ct.c_size_t(planes * shape[0] * shape[2])))
        kernels.cublas(p)
        cuda.sync()
        # cuBLAS has the permuted lines too: its rows come out permuted.
        order = np.arange(shape[0])
        want = p.result()[:, :, order - order % 64 + 8 * (order % 16 // 2) + 2 * (order % 64 // 16) + order % 2]
        for _ in range(3):
            kernels.fused(name, p)
            cuda.sync()
            got = p.result()
            if not np.array_equal(got, want):
                return tell_difference(name, f"{shape}", got, want)
        p.free()
        print(f"{name} {shape}: as cuBLAS", flush=True)
    print("RIGHT", flush=True)


class Sensors:
    """Clock (MHz) and power (W) while something runs, from nvidia-smi where it is."""

    def __init__(self):
        self.samples, self.process = [], None
        if tool := shutil.which("nvidia-smi"):
            query = [tool, "--query-gpu=clocks.sm,power.draw,clocks.max.sm", "--format=csv,noheader,nounits", "-i", "0", "-lms", "100"]
            self.process = subprocess.Popen(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            try:
                self.samples.append((time.time(), *[float(x) for x in line.split(",")]))
            except ValueError:
                pass

    def since(self, start):
        # The first samples are from before the load.
        found = [s for s in self.samples if s[0] > start + 0.15]
        return [round(statistics.median(column)) for column in list(zip(*found))[1:]] if found else None

    def stop(self):
        if self.process:
            self.process.kill()


def measure_times(kernels, name, shapes, bands, sensors, least_seconds):
    """Median microseconds of groups of launches, by events, with the clock and the power meanwhile."""
    cuda = kernels.cuda
    events = [ct.c_void_p(), ct.c_void_p()]
    for event in events:
        cuda.ok(cuda.driver.cuEventCreate(ct.byref(event), 0))
    up = lambda size, to: -(-size // to) * to
    for shape in shapes:
        p = Planes(cuda, (up(shape[0], 64), up(shape[1], 32), up(shape[2], 32)), PLANES)
        for band in bands if shape[0] >= 4096 else bands[:1]:
            again = kernels.cublas(p) if name == CUBLAS else kernels.fused(name, p, band=band)
            cuda.sync()
            begin = time.time()
            again(), cuda.sync()
            count = max(1, min(200, int(0.05 / max(time.time() - begin, 1e-6))))
            times, start = [], time.time()
            while len(times) < 3 or time.time() - start < least_seconds:
                cuda.ok(cuda.driver.cuEventRecord(events[0], None))
                for _ in range(count):
                    again()
                cuda.ok(cuda.driver.cuEventRecord(events[1], None))
                cuda.ok(cuda.driver.cuEventSynchronize(events[1]))
                elapsed = ct.c_float()
                cuda.ok(cuda.driver.cuEventElapsedTime(ct.byref(elapsed), *events))
                times.append(elapsed.value * 1e3 / count)
            seen, us = sensors.since(start), statistics.median(times)
            row = dict(kernel=name, shape=shape, band=band, us=us, tops=2 * PLANES * shape[0] * shape[1] * shape[2] / max(us, 1e-9) * 1e-6)
            if seen:
                row.update(clock=seen[0], watts=seen[1], most_clock=seen[2])
            print("ROW " + json.dumps(row), flush=True)
        p.free()


def calls(library_path, shapes, rehearse, sensors):
    """Whole calls with operands and result on the device, mode fast, 14 moduli: TFLOPS, and the sum of the bits of C to compare."""
    import gpu_check
    library, cuda = gpu_check.Library(library_path), gpu_check.Cuda()
    for name, value in (("ENGINE", "cuda"), ("MODE", "fast"), ("MODULI", PLANES)):
        library.option(name, value)
    rng = np.random.default_rng(6)
    for m, n, k in shapes:
        places = [cuda.alloc(8 * m * k), cuda.alloc(8 * k * n), cuda.alloc(8 * m * n)]
        some = rng.random(min(k * max(m, n), 10_000_019)) - 0.5  # making more random numbers would take seconds
        cuda.send(places[0], np.resize(some, m * k))
        cuda.send(places[1], np.resize(some[::-1], k * n))
        call = lambda: library.dgemm("N", "N", m, n, k, 1.0, places[0], m, places[1], k, 0.0, places[2], m)
        start = time.time()
        seconds, seen = gpu_check.median_time(call, 3, 0.05 if rehearse else 0.5), sensors.since(start)
        c = np.empty((n, m))
        cuda.fetch(places[2], c)
        # A digest of all bits of C and their places, to compare the two products.
        bits = int(np.bitwise_xor.reduce(c.view(np.uint64).ravel() * np.arange(1, 2 * c.size, 2, dtype=np.uint64)))
        row = dict(shape=(m, n, k), tflops=2e-12 * m * n * k / seconds, bits=bits, engine=library.last().get("engine"),
                   strassen=library.last().get("strassen"))
        if seen:
            row.update(clock=seen[0], watts=seen[1])
        print("CALL " + json.dumps(row), flush=True)
        for place in places:
            cuda.free(place)


def check_forms(library_path, levels, rehearse):
    """Small whole calls in Strassen's form against the portable engine, bit for bit: the kernels that make its operands and that add up
    its products. All numbers of moduli, odd sizes, transposes, and an inner dimension in two blocks."""
    import gpu_check
    library, rng, taken = gpu_check.Library(library_path), np.random.default_rng(9), 0
    library.option("MODE", "accurate")
    numbers = range(2, 21, 3) if rehearse else range(2, 21)
    problems = [(n, *gpu_check.random_problem(rng, 60 if rehearse else 300)) for n in numbers]
    k = 66000
    a, b, c = (gpu_check.data(rng, "uniform", *size) for size in ((9, k), (k, 7), (9, 7)))
    problems.append((4, ("N", "N", 9, 7, k, 1.0, 0.5, a, b, c), "long inner dimension"))
    for moduli, problem, what in problems:
        library.option("MODULI", moduli)
        got, told = gpu_check.product(library, "cuda", problem)
        want, _ = gpu_check.product(library, "portable", problem)
        wrong = int((got.view(np.uint64) != want.view(np.uint64)).sum())
        if wrong or told.get("engine") not in ("cuda", None):
            return print(f"WRONG Strassen {levels}: N {moduli} {what}: {wrong} entries differ ({told})", flush=True)
        # A size of 1 cannot be cut, and some data have no plan.
        if told.get("strassen") == levels:
            taken += 1
            print(f"N {moduli} {what}: right", flush=True)
    few = f"WRONG Strassen {levels}: {taken} of {len(problems)} calls had these levels"
    print("RIGHT" if 2 * taken > len(problems) else few, flush=True)


def step(arguments):
    if arguments.step == "forms":
        return check_forms(arguments.library, int(arguments.name), arguments.rehearse)
    if arguments.step == "calls":
        sensors = Sensors()
        try:
            return calls(arguments.library, arguments.shapes, arguments.rehearse, sensors)
        finally:
            sensors.stop()
    import gpu_check
    kernels = Kernels(gpu_check.Cuda())
    if arguments.step == "check":
        return check(kernels, arguments.name, arguments.rehearse)
    sensors = Sensors()
    try:
        bands = [8, 4, 16] if arguments.name in (PAIRS, SINGLES) else [8]
        measure_times(kernels, arguments.name, arguments.shapes, bands, sensors, 0.02 if arguments.rehearse else 0.6)
    finally:
        sensors.stop()


# ---- all of it

def measure(library, report, sizes, rehearse, seconds):
    """Fills report["product"]. `seconds`: for everything; what does not fit is left out and said."""
    end = time.time() + seconds
    out = report["product"] = dict(checks={}, times=[], calls={}, left_out=[])

    def process(name, limit, *words, **environment):
        limit = min(limit, end - time.time())
        if limit < 3:
            out["left_out"].append(name)
            return "no time left", "", ""
        command = [sys.executable, "-B", __file__, "--library", str(library), *words, *(["--rehearse"] if rehearse else [])]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=dict(os.environ, **environment))
        except subprocess.TimeoutExpired as hung:
            return f"no end after {limit:.0f} s", (hung.stdout or b"").decode(), ""
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        return (None if done.returncode == 0 else last[0]), done.stdout, done.stderr

    def check(name, *words, **environment):
        failed, text, _ = process(f"check of {name}", CHECK_SECONDS, *words, **environment)
        lines = text.strip().splitlines()
        right = failed is None and lines[-1:] == ["RIGHT"]
        wrong = [line for line in lines if line.startswith("WRONG")]
        done = sum(": right" in line or ": as cuBLAS" in line for line in lines)
        out["checks"][name] = f"right, {done} cases" if right else wrong[0] if wrong else f"{failed} (after {done} right cases)"
        print(f"{name}: {out['checks'][name]}", flush=True)

    for name in VARIANTS:
        check(name, "--step", "check", "--name", name)
    for levels in (1, 2):
        environment = WAYS[f"fused, Strassen {levels}"][0]
        check(f"Strassen {levels}", "--step", "forms", "--name", str(levels), **environment)
    squares = [(n, n, n) for n in sizes]
    thin = [(128, 64, 96)] if rehearse else [shape for shape in THIN if max(sizes) >= 8192]
    usable = [name for name in VARIANTS if out["checks"][name].startswith("right")]
    shapes = ["x".join(map(str, shape)) for shape in squares + thin]
    # Before the kernels alone: these decide what is the default.
    for way, (environment, told, levels) in WAYS.items():
        words = ["--step", "calls", "--shapes", *shapes]
        failed, text, log = process(f"calls: {way}", CALL_SECONDS, *words, OZ2_LOG="debug", **environment)
        out["calls"][way] = [json.loads(line[5:]) for line in text.splitlines() if line.startswith("CALL ")]
        if failed:
            out["left_out"].append(f"the rest of the calls: {way}: {failed}")
        elif told not in log or "CUDA graphs fail" in log or "the CUDA driver has no graphs" in log:
            out["left_out"].append(f"calls: {way}: the library did not do it so")
        fewer = [row["shape"] for row in out["calls"][way] if row["strassen"] != levels]
        if fewer:
            out["left_out"].append(f"calls: {way}: another number of levels at {fewer}")
    for name in [CUBLAS, *reversed(usable)]:
        failed, text, _ = process(f"times of {name}", TIME_SECONDS, "--step", "times", "--name", name, "--shapes", *shapes)
        out["times"] += [json.loads(line[4:]) for line in text.splitlines() if line.startswith("ROW ")]
        if failed:
            out["left_out"].append(f"the rest of the times of {name}: {failed}")
    bits = {tuple(row["shape"]): row["bits"] for row in out["calls"]["cuBLAS"]}
    rows = [row for rows in out["calls"].values() for row in rows]
    out["different"] = [row["shape"] for row in rows if bits.get(tuple(row["shape"]), row["bits"]) != row["bits"]]
    wrong = [f"fused product: {name}: {what}" for name, what in out["checks"].items() if what.startswith("WRONG")]
    wrong += [f"fused product: other bits at {shape}" for shape in out["different"]]
    report["wrong"] = report.get("wrong", []) + wrong


def best(times, kernel, n):
    rows = [row for row in times if row["kernel"] == kernel and row["shape"] == [n, n, n]]
    return min(rows, key=lambda row: row["us"], default=None)


def decisions(times):
    """(question, what was measured, what follows): what the numbers decide about the kernels."""
    rows = []
    unknown = "not measured"
    for tile, pairs, singles, sizes in ((256, PAIRS, SINGLES, (4096, 8192, 16384)), (128, SMALL_PAIRS, SMALL_TILES, (1024, 2048))):
        both = [(n, best(times, pairs, n), best(times, singles, n)) for n in sizes]
        gains = [(n, single["us"] / pair["us"] - 1) for n, pair, single in both if pair and single]
        then = unknown
        if gains:
            most = max(gain for _, gain in gains)
            number = f"of {tile} rows in CLUSTERS (src/engine/cuda/product.rs)"
            then = f"bound by the L2: 2 for tiles {number}" if most > 0.05 else f"clusters gain nothing: 1 for tiles {number}"
        rows.append((f"pairs of blocks faster than single ones by more than 5 %, tiles of {tile} rows?",
                     ", ".join(f"{n}: {100 * gain:+.1f} %" for n, gain in gains) or unknown, then))
    for n in (8192, 16384):
        row = min((r for r in (best(times, name, n) for name in VARIANTS) if r), key=lambda r: r["us"], default=None)
        seen = then = unknown
        if row:
            seen, slow = f"{row['tops']:.0f} TOPS by {row['kernel']}", False
            if "clock" in row:
                seen += f", {row['clock']} of {row['most_clock']} MHz, {row['watts']} W"
                slow = row["clock"] < 0.93 * row["most_clock"]
            reason = "bound by power: only fewer products help" if slow else "the pipeline: stages, order of warpgroups"
            then = "reached" if row["tops"] >= 1500 else reason
        rows.append((f"1500 TOPS or more at {n}?", seen, then))
    row = min((r for r in (best(times, name, 1024) for name in VARIANTS) if r), key=lambda r: r["us"], default=None)
    rows.append(("30 us or less at 1024?", f"{row['us']:.1f} us by {row['kernel']}" if row else unknown,
                 unknown if not row else "reached" if row["us"] <= 30 else "launches or the L2: smaller tiles, graphs"))
    portable, own = best(times, "oz2_product_mma", 1024), best(times, SMALL_TILES, 1024)
    ratio = portable["us"] / own["us"] if portable and own else None
    rows.append(("mma.sync within 30 % of wgmma at 1024?", unknown if ratio is None else f"{ratio:.2f} times the time",
                 unknown if ratio is None else "the simpler kernel may do there" if ratio < 1.3 else "no"))
    theirs, ours = best(times, CUBLAS, 8192), min((r for r in (best(times, PAIRS, 8192), best(times, SINGLES, 8192)) if r),
                                                  key=lambda r: r["us"], default=None)
    ratio = theirs["us"] / ours["us"] if theirs and ours else None
    rows.append(("faster than cuBLAS and reduce at 8192?", unknown if ratio is None else f"{ratio:.2f} times as fast",
                 unknown if ratio is None else "make it the default" if ratio > 1.02 else "cuBLAS stays the default"))
    return rows


def call_of(calls, way, shape):
    return next((row for row in calls.get(way, []) if tuple(row["shape"]) == tuple(shape)), None)


# Size, TFLOPS that a whole call is to reach by the model of the time, and the way that is to.
GOALS = [(1024, 40, "fused, graphs"), (2048, 65, "fused, graphs"), (4096, 80, "fused"), (8192, 100, "fused"),
         (16384, 115, "fused, Strassen 1"), (16384, 120, "fused, Strassen 2")]


def decisions_of_calls(calls):
    """As decisions, of whole calls: whether graphs and Strassen's form pay, and from where on, and which goals are reached."""
    rows, unknown = [], "not measured"
    sizes = sorted({row["shape"][0] for row in calls.get("fused", []) if len(set(row["shape"])) == 1})

    def gains(better, worse):
        pairs = ((n, call_of(calls, better, (n, n, n)), call_of(calls, worse, (n, n, n))) for n in sizes)
        return [(n, x["tflops"] / y["tflops"] - 1) for n, x, y in pairs if x and y]

    told = lambda found: ", ".join(f"{n}: {100 * gain:+.1f} %" for n, gain in found) or unknown
    found = gains("fused, graphs", "fused")
    most = max((n for n, gain in found if gain > 0.02), default=None)
    then = unknown if not found else "no graphs" if most is None else f"graphs up to {most} (MOST_WORK in src/engine/cuda/graph.rs)"
    rows.append(("graphs gain?", told(found), then))
    for question, better, worse, count in (("a level of Strassen's form gains?", "fused, Strassen 1", "fused", "one level"),
                                           ("a second level gains?", "fused, Strassen 2", "fused, Strassen 1", "two levels")):
        found = gains(better, worse)
        least = min((n for n, gain in found if gain > 0.02), default=None)
        rows.append((question, told(found), unknown if not found else f"not {count}" if least is None else f"{count} from {least} on"))
    for n, goal, way in GOALS:
        row = call_of(calls, way, (n, n, n))
        seen = f"{row['tflops']:.1f} TFLOPS, {way}" if row else unknown
        rows.append((f"{goal} TFLOPS or more at {n}?", seen, unknown if not row else "reached" if row["tflops"] >= goal else "missed"))
    return rows


def markdown(report):
    if "product" not in report:
        return []
    out = report["product"]
    lines = ["", "## The product with the reduction inside", "", "Against numpy and cuBLAS, byte for byte:", ""]
    lines += [f"- {name}: {what}" for name, what in out["checks"].items()]
    lines += ["", f"Kernels alone, {PLANES} moduli, random bytes. TOPS: two operations a product of bytes.", "",
              "| m x n x k | kernel | band | us | TOPS | MHz | W |", "|---|---|---:|---:|---:|---:|---:|"]
    for row in sorted(out["times"], key=lambda row: row["shape"][0] * row["shape"][1] * row["shape"][2]):
        cells = ["x".join(map(str, row["shape"])), row["kernel"], row["band"], f"{row['us']:.1f}", f"{row['tops']:.0f}"]
        cells += [row.get("clock", "-"), row.get("watts", "-")]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines += ["", "Whole calls on the device, mode fast, 14 moduli, TFLOPS; MHz and W beside them:", ""]
    lines += ["| m x n x k | " + " | ".join(WAYS) + " | same bits |", "|---|" + "---:|" * len(WAYS) + "---|"]
    shapes = list(dict.fromkeys(tuple(row["shape"]) for rows in out["calls"].values() for row in rows))
    for shape in shapes:
        found = [call_of(out["calls"], way, shape) for way in WAYS]
        cells = ["-" if row is None else f"{row['tflops']:.1f}" + (f" ({row['clock']}, {row['watts']})" if "clock" in row else "")
                 for row in found]
        same = "yes" if len({row["bits"] for row in found if row}) == 1 else "NO"
        lines.append(f"| {'x'.join(map(str, shape))} | " + " | ".join(cells) + f" | {same} |")
    lines += ["", "| question | measured | conclusion |", "|---|---|---|"]
    lines += ["| " + " | ".join(row) + " |" for row in decisions(out["times"]) + decisions_of_calls(out["calls"])]
    if out["left_out"]:
        lines += ["", "Left out: " + "; ".join(out["left_out"]) + "."]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library")
    parser.add_argument("--step", choices=["check", "forms", "times", "calls"], required=True)
    parser.add_argument("--name")
    parser.add_argument("--shapes", nargs="*", type=lambda text: tuple(map(int, text.split("x"))), default=[])
    parser.add_argument("--rehearse", action="store_true")
    step(parser.parse_args())


if __name__ == "__main__":
    main()
