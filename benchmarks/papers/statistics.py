"""The statistical tests of the papers, by scipy.

Errors are compared: a positive statistic says that the first method is worse. A test with fewer
repetitions than a paper's uses the quantile that belongs to them; with the paper's it is the
number that the paper prints (1.833 for 10, 1.676 for 50 or 51, 1.64 for z).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.95


@dataclass(frozen=True)
class Comparison:
    """A statistic, the critical value of the one-sided test, and what follows.

    Attributes
    ----------
    difference : float
        Mean error of the first minus that of the second.
    statistic, critical : float
    pairs : int
        How many repetitions were compared.
    """

    difference: float
    statistic: float
    critical: float
    pairs: int

    @property
    def is_worse(self) -> bool:
        """Whether the first is significantly worse."""
        return self.statistic > self.critical

    @property
    def is_better(self) -> bool:
        """Whether the first is significantly better."""
        return self.statistic < -self.critical

    @property
    def mark(self) -> str:
        """One character for a table."""
        return "▲" if self.is_worse else "▽" if self.is_better else ""


def paired_t(first: Sequence[float], second: Sequence[float]) -> Comparison:
    """The paired t-test of the 2017 and 2018 papers: mean(d) / (sd(d) / √n), d = first − second."""
    d = np.subtract(first, second)
    n = len(d)
    critical = float(stats.t.ppf(LEVEL, n - 1)) if n > 1 else np.inf
    mean, spread = float(np.mean(d)), float(np.std(d, ddof=1)) if n > 1 else 0.0
    if spread <= 1e-14 * abs(mean) or n < 2:  # the test has no spread to compare with
        return Comparison(
            mean, float(np.sign(mean)) * np.inf if mean and n > 1 else 0.0, critical, n
        )
    statistic = float(stats.ttest_rel(first, second).statistic)
    return Comparison(mean, statistic, critical, n)


def z_test(first: Sequence[float], second: Sequence[float]) -> Comparison:
    """The z statistic of the 2012 paper: (x̄ − ȳ) / √(e_x² + e_y²), e the standard errors."""
    difference = float(np.mean(first) - np.mean(second))
    critical = float(stats.norm.ppf(LEVEL))
    if min(len(first), len(second)) < 2:
        return Comparison(difference, 0.0, critical, min(len(first), len(second)))
    errors = float(np.hypot(stats.sem(first), stats.sem(second)))
    if errors == 0.0:
        statistic = float(np.sign(difference)) * np.inf if difference else 0.0
    else:
        statistic = difference / errors
    return Comparison(difference, statistic, critical, min(len(first), len(second)))


def signed_rank(first: Sequence[float], second: Sequence[float]) -> float:
    """The two-sided p of Wilcoxon's signed rank test over data sets; 1 if nothing differs."""
    if not np.any(np.subtract(first, second)):
        return 1.0
    return float(stats.wilcoxon(first, second).pvalue)
