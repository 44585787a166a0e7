"""
Why influence series of finite order collapse
=============================================

The held-out values of a fold are the limit of a geometric series. The literature proposes its first
terms as an approximation of cross-validation. If the ridge is small, as it often is for the best
models, the terms hardly decrease, and the truncated series reports an error of 0. The limit of the
series is exact and costs no more.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import scale

from everyfold import LSSVC, FastGridSearchCV, InexactWarning
from everyfold.papers import MethodOptions

X, y = load_breast_cancer(return_X_y=True)
X, y = scale(X)[:300], y[:300]
alphas = np.logspace(-5, 3, 17)
folds = StratifiedKFold(5, shuffle=True, random_state=0)

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for order, style in ((1, "v-"), (3, "^-"), (np.inf, "o-")):
    method = MethodOptions(order=order, n_confirm=0)
    search = FastGridSearchCV(
        LSSVC(gamma=0.1), {"alpha": alphas}, cv=folds, method=method, refit=False
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InexactWarning)  # the plot shows how far off they are
        search.fit(X, y)
    error = 100.0 * (1.0 - search.cv_results_["mean_test_score"])
    name = "limit of the series" if order == np.inf else f"order {order}"
    left.semilogx(alphas, error, style, label=name, markersize=4)
    if order != np.inf:
        radius = search.cv_results_["spectral_radius"]

exact = FastGridSearchCV(LSSVC(gamma=0.1), {"alpha": alphas}, cv=folds, method="exact", refit=False)
exact.fit(X, y)
error = 100.0 * (1.0 - exact.cv_results_["mean_test_score"])
left.semilogx(alphas, error, "k--", label="refits")
left.set(xlabel="ridge", ylabel="five-fold error in %")
left.legend()

# %%
# ``spectral_radius`` in the table of the search is the factor between one term and the next:

right.semilogx(alphas, radius, "o-")
right.axhline(1.0, color="grey", linestyle=":")
right.set(xlabel="ridge", ylabel="spectral radius of the series", ylim=(0.0, 1.05))
