#!/usr/bin/env python3
"""Grade the accuracy of the library: the exact error of every entry, emulated and native, over classes of input.

    scripts/grade                       # all classes, seconds; writes docs/measured/accuracy.md and accuracy.json
    scripts/grade --k 64 --only normal  # a part of it, to look at
    OZ2_LIB=some/libblas.so scripts/grade --plain --no-write    # any BLAS in place of the library

Each product is computed twice: emulated, by dgemm_ of the library (OZ2_MIN_SIZE=0: nothing is too small), and natively, by numpy or by
--native. The error of an entry is computed with integers, so it is exact, and printed in units of u |A||B| of that entry, u = 2^-53. Every
emulated entry must keep the promise |C - AB| <= (T + 1) u |A||B| + 2^-1075; where one does not, the exit status is 1.

T is 2 sqrt(n) (OZ2_ACCURACY=fp64), max(1, n - 1) (textbook) or 1 (high), n the smaller number of nonzeros of the row and of the column.
Other options of the library are taken from the environment as they are. Needs numpy.
"""
import argparse
import ctypes
import datetime
import json
import math
import os
import pathlib
import platform
import shlex
import sys
import time
from fractions import Fraction

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "oracle"))
from certified_plan import input_classes  # noqa: E402

CLASSES = ["uniform(-.5,.5)", "uniform(0,1)", "normal", "phi=0.5", "phi=1", "phi=2", "phi=4", "integers -9..9", "signs +-1", "float32 data",
           "one-hot x normal", "5% sparse", "block diagonal", "inner scale 2^+-100", "rotated scale 2^+-16"]


# ---- the two products ----

class Blas:
    """dgemm_ of a shared library, 32-bit integers, and what it tells of itself."""

    def __init__(self, path, plain=False):
        library = ctypes.CDLL(str(path))
        self.dgemm = library.dgemm_
        self.dgemm.restype = None
        self.library, self.plain = library, plain
        if plain:
            return
        library.oz2_version.restype = ctypes.c_char_p
        library.oz2_last_call.restype = ctypes.c_size_t
        library.oz2_last_call.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

    def product(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        a, b = np.asfortranarray(a), np.asfortranarray(b)
        c = np.full((m, n), np.nan, order="F")      # beta = 0: C may hold anything
        number = lambda x: ctypes.byref(ctypes.c_int32(x))
        real = lambda x: ctypes.byref(ctypes.c_double(x))
        at = lambda x: x.ctypes.data_as(ctypes.c_void_p)
        self.dgemm(b"N", b"N", number(m), number(n), number(k), real(1.0), at(a), number(m), at(b), number(k), real(0.0), at(c), number(m),
                   ctypes.c_size_t(1), ctypes.c_size_t(1))
        return c

    def version(self):
        return "plain BLAS" if self.plain else self.library.oz2_version().decode()

    def last_call(self):
        if self.plain:
            return {}
        text = ctypes.create_string_buffer(4096)
        self.library.oz2_last_call(text, 4096)
        return json.loads(text.value)


# ---- the exact error ----

def as_integers(rows):
    """The rows as Python integers, row i in units of 2^q[i], and q."""
    mantissa, exponent = np.frexp(rows)
    m = (mantissa * 2.0**53).astype(np.int64)
    low = np.frexp((m & -m).astype(float))[1] - 1   # the position of the lowest set bit; for 0 of no use
    live = m != 0
    q = np.where(live, exponent - 53 + low, 10**6).min(1)
    q = np.where(live.any(1), q, 0)
    shift = np.where(live, exponent.astype(np.int64) - 53 - q[:, None], 0)
    out = [[x << s if s >= 0 else x >> -s for x, s in zip(xs, ss)] for xs, ss in zip(m.tolist(), shift.tolist())]
    return np.array(out, dtype=object).reshape(rows.shape), [int(x) for x in q]


class Exact:
    """A B and |A||B| of one pair, exactly, and the number n of the promise."""

    def __init__(self, a, b):
        x, qa = as_integers(a)
        y, qb = as_integers(np.ascontiguousarray(b.T))
        self.product = x.dot(y.T).tolist()
        self.size = np.abs(x).dot(np.abs(y).T).tolist()
        self.unit = [[p + q for q in qb] for p in qa]
        self.few = np.minimum((a != 0).sum(1)[:, None], (b != 0).sum(0)[None, :]).tolist()

    def errors(self, c):
        """For every entry (error, size |A||B|, unit exponent, n), error and size as integers in units of 2^that exponent; error None for NaN, Inf."""
        for i, row in enumerate(c.tolist()):
            for j, value in enumerate(row):
                unit, exact, size = self.unit[i][j], self.product[i][j], self.size[i][j]
                if not math.isfinite(value):
                    yield None, size, unit, self.few[i][j]
                    continue
                mantissa, exponent = math.frexp(value)
                got, low = int(mantissa * 2.0**53), exponent - 53 if value else unit
                base = min(low, unit)
                yield abs((got << low - base) - (exact << unit - base)), size << unit - base, base, self.few[i][j]


def promised(error, size, unit, n, accuracy):
    """error <= (T + 1) u size + 2^-1075, decided with integers."""
    for pad in (0, Fraction(2) ** (-1075 - unit)):   # the last term matters only far down: tried without it first
        rest = error * 2**53 - size - pad * 2**53    # must be at most T size
        if accuracy == "fp64":
            kept = rest <= 0 or rest**2 <= 4 * n * size**2
        else:
            kept = rest <= (max(1, n - 1) if accuracy == "textbook" else 1) * size
        if kept:
            return True
    return False


def bound(n, accuracy):
    """T + 1 in units of u |A||B|, for print."""
    return {"fp64": 2 * math.sqrt(n), "textbook": max(1, n - 1), "high": 1}[accuracy] + 1


def ratio(error, size):
    """error in units of u size, as a double."""
    if error is None:
        return math.inf
    if not size:
        return math.inf if error else 0.0           # an empty sum must be zero
    return float(Fraction(error * 2**53, size))


def grade(exact, c, accuracy, checked):
    """(the largest error, the number of entries beyond the promise where it is checked)."""
    worst, broken = 0.0, 0
    for error, size, unit, n in exact.errors(c):
        worst = max(worst, ratio(error, size))
        if checked and (error is None or not promised(error, size, unit, n, accuracy)):
            broken += 1
    return worst, broken


# ---- the table ----

def processor():
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def within_repository(path):
    """A path as it may be printed: relative to the repository, or its last part."""
    path = pathlib.Path(path).resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def shown(x):
    if x is None:
        return "-"
    if not math.isfinite(x):
        return str(x)
    return f"{x:.3f}" if x < 1000 else f"{x:.2e}"


def rows_of_table(args, blas, native):
    rng = np.random.default_rng(args.seed)
    for k in args.k:
        for name, a, b in input_classes(rng, args.size, k):
            if name not in CLASSES or (args.only and args.only not in name):
                continue
            exact = Exact(a, b)
            emulated = blas.product(a, b)
            call = blas.last_call()
            route = "plain" if args.plain else call.get("route", "?")
            # rows and columns that the library left to the native BLAS carry the bound of that one
            whole = not (call.get("rows_native") or call.get("columns_native"))
            checked = route == "emulated" and whole
            worst, broken = grade(exact, emulated, args.accuracy, checked)
            worst_native, _ = grade(exact, native(a, b), args.accuracy, False)
            n = max(map(max, exact.few))
            if checked and call.get("bound") is not None and abs(call["bound"] - bound(n, args.accuracy)) > 1e-3:
                print(f"grade: {name}, k={k}: oz2_last_call says bound {call['bound']}, T + 1 is {bound(n, args.accuracy)}", file=sys.stderr)
            yield dict(name=name, k=k, route=route, reason=call.get("reason"), engine=call.get("engine"), moduli=call.get("moduli") if route == "emulated" else None,
                       bound_reported=call.get("bound"), rows_native=call.get("rows_native"), columns_native=call.get("columns_native"),
                       error_emulated=worst, error_native=worst_native, promise=bound(n, args.accuracy), entries=args.size**2, checked=checked, broken=broken)


def table(rows):
    head = ["class", "k", "N", "error, emulated", "error, native", "promise T + 1", "route"]
    lines = ["| " + " | ".join(head) + " |", "|:---|" + "---:|" * 5 + ":---|"]
    for r in rows:
        emulated = r["route"] in ("emulated", "plain")
        route = r["route"] + (f": {r['reason']}" if r["reason"] else "") + (f", {r['broken']} ENTRIES BEYOND THE PROMISE" if r["broken"] else "")
        if r["rows_native"] or r["columns_native"]:
            route += f" ({r['rows_native']} rows, {r['columns_native']} columns native; not held to the promise)"
        cells = [r["name"], r["k"], r["moduli"] or "-", shown(r["error_emulated"]) if emulated else "-", shown(r["error_native"]), shown(r["promise"]) if r["checked"] else "-", route]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def markdown(report):
    lines = ["# Accuracy", "",
             f"Largest error over all entries of a {report['size']} x {report['size']} product with inner dimension k, in units of u |A||B| of the entry (u = 2^-53), computed exactly.",
             "The promise is T + 1 for the entry with the most terms; each entry was held to its own.", ""]
    lines += table(report["rows"])
    lines += ["", f"Library: {report['library']}, accuracy {report['accuracy']}, engine {', '.join(report['engines']) or '-'}. Native: {report['native']}.",
              f"Machine: {report['machine']}. Date: {report['date']}. Command: `{report['command']}` ({report['seconds']:.0f} s).", ""]
    return "\n".join(lines)


README_MARKS = "<!-- accuracy table: scripts/grade --readme -->", "<!-- end of the accuracy table -->"


def write_readme(report):
    """Puts the rows of the largest k between the marks in README.md."""
    readme = ROOT / "README.md"
    before, rest = readme.read_text().split(README_MARKS[0])
    after = rest.split(README_MARKS[1])[1]
    largest = max(r["k"] for r in report["rows"])
    lines = [README_MARKS[0], "", *table([r for r in report["rows"] if r["k"] == largest]), "", README_MARKS[1]]
    readme.write_text(before + "\n".join(lines) + after)


def native_product(path):
    """(a function of two matrices, its name): numpy, or dgemm_ of a shared library."""
    if path:
        return Blas(path, plain=True).product, within_repository(path)
    name = "numpy " + np.__version__
    try:
        blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        name += f" with {blas['name']} {blas['version']}"
    except (TypeError, KeyError):                    # an old numpy, or one that was built without this note
        pass
    return lambda a, b: a @ b, name


def main():
    ap = argparse.ArgumentParser(prog="scripts/grade", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", default=str(ROOT / "docs" / "measured"), metavar="DIR", help="where accuracy.md and accuracy.json go (default docs/measured)")
    ap.add_argument("--no-write", action="store_true", help="print the table only")
    ap.add_argument("--readme", action="store_true", help="renew the table in README.md too")
    ap.add_argument("--size", type=int, default=32, metavar="M", help="rows of A and columns of B (default 32)")
    ap.add_argument("--k", type=int, nargs="+", default=[64, 256, 2048], help="inner dimensions (default 64 256 2048)")
    ap.add_argument("--only", metavar="TEXT", help="only the classes whose name contains TEXT")
    ap.add_argument("--seed", type=int, default=0, help="seed of the random data (default 0)")
    ap.add_argument("--accuracy", choices=["fp64", "textbook", "high"], default="fp64", help="OZ2_ACCURACY, and the promise that is held against it (default fp64)")
    ap.add_argument("--native", metavar="LIB", help="a BLAS library for the native product (default: numpy)")
    ap.add_argument("--plain", action="store_true", help="the library has no oz2_ functions: print its errors, hold it to no promise")
    args = ap.parse_args()

    path = os.environ.get("OZ2_LIB") or str(ROOT / "target" / "release" / "liboz2blas.so")
    if os.sep in path and not os.path.exists(path):
        sys.exit(f"grade: no library at {path}; build it (cargo build --release) or set OZ2_LIB")
    # before the library is loaded: it reads its options once
    os.environ.update(OZ2_MIN_SIZE="0", OZ2_MODE="auto", OZ2_ACCURACY=args.accuracy)
    start = time.time()
    native, native_name = native_product(args.native)
    blas = Blas(path, args.plain)
    rows = []
    for row in rows_of_table(args, blas, native):
        rows.append(row)
        print(f"{row['name']:22s} k={row['k']:5d} N={row['moduli'] or '-':>3} library {shown(row['error_emulated']):>9s} native {shown(row['error_native']):>9s}"
              f" promise {shown(row['promise']):>8s} {row['route']} {row['reason'] or ''}", file=sys.stderr)
    if not rows:
        sys.exit("grade: no class chosen")
    report = dict(library=blas.version(), accuracy=args.accuracy, native=native_name, machine=processor(), size=args.size, seed=args.seed,
                  date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
                  command=shlex.join(["scripts/grade", *(within_repository(x) if x.startswith(os.sep) else x for x in sys.argv[1:])]),
                  engines=sorted({r["engine"] for r in rows if r["engine"]}), seconds=time.time() - start, rows=rows)
    text = markdown(report)
    print(text)
    if not args.no_write:
        out = pathlib.Path(args.out)
        out.mkdir(parents=True, exist_ok=True)
        (out / "accuracy.md").write_text(text)
        (out / "accuracy.json").write_text(json.dumps(report, indent=1) + "\n")
    if args.readme:
        write_readme(report)

    broken = sum(r["broken"] for r in rows)
    if broken:
        sys.exit(f"grade: {broken} entries beyond the promise")
    if not args.plain and not any(r["checked"] for r in rows):
        sys.exit("grade: nothing was emulated, so nothing was graded")


if __name__ == "__main__":
    main()
