"""Methods of publications by their names: pass one as ``method=`` to a search or a function.

Each function returns a record of options with the conventions of its paper as defaults. A search's
own ``operator``, ``cv`` and ``scoring`` replace those of the record. docs/papers.md says what holds
of each method and what does not.
"""

from __future__ import annotations

from typing import Literal

from sklearn.model_selection import LeaveOneOut

from everyfold._typing import ClosedName, RandomState, RidgeScaling, Scorer, Splitter
from everyfold.engine.request import NEAR_IDENTITY, MethodOptions
from everyfold.operators import Nystrom
from everyfold.papers.circulant import Circulant
from everyfold.papers.closed_criteria import (
    EigenvaluePerturbation,
    EigenvalueRatio,
)
from everyfold.papers.granularity import choose_granularity


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
