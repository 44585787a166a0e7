"""
Prediction intervals by jackknife+
==================================

For a new row, the model of each fold gives a prediction, to which the held-out residuals of that
fold are added, and from which they are subtracted. Quantiles of all these values bound the
interval. With squared loss the models of all folds come from one factorisation, also if every row
is a fold of its own.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.kernel_ridge import KernelRidge

from everyfold import FastCrossConformalRegressor, FastGridSearchCV

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(-3.0, 3.0, 120))
x = x[np.abs(x - 0.3) > 0.5]  # a gap
X, y = x[:, None], np.sin(2.0 * x) + 0.3 * x + rng.normal(scale=0.25, size=x.size)
line = np.linspace(-3.5, 3.5, 300)

grid = {"gamma": np.logspace(-1, 1, 7), "alpha": np.logspace(-3, 1, 9)}
search = FastGridSearchCV(KernelRidge(kernel="rbf"), grid, cv=10).fit(X, y)
conformal = FastCrossConformalRegressor(search.best_estimator_, confidence_level=[0.5, 0.9], cv=-1)
points, intervals = conformal.fit_conformalize(X, y).predict_interval(line[:, None])
print(conformal.how_)

# %%
# The bands should contain one half and nine tenths of new rows. They have nearly the same width
# everywhere, because each of them uses the residuals of all rows. Where there are no rows, they are
# slightly wider, because the fold models differ more.

fig, ax = plt.subplots(layout="constrained")
for level, (name, alpha) in enumerate([("50 %", 0.35), ("90 %", 0.18)]):
    low, high = intervals[:, 0, level], intervals[:, 1, level]
    ax.fill_between(line, low, high, color="C0", alpha=alpha, label=name)
ax.plot(line, points, color="C0")
ax.plot(x, y, "k.", label="rows")
ax.set(xlabel="x", ylabel="y", title=f"Jackknife+ from one factorisation, {x.size} rows")
ax.legend()

# %%
# The share of 2000 further rows that are inside:

new = rng.uniform(-3.0, 3.0, 2000)
truth = np.sin(2.0 * new) + 0.3 * new + rng.normal(scale=0.25, size=new.size)
_, bands = conformal.predict_interval(new[:, None])
inside = (bands[:, 0, :] <= truth[:, None]) & (truth[:, None] <= bands[:, 1, :])
print("covered:", inside.mean(axis=0).round(3))
