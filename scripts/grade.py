#!/usr/bin/env python3
"""Grade the accuracy of the library: the exact error of every entry, emulated and native, over classes of input.

    scripts/grade                       # all of it, a minute; writes accuracy.md, accuracy.json and accuracy.svg to docs/measured
    scripts/grade --k 64 --only normal  # a part of it, to look at
    OZ2_LIB=some/libblas.so scripts/grade --plain --no-write    # any BLAS in place of the library

Each product is computed twice: emulated, by dgemm_ of the library (OZ2_MIN_SIZE=0: nothing is too small), and natively, by numpy or by
--native. The error of an entry is computed with integers, so it is exact, and printed in units of u |A||B| of that entry, u = 2^-53. Every
emulated entry must keep the promise |C - AB| <= (T + 1) u |A||B| + 2^-1075; rows and columns that the library computed natively, the bound
k u |A||B| of a native product. Then come tests for fixed-point and Strassen-like arithmetic, and N against the least N that would do.

The exit status is 1 if an entry is beyond its bound, if a class goes native as a whole that need not, if more than a tenth of the rows and
columns is native, if N is above that of tests/oracle/certified_plan.py or more than 1 above the least N, or if a test fails.

T is 2 sqrt(n) (OZ2_ACCURACY=fp64), max(1, n - 1) (textbook) or 1 (high), n the smaller number of nonzeros of the row and of the column.
Other options of the library are taken from the environment as they are. Needs numpy. The parts are in tests/grading.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import shlex
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "oracle")]
from certified_plan import plan_auto  # noqa: E402
from grading import curves, detectors, plot, table  # noqa: E402
from grading.blas import Blas, Recorded, native_product, path_taken  # noqa: E402
from grading.exact import Exact, grade, promise, worst  # noqa: E402
from grading.inputs import classes  # noqa: E402

ORACLE_ENTRIES = 1 << 22                             # m n k up to which the oracle is asked: it is slow


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


# ---- the classes ----

def row_of_table(args, blas, native, one, k):
    """(the row, what is wrong with it)."""
    a, b, c0 = one.pair(args.seed, args.size, args.size + 1, k)
    (m, k), n = a.shape, b.shape[1]
    exact = Exact(a, b, c0)
    emulated = blas.product(a, b, c0)
    call = blas.last_call()
    route = call["route"]
    rows, columns = call.get("native_rows") or [], call.get("native_columns") or []
    verdict = grade(exact, emulated, args.accuracy, rows, columns, whole=route != "emulated")
    terms = max(map(max, exact.terms))
    row = dict(name=one.name, m=m, n=n, k=k, bits=one.bits, family=one.family, route=route, reason=call.get("reason"), path=path_taken(call),
               engine=call.get("engine"), moduli=call.get("moduli") if route == "emulated" else None, oracle=None, plan=call.get("plan"),
               bound_reported=call.get("bound"), rows_native=call.get("rows_native"), columns_native=call.get("columns_native"),
               error_emulated=verdict.worst_native if route == "plain" else verdict.worst, error_lines=verdict.worst_native,
               error_native=worst(exact, native(a, b, c0)), promise=promise(terms, args.accuracy), entries=m * n, checked=verdict.promised,
               broken=0 if args.plain else len(verdict.broken))
    return row, [] if args.plain else wrong_with(args, one, row, a, b, call, rows, columns)


def wrong_with(args, one, row, a, b, call, rows, columns):
    found = []
    if args.accuracy == "fp64" and a.size * b.shape[1] <= ORACLE_ENTRIES:
        row["oracle"] = plan_auto(a, b)[0]["n"]
    if row["broken"]:
        found.append(f"{row['broken']} entries beyond their bound")
    if row["route"] != "emulated":
        if row["oracle"]:
            found.append(f"native as a whole ({row['reason']}), the oracle has N = {row['oracle']}")
        elif one.must_emulate and args.accuracy == "fp64":
            found.append(f"native as a whole ({row['reason']}), though few rows and columns are bad")
        return found
    if row["oracle"] and row["moduli"] > row["oracle"]:
        found.append(f"N = {row['moduli']}, the oracle has {row['oracle']}")
    if (len(rows), len(columns)) != (row["rows_native"] or 0, row["columns_native"] or 0):
        found.append(f"{row['rows_native']} rows and {row['columns_native']} columns native, {len(rows)} and {len(columns)} named")
    if 10 * (len(rows) + len(columns)) > row["m"] + row["n"]:
        found.append(f"{len(rows)} rows and {len(columns)} columns native, more than a tenth")
    if not rows and not columns and call.get("bound") is not None and abs(call["bound"] - row["promise"]) > 1e-3:
        found.append(f"oz2_last_call says bound {call['bound']}, T + 1 is {row['promise']:.3f}")
    return found


def all_rows(args, blas, native, failures):
    for k in args.k:
        for one in classes():
            if (args.only and args.only not in one.name) or k > one.longest or (one.only_once and k != args.k[0]):
                continue
            row, found = row_of_table(args, blas, native, one, k)
            failures += [f"{one.name}, k = {row['k']}: {text}" for text in found]
            print(f"{row['name']:28s} k={row['k']:5d} N={row['moduli'] or '-':>3} library {table.shown(max(row['error_emulated'], row['error_lines'])):>9s}"
                  f" native {table.shown(row['error_native']):>9s} promise {table.shown(row['promise']):>8s} {row['path']}"
                  + "".join(f" !! {text}" for text in found), file=sys.stderr)
            yield row


# ---- the tests, and N ----

def all_detectors(args, blas, failures):
    for test in detectors.ALL:
        if args.only and args.only not in test.__name__:
            continue
        recorded = Recorded(blas)
        result = test(recorded, last=lambda: path_taken(recorded.last)) if test is detectors.rotated_sweep else test(recorded)
        if not result.passed and not args.plain:
            failures.append(f"{result.name}: {result.text}")
        paths = ", ".join(f"{count} {path}" for path, count in recorded.paths.items())
        print(f"{result.name}: {'passed' if result.passed else 'FAILED'}, {result.text}; {paths}", file=sys.stderr)
        yield dict(name=result.name, passed=result.passed, text=result.text, paths=paths, figures=result.figures)


def all_least(args, blas, failures):
    if args.only and args.only not in "least":
        return
    for one in curves.named(curves.LEAST):
        for k in curves.LEAST_K:
            found = curves.least_moduli(blas, one, k, args.seed, args.accuracy)
            if args.accuracy == "fp64" and (not found["auto"] or not found["least"] or found["auto"] > found["least"] + 1):
                failures.append(f"{one.name}, k = {k}: N = {found['auto']}, the least that would do is {found['least']}")
            print(f"{one.name}, k={k}: N = {found['auto']}, least {found['least']}", file=sys.stderr)
            yield found


# ---- what is written ----

README_MARKS = "<!-- accuracy table: scripts/grade --readme -->", "<!-- end of the accuracy table -->"


def write_readme(report, picture):
    """Puts some classes, each at its largest k, and the plot between the marks in README.md."""
    readme = ROOT / "README.md"
    before, rest = readme.read_text().split(README_MARKS[0])
    after = rest.split(README_MARKS[1])[1]
    chosen = {one.name for one in classes() if one.readme}
    largest = {}
    for row in report["rows"]:
        if row["name"] in chosen:
            largest[row["name"]] = max(row, largest.get(row["name"], row), key=lambda row: row["k"])
    lines = [README_MARKS[0], "", *table.class_table(largest.values()), ""]
    if picture:
        lines += ["![Error against the number of moduli and against the spread](docs/measured/accuracy.svg)", ""]
    lines.append(README_MARKS[1])
    readme.write_text(before + "\n".join(lines) + after)


def with_spread(rows):
    """The rows of the plot: classes with a spread, at the largest k that all of them have."""
    some = [dict(row, shown=row["error_emulated"] if row["route"] == "emulated" else row["error_lines"]) for row in rows if row["family"]]
    count = {k: sum(row["k"] == k for row in some) for k in {row["k"] for row in some}}
    k = max(count, key=lambda k: (count[k], k), default=None)
    return [row for row in some if row["k"] == k]


def write(args, report, picture, text):
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "accuracy.md").write_text(text)
    (out / "accuracy.json").write_text(json.dumps(report, indent=1) + "\n")
    if picture:
        (out / "accuracy.svg").write_text(picture)


def arguments():
    ap = argparse.ArgumentParser(prog="scripts/grade", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", default=str(ROOT / "docs" / "measured"), metavar="DIR", help="where accuracy.md, .json and .svg go (default docs/measured)")
    ap.add_argument("--no-write", action="store_true", help="print the table only")
    ap.add_argument("--readme", action="store_true", help="renew the table in README.md too (classes marked readme in tests/grading/inputs.py)")
    ap.add_argument("--size", type=int, default=40, metavar="M", help="rows of A; B has a column more (default 40)")
    ap.add_argument("--k", type=int, nargs="+", default=[61, 256, 2048], help="inner dimensions (default 61 256 2048)")
    ap.add_argument("--only", metavar="TEXT", help="only the classes and tests whose name contains TEXT")
    ap.add_argument("--seed", type=int, default=0, help="seed of the random data (default 0)")
    ap.add_argument("--accuracy", choices=["fp64", "textbook", "high"], default="fp64", help="OZ2_ACCURACY, and the promise that is held against it (default fp64)")
    ap.add_argument("--native", metavar="LIB", help="a BLAS library for the native product (default: numpy)")
    ap.add_argument("--plain", action="store_true", help="the library has no oz2_ functions: print its errors, hold it to no promise")
    return ap.parse_args()


def main():
    args = arguments()
    path = os.environ.get("OZ2_LIB") or str(ROOT / "target" / "release" / "liboz2blas.so")
    if os.sep in path and not os.path.exists(path):
        sys.exit(f"grade: no library at {path}; build it (cargo build --release) or set OZ2_LIB")
    # before the library is loaded: it reads its options once
    os.environ.update(OZ2_MIN_SIZE="0", OZ2_MODE="auto", OZ2_ACCURACY=args.accuracy)
    start, failures = time.time(), []
    native, native_name = native_product(args.native, within_repository)
    blas = Blas(path, args.plain)
    rows = list(all_rows(args, blas, native, failures))
    tests = list(all_detectors(args, blas, failures))
    least = [] if args.plain else list(all_least(args, blas, failures))
    lines = [] if args.plain or args.only else [curves.error_against_moduli(blas, one, args.size, args.size + 1, 256, args.seed, args.accuracy)
                                                for one in curves.named(curves.CURVES)]
    if not rows and not tests and not least:
        sys.exit("grade: nothing chosen")
    report = dict(library=blas.version(), accuracy=args.accuracy, native=native_name, machine=processor(), m=args.size, n=args.size + 1, seed=args.seed,
                  date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
                  command=shlex.join(["scripts/grade", *(within_repository(x) if x.startswith(os.sep) else x for x in sys.argv[1:])]),
                  engines=sorted({r["engine"] for r in rows if r["engine"]}), seconds=time.time() - start, rows=rows, detectors=tests, least=least,
                  least_shape=curves.LEAST_SHAPE, curves=lines,
                  failures=failures)
    picture = plot.svg(lines, with_spread(rows))
    text = table.markdown(report, picture)
    print(text)
    if not args.no_write:
        write(args, report, picture, text)
    if args.readme and rows:
        write_readme(report, picture)

    if failures:
        sys.exit("grade: " + "\ngrade: ".join(failures))
    if rows and not args.plain and not any(r["checked"] for r in rows):
        sys.exit("grade: nothing was emulated, so nothing was graded")


if __name__ == "__main__":
    main()
