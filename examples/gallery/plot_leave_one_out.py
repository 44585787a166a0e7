"""
Leave-one-out for the price of a fit
====================================

With squared loss, the leave-one-out predictions follow exactly from one fit on all rows.
Leave-one-out is most useful if there are few rows, because each model is trained on all other
rows.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import LeaveOneOut
from sklearn.model_selection import cross_val_predict as by_refits

from everyfold import FastGridSearchCV, cross_val_predict

model = KernelRidge(kernel="rbf", gamma=0.5, alpha=0.1)


def seconds(call):
    """The shortest of three runs."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


# %%
# Times of one fit, of all leave-one-out predictions, and (up to 200 rows) of n refits:

sizes, times = [50, 100, 200, 400, 800, 1600], {"one fit": [], "leave-one-out": [], "n refits": []}
for n in sizes:
    X, y = make_friedman1(n, n_features=5, noise=1.0, random_state=0)
    times["one fit"].append(seconds(lambda: model.fit(X, y)))  # noqa: B023
    times["leave-one-out"].append(seconds(lambda: cross_val_predict(model, X, y, cv=LeaveOneOut())))  # noqa: B023
    if n <= 200:
        start = time.perf_counter()
        theirs = by_refits(model, X, y, cv=LeaveOneOut())
        times["n refits"].append(time.perf_counter() - start)
        ours = cross_val_predict(model, X, y, cv=LeaveOneOut())
        np.testing.assert_allclose(ours, theirs, rtol=1e-8)

fig, ax = plt.subplots(layout="constrained")
for name, values in times.items():
    ax.loglog(sizes[: len(values)], values, "o-", label=name)
ax.set(xlabel="rows", ylabel="seconds", title="Leave-one-out of kernel ridge regression")
ax.legend()

# %%
# A whole search by leave-one-out is therefore as cheap as one with five folds, and does not depend
# on a random choice of folds:

X, y = make_friedman1(60, n_features=5, noise=1.0, random_state=0)
grid = {"gamma": np.logspace(-2, 1, 7), "alpha": np.logspace(-3, 1, 9)}
search = FastGridSearchCV(
    KernelRidge(kernel="rbf"), grid, cv=LeaveOneOut(), scoring="neg_mean_squared_error"
).fit(X, y)
print(search.best_params_, search.n_splits_, "folds, exact:", search.cv_results_["is_exact"].all())
