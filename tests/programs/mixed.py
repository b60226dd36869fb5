# A program with products of many kinds, for OZ2_REPORT: mixed.py KIND
#   mixed   large, small, thin, with NaN, with a wide range, and other work between them
#   native  what OZ2_MODE=native makes of the same
#   large   mixed with larger products, as in docs/report/example.html
#   shapes  a thousand shapes
import sys
import time

import numpy

kind = sys.argv[1]
random = numpy.random.default_rng(7)


def data(rows, columns):
    return random.standard_normal((rows, columns))


if kind == "shapes":
    a, b = data(90, 90), data(90, 90)
    for at in range(1000):
        m, n, k = 20 + at % 40, 20 + at // 25, 30 + at % 7
        numpy.dot(a[:m, :k], b[:k, :n])
else:
    for turn in range(6):
        for n, count in ((96, 60), (40, 200), (512, 3), (1024, 1)) + ((2048, 4),) * (kind == "large"):
            a, b = data(n, n), data(n, n)
            for _ in range(count):
                numpy.dot(a, b)
        tall = data(1500, 32)
        numpy.dot(tall, data(32, 1500))
        bad = data(300, 300)
        bad[::2, 0] = numpy.nan
        numpy.dot(bad, bad)
        few = data(300, 300)
        few[7, 7] = numpy.inf
        numpy.dot(few, data(300, 300))
        whole = random.integers(-9, 10, (700, 700)).astype(float)
        numpy.dot(whole, whole)
        wide = numpy.ldexp(data(300, 300), random.integers(-200, 200, (300, 300)))
        numpy.dot(wide, wide)
        time.sleep(0.05)
