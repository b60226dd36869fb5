"""Residue numbers on the GPU, for scripts/gpu_check.py: MAX of an array by interval evaluation, by mixed radix and naively
(kernels/rns.cu, docs/rns.md), for the sets of moduli of 64 to 4096 bits.

Every form must find the same place. Some intervals, and the largest of a part of the array, are checked by exact integers.
"""
import ctypes as ct
import math
import pathlib
import time
from fractions import Fraction

import numpy as np

PTX = pathlib.Path(__file__).resolve().parent.parent / "kernels" / "ptx"
NUMBERS = 5_000_000
# Number of moduli and first modulus of the paper's sets (src/rns/moduli.rs).
SETS = [(4, 65947), (8, 65725), (16, 65599), (32, 65533), (64, 65379), (128, 65139), (256, 64491)]
GRID, BLOCK = 1024, 256
ACCURACY = 1e-7
FORMS = ("interval", "radix", "naive")
CHECKED = 300


def greedy(count, start):
    """Odd pairwise coprime numbers from `start` on."""
    found, candidate = [start], start + 2
    while len(found) < count:
        if all(math.gcd(candidate, m) == 1 for m in found):
            found.append(candidate)
        candidate += 2
    return found


def directed(m):
    """1 / m rounded down and up."""
    nearest = 1.0 / m
    above = Fraction(nearest) * m > 1
    return (math.nextafter(nearest, 0), nearest) if above else (nearest, math.nextafter(nearest, 1))


class Constants:
    """What the kernels want to know of a set."""

    def __init__(self, moduli):
        self.moduli, self.n, self.product = moduli, len(moduli), math.prod(moduli)
        ratio = lambda factor, m: (factor << 32) // m
        self.weights = [pow(self.product // m, -1, m) for m in moduli]
        self.lanes = np.array([[m, w, ratio(w, m)] for m, w in zip(moduli, self.weights)], dtype=np.uint32)
        self.reciprocals = np.array([directed(m) for m in moduli])
        pairs = [(pow(other, -1, m), m) for i, m in enumerate(moduli) for other in moduli[:i]]
        self.inverses = np.array([[v, ratio(v, m)] for v, m in pairs], dtype=np.uint32)
        n = self.n
        delta = 2.0**-52 * n * max(2 * math.log2(n), math.ceil(math.log2(n)) + 2) * (1 + 2.0**-40)
        self.psi = 2 * delta * (1 + ACCURACY / 2) / ACCURACY
        self.least = math.floor(math.log2(1 / (2 * self.psi)))

    def value(self, residues):
        """The number with these residues."""
        terms = (int(x) * w % m * (self.product // m) for x, w, m in zip(residues, self.weights, self.moduli))
        return sum(terms) % self.product


class Kernels:
    def __init__(self, cuda):
        self.cuda, self.module = cuda, ct.c_void_p()
        for architecture in ("compute_80", "compute_75"):
            text = (PTX / f"rns.{architecture}.ptx").read_bytes() + b"\0"
            status = cuda.driver.cuModuleLoadData(ct.byref(self.module), text)
            if status == 0:
                break
        cuda.ok(status)

    def launch(self, name, grid, arguments):
        function = ct.c_void_p()
        self.cuda.ok(self.cuda.driver.cuModuleGetFunction(ct.byref(function), self.module, name.encode()))
        pointers = (ct.c_void_p * len(arguments))(*[ct.addressof(argument) for argument in arguments])
        self.cuda.ok(self.cuda.driver.cuLaunchKernel(function, grid, 1, 1, BLOCK, 1, 1, 0, None, pointers, None))


class Array:
    """`count` random numbers of a set on the device, and the three forms of MAX."""

    def __init__(self, cuda, kernels, constants, words, count):
        self.cuda, self.kernels, self.count, n = cuda, kernels, count, constants.n
        self.places = []
        long, number, address = ct.c_int64, ct.c_int32, ct.c_uint64
        put = lambda array: self.place(array.nbytes, array)
        residues = self.place(4 * n * count)
        self.sample = []
        for i, m in enumerate(constants.moduli):
            plane = words[977 * i : 977 * i + count] % np.uint32(m)
            cuda.send(residues + 4 * i * count, plane)
            self.sample.append(plane[:CHECKED].copy())
        head = [address(residues), long(count), number(n)]
        lanes, reciprocals, inverses = (address(put(a)) for a in (constants.lanes, constants.reciprocals, constants.inverses))
        psi, least = ct.c_double(constants.psi), number(constants.least)
        self.ends = [self.place(8 * count), self.place(8 * count), self.place(4 * count)]
        ends = [address(place) for place in self.ends]
        self.evaluation = [*head, lanes, reciprocals, inverses, psi, least, *ends]
        self.by_interval = [*head, lanes, inverses, *ends]
        self.by_naive = [*head, lanes, reciprocals, inverses, psi, least]
        digits = address(self.place(4 * n * count))
        self.conversion = [*head, lanes, inverses, digits]
        self.by_radix = [digits, long(count), number(n)]
        self.some, self.one = self.place(4 * GRID), self.place(4)

    def place(self, bytes_, array=None):
        address = self.cuda.alloc(bytes_)
        self.places.append(address)
        if array is not None:
            self.cuda.send(address, array)
        return address

    def free(self):
        for place in self.places:
            self.cuda.free(place)

    def reduce(self, name, head):
        stage = lambda source, length, to: [*head, ct.c_uint64(source), ct.c_int64(length), ct.c_uint64(to)]
        self.kernels.launch(name, GRID, stage(0, self.count, self.some))
        self.kernels.launch(name, 1, stage(self.some, GRID, self.one))

    def max(self, form):
        """The place of the largest number, and the seconds that it took."""
        self.cuda.sync()
        start = time.perf_counter()
        if form == "interval":
            self.kernels.launch("oz2_rns_interval", 4 * GRID, self.evaluation)
            self.reduce("oz2_rns_max", self.by_interval)
        elif form == "radix":
            self.kernels.launch("oz2_rns_radix", 4 * GRID, self.conversion)
            self.reduce("oz2_rns_max_radix", self.by_radix)
        else:
            self.reduce("oz2_rns_max_naive", self.by_naive)
        self.cuda.sync()
        seconds = time.perf_counter() - start
        place = np.zeros(1, dtype=np.int32)
        self.cuda.fetch(self.one, place)
        return int(place[0]), seconds


def check(array, constants):
    """How many intervals of the sample do not enclose their number."""
    low, upp, exponents = np.empty(CHECKED), np.empty(CHECKED), np.empty(CHECKED, dtype=np.int32)
    for place, to in zip(array.ends, (low, upp, exponents)):
        array.cuda.fetch(place, to)
    wrong = 0
    for j, residues in enumerate(np.array(array.sample).T):
        exact = Fraction(constants.value(residues), constants.product)
        scale = Fraction(2) ** int(exponents[j])
        wrong += not Fraction(low[j]) * scale <= exact <= Fraction(upp[j]) * scale
    return wrong


def measure(cuda, report, rehearse, seconds):
    """Times all forms on the sets for which there is time; what is wrong goes to report["wrong"]."""
    start, rows = time.time(), []
    kernels = Kernels(cuda)
    count, sets = (CHECKED + 1000, SETS[:3]) if rehearse else (NUMBERS, SETS)
    free, total = ct.c_size_t(), ct.c_size_t()
    cuda.ok(cuda.driver.cuMemGetInfo_v2(ct.byref(free), ct.byref(total)))
    words = np.random.default_rng(9).integers(0, 2**32, count + 977 * 256, dtype=np.uint32)
    for n, first in sets:
        # Every set takes up to four times as long as the one before it.
        if rows and seconds - (time.time() - start) < 4 * rows[-1]["total"]:
            print(f"no time left for {n} moduli", flush=True)
            break
        begin = time.time()
        constants = Constants(greedy(n, first))
        fits = min(count, int(0.8 * free.value) // (8 * n + 24))
        array = Array(cuda, kernels, constants, words, fits)
        row = dict(n=n, bits=constants.product.bit_length() - 1, numbers=fits)
        places = set()
        for form in FORMS:
            tries = [array.max(form) for _ in range(1 if rehearse else 4)]
            places |= {place for place, _ in tries}
            row[form] = sorted(t for _, t in tries[-3:])[len(tries[-3:]) // 2]
        wrong = check(array, constants)
        if wrong or len(places) != 1:
            report["wrong"].append(f"residue numbers, {n} moduli: {wrong} intervals wrong, places {places}")
        array.free()
        # A short array of the same numbers, whose largest one exact integers tell too.
        few = Array(cuda, kernels, constants, words, CHECKED)
        values = [constants.value(residues) for residues in np.array(few.sample).T]
        found = {form: few.max(form)[0] for form in FORMS}
        if set(found.values()) != {values.index(max(values))}:
            report["wrong"].append(f"residue numbers, {n} moduli: the largest is at {values.index(max(values))}, not {found}")
        few.free()
        row["total"] = time.time() - begin
        rows.append(row)
        print({k: round(v, 6) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    report["rns"] = rows


def markdown(report):
    lines = ["", "MAX over an array of residue numbers (docs/rns.md), milliseconds: intervals, mixed radix, and the naive form:", "",
             "| moduli | bits | numbers | interval | mixed radix | naive | mixed radix / interval | naive / interval |", "|---:|" + "---:|" * 7]
    for row in report.get("rns", []):
        times = [row[form] for form in FORMS]
        cells = [row["n"], row["bits"], row["numbers"], *(f"{1e3 * t:.3f}" for t in times), f"{times[1] / times[0]:.1f}", f"{times[2] / times[0]:.1f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines
