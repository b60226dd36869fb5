"""sklearn_models.py: scores of models of scikit-learn."""

import numpy as np
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import NearestNeighbors

rng = np.random.default_rng(0)
x = rng.standard_normal((2000, 200))
y = x @ rng.standard_normal(200) + 0.1 * rng.standard_normal(2000)
print("linear regression", LinearRegression().fit(x, y).score(x, y))
for solver in "full", "randomized":
    print("PCA", solver, PCA(20, svd_solver=solver, random_state=0).fit(x).explained_variance_ratio_.sum())
print("k-means", KMeans(8, n_init=1, random_state=0).fit(x).inertia_)
# Not the point itself: its distance of 0 comes out as the root of a rounding error.
print("neighbours", NearestNeighbors(n_neighbors=5, algorithm="brute").fit(x).kneighbors(x[:500])[0][:, 1:].sum())
print("Gaussian process", GaussianProcessRegressor(random_state=0, optimizer=None).fit(x[:500], y[:500]).score(x[:500], y[:500]))
print("cross validation", cross_val_score(Ridge(), x, y, n_jobs=2).mean())
