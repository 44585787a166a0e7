"""The two searches: all points of a grid, or some of them by chance."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from sklearn.model_selection import ParameterGrid

from everyfold.criteria import Closed
from everyfold.criteria.granularity import Granularity
from everyfold.models.estimators.base import keep_parameters
from everyfold.operators.structure import OperatorChoice
from everyfold.selection.draws import check_free_ridges, draw
from everyfold.selection.search import FastSearchCV
from everyfold.types import (
    ClosedName,
    ErrorScore,
    Estimator,
    Fallback,
    Grid,
    Order,
    Params,
    Pooled,
    Preprocessing,
    RandomState,
    Refit,
    RidgeScaling,
    Scorer,
    Splitter,
)


class FastGridSearchCV(FastSearchCV):
    """Exhaustive search over a grid, as scikit-learn's ``GridSearchCV`` but without its refits.

    Candidates that share a kernel are evaluated together: all their ridges, on all folds, from one
    factorisation (or one a fold).

    Parameters
    ----------
    estimator : estimator
        scikit-learn's ``SVC``, ``SVR``, ``KernelRidge``, ``Ridge``, ``RidgeClassifier``, one of the
        library's, or a ``Pipeline`` that ends in one of them; any other by ``fallback``.
    param_grid : dict or list of dicts
        As in scikit-learn; parameters of Pipeline steps included.
    scoring : str, callable, list, tuple or dict, default=None
        As in scikit-learn.
    n_jobs : int, default=None
        Kernels that are evaluated at a time, by joblib; or, if it is neither None nor 1 and the
        process has a ``distributed.Client``, by all workers of that Dask cluster.
    refit : bool, str or callable, default=True
        As in scikit-learn; and "one_standard_error" (one metric): the simplest model, which is the
        one with the largest ridge (the smallest C), whose mean score is within one standard error
        of the best mean. The error is that of the best: s/√t, with s the standard deviation
        (t − 1) of its scores on the t folds. Of several with that ridge the best is taken.
    cv : int, splitter or iterable, default=None
        As in scikit-learn; folds may overlap, be unequal, or leave one out.
    verbose : int, default=0
        1 prints a line for every finished kernel.
    error_score : "raise" or float, default=nan
        The score of folds that cannot be fitted.
    return_train_score : bool, default=False
        Whether to score training rows, too; folds are then factorised one by one.
    order : {"auto", "exact", "screen"}, float or Granularity, default="auto"
        "auto" gives the table of refits up to 20 folds, and beyond one Newton step a fold for
        losses other than the squared one; "exact" gives it for any number of folds. "screen" solves
        the Cs of SVC and SVR coarsely first and the best of them exactly, where the others' scores
        need not be exact.
        1, 2, 3, … evaluate influence series of that order, the Bouligand influence functions (BIF)
        of Liu et al. (2014), an approximation that exists to reproduce the literature; inf is its
        limit, which is exact for squared loss, and what "auto" and "exact" do there.
        ``choose_granularity(...)`` sets order and folds in one go (cv=None). Under a finite order a
        candidate whose kernel matrix is near the identity has the score -inf (Liu et al. 2014): for
        half of the rows the largest similarity to another row is below 1.5e-8.
    criterion : str, Closed or None, default=None
        None scores held-out values. "gcv", "gacv", "span", "radius_margin", "eigenvalue_ratio" or
        "eigenvalue_perturbation" (:mod:`everyfold.criteria`) are functions of one fit on all rows,
        without folds: ``mean_test_score`` is minus the criterion, ``n_splits_`` is 1 (that fit) and
        ``status`` "as defined". Several targets, classes (one versus rest) or pairs of classes
        count by the mean of their criteria. Steps of a Pipeline are fitted on all rows. "gcv" is
        for squared loss, "gacv" and "span" for the hinge (SVC, HuberSVC). Does not go with
        ``scoring``, ``cv`` and what else is of folds.
    operator : {"auto", "dense"} or Structure, default="auto"
        How kernel matrices are represented. "auto" leaves it to the estimator; from 2500 rows on
        (from 1000 on if the full matrices should take more than 5 seconds), for squared loss, all
        candidates are then evaluated at low rank first and the best on the full matrix
        (``cv_results_["status"]`` says which), where "dense" evaluates all on it.
    ridge_scaling : {"sum", "mean"}, default="sum"
        Whether a ridge stays what it is when rows are left out (scikit-learn), or is multiplied by
        the number of rows. With "mean", ``best_estimator_`` has the ridge times the rows.
    n_confirm : int or "auto", default="auto"
        How many of the best candidates are scored again by refits of the estimator itself, which
        then decide between them. "auto" is 0 if the winner's score is exact, else 3 (0 beyond 20
        folds).
    preprocessing : {"auto", "per_fold", "once"}, default="auto"
        How the steps of a Pipeline are fitted: on the training rows of each fold, as GridSearchCV
        does, or once on all rows (never with y). "auto" is per fold up to 20 folds; warns beyond.
    keep_predictions : {"best", "all"} or None, default="best"
        Whose held-out values are kept for ``out_of_fold``: the winner's, those of all candidates
        (8 bytes a row, fold repetition and candidate, which the plan counts), or nobody's.
    pooled : bool or "auto", default="auto"
        Whether a score is that of all held-out rows together, which every split then has. "auto"
        does so, with a warning and a note in ``plan_``, where test sets of one row leave no mean or
        another score than its name says (R², RMSE, ROC, …); False refuses or warns there.
    fallback : {"warn", "refit", "refuse"}, default="warn"
        What becomes of candidates that nothing speeds up (other estimators, or parameters that no
        shortcut knows): they are refitted on every fold as scikit-learn does, beside the others,
        with a warning or without; or the search refuses them before any work. ``plan_`` says which
        they are and why.
    random_state : int, RandomState or None, default=None
        The seed of every random choice: landmarks of operators without a seed of their own (those
        of ``best_estimator_``, too), low ranks that the search begins with, starts of power
        iterations. It is drawn once, so that the same number gives the same results, whatever
        ``n_jobs``. With None, operators without a seed differ from search to search, and what the
        search chooses itself does not.
    journal : str or path, default=None
        A file that every finished unit of work is written to (a kernel on all folds, or a fold with
        a few kernels), on disk before the next one counts. The same call goes on from there after
        its process was killed, repeats nothing that is written, and has the same scores to the last
        bit. A journal of other data, folds, candidates, options or versions is refused, and so is
        one that another process is using. ``n_jobs`` and ``verbose`` may change.
    pre_dispatch : int or str, default="2*n_jobs"
        Accepted for compatibility.

    Attributes
    ----------
    cv_results_ : dict
        As in scikit-learn, and ``is_exact`` (whether every fold equals a refit up to rounding),
        ``status`` (how certain the scores are), ``is_identity`` (whether the kernel is numerically
        the identity, so that nothing is learnt), ``spectral_radius`` (of influence series; NaN if
        none) and ``confirmed_test_score`` (NaN for candidates that were not refitted). Times are
        shares of the shared work. With more than 1,000 folds there are no columns of single folds;
        ``fold_scores`` gives them.
    plan_ : SearchPlan
        What was done, in words.
    best_estimator_, best_score_, best_params_, best_index_, scorer_, n_splits_, refit_time_, \
multimetric_, classes_, n_features_in_, feature_names_in_
        As in scikit-learn. ``best_score_`` is the confirmed score where there is one.

    Notes
    -----
    **Cost** for squared loss one factorisation a kernel, n³ flops and 8 n² bytes, for all ridges
    and folds (with landmarks n c² and 8 n c); for SVC and SVR one kernel matrix and a path of Cs a
    fold; for smooth losses some Newton steps a fold. A Pipeline has one kernel a fold. ``plan``
    says it beforehand. **Exact?** For squared loss up to rounding; up to 20 folds of other losses
    to the solver's tolerance; beyond, one step a fold. ``is_exact`` and ``status`` say it of every
    candidate.

    Examples
    --------
    >>> from everyfold import FastGridSearchCV
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.kernel_ridge import KernelRidge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> grid = {"alpha": [0.01, 0.1, 1.0], "gamma": [1.0, 10.0]}
    >>> search = FastGridSearchCV(KernelRidge(kernel="rbf"), grid, cv=10).fit(X, y)
    >>> search.best_params_
    {'alpha': 0.01, 'gamma': 1.0}
    >>> bool(search.cv_results_["is_exact"].all())
    True
    """

    _parameter_constraints: Params = {  # noqa: RUF012
        **FastSearchCV._parameter_constraints,
        "param_grid": [dict, list],
    }

    def __init__(
        self,
        estimator: Estimator,
        param_grid: Grid,
        *,
        scoring: Scorer = None,
        n_jobs: int | None = None,
        refit: Refit = True,
        cv: Splitter = None,
        verbose: int = 0,
        error_score: ErrorScore = np.nan,
        return_train_score: bool = False,
        order: Order | Granularity = "auto",
        criterion: ClosedName | Closed | None = None,
        operator: OperatorChoice = "auto",
        ridge_scaling: RidgeScaling = "sum",
        n_confirm: int | Literal["auto"] = "auto",
        preprocessing: Preprocessing = "auto",
        keep_predictions: Literal["best", "all"] | None = "best",
        pooled: Pooled = "auto",
        fallback: Fallback = "warn",
        random_state: RandomState = None,
        journal: str | os.PathLike[str] | None = None,
        pre_dispatch: int | str = "2*n_jobs",
    ) -> None:
        keep_parameters(self, locals())

    def _candidates(self) -> Iterable[Params]:
        return ParameterGrid(self.param_grid)  # type: ignore[no-any-return]

    def _grids(self) -> Sequence[Params]:
        return ParameterGrid(self.param_grid).param_grid  # type: ignore[no-any-return]


class FastRandomizedSearchCV(FastSearchCV):
    """Search over random candidates, as scikit-learn's ``RandomizedSearchCV`` without its refits.

    Candidates save work only where they share a kernel: give gamma a list of a few values and the
    ridge a distribution.

    Parameters
    ----------
    estimator : estimator
        As in :class:`FastGridSearchCV`.
    param_distributions : dict or list of dicts
        Lists, or distributions with an ``rvs`` method, as in scikit-learn.
    n_iter : int, default=10
        The number of candidates.
    free_ridges : int, default=0
        Evaluates so many further ridges for every kernel that is drawn: values of alpha or C from
        their own distribution, one from each of so many parts of equal probability. They are
        further candidates, after the ``n_iter`` of scikit-learn, which do not change. Ridges of one
        kernel share its work: eight of them take three to six times that of one, where eight draws
        of their own would take eight times, and the winner is the best of all.
    scoring, n_jobs, refit, cv, verbose, error_score, return_train_score, order, criterion, \
operator, ridge_scaling, n_confirm, preprocessing, fallback, journal, pre_dispatch
        As in :class:`FastGridSearchCV`.
    random_state : int, RandomState or None, default=None
        Gives the candidates that scikit-learn's search would try, and the seed of every other
        random choice as in :class:`FastGridSearchCV`.

    Attributes
    ----------
    cv_results_, plan_, best_estimator_, best_score_, best_params_, best_index_
        And the others of :class:`FastGridSearchCV`.

    Notes
    -----
    **Cost** and **Exact?** As in :class:`FastGridSearchCV`; kernels that are drawn only once share
    nothing but their folds.

    Examples
    --------
    >>> from everyfold import LSSVR, FastRandomizedSearchCV
    >>> from scipy.stats import loguniform
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> grid = {"alpha": loguniform(1e-3, 10.0), "gamma": [1.0, 10.0]}
    >>> search = FastRandomizedSearchCV(LSSVR(), grid, n_iter=20, random_state=0).fit(X, y)
    >>> len(search.cv_results_["params"])
    20
    """

    _parameter_constraints: Params = {  # noqa: RUF012
        **FastSearchCV._parameter_constraints,
        "param_distributions": [dict, list],
    }

    def __init__(
        self,
        estimator: Estimator,
        param_distributions: Grid,
        *,
        n_iter: int = 10,
        free_ridges: int = 0,
        scoring: Scorer = None,
        n_jobs: int | None = None,
        refit: Refit = True,
        cv: Splitter = None,
        verbose: int = 0,
        error_score: ErrorScore = np.nan,
        return_train_score: bool = False,
        order: Order | Granularity = "auto",
        criterion: ClosedName | Closed | None = None,
        operator: OperatorChoice = "auto",
        ridge_scaling: RidgeScaling = "sum",
        n_confirm: int | Literal["auto"] = "auto",
        preprocessing: Preprocessing = "auto",
        keep_predictions: Literal["best", "all"] | None = "best",
        pooled: Pooled = "auto",
        fallback: Fallback = "warn",
        random_state: RandomState = None,
        journal: str | os.PathLike[str] | None = None,
        pre_dispatch: int | str = "2*n_jobs",
    ) -> None:
        keep_parameters(self, locals())

    def _candidates(self) -> Iterable[Params]:
        if self.journal is not None and self.random_state is None:
            raise ValueError(
                "random_state=None draws other candidates in every call, so that no journal could "
                "be gone on with; pass random_state=0"
            )
        asked = self.estimator, self.param_distributions
        check_free_ridges(*asked, self.free_ridges)
        return draw(*asked, self.n_iter, self.random_state, self.free_ridges)
