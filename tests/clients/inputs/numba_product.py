"""numba_product.py: a product and a Cholesky factorisation in compiled functions."""

import numba
import numpy as np


@numba.njit
def product(a, b):
    return a @ b


@numba.njit
def factor(a):
    return np.linalg.cholesky(a @ a.T + np.eye(len(a)))


a = np.random.default_rng(0).standard_normal((1500, 1500))
print("product %.14e" % np.linalg.norm(product(a, a)))
print("cholesky %.14e" % np.linalg.norm(factor(a[:500, :500].copy())))
