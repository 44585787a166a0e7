"""
Which features matter? A length scale for each
==============================================

A grid has one gamma for all features. ``FastGradientSearchCV`` follows the gradient of the exact
cross-validation error in the gammas of all of them, guarded by an outer cross-validation.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1

from everyfold import LSSVR, FastGradientSearchCV

X, y = make_friedman1(250, noise=1.0, random_state=0)  # features 5 to 9 are noise
known, new = slice(0, 150), slice(150, 250)
search = FastGradientSearchCV(LSSVR(), cv=4).fit(X[known], y[known])
print(search.summary_)

# %%
# The share of every feature in the distances, and what that is worth on 100 new rows. Features 3
# and 4 act as straight lines, for which a wide kernel is enough; the noise gets less by far.

start = LSSVR(gamma=search.path_[0]["gamma"], alpha=search.path_[0]["alpha"])
one, each = (model.fit(X[known], y[known]).score(X[new], y[new]) for model in (start, search))
weights = np.array(list(search.feature_weights_.values()))

fig, ax = plt.subplots(layout="constrained")
ax.bar(range(10), weights, color=["C0"] * 5 + ["0.7"] * 5)
ax.set_yscale("log")
ax.set(xticks=range(10), xlabel="feature (grey: noise)", ylabel="share in the distances")
ax.set_title(f"R² on new rows: {one:.2f} with one gamma, {each:.2f} with one for each")

# %%
# Every outer fold has descended without its rows: weights that they agree on do not hang on a few.

search.plot()
