"""
How often does an interval contain the truth?
=============================================

The usual interval of a cross-validated score, the mean ± its standard error, is too narrow for few
rows, because models of different folds share training rows. Here 60 samples of 50 rows are drawn;
the true score of each model is that on many new rows.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Ridge

from everyfold import score_interval


def draw(rng, n):
    X = rng.normal(size=(n, 20))
    return X, X[:, 0] + rng.normal(size=n)


X_new, y_new = draw(np.random.default_rng(99), 20_000)
fig, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
for ax, method in zip(axes, ("normal", "nested"), strict=True):
    rng, hits = np.random.default_rng(0), 0
    for k in range(60):
        X, y = draw(rng, 50)
        truth = -np.mean(np.abs(y_new - Ridge().fit(X, y).predict(X_new)))
        asked = {"scoring": "neg_mean_absolute_error", "method": method, "level": 0.9}
        found = score_interval(Ridge(), X, y, **asked)
        is_hit = found.low <= truth <= found.high
        hits += is_hit
        ax.plot([k, k], [found.low - truth, found.high - truth], color="0.6" if is_hit else "C3")
    ax.axhline(0.0, color="k", lw=0.8)
    ax.set(title=f"{method}: {100 * hits / 60:.0f} % of 90 % intervals hold", xlabel="sample")
axes[0].set_ylabel("interval − true score")
