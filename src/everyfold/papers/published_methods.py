r"""Methods of publications by their names, and the bounds that the papers prove.

Methods are functions that return a record of options with the conventions of a paper as defaults:
pass it as ``method=`` to a search or a function. A search's own ``operator``, ``cv`` and
``scoring`` replace those of the record. docs/papers.md says what holds of each method and what does
not.

The granularity of cross-validation (Liu & Liao 2017): with t folds and a Bouligand influence
function (BIF) of order r, the Huberised hinge of width δ, the ridge λ in the "mean" convention and
:math:`\kappa = \max K_{ii}`,

.. math:: |t\text{-CV} - \text{BIF}| \le \frac{\delta}{2} + \frac{\kappa}{\lambda(r+1)(t-1)} .

The bounds on a Nyström approximation, from a measured norm and in advance, are proven in the 2012
paper. Most are too loose to guarantee anything in practice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Literal

import numpy as np
from sklearn.model_selection import LeaveOneOut

from everyfold._typing import Array, ClosedName, RandomState, RidgeScaling, Scorer, Splitter
from everyfold.engine.request import NEAR_IDENTITY, MethodOptions
from everyfold.operators import Nystrom
from everyfold.papers.circulant import Circulant
from everyfold.papers.closed_criteria import (
    EigenvaluePerturbation,
    EigenvalueRatio,
)

# The share by which rounding may spoil the bound where it is met with equality.
_ROUNDING = 1e-12


# -- Bounds ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Granularity:
    """A number of folds and an order of the series, with the resulting bound.

    It can be passed wherever there is a parameter ``order``, and then sets the folds as well
    (ε-BIF).
    """

    folds: int
    order: int
    bound: float


def granularity_bound(
    folds: int, order: int, *, ridge: float, smoothing: float, kappa: float = 1.0
) -> float:
    r"""Bound on the distance of an influence series from CV: δ/2 + κ/(λ(r+1)(t−1)).

    This is the bound of Liu & Liao (2017, Theorem 2) for the BIF of order r with a Huberised hinge.
    For the small ridges that are relevant in model selection it is above 1 and says nothing.

    Parameters
    ----------
    folds, order : int
        t >= 2 and r >= 1.
    ridge : float
        λ > 0, in the "mean" convention.
    smoothing : float
        δ, the width h of the Huberised hinge, > 0.
    kappa : float, default=1
        The largest diagonal entry of the kernel; 1 for the rbf kernel.

    Examples
    --------
    >>> granularity_bound(5, 3, ridge=1.0, smoothing=0.01)
    0.0675
    """
    _check_positive(ridge=ridge, smoothing=smoothing, kappa=kappa)
    for name, value, least in (("folds", folds, 2), ("order", order, 1)):
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name}={value!r} is not allowed: it must be an integer >= {least}")
    return smoothing / 2.0 + kappa / (ridge * (order + 1) * (folds - 1))


def choose_granularity(
    tolerance: float,
    *,
    ridge: float,
    smoothing: float,
    kappa: float = 1.0,
    rule: Literal["paper", "smallest"] = "paper",
) -> Granularity:
    r"""Choose folds and order so that the influence series is within a tolerance ε of real CV.

    Granularity selection (Liu & Liao 2017) minimises t + r under the bound of
    :func:`granularity_bound`, problem (5) of the paper. Its printed rule (6) is :math:`t - 1 = r +
    1 = \lceil\sqrt{\kappa/(\lambda(\varepsilon - \delta/2))}\rceil`; it meets the tolerance, but is
    not the minimiser.

    Parameters
    ----------
    tolerance : float
        ε, the allowed difference; it must be more than half the smoothing.
    ridge : float
        λ > 0.
    smoothing : float
        δ, the width h of the Huberised hinge, > 0.
    kappa : float, default=1
        The largest diagonal entry of the kernel; 1 for the rbf kernel.
    rule : {"paper", "smallest"}, default="paper"
        "paper": rule (6) as printed. "smallest": the minimiser of (5); of several, the one with the
        fewest folds.

    Returns
    -------
    Granularity
        Pass it as ``order=`` to a search or to ``cross_val_*``: it sets both folds and order. The
        bound is that of the paper. For a small ridge it exceeds 1, or requires more folds than
        there are rows: it is a rule of thumb, not a guarantee.

    Examples
    --------
    >>> choose_granularity(0.1, ridge=1.0, smoothing=0.01)
    Granularity(folds=5, order=3, bound=0.0675)
    >>> choose_granularity(0.1, ridge=1.0, smoothing=0.01, rule="smallest").folds
    4
    """
    _check_positive(tolerance=tolerance, ridge=ridge, smoothing=smoothing, kappa=kappa)
    if rule not in ("paper", "smallest"):
        raise ValueError(f"rule={rule!r} is not known; use 'paper' or 'smallest'")
    if tolerance <= smoothing / 2.0:
        raise ValueError(
            f"tolerance={tolerance!r} cannot be reached: the smoothing alone costs "
            f"{smoothing / 2.0:g}; use a tolerance above that or a smaller smoothing"
        )
    # Rounding must not ask for one more where the bound is met with equality.
    needed = (1.0 - _ROUNDING) * kappa / (ridge * (tolerance - smoothing / 2.0))
    folds, order = (_as_printed if rule == "paper" else _smallest)(needed)
    bound = granularity_bound(folds, order, ridge=ridge, smoothing=smoothing, kappa=kappa)
    return Granularity(folds, order, bound)


def _as_printed(needed: float) -> tuple[int, int]:
    """T and r by (6)."""
    steps = math.ceil(math.sqrt(needed))
    return max(steps, 1) + 1, max(steps - 1, 1)


def _smallest(needed: float) -> tuple[int, int]:
    """T and r with the smallest sum for which (t − 1)(r + 1) is what is needed.

    Of all pairs with one sum, halves have the largest product.
    """
    total = max(3, math.floor(2.0 * math.sqrt(needed)))
    while (total // 2) * (total - total // 2) < needed:
        total += 1
    return total // 2 + 1, total - total // 2 - 1


def _check_positive(**given: float) -> None:
    for name, value in given.items():
        if not (0.0 < value < math.inf):
            raise ValueError(f"{name}={value!r} is not allowed: it must be a finite number > 0")


def model_error_bound(
    residual_norm: float, n: int, ridge: float, *, kappa: float = 1.0, offset: float = 0.0
) -> float:
    r"""Bound on the change of an LS-SVM's decision values if K̃ replaces K (2012 paper).

    .. math:: |f'(x) - f(x)| \le \frac{\kappa(1 + \zeta)}{n\mu_0^2}\|\tilde K - K\|_2,
              \qquad \mu_0 = \mu / n

    for labels ±1 and both models with the same offset ζ.

    Parameters
    ----------
    residual_norm : float
        The measured ‖K̃ − K‖₂, or the residual trace as an upper bound of it.
    n : int
    ridge : float
        μ, the ridge of (K + μ I).
    kappa : float, default=1
        An upper bound of k(x, x).
    offset : float, default=0
        :math:`|\zeta|`.

    Examples
    --------
    >>> model_error_bound(1e-3, n=100, ridge=10.0)
    0.001
    """
    return kappa * (1.0 + abs(offset)) * n * residual_norm / ridge**2


def expected_residual(
    diagonal: Array, tail: float, count: int, *, rank: int, confidence: float = 0.9
) -> float:
    r"""The a-priori bound on ‖K̃ − K‖₂ for uniform sampling (2012 paper, Theorem 2).

    .. math:: \|K - K_k\|_F + \epsilon\Bigl[\tfrac{n}{c}\sum_{i \in D(c)} K_{ii}
              \bigl(\sqrt{n {\textstyle\sum K_{ii}^2}} + \eta \max n K_{ii}\bigr)\Bigr]^{1/2}

    with :math:`\epsilon = (64 k / c)^{1/4}`, the smallest that the theorem allows.

    Parameters
    ----------
    diagonal : array of shape (n,)
    tail : float
        ‖K − K_k‖_F, the norm of the eigenvalues beyond the k-th.
    count, rank : int
        c and k.
    confidence : float, default=0.9
        1 − δ.
    """
    n, epsilon = len(diagonal), (64.0 * rank / count) ** 0.25
    rest = n - count
    g = count * rest / (n - 0.5) / (1.0 - 1.0 / (2.0 * max(count, rest)))
    eta = math.sqrt(max(math.log(2.0 / (1.0 - confidence)) * g, 0.0) / count)
    largest = float(np.sort(diagonal)[-count:].sum())
    spread = math.sqrt(n * float(diagonal @ diagonal)) + eta * n * float(diagonal.max())
    return float(tail + epsilon * math.sqrt(n / count * largest * spread))


# -- Methods ---------------------------------------------------------------------------------------


def bif(
    order: int = 3,
    *,
    folds: Splitter = None,
    ridge_scaling: RidgeScaling = "mean",
    n_confirm: int | Literal["auto"] = "auto",
    near_identity: float = NEAR_IDENTITY,
) -> MethodOptions:
    """BIF-kCV: the series of Bouligand influence functions of this order (Liu et al. 2014).

    Parameters
    ----------
    order : int, default=3
        The number of terms.
    folds : int or splitter, default=None
        Used where the search has ``cv=None``; the paper has 5, 10 and 20.
    ridge_scaling : {"sum", "mean"}, default="mean"
        "mean" is the λ of the paper, "sum" the ridge of scikit-learn.
    n_confirm : int or "auto", default="auto"
        How many of the best candidates are scored again by refits.
    near_identity : float, default=1.5e-8
        Kernels with no larger value beside the diagonal get the score -inf. The paper gives no
        number; 0.2 also excludes kernels that are narrow but not singular.

    Examples
    --------
    >>> bif(order=2, folds=10)
    MethodOptions(order=2, ridge_scaling='mean', folds=10)
    """
    return MethodOptions(
        order=order,
        folds=folds,
        ridge_scaling=ridge_scaling,
        n_confirm=n_confirm,
        near_identity=near_identity,
    )


def t_bif(folds: Splitter = 10, *, scoring: Scorer = None) -> MethodOptions:
    """t-BIF: the first term of the series with the exact inverse (Liu et al. 2018).

    Parameters
    ----------
    folds : int or splitter, default=10
        Used where the search has ``cv=None``.
    scoring : str, callable or None, default=None
        The paper selects by its loss: ``everyfold.scorers.huber_hinge_scorer(0.05)`` for HuberSVC.

    Examples
    --------
    >>> t_bif()
    MethodOptions(order=1, ridge_scaling='mean', folds=10)
    """
    return MethodOptions(order=1, ridge_scaling="mean", folds=folds, scoring=scoring)


def t_fbif(
    landmarks: float = 0.1,
    folds: Splitter = 10,
    *,
    scoring: Scorer = None,
    random_state: RandomState = None,
) -> MethodOptions:
    """t-FBIF: t-BIF with a low-rank inverse from uniformly drawn columns (Liu et al. 2018).

    Fit and gradients use the exact kernel; only the inverse is of low rank.

    Parameters
    ----------
    landmarks : int or float, default=0.1
        The number of columns, or their share of the rows.
    folds, scoring
        As in :func:`t_bif`.
    random_state : int, RandomState or None, default=None
        Seed of the columns; None means that of the search.

    Examples
    --------
    >>> t_fbif(50).operator.sampling
    'uniform'
    """
    columns = Nystrom(landmarks, sampling="uniform", replaces="response", random_state=random_state)
    return MethodOptions(
        order=1, ridge_scaling="mean", operator=columns, folds=folds, scoring=scoring
    )


def nystrom_lssvm(
    landmarks: float = 0.1,
    rank: float = 0.5,
    *,
    folds: Splitter = 5,
    criterion: ClosedName | None = None,
    random_state: RandomState = None,
) -> MethodOptions:
    """Nyström approximate model selection for LS-SVM (Ding & Liao 2012, Algorithms 1 and 2).

    Every training set gets its own uniformly drawn columns, and the true kernel predicts.

    Parameters
    ----------
    landmarks : int or float, default=0.1
        c, the number of columns or their share of the rows.
    rank : int or float, default=0.5
        k, the number of eigenvectors or their share of c.
    folds : int or splitter, default=5
        Used where the search has ``cv=None``.
    criterion : {"radius_margin", ...} or None, default=None
        The criterion of Algorithm 2, if it is not cross-validation.
    random_state : int, RandomState or None, default=None
        Seed of the columns; None means that of the search.

    Examples
    --------
    >>> nystrom_lssvm().folds
    5
    """
    columns = Nystrom(
        landmarks,
        rank,
        sampling="uniform",
        per_fold=True,
        predicts_with="kernel",
        random_state=random_state,
    )
    has_folds = criterion is None
    return MethodOptions(criterion=criterion, operator=columns, folds=folds if has_folds else None)


def circulant(
    factors: tuple[int, ...] | Literal["auto"] = "auto",
    steps: Literal["auto"] | float | tuple[float, ...] = "auto",
    *,
    folds: Splitter = None,
) -> MethodOptions:
    """Cross-validation of multi-level circulant kernels in O(n log n) (Edwards et al. 2013).

    Parameters
    ----------
    factors, steps
        As in :class:`everyfold.Circulant`.
    folds : int or splitter, default=None
        Used where the search has ``cv=None``; None means leave-one-out, the A-LOO of the paper.

    Examples
    --------
    >>> circulant((32, 32)).folds
    LeaveOneOut()
    """
    return MethodOptions(
        operator=Circulant(factors=factors, steps=steps),
        folds=LeaveOneOut() if folds is None else folds,
    )


def granularity(
    epsilon: float,
    *,
    ridge: float,
    smoothing: float,
    kappa: float = 1.0,
    rule: Literal["paper", "smallest"] = "paper",
) -> MethodOptions:
    """ε-BIF: folds and order of the series from a tolerance (Liu & Liao 2017).

    Parameters
    ----------
    epsilon : float
        ε, the allowed distance from t-fold cross-validation.
    ridge, smoothing, kappa, rule
        As in :func:`everyfold.choose_granularity`.

    Examples
    --------
    >>> granularity(0.1, ridge=1.0, smoothing=0.01)
    MethodOptions(order=Granularity(folds=5, order=3, bound=0.0675), ridge_scaling='mean')
    """
    chosen = choose_granularity(epsilon, ridge=ridge, smoothing=smoothing, kappa=kappa, rule=rule)
    return MethodOptions(order=chosen, ridge_scaling="mean")


# -- Criteria without folds, computed from one fit on all rows ------------------------------------


def gcv() -> MethodOptions:
    """Generalised cross-validation, for squared loss (Golub, Heath & Wahba 1979).

    Examples
    --------
    >>> gcv()
    MethodOptions(criterion='gcv')
    """
    return MethodOptions(criterion="gcv")


def gacv() -> MethodOptions:
    """Generalised approximate cross-validation, for SVC and HuberSVC (Wahba, Lin & Zhang 1999)."""
    return MethodOptions(criterion="gacv")


def span() -> MethodOptions:
    """The span estimate of the leave-one-out error of SVC and HuberSVC (Chapelle & Vapnik 2000)."""
    return MethodOptions(criterion="span")


def radius_margin() -> MethodOptions:
    """The radius-margin bound on the leave-one-out error, for squared slack (Vapnik 1998)."""
    return MethodOptions(criterion="radius_margin")


def eigenvalue_ratio(eta: float = 1.0, leading: float = 0.1) -> MethodOptions:
    """ER: training error and the trailing eigenvalues of the kernel (after Liu & Liao 2015).

    Parameters
    ----------
    eta : float, default=1.0
        The factor of the ratio of trailing to leading eigenvalues.
    leading : float, default=0.1
        The share of the eigenvalues that are leading; the paper gives none.
    """
    asked = EigenvalueRatio(eta, leading)
    is_usual = asked == EigenvalueRatio()
    return MethodOptions(criterion="eigenvalue_ratio" if is_usual else asked)


def eigenvalue_perturbation(eta: float = 1.0) -> MethodOptions:
    """EP: training error and how far eigenvalues of half samples differ (after Liu et al. 2013).

    Parameters
    ----------
    eta : float, default=1.0
        The factor of the difference of the eigenvalues.
    """
    asked = EigenvaluePerturbation(eta)
    is_usual = asked == EigenvaluePerturbation()
    return MethodOptions(criterion="eigenvalue_perturbation" if is_usual else asked)
