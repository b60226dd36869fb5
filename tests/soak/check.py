"""What a call of scripts/soak is held to: the native result, by both error bounds, and exact arithmetic, by the promise alone.

The formulas are those of docs/accuracy.md (section 11) and of src/observe/compare.rs, written down a second time.
"""
import math
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from grading.exact import OVERFLOW, as_integers  # noqa: E402

U = np.longdouble(2) ** -53
TINIEST = np.longdouble(2) ** -1074
HUGE = np.longdouble(2) ** 1023


def terms_of(a, b):
    """n of the promise for every entry: the smaller number of nonzeros of its row and its column."""
    return np.minimum((a != 0).sum(1)[:, None], (b != 0).sum(0)[None, :])


def promised(terms, accuracy):
    """T + 1."""
    return {"fp64": 2 * np.sqrt(terms), "textbook": np.maximum(1, terms - 1), "high": 1 + 0 * terms}[accuracy] + 1


class Held:
    """One call beside its native result: everything of the size of C at once."""

    def __init__(self, call, before, last, accuracy):
        self.a, self.b, self.before = call.a.view, call.b.view, before
        self.alpha, self.beta = abs(call.alpha), abs(call.beta)
        m, n, k = call.sizes
        with np.errstate(all="ignore"):
            self.size = (np.abs(self.a) @ np.abs(self.b)).astype(np.longdouble)
            self.rows = np.abs(self.a).max(1, initial=0)[:, None].astype(np.longdouble)
            self.columns = np.abs(self.b).max(0, initial=0)[None, :].astype(np.longdouble)
        self.inner = k
        self.left = np.zeros((m, n), bool)
        # Of more than 32 lines no numbers are told: any entry may be one of theirs.
        for name, count in (("native_rows", "rows_native"), ("native_columns", "columns_native")):
            if last.get(name) is None and last.get(count, 0) > 0:
                self.left[:] = True
        self.left[last.get("native_rows") or [], :] = True
        self.left[:, last.get("native_columns") or []] = True
        self.is_proved = last["route"] == "emulated" and last["bound"] is not None
        self.promise = promised(terms_of(self.a, self.b), accuracy) if self.is_proved else None
        self.finite = np.isfinite(self.rows) & np.isfinite(self.columns)
        if self.beta != 0:
            self.finite = self.finite & np.isfinite(before)

    def allowed(self):
        gamma = (self.inner + 3) * U / (1 - (self.inner + 3) * U)
        size = (self.size + self.inner * TINIEST) * (1 + gamma)
        c = np.abs(self.before).astype(np.longdouble) if self.beta else np.zeros_like(size)
        losses = (self.inner + 10) * TINIEST * max(1, self.alpha, self.beta)
        if self.alpha != 1:
            # Some BLAS multiply A or B by alpha first.
            losses = losses + self.inner * TINIEST * (self.rows + self.columns)
        native = gamma * (size * self.alpha + c * self.beta) + losses
        emulated = native
        if self.is_proved:
            emulated = (self.promise + 1) * U * size * self.alpha + 2 * U * c * self.beta + 2 * TINIEST
            emulated = np.where(self.left, native, emulated)
        return (native + emulated) * (1 + np.longdouble(2) ** -40), size, c * self.beta

    def differing(self, got, native):
        """(places that differ by more than is allowed, the place with the largest difference in units of what is allowed)."""
        with np.errstate(all="ignore"):
            allowed, size, c = self.allowed()
            difference = np.abs(got.astype(np.longdouble) - native.astype(np.longdouble))
            excess = np.where(difference == 0, 0, difference / allowed)
            same = (got == native) | (np.isnan(got) & np.isnan(native))
            overflows = np.maximum(size * max(1, self.alpha) + c, np.maximum(self.rows, self.columns) * self.alpha) >= HUGE
            of_native = np.where(overflows, 0, np.inf)
            of_emulated = np.where(np.abs(native) + c + allowed >= HUGE, 0, np.inf)
            excess = np.where(np.isfinite(got), excess, of_emulated)
            excess = np.where(np.isfinite(native), excess, of_native)
            excess = np.where(self.finite, excess, np.where(np.isfinite(got) == np.isfinite(native), 0, np.inf))
            excess = np.where(same, 0, excess)
        bad = ~(excess <= 1)
        worst = np.unravel_index(np.argmax(np.where(np.isnan(excess), np.inf, excess)), excess.shape) if excess.size else None
        return np.argwhere(bad), worst, excess

    def exact_failure(self, call, got, i, j, bound):
        """None if the entry is within the promise, by integers alone; else what is wrong."""
        (x,), (p,) = as_integers(self.a[i:i + 1])
        (y,), (q,) = as_integers(np.ascontiguousarray(self.b[:, j:j + 1].T))
        unit = Fraction(2) ** (p + q)
        product, size = Fraction(int(x.dot(y))) * unit, Fraction(int(np.abs(x).dot(np.abs(y)))) * unit
        alpha, beta = Fraction(call.alpha), Fraction(call.beta)
        start = beta * Fraction(float(self.before[i, j])) if beta else Fraction(0)
        want = alpha * product + start
        # A double above T + 1, so that nothing is lost by the root.
        promise = math.nextafter(float(self.promise[i, j]), math.inf)
        if promise > bound * (1 + 1e-15):
            return f"({i},{j}): promised is T + 1 = {promise}, oz2_last_call says {bound}"
        u = Fraction(1, 2**53)
        is_plain = math.frexp(call.alpha)[0] in (0.5, -0.5) and beta == 0
        if is_plain:
            allowed = Fraction(promise) * u * abs(alpha) * size + Fraction(1, 2**1075)
        else:
            allowed = (Fraction(promise) + 1) * u * abs(alpha) * size + 2 * u * abs(start) + Fraction(1, 2**1073)
        value = float(got[i, j])
        if math.isfinite(value):
            error = abs(Fraction(value) - want)
            if error <= allowed:
                return None
            factor = float(error / allowed) if allowed else math.inf
            return f"({i},{j}): {value!r} is {factor:.4g} times what is promised from the exact value"
        # alpha A B and beta C and their sum are rounded, each of which may overflow.
        if max(abs(alpha * product), abs(start), abs(want)) + allowed >= OVERFLOW:
            return None
        return f"({i},{j}): {value!r}, where nothing overflows"
