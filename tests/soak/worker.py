"""One process of scripts/soak: makes the calls that it is told, and checks each. Lines of JSON to standard output.

{"begin": numbers}, then {"done": {...}} for a group of calls that are made at the same time; {"failed": [number, what, call]} for each fault.
"""
import argparse
import ctypes
import json
import os
import signal
import sys
import threading

import numpy as np

import check
import draw

TRANSPOSE = {"N": 111, "T": 112, "C": 113}


class Blas:
    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        integer, real, pointer = ctypes.c_int, ctypes.c_double, ctypes.c_void_p
        self.library.cblas_dgemm.argtypes = [integer] * 6 + [real, pointer, integer, pointer, integer, real, pointer, integer]
        self.library.cblas_dgemm.restype = self.library.dgemm_.restype = None

    def multiply(self, call, c):
        """The call, with C in `c`."""
        (ta, tb), (m, n, k) = call.letters, call.sizes
        a, b = call.a, call.b
        if call.interface == "fortran":
            integer, real = lambda x: ctypes.byref(ctypes.c_int(x)), lambda x: ctypes.byref(ctypes.c_double(x))
            address = lambda x: ctypes.c_void_p(x.address)
            self.library.dgemm_(ta.encode(), tb.encode(), integer(m), integer(n), integer(k), real(call.alpha), address(a), integer(a.ld),
                                address(b), integer(b.ld), real(call.beta), address(c), integer(c.ld), ctypes.c_size_t(1), ctypes.c_size_t(1))
        else:
            order = 101 if call.interface == "row" else 102
            self.library.cblas_dgemm(order, TRANSPOSE[ta.upper()], TRANSPOSE[tb.upper()], m, n, k, call.alpha, a.address, a.ld, b.address, b.ld,
                                     call.beta, c.address, c.ld)


class Oz2(Blas):
    def __init__(self, path):
        super().__init__(path)
        for name in ("oz2_last_call", "oz2_get_stats"):
            function = getattr(self.library, name)
            function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_size_t], ctypes.c_size_t
        self.library.oz2_set_option.argtypes = [ctypes.c_char_p, ctypes.c_char_p]

    def object(self, name):
        text = ctypes.create_string_buffer(1 << 15)
        assert getattr(self.library, name)(text, len(text)) < len(text)
        return json.loads(text.value)

    def last_call(self):
        return self.object("oz2_last_call")

    def stats(self):
        return self.object("oz2_get_stats")

    def set(self, **options):
        for name, value in options.items():
            status = self.library.oz2_set_option(name.encode(), value.encode())
            assert status == 0, (name, value, status)


def in_the_gaps(before, after):
    """What changed in a buffer outside of the elements of the matrix."""
    restored = after.copy()
    restored.view[...] = before.view
    return np.count_nonzero(restored.buffer != before.buffer)


class Session:
    def __init__(self, library, native, reference, is_builtin, engines):
        self.oz2, self.native, self.reference = Oz2(library), Blas(native), Blas(reference)
        self.is_builtin, self.engines = is_builtin, engines
        self.counts = {"calls": 0, "emulated": 0, "entries": 0, "exact": 0, "same bits": 0, "repeated": 0, "forks": 0}
        self.failures = []

    def fail(self, call, what):
        self.failures.append([call.number, what, str(call)])

    def make(self, call, box):
        """In a thread: the call itself, and what the library says of it."""
        copies = [call.a.copy(), call.b.copy()]
        before = call.c.copy()
        self.oz2.multiply(call, call.c)
        box[call.number] = (copies, before, self.oz2.last_call())

    def group(self, calls):
        box = {}
        if len(calls) == 1:
            self.make(calls[0], box)
        else:
            threads = [threading.Thread(target=self.make, args=(call, box)) for call in calls]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        for call in calls:
            copies, before, last = box[call.number]
            self.check(call, copies, before, last)

    def check(self, call, copies, before, last):
        self.counts["calls"] += 1
        emulated = last["route"] == "emulated"
        self.counts["emulated"] += emulated
        for name, matrix, copy in zip("AB", (call.a, call.b), copies):
            if np.count_nonzero(matrix.buffer != copy.buffer):
                self.fail(call, f"{name} was written to")
        changed = in_the_gaps(before, call.c)
        if changed:
            self.fail(call, f"{changed} bytes around C were written to")
        native = before.copy()
        is_quick = last["route"] == "native" and last["reason"] == "quick return"
        # Nothing is multiplied then, by the definition of the reference BLAS; OpenBLAS multiplies NaN by an alpha of 0 in its small kernels.
        (self.reference if is_quick else self.native).multiply(call, native)
        if 0 in call.sizes[:2]:
            return
        if is_quick:
            # Zeros of either sign: the reference multiplies an empty sum by alpha in some of its loops.
            if np.isfinite(call.alpha) and not np.array_equal(call.c.view, native.view, equal_nan=True):
                self.fail(call, "nothing was multiplied, but the result is not that of the reference BLAS")
            return
        if not emulated and not self.is_builtin:
            # The same function with the same data at addresses of the same alignment.
            if not np.array_equal(bits(call.c.view), bits(native.view)):
                self.fail(call, f"native ({last['reason']}), but not the bits of the native BLAS")
        if not self.is_comparable(call, last):
            return
        held = check.Held(call, before.view, last, os.environ.get("OZ2_ACCURACY", "fp64"))
        got = call.c.view.copy()
        with np.errstate(all="ignore"):
            places, worst, excess = held.differing(got, native.view)
        self.counts["entries"] += got.size
        if len(places):
            i, j = worst
            self.fail(call, f"{len(places)} of {got.size} entries differ from the native BLAS, the worst ({i},{j}) by {excess[i, j]:.4g} of what both "
                            f"bounds allow: {got[i, j]!r} native {native.view[i, j]!r}; {json.dumps(last)}")
        if held.is_proved:
            self.check_exactly(call, held, got, last, worst)
        if emulated:
            self.again(call, before, last)

    def is_comparable(self, call, last):
        """Calls for which any bound holds."""
        if not (np.isfinite(call.alpha) and np.isfinite(call.beta)):
            return False
        proves_nothing = last["route"] == "emulated" and last["bound"] is None
        return not proves_nothing or call.data in draw.TAME

    def check_exactly(self, call, held, got, last, worst):
        m, n, _ = call.sizes
        places = {(int(call.rng.integers(m)), int(call.rng.integers(n))) for _ in range(12)} | {tuple(int(x) for x in worst)}
        for i, j in sorted(places):
            if held.finite[i, j] and not held.left[i, j]:
                self.counts["exact"] += 1
                wrong = held.exact_failure(call, got, i, j, last["bound"])
                if wrong:
                    self.fail(call, f"beyond the promise: {wrong}; {json.dumps(last)}")

    def again(self, call, before, last):
        """The same bits from another engine with another number of threads, and in the child of a fork; lines of the native BLAS aside."""
        left = check.Held(call, before.view, last, "fp64").left
        same = lambda c: np.array_equal(bits(c.view)[~left], bits(call.c.view)[~left])
        if call.repeats:
            engine, threads = str(call.rng.choice(self.engines)), str(call.rng.integers(1, 6))
            self.oz2.set(ENGINE=engine, NUM_THREADS=threads)
            c = before.copy()
            self.oz2.multiply(call, c)
            other = self.oz2.last_call()
            self.oz2.set(ENGINE=os.environ["OZ2_ENGINE"], NUM_THREADS=os.environ["OZ2_NUM_THREADS"])
            self.counts["repeated"] += 1
            if other["route"] == "emulated":
                self.counts["same bits"] += 1
                if other["moduli"] != last["moduli"] or not same(c):
                    self.fail(call, f"other bits: {json.dumps(last)} and {json.dumps(other)}")
        if call.forks:
            self.counts["forks"] += 1
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                # An alarm, since a child that hangs is one of the faults that are looked for.
                signal.alarm(120)
                status = 3
                try:
                    c = before.copy()
                    self.oz2.multiply(call, c)
                    is_same = self.oz2.last_call()["route"] != "emulated" or same(c)
                    status = 0 if is_same and self.oz2.stats()["calls"] == 1 else 4
                finally:
                    os._exit(status)
            _, status = os.waitpid(child, 0)
            if status:
                what = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}"
                self.fail(call, f"the child of a fork ended with {what}")


def bits(x):
    return np.ascontiguousarray(x).view(np.uint64)


def say(**what):
    print(json.dumps(what), flush=True)


def main():
    parser = argparse.ArgumentParser()
    for name in ("--seed", "--first", "--last", "--threads", "--most"):
        parser.add_argument(name, type=int, required=True)
    for name in ("--library", "--native", "--reference"):
        parser.add_argument(name, required=True)
    parser.add_argument("--builtin", action="store_true")
    parser.add_argument("--engines", nargs="+", required=True)
    args = parser.parse_args()
    session = Session(args.library, args.native, args.reference, args.builtin, args.engines)
    for first in range(args.first, args.last + 1, args.threads):
        numbers = list(range(first, min(first + args.threads, args.last + 1)))
        say(begin=numbers)
        session.group([draw.draw_call(args.seed, number, args.most) for number in numbers])
        for failure in session.failures:
            say(failed=failure)
        session.failures.clear()
    stats = session.oz2.stats()
    if stats["differing"]:
        say(failed=[args.last, f"OZ2_VERIFY counts {stats['differing']} differing calls", "the whole process"])
    say(done=session.counts, reasons=stats["reasons"], engines=stats["engines"])


if __name__ == "__main__":
    main()
