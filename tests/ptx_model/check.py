#!/usr/bin/env python3
"""The product kernels on the CPU model of their instructions: they must be right, and with a mistake planted they must not be.

    tests/ptx_model/check.py    # about half a minute; needs a C++ compiler (CXX, else c++)

A mistake is a text of a kernel with what replaces it. One that is not found fails the test, and so does one whose text is not there
any more: then the list is out of date.
"""
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
KERNELS = HERE.parent.parent / "kernels"
CXX = os.environ.get("CXX", "c++")
FLAGS = ["-std=c++17", "-Wno-psabi", "-Wno-unknown-pragmas", "-I", str(HERE)]
NUMBERS = {"mma": 1, "wgmma": 2}
SECONDS = 100  # a guard: the model itself says when a kernel hangs

# (what, the right text, the wrong one)
MMA = [
    ("the halves of y taken in the wrong order", "y[j / 2][j % 2 * 2 + 1]", "y[j / 2][j % 2 + 1]"),
    ("the lanes of x by halves first", "lane % 16, x_chunk = lane / 16", "lane % 8 + lane / 16 * 8, x_chunk = lane / 8 % 2"),
    ("one group of copies too many on the way", "wait_copies<STAGES - 2>()", "wait_copies<STAGES - 1>()"),
    ("copies not swizzled as the loads", "copy16(to + chunk_at(line, chunk)", "copy16(to + line * DEPTH + 16 * chunk"),
    ("the next tile loads before this one is read", "    __syncthreads();   // the tile before has been read\n", ""),
    ("the last chunk is not cut off", "h < pitch && first + line < count", "first + line < count"),
    ("lines behind the end", "h < pitch && first + line < count", "h < pitch"),
    ("the same stage is loaded and read", "free = STAGES - 1;", "free = 0;"),
    ("columns stored eight off", "16 * i + 8 * high + lane / 4", "16 * i + 8 * (1 - high) + lane / 4"),
    ("pairs of rows stored in the wrong order", "&sums[i][2 * n + 1][2 * high]", "&sums[i][n + 4][2 * high]"),
    ("earlier residues forgotten", "if (p.add) bytes = *out;", ""),
    ("the quotient rounded down", "m.reciprocal) + 32) >> 6", "m.reciprocal)) >> 6"),
    ("the reciprocal rounded up", "(1ll << 38) + P[l] / 2)", "(1ll << 38) + P[l] - 1)"),
    ("modulus of another plane", "MODULI.of[modulus_of[tile.plane]]", "MODULI.of[tile.plane]"),
    ("the last band as wide as the others", "min(band, across - first)", "band"),
]
WGMMA = [
    ("stride field of the descriptor", "64ull << 32", "32ull << 32"),
    ("steps inside of a line", "x + 2 * part, y + 2 * part", "x + 4 * part, y + 4 * part"),
    ("the producer waits for the wrong phase", "barrier_wait(empty + 8 * stage, parity ^ 1)", "barrier_wait(empty + 8 * stage, parity)"),
    ("the consumer never changes its phase", "barrier_wait(full + 8 * stage, parity)", "barrier_wait(full + 8 * stage, 0)"),
    ("the second warpgroup's half of B", "(warpgroup - 1) * 64 * DEPTH)", "(warpgroup - 1) * 32 * DEPTH)"),
    ("the other half of A in a cluster", "at_a + mine * DEPTH", "at_a + mine * DEPTH / 2"),
    ("both blocks bring the same half", "row + mine, tile.plane", "row, tile.plane"),
    ("stages released in one block only", "barrier_arrive_at(barrier, lane)", "barrier_arrive_at(barrier, rank)"),
    ("old sums added at every step", "step > 0 || part > 0", "step > 0"),
    ("pairs of rows stored in the wrong order", "4 * (8 * block + 2 * n) + 2 * high", "4 * (8 * block + n) + 2 * high"),
    ("bytes expected of a stage", "barrier_expect(barrier, R::stage)", "barrier_expect(barrier, R::stage - 128)"),
    ("the ring not aligned to the swizzle", "+ 1023) & ~1023u", "+ 15) & ~15u"),
    ("a stage released before it is read", "if (step > 0) release(before);", "release(empty + 8 * stage);"),
    ("nobody waits for the step before", "wait_products<1>();", "wait_products<2>();"),
    ("no fence before the products", "                products_fence();\n", ""),
    ("arrivals of one block only", "barrier_init(empty + 8 * stage, 8 * CLUSTER)", "barrier_init(empty + 8 * stage, 8)"),
    ("the last stage not released", "            wait_products<0>();\n            release(before);\n", "            wait_products<0>();\n"),
    ("tiles of a cluster one apart", "number < tiles; number += stride) {\n            const Tile tile = tile_at(number, across, down, p.band);\n            const int column = (tile.column * CLUSTER + (int)rank)",
     "number < tiles; number += stride) {\n            const Tile tile = tile_at(number, across, down, p.band);\n            const int column = (tile.column + (int)rank)"),
    ("earlier residues forgotten", "if (p.add) bytes = *out;", ""),
]


def compile_once(folder):
    """What no mistake changes: the model, and the test for either kernel."""
    strict = ["-O3", "-march=native", "-Wall", "-Wextra", "-Werror", "-c"]
    subprocess.run([CXX, *FLAGS, *strict, HERE / "model.cpp", "-o", folder / "model.o"], check=True)
    for kernel in NUMBERS:
        subprocess.run([CXX, *FLAGS, *strict, f"-DKERNEL={NUMBERS[kernel]}", HERE / "products.cpp", "-o", folder / f"{kernel}.o"], check=True)


def run(folder, name, kernel, text):
    """Builds the test with this text of a kernel and runs it: (status, output)."""
    own = folder / name
    own.mkdir()
    (own / f"product_{kernel}.cu").write_text(text)
    define = f"-DKERNEL={NUMBERS[kernel]}"
    command = [CXX, "-O1", *FLAGS, "-I", own, define, HERE / "kernel.cpp", folder / "model.o", folder / f"{kernel}.o", "-o", own / "test"]
    subprocess.run(command, check=True)
    try:
        done = subprocess.run([own / "test"], capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return "time is up", ""
    return done.returncode, done.stdout


def main():
    faults = []
    with tempfile.TemporaryDirectory() as place, concurrent.futures.ThreadPoolExecutor(2) as pool:
        folder = pathlib.Path(place)
        compile_once(folder)
        jobs = []
        for kernel, mistakes in (("mma", MMA), ("wgmma", WGMMA)):
            right = (KERNELS / f"product_{kernel}.cu").read_text()
            jobs.append((kernel, None, pool.submit(run, folder, kernel, kernel, right)))
            for number, (what, text, wrong) in enumerate(mistakes):
                if text not in right:
                    faults.append(f"{kernel}: {what}: the text is not in the kernel any more: {text}")
                    continue
                name = f"{kernel}{number}"
                jobs.append((kernel, what, pool.submit(run, folder, name, kernel, right.replace(text, wrong))))
        for kernel, what, job in jobs:
            status, output = job.result()
            if what is None:
                print(f"product_{kernel}.cu: exit status {status}\n{output}", end="", flush=True)
                if status != 0 or output.count(" ok\n") < 8:
                    faults.append(f"{kernel}: wrong on the model")
            else:
                signs = [line.strip() for line in output.splitlines() if not line.endswith(" ok")]
                print(f"  {kernel}: {what}: {'NOT FOUND' if status == 0 else signs[-1] if signs else status}", flush=True)
                if status == 0:
                    faults.append(f"{kernel}: not found: {what}")
    print(f"{len(MMA) + len(WGMMA)} planted mistakes, {sum('not found' in fault for fault in faults)} not found")
    for fault in faults:
        print(f"ptx_model: {fault}", file=sys.stderr)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
