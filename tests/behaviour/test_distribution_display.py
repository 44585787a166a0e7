"""The picture of calibrated distributions, by its numbers."""

import numpy as np
import pytest
from scipy.stats import norm

from everyfold.plotting import DistributionCalibrationDisplay

pytest.importorskip("matplotlib").use("agg")

RANDOM = np.random.default_rng(0)
Y = RANDOM.normal(3.0, 2.0, size=4000)
MEAN, STD = np.full(4000, 3.0), np.full(4000, 2.0)
LEVELS = np.linspace(0.02, 0.98, 49)


def test_calibrated_distributions_are_on_the_diagonal():
    display = DistributionCalibrationDisplay.from_predictions(Y, MEAN, STD, name="right")
    np.testing.assert_allclose(display.coverage, LEVELS, atol=0.03)
    left, right = display.axes_
    heights = [patch.get_height() for patch in left.patches if patch.get_width() < 0.2]
    assert np.mean(np.abs(np.array(heights) - 1.0) < 0.15) == 1.0
    assert right.get_legend() is not None


def test_the_share_inside_is_that_of_intervals():
    display = DistributionCalibrationDisplay.from_predictions(Y[:50], MEAN[:50], 0.3 * STD[:50])
    half = norm.ppf(0.5 + LEVELS / 2.0) * 0.6
    expected = (np.abs(Y[:50] - 3.0)[:, None] <= half).mean(axis=0)
    np.testing.assert_allclose(display.coverage, expected)


def test_rows_that_no_fold_held_out_and_second_models():
    mean, std = MEAN.copy(), STD.copy()
    mean[:5] = np.nan
    display = DistributionCalibrationDisplay.from_predictions(Y, mean, std)
    assert len(display.quantiles) == 3995
    more = DistributionCalibrationDisplay.from_predictions(Y, MEAN, STD, axes=display.axes_)
    assert more.figure_ is display.figure_


@pytest.mark.parametrize(
    ("std", "words"), [(STD[:3], "arrays of the same shape"), (0.0 * STD, "std must be > 0")]
)
def test_what_makes_no_sense_is_refused(std, words):
    with pytest.raises(ValueError, match=words):
        DistributionCalibrationDisplay.from_predictions(Y, MEAN, std)
