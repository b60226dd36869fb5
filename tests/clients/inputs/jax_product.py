"""jax_product.py: double precision on the CPU."""

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
a = jax.numpy.asarray(np.random.default_rng(0).standard_normal((600, 600)))
s = a @ a.T + jax.numpy.eye(600)
print("product %.14e" % jax.numpy.linalg.norm(a @ a))
print("cholesky %.14e" % jax.numpy.linalg.norm(jax.numpy.linalg.cholesky(s)))
print("eigh %.14e" % jax.numpy.linalg.eigh(s)[0][-1])
print("solve %.14e" % jax.numpy.linalg.norm(jax.numpy.linalg.solve(s, a)))
