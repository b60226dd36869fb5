"""stats_models.py: log likelihoods of statsmodels, at given parameters."""

import numpy as np
import statsmodels.api as sm
from statsmodels.tsa.arima.model import ARIMA
from statsmodels.tsa.statespace.varmax import VARMAX

rng = np.random.default_rng(0)
x = sm.add_constant(rng.standard_normal((5000, 60)))
y = x @ rng.standard_normal(61) + rng.standard_normal(5000)
print("ols", sm.OLS(y, x).fit().rsquared)
z = np.cumsum(rng.standard_normal((200, 3)), 0)
for name, model in ("varmax", VARMAX(z, order=(1, 0))), ("arima", ARIMA(z[:, 0], order=(2, 1, 2))):
    print(name, model.loglike(model.start_params))
