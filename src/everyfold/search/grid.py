"""The two searches: over all candidates of a grid, or over random candidates.

Random candidates are those that scikit-learn would draw, and then further ridges for each kernel.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state

from everyfold._typing import (
    ErrorScore,
    Estimator,
    Grid,
    Params,
    Preprocessing,
    RandomState,
    Refit,
    Scorer,
    Splitter,
)
from everyfold.adapters.pipelines import final_step, freeze
from everyfold.adapters.sklearn import UnknownEstimatorError, read_estimator
from everyfold.engine.request import MethodChoice
from everyfold.operators.base import OperatorChoice
from everyfold.search.base import FastSearchCV


class FastGridSearchCV(FastSearchCV):
    """Exhaustive search over a grid, like scikit-learn's ``GridSearchCV`` but without its refits.

    Candidates that share a kernel are evaluated together: all their ridges, on all folds, from one
    factorisation (or one factorisation per fold).

    Parameters
    ----------
    estimator : estimator
        scikit-learn's ``SVC``, ``SVR``, ``KernelRidge``, ``Ridge``, ``RidgeClassifier``,
        ``LogisticRegression``, ``LinearSVC``, ``LinearSVR``, ``PoissonRegressor``,
        ``GammaRegressor``, ``TweedieRegressor`` or ``GaussianProcessRegressor(optimizer=None)``,
        ``OneVsRestClassifier`` around a linear classifier, an estimator of this library, or a
        ``Pipeline`` that ends in one of them. Other estimators, and
        candidates whose parameters cannot be sped up, are refitted on every fold as scikit-learn
        does, with an :class:`UnsupportedWarning` (a filter of warnings makes it an error or
        silent); ``plan_`` says which they are, and why. Where refits should take the least time of
        all methods, they are used without a warning.
    param_grid : dict or list of dicts
        As in scikit-learn, including parameters of Pipeline steps.
    scoring : str, callable, list, tuple or dict, default=None
        As in scikit-learn. If test sets have one row, and the score of a single row is undefined or
        is not what its name says (R², RMSE, ROC, …), the score of all held-out rows together is
        used for every split, with a warning and a note in ``plan_``;
        :func:`everyfold.scorers.pooled` asks for this, or forbids it.
    n_jobs : int, default=None
        The number of kernels that joblib evaluates at a time; for SVC and SVR the number of threads
        that share the folds. If it is neither None nor 1 and the process has
        a ``distributed.Client``, all workers of that Dask cluster are used.
    refit : bool, str or callable, default=True
        As in scikit-learn. Also "one_standard_error" (for a single metric), which selects the
        simplest of the models whose mean score is within one standard error of the best mean: the
        one with the largest ridge (the smallest C). The standard error is that of the best
        candidate: s/√t, where s is the standard deviation (with t − 1) of its scores on the t
        folds. Of several candidates with that ridge the best is selected. "per_target" (for a
        single metric and several targets) fits the best candidate of each target: see
        ``best_index_per_target_``.
    cv : int, splitter or iterable, default=None
        As in scikit-learn; folds may overlap, have different sizes, or leave one row out.
    verbose : int, default=0
        1 shows a progress bar, or prints a line for every finished kernel if there is no terminal;
        ``plan_`` then also has notes that ask for no action.
    error_score : "raise" or float, default=nan
        The score of folds that cannot be fitted.
    return_train_score : bool, default=False
        Whether to compute training scores as well; each fold then needs its own factorisation.
    method : {"auto", "exact", "screen", "fast"} or MethodOptions, default="auto"
        "auto" gives the scores of refits for any number of folds (for squared loss and thousands of
        rows, those of the best candidates; see ``operator``), and "exact" for all candidates.
        Everything else is an approximation, of which an :class:`InexactWarning` says how far off it
        may be. "screen" is like "auto", but first solves SVC and SVR roughly for all values of C,
        and then only the best of them exactly. "fast" takes one Newton step per fold from the fit
        on all rows; for squared loss this is exact, and what "auto" and "exact" do. Methods of
        publications are objects of :mod:`everyfold.papers`: influence series (``bif``), criteria
        without folds (``gcv``, ``span``, …), low-rank and circulant kernels. They may have an
        operator, folds and a score of their own, which ``operator``, ``cv`` and ``scoring``
        replace. A criterion without folds is computed from one fit on all rows:
        ``mean_test_score`` is minus the criterion, ``n_splits_`` is 1 (that fit) and ``status`` is
        "as defined"; steps of a Pipeline are then fitted on all rows.
    operator : {"auto", "dense"} or Structure, default="auto"
        How kernel matrices are represented. "auto" leaves this to the estimator. For squared loss
        and from 2500 rows on (from 1000 on if the full matrices should take more than 1.5 seconds),
        "auto" evaluates all candidates with low-rank approximations first, and only the best with
        the full matrix; ``cv_results_["status"]`` says which. "dense" evaluates all candidates
        with the full matrix.
    preprocessing : {"per_fold", "once", "auto"}, default="per_fold"
        How the steps of a Pipeline are fitted: on the training rows of each fold, as GridSearchCV
        does, or once on all rows (never if they use y), which is faster with many folds, but lets
        the steps see the held-out rows; no score is called exact then. "auto" means "per_fold".
    checkpoint : str or path, default=None
        A file to which every finished unit of work is written (a kernel on all folds, or a fold
        with a few kernels); it is on disk before the next unit is counted. If the process is
        killed, the same call continues from there, repeats nothing that was written, and gives the
        same scores to the last bit. A checkpoint of other data, folds, candidates, options,
        versions or code (functions and classes that are not in an installed package, and the
        globals that they read) raises an error, as does one that another process is using.
        ``n_jobs`` and ``verbose`` may change.
    random_state : int, RandomState or None, default=None
        The seed of every random choice: landmarks of operators without their own seed (also for
        ``best_estimator_``), the low-rank approximations at the start of a search, the start of
        power iterations. It is drawn once, so that the same number gives the same results for any
        ``n_jobs``. With None, operators without a seed differ from search to search, but the
        choices of the search itself do not.
    **deprecated
        ``order``, ``criterion``, ``ridge_scaling``, ``n_confirm``, ``near_identity``, ``pooled``,
        ``keep_predictions``, ``fallback`` and ``journal`` of version 0.2 work for one more release,
        with a warning that prints the new call. ``pre_dispatch`` is accepted for compatibility and
        has no effect.

    Attributes
    ----------
    cv_results_ : dict
        As in scikit-learn, with the additional columns ``is_exact`` (whether every fold equals a
        refit, up to rounding or the solver's tolerance), ``status`` (how certain the scores are),
        ``is_identity`` (whether the kernel matrix is numerically the identity, so that nothing is
        learnt), ``spectral_radius`` (of influence series, otherwise NaN) and
        ``confirmed_test_score`` (NaN for candidates that were not refitted). Times are the
        candidate's shares of the shared work. With more than 1,000 folds there are no columns of
        single folds; use ``fold_scores``.
    plan_ : SearchPlan
        What was done, in words.
    best_estimator_, best_score_, best_params_, best_index_, scorer_, n_splits_, refit_time_, \
multimetric_, classes_, n_features_in_, feature_names_in_
        As in scikit-learn. ``best_score_`` is the confirmed score if there is one.
    best_index_per_target_, best_score_per_target_ : arrays of shape (n_targets,)
        With ``refit="per_target"``: the best candidate of each target and its mean score.
        ``best_estimator_`` predicts each target by its own candidate, and so does
        :meth:`out_of_fold`; ``best_index_`` is still the best for all targets together.
    scores_per_target_ : array of shape (n_candidates, n_targets)
        With ``refit="per_target"``: the mean score of every candidate for each target.

    Notes
    -----
    **Cost** for squared loss: one factorisation per kernel, n³ flops and 8 n² bytes, for all ridges
    and folds (with c landmarks n c² and 8 n c). For SVC and SVR: one kernel matrix, and in each
    fold the solutions for all values of C with warm starts. For smooth losses: some iterations for
    all folds together, or some Newton steps per fold. A Pipeline has one kernel per fold. ``plan``
    estimates the cost in advance. **Exact?** Squared loss: up to rounding. Other losses: to the
    solver's tolerance, for any number of folds. What ``method`` approximates on request, or
    ``operator``, is not; ``is_exact`` and ``status`` say so for every candidate.

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
        method: MethodChoice = "auto",
        operator: OperatorChoice = "auto",
        preprocessing: Preprocessing = "per_fold",
        checkpoint: str | os.PathLike[str] | None = None,
        random_state: RandomState = None,
        **deprecated: Any,
    ) -> None:
        self._keep_parameters(locals())

    def _candidates(self) -> Iterable[Params]:
        return ParameterGrid(self.param_grid)  # type: ignore[no-any-return]

    def _grids(self) -> Sequence[Params]:
        return ParameterGrid(self.param_grid).param_grid  # type: ignore[no-any-return]


class FastRandomizedSearchCV(FastSearchCV):
    """Search over random candidates, like ``RandomizedSearchCV`` but without its refits.

    Time is saved only if candidates share a kernel. Therefore pass a list of a few values for
    gamma, and a distribution for the ridge.

    Parameters
    ----------
    estimator : estimator
        As in :class:`FastGridSearchCV`.
    param_distributions : dict or list of dicts
        Lists, or distributions with an ``rvs`` method, as in scikit-learn.
    n_iter : int, default=10
        The number of candidates.
    free_ridges : int, default=0
        The number of further ridges to evaluate for every kernel that is drawn: values of alpha or
        C from their own distribution, one from each of ``free_ridges`` intervals of equal
        probability. They are additional candidates after the ``n_iter`` of scikit-learn, which do
        not change. Ridges of one kernel share its work, so that they take far less time than as
        many separate draws.
    scoring, n_jobs, refit, cv, verbose, error_score, return_train_score, method, operator, \
preprocessing, checkpoint, **deprecated
        As in :class:`FastGridSearchCV`.
    random_state : int, RandomState or None, default=None
        Determines the candidates, which are those of scikit-learn's search, and is the seed of
        every other random choice as in :class:`FastGridSearchCV`.

    Attributes
    ----------
    cv_results_, plan_, best_estimator_, best_score_, best_params_, best_index_
        These, and all others, as in :class:`FastGridSearchCV`.

    Notes
    -----
    **Cost** and **Exact?** As in :class:`FastGridSearchCV`; if every candidate has its own kernel,
    only the folds share work.

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
        method: MethodChoice = "auto",
        operator: OperatorChoice = "auto",
        preprocessing: Preprocessing = "per_fold",
        checkpoint: str | os.PathLike[str] | None = None,
        random_state: RandomState = None,
        **deprecated: Any,
    ) -> None:
        self._keep_parameters(locals())

    def _candidates(self) -> Iterable[Params]:
        if self.checkpoint is not None and self.random_state is None:
            raise ValueError(
                "random_state=None draws different candidates in every call, so that a checkpoint "
                "cannot be continued; pass an integer, such as random_state=0"
            )
        asked = self.estimator, self.param_distributions
        check_free_ridges(*asked, self.free_ridges)
        return draw(*asked, self.n_iter, self.random_state, self.free_ridges)


# -- Further ridges for the kernels of a random search ---------------------------------------------

_RIDGES = ("alpha", "C")

# Distributions, or lists of values, by the names of parameters.
_Options: TypeAlias = Mapping[str, Any]


def check_free_ridges(estimator: Estimator, distributions: Grid, count: int) -> None:
    """Refuse ``free_ridges`` that is no count, or that estimator or distributions do not allow.

    Ridges must share a kernel, and have a distribution to be drawn from.
    """
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
        raise ValueError(f"free_ridges={count!r} is not a number of ridges; use 0, 1, 2, ...")
    if not count:
        return
    try:
        read_estimator(final_step(estimator))
    except UnknownEstimatorError as error:
        raise ValueError(
            f"free_ridges={count} needs an estimator whose ridges share a kernel, but "
            f"{type(final_step(estimator)).__name__} is refitted for every ridge; use "
            "free_ridges=0"
        ) from error
    for options in _as_list(distributions):
        _name_of_ridge(estimator, options, count)


def draw(
    estimator: Estimator, distributions: Grid, n_iter: int, random_state: RandomState, count: int
) -> list[Params]:
    """What scikit-learn's search would draw, and then ``count`` further ridges for every kernel.

    These come from the distribution of the ridge, one from each of so many parts of equal
    probability; from a list they are as many of its values as there are, at most.
    """
    rng = check_random_state(random_state)
    drawn = list(ParameterSampler(distributions, n_iter, random_state=rng))
    if not count:
        return drawn
    kernels: dict[Hashable, list[Params]] = {}
    names = []
    for params in drawn:
        options = _source(_as_list(distributions), params)
        name = _name_of_ridge(estimator, options, count)
        rest = {key: value for key, value in params.items() if key != name}
        own = kernels.setdefault((name, freeze(rest)), [])
        if not own:
            names.append((own, name, options[name]))
        own.append(params)
    further = []
    for own, name, ridge in names:
        taken = [params[name] for params in own]
        values = (value for value in _ridges(ridge, count, rng) if value not in taken)
        further += [{**own[0], name: value} for value in islice(values, count)]
    return drawn + further


def _as_list(distributions: Grid) -> list[_Options]:
    return [distributions] if isinstance(distributions, Mapping) else list(distributions)


def _source(distributions: Sequence[_Options], params: Params) -> _Options:
    """The distributions that a candidate was drawn from."""
    for options in distributions:
        if set(options) == set(params) and all(
            hasattr(values, "rvs") or any(params[name] is v or params[name] == v for v in values)
            for name, values in options.items()
        ):
            return options
    raise AssertionError(f"{params} is no draw of the distributions")


def _name_of_ridge(estimator: Estimator, options: _Options, count: int) -> str:
    """The parameter that is the ridge of the model, among those that have a distribution."""
    prefix = f"{estimator.steps[-1][0]}__" if isinstance(estimator, Pipeline) else ""
    for name in (f"{prefix}{ridge}" for ridge in _RIDGES):
        values = options.get(name)
        if values is not None and (hasattr(values, "rvs") or len(values) > 1):
            return name
    raise ValueError(
        f"free_ridges={count} draws further ridges from the distribution of {prefix}alpha or "
        f"{prefix}C, but {sorted(options)} has none; add one, such as '{prefix}alpha': "
        "loguniform(1e-4, 10), or use free_ridges=0"
    )


def _ridges(ridge: Any, count: int, rng: np.random.RandomState) -> list[Any]:
    """Ridges from a distribution, or the values of a list in random order."""
    if hasattr(ridge, "ppf"):
        parts = (np.arange(count) + rng.uniform(size=count)) / count
        return [value.item() for value in np.asarray(ridge.ppf(parts))]
    if hasattr(ridge, "rvs"):
        return [ridge.rvs(random_state=rng) for _ in range(count)]
    return [ridge[i] for i in rng.permutation(len(ridge))]
