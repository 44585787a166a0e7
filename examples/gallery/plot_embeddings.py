"""
Embeddings, by subject
======================

Logistic regression on columns like embeddings, in which a few directions hold most of the variance.
Every subject is left out in turn. The models of all subjects and penalties are solved together, to
the minimum; a solver that stops early ends far from it if the penalty is weak.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut

from everyfold import FastGridSearchCV

rng = np.random.default_rng(0)
n_rows, n_columns, n_subjects = 800, 96, 10
spectrum = np.arange(1.0, n_columns + 1.0) ** -1.0
parts = rng.standard_normal((n_rows, n_columns)) * spectrum
X = 5.0 * parts @ np.linalg.qr(rng.standard_normal((n_columns, n_columns)))[0]
y = (parts[:, 0] + parts[:, 1] + 0.6 * rng.standard_normal(n_rows) > 0.0).astype(int)
subjects = rng.integers(0, n_subjects, n_rows)

grid = {"C": np.logspace(-3, 4, 8)}
options = {"cv": LeaveOneGroupOut(), "scoring": "neg_log_loss", "refit": False}
minimum = FastGridSearchCV(LogisticRegression(), grid, **options)
minimum.fit(X, y, groups=subjects)
print(minimum.plan_)

# %%
# The same by refits that are stopped after twenty iterations. An early stop works like a penalty of
# its own: the curve stays flat where that of the minimum rises.

stopped = GridSearchCV(LogisticRegression(max_iter=20), grid, **options)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    stopped.fit(X, y, groups=subjects)

fig, ax = plt.subplots()
for search, name in ((minimum, "the minimum"), (stopped, "stopped after 20 iterations")):
    ax.semilogx(grid["C"], -search.cv_results_["mean_test_score"], "o-", label=name)
ax.set(xlabel="C", ylabel="log loss of subjects left out")
ax.legend()
fig.tight_layout()
