"""
Is a Gaussian process calibrated?
=================================

The held-out distributions of all rows, by leave-one-out, come from one factorisation. If they are
right, the share of each distribution below its observation (the probability integral transform) is
uniform, and central intervals of any level contain that share of the observations.
"""

# %%
# A process with the right noise, and one that assumes a third of that noise.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.model_selection import LeaveOneOut

from everyfold import FastGradientSearchCV, cross_val_predict
from everyfold.plotting import DistributionCalibrationDisplay

random = np.random.default_rng(0)
X = random.uniform(-3.0, 3.0, size=(300, 1))
y = np.sin(2.0 * X[:, 0]) + 0.3 * random.normal(size=300)

axes = None
for name, noise in (("noise right", 0.3), ("noise too small", 0.1)):
    process = GaussianProcessRegressor(RBF(0.7) + WhiteKernel(noise**2), optimizer=None)
    mean, std = cross_val_predict(process, X, y, cv=LeaveOneOut(), return_std=True)
    display = DistributionCalibrationDisplay.from_predictions(y, mean, std, name=name, axes=axes)
    axes = display.axes_
plt.show()

# %%
# Left: the shares, which are uniform where the noise is right and pile up at both ends where it is
# too small. Right: how many observations are in their intervals, against the level. The bands
# contain 95 % of what calibrated distributions give.
#
# The length scale and the noise themselves can be selected by the density of the observations that
# are left out, along its exact gradient.

search = FastGradientSearchCV(process, cv=10).fit(X, y)
print(search.best_params_["kernel"])
