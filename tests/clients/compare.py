"""What a program says without and with the library: compared; and the statistics of its processes: summed."""

import math
import re
from collections import Counter
from dataclasses import dataclass, field

NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eEdD][-+]?\d+)?)")


def selected(text, patterns):
    """The lines of a text that are compared: for each pattern in turn its matches in order, blanks made one.

    Of a pattern with groups, the groups alone; so a time in the middle of a line can be left out.
    """
    lines = []
    for pattern in patterns:
        for match in re.finditer(pattern, text, re.M):
            lines.append(" ".join(" ".join(group for group in match.groups() or [match[0]] if group).split()))
    return lines


def headline(lines, pattern):
    """What the last match of a pattern in the lines has as its group, or None."""
    found = re.findall(pattern, "\n".join(lines), re.M)
    return found[-1] if found else None


def difference(plain, other, tolerance):
    """(largest difference of a number relative to max(1, |plain|), problems) of two lists of lines.

    The words must be the same, and the numbers within the tolerance.
    """
    worst, problems = 0.0, []
    if not plain:
        problems.append("nothing to compare in what the program says")
    if len(plain) != len(other):
        problems.append("%d lines in place of %d" % (len(other), len(plain)))
    for expected, found in zip(plain, other):
        # Text and numbers take turns.
        a, b = (NUMBER.split(re.sub(r"\s+", " ", line)) for line in (expected, found))
        if [text.strip() for text in a[::2]] != [text.strip() for text in b[::2]]:
            problems.append("%r in place of %r" % (found, expected))
            continue
        here = 0.0
        for x, y in zip(a[1::2], b[1::2]):
            x, y = (float(re.sub("[dD]", "e", number)) for number in (x, y))
            if x != y:
                # Beside an overflowing number nothing is close.
                here = max(here, abs(x - y) / max(1.0, abs(x)) if math.isfinite(x) else math.inf)
        if here > tolerance:
            problems.append("%r in place of %r: a difference of %.1e, allowed are %.0e" % (found, expected, here, tolerance))
        worst = max(worst, here)
    return worst, problems


def new_kinds(plain, other, ignored=()):
    """Lines of stderr whose like is not there without the library. Numbers do not count."""

    def kind(line):
        return re.sub(r"0x[0-9a-fA-F]+|\d+", "#", line).strip()

    known = {kind(line) for line in plain.splitlines()}
    return [line for line in other.splitlines()
            if kind(line) and kind(line) not in known and not any(re.search(pattern, line) for pattern in ignored)]


@dataclass
class Totals:
    """The statistics (docs/statistics.md) of all processes of a run. processes: those with calls."""

    processes: int = 0
    calls: int = 0
    emulated: int = 0
    flops: int = 0
    emulated_flops: int = 0
    flagged: int = 0
    differing: int = 0
    moduli: Counter = field(default_factory=Counter)
    reasons: Counter = field(default_factory=Counter)

    def share(self):
        """The share of the flops in emulated calls; None without flops."""
        return self.emulated_flops / self.flops if self.flops else None


def total(documents):
    """The Totals of some statistics."""
    sums = Totals()
    for one in documents:
        sums.processes += one["calls"] > 0
        for name in "calls", "emulated", "flops", "flagged", "differing":
            setattr(sums, name, getattr(sums, name) + one[name])
        sums.emulated_flops += sum(engine["flops"] for engine in one["engine_totals"].values())
        sums.moduli.update(one["moduli"])
        sums.reasons.update(one["reasons"])
    return sums


@dataclass
class Run:
    """One run of a client: exit status, the lines that are compared, both outputs, seconds, statistics."""

    status: int
    lines: list
    out: str = ""
    err: str = ""
    seconds: float = 0.0
    totals: Totals = field(default_factory=Totals)


def judge(client, plain, run, everything):
    """(largest difference, problems) of a run with the library. everything: it was to emulate every call."""
    worst, problems = difference(plain.lines, run.lines, client.tolerance)
    if headline(plain.lines, client.headline) is None:
        problems.append("no %r in what is compared" % client.headline)
    if run.status != plain.status:
        problems.append("exit status %s in place of %s" % (run.status, plain.status))
    problems += ["on stderr: " + line for line in new_kinds(plain.err, run.err, client.noise)]
    # Where a program sends the stderr of its parts to stdout.
    problems += ["said: " + line for line in run.out.splitlines() if line.startswith(("oz2blas: ", "oz2run: "))]
    if not client.intercepted:
        if run.totals.calls:
            problems.append("%d calls, where none was expected" % run.totals.calls)
    elif run.totals.processes < client.processes:
        problems.append("calls in %d processes, at least %d expected" % (run.totals.processes, client.processes))
    elif everything and not run.totals.emulated:
        problems.append("nothing emulated of %d calls" % run.totals.calls)
    if run.totals.differing:
        problems.append("%d calls differ from the native BLAS (OZ2_VERIFY)" % run.totals.differing)
    return worst, problems
