"""numpy_linalg.py [N [M]]: products of size M and factorisations of size N by NumPy, and by SciPy where it is installed.

One line each: the residual relative to the data, and the norm of the result.
"""

import sys

import numpy as np

n = int(sys.argv[1]) if len(sys.argv) > 1 else 500
large = int(sys.argv[2]) if len(sys.argv) > 2 else 2000


def report(name, got, want, result=None):
    result = got if result is None else result
    print("%-22s residual %.3e norm %.14e" % (name, np.abs(got - want).max() / np.abs(want).max(), np.linalg.norm(result)))


def line_of_product(a, b, line):
    """A line of the product without a BLAS."""
    return (a[line][:, None] * b).sum(0)


rng = np.random.default_rng(42)
a, b = rng.standard_normal((2, large, large))
for name, left, right in [("a b", a, b), ("a' b", a.T, b), ("a b'", a, b.T)]:
    c = left @ right
    report("numpy " + name, c[7], line_of_product(left, right, 7), c)
a, b = np.floor(4 * a), np.floor(4 * b)
c = a @ b
report("numpy integers", c[7], line_of_product(a, b, 7), c)

a, b = rng.standard_normal((2, n, n))
eye = np.eye(n)
s = a @ a.T + eye
c = np.einsum("ij,jk->ik", a, b, optimize=True)
report("numpy einsum", c[7], line_of_product(a, b, 7), c)
# Debian's NumPy multiplies these without a BLAS, newer ones copy them.
c = a[::2] @ b[:, ::2]
report("numpy every second", c[7], line_of_product(a[::2], b[:, ::2], 7), c)
x = np.linalg.solve(s, b)
report("numpy solve", s @ x, b, x)
x = np.linalg.inv(s)
report("numpy inv", x @ s, eye, x)
x = np.linalg.cholesky(s)
report("numpy cholesky", x @ x.T, s, x)
q, r = np.linalg.qr(a)
report("numpy qr", q @ r, a, r)
w, v = np.linalg.eigh(s)
report("numpy eigh", (v * w) @ v.T, s, w)
u, d, vt = np.linalg.svd(a)
report("numpy svd", (u * d) @ vt, a, d)

try:
    import scipy.linalg as sl
except ImportError:
    sys.exit()
c = sl.blas.dgemm(1.0, np.asfortranarray(a), np.asfortranarray(b))
report("scipy dgemm", c[7], line_of_product(a, b, 7), c)
p, low, u = sl.lu(a)
report("scipy lu", p @ (low @ u), a, u)
x = sl.cho_solve(sl.cho_factor(s), b)
report("scipy cho_solve", s @ x, b, x)
t, z = sl.schur(s)
report("scipy schur", z @ t @ z.T, s, t)
x = sl.expm(a / n)
report("scipy expm", x @ sl.expm(-a / n), eye, x)
