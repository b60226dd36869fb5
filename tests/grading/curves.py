"""The error against the number of moduli N: which N would do, and which N the library takes."""
from .exact import Exact, grade, promise
from .inputs import classes

MOST = 20
CURVES = ["uniform(-.5,.5)", "phi=1", "phi=2", "checkerboard 2^8"]
LEAST = ["uniform(-.5,.5)", "uniform(0,1)", "normal"]
LEAST_K = [64, 256, 1024, 4096]
# With fewer entries the largest error is smaller by chance, and so is the least N: of 12 x 13 entries some do with one modulus less.
LEAST_SHAPE = 40, 41


def named(names):
    return [one for one in classes() if one.name in names]


def fixed_moduli(blas, exact, a, b, accuracy, counts=range(2, MOST + 1)):
    """(N, verdict) for the mode accurate with each N that can hold the call."""
    for count in counts:
        with blas.options(MODE="accurate", MODULI=count):
            c = blas.product(a, b)
            if blas.last_call()["route"] != "emulated":
                continue                            # Reason `range`
        yield count, grade(exact, c, accuracy)


def least_moduli(blas, one, k, seed, accuracy):
    """The N that auto takes and the least N with which the mode accurate, judged by its exact errors, keeps the promise."""
    a, b, _ = one.pair(seed, *LEAST_SHAPE, k)
    exact = Exact(a, b)
    blas.product(a, b)
    auto = blas.last_call().get("moduli")
    found = (count for count, verdict in fixed_moduli(blas, exact, a, b, accuracy) if not verdict.broken)
    return dict(name=one.name, k=k, auto=auto, least=next(found, None))


def error_against_moduli(blas, one, m, n, k, seed, accuracy):
    """One line of the plot: [N, worst ratio] for fixed N, and the point of auto, if that emulates."""
    a, b, _ = one.pair(seed, m, n, k)
    exact = Exact(a, b)
    c = blas.product(a, b)
    call = blas.last_call()
    auto = None
    if call["route"] == "emulated":
        verdict = grade(exact, c, accuracy, call.get("native_rows", ()), call.get("native_columns", ()))
        auto = [call["moduli"], verdict.worst]
    curve = [[count, verdict.worst] for count, verdict in fixed_moduli(blas, exact, a, b, accuracy, range(8, MOST + 1))]
    return dict(name=one.name, k=k, auto=auto, curve=curve, promise=promise(max(map(max, exact.terms)), accuracy))
