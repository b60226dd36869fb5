"""joblib_fork.py: products in the workers of joblib's backends."""

import numpy as np
from joblib import Parallel, delayed

a = np.random.default_rng(0).standard_normal((300, 300))


def product(_):
    return np.linalg.norm(a @ a)


if __name__ == "__main__":
    print("parent %.14e" % product(0))
    for backend in "loky", "multiprocessing", "threading":
        print(backend, *("%.14e" % x for x in Parallel(n_jobs=2, backend=backend)(delayed(product)(i) for i in range(4))))
