"""
Spatial data: leave out the neighbours, too
===========================================

Places that are close to each other have similar values. Leave-one-out then scores a model by the
neighbours of each row, which a new place does not have. ``BufferedLeaveOneOut`` leaves out all rows
within a radius as well, without refits for squared loss.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics import r2_score

from everyfold import LSSVR, BufferedLeaveOneOut, cross_val_predict

rng = np.random.default_rng(0)


def field(places):
    """A measurement, and what it depends on: a column of the table, and something local."""
    local = np.linalg.cholesky(RBF(0.4)(places) + 1e-8 * np.eye(len(places)))
    soil = rng.normal(size=len(places))
    return soil, soil + 1.5 * local @ rng.normal(size=len(places))


# %%
# A model of soil and place is trained on one part of a map; what it is asked for lies elsewhere.

both = np.vstack([rng.uniform(0.0, 5.0, (400, 2)), rng.uniform([8.0, 0.0], [13.0, 5.0], (400, 2))])
soil, y = field(both)
X = np.column_stack([both, soil])
here, there = slice(0, 400), slice(400, 800)
model = LSSVR(gamma=1.0, alpha=0.3)
elsewhere = model.fit(X[here], y[here]).score(X[there], y[there])

radii = np.linspace(0.0, 2.0, 9)
scores = []
for radius in radii:
    cv = BufferedLeaveOneOut(both[here], radius)
    values = cross_val_predict(model, X[here], y[here], cv=cv)
    scores.append(r2_score(y[here], values))

# %%
# Without a buffer the score is that of places between known ones; with a buffer as large as the
# reach of the local part it is that of new places.

fig, ax = plt.subplots(layout="constrained")
ax.plot(radii, scores, "o-", label="buffered leave-one-out")
ax.axhline(elsewhere, color="black", linestyle="--", label="another part of the map")
ax.set(
    xlabel="radius of the buffer", ylabel="R²", title="The larger the buffer, the fewer neighbours"
)
ax.legend()
print(f"leave-one-out {scores[0]:.2f}, buffered {scores[-1]:.2f}, elsewhere {elsewhere:.2f}")
