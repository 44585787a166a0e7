"""
Is a Gaussian process calibrated?
=================================

The held-out distributions of all rows, by leave-one-out, come from one factorisation. If they are
right, the share of each distribution below its observation (the probability integral transform) is
uniform, and central intervals of any level contain that share of the observations.
"""

# %%
# A process whose noise is right, and one that believes in a third of it.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.model_selection import LeaveOneOut

from everyfold import cross_val_predict
from everyfold.scorers import quantile_of

random = np.random.default_rng(0)
X = random.uniform(-3.0, 3.0, size=(300, 1))
y = np.sin(2.0 * X[:, 0]) + 0.3 * random.normal(size=300)

shares = {}
for name, noise in (("right", 0.3), ("too small", 0.1)):
    process = GaussianProcessRegressor(RBF(0.7) + WhiteKernel(noise**2), optimizer=None)
    mean, std = cross_val_predict(process, X, y, cv=LeaveOneOut(), return_std=True)
    shares[name] = quantile_of(y, mean, std)

# %%
# Left: the shares, which are uniform where the noise is right and pile up at both ends where it is
# too small. Right: how many observations are in their intervals, against the level.

levels = np.linspace(0.02, 0.98, 49)
figure, (left, right) = plt.subplots(1, 2, figsize=(8.0, 3.2), layout="constrained")
for name, share in shares.items():
    left.hist(share, bins=12, range=(0.0, 1.0), density=True, alpha=0.6, label=f"noise {name}")
    inside = [np.mean(np.abs(share - 0.5) <= 0.5 * level) for level in levels]
    right.plot(levels, inside, label=f"noise {name}")
left.axhline(1.0, color="black", linewidth=0.8)
left.set(xlabel="share of the distribution below y", ylabel="density")
left.legend()
right.plot([0.0, 1.0], [0.0, 1.0], color="black", linewidth=0.8)
right.set(xlabel="level of the interval", ylabel="observations inside")
plt.show()
