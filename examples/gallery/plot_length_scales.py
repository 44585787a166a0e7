"""
Which features matter? A length scale for each
==============================================

A grid has one gamma for all features. ``FastGradientSearchCV`` finds one gamma for each feature by
gradient descent on the exact cross-validation error. An outer cross-validation prevents
over-fitting.
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
# The share of every feature in the distances, and the scores on 100 new rows. The target is linear
# in features 3 and 4, for which a wide kernel is enough; the shares of the noise are much smaller.

start = LSSVR(gamma=search.path_[0]["gamma"], alpha=search.path_[0]["alpha"])
one, each = (model.fit(X[known], y[known]).score(X[new], y[new]) for model in (start, search))
weights = np.array(list(search.feature_weights_.values()))

fig, ax = plt.subplots(layout="constrained")
ax.bar(range(10), weights, color=["C0"] * 5 + ["0.7"] * 5)
ax.set_yscale("log")
ax.set(xticks=range(10), xlabel="feature (grey: noise)", ylabel="share in the distances")
ax.set_title(f"R² on new rows: {one:.2f} with one gamma, {each:.2f} with one for each")

# %%
# Every outer fold has weights of its own, found without its rows. If they agree, the weight of a
# feature does not depend on a few rows.

search.plot()
