"""Reading a request: estimators, rows, targets, weights and folds, each once.

Whatever is wrong with them is raised here, before any work. Values that ``fit`` itself would refuse
make their candidate fail and no other, as in scikit-learn.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.metrics import check_scoring
from sklearn.model_selection import LeaveOneOut, check_cv
from sklearn.multiclass import OneVsRestClassifier
from sklearn.utils import get_tags
from sklearn.utils.validation import check_consistent_length, has_fit_parameter

from everyfold._progress import warn
from everyfold._sklearn_private import num_samples
from everyfold._typing import Estimator, Index, Matrix, Params, Scorer, Splitter, Targets
from everyfold.adapters.pipelines import (
    MetadataError,
    Parts,
    advice_on,
    final_step,
    freeze,
    read_rows,
    split_steps,
    warp_of,
)
from everyfold.adapters.scaling import find_moments, scaler_of
from everyfold.adapters.sklearn import (
    UnknownEstimatorError,
    check_kernel_matrix,
    check_parameters,
    combination,
    is_ours,
    objection,
    read_estimator,
    takes_sources,
)
from everyfold.crossval.base import Failure
from everyfold.engine.planning.methods import check_order
from everyfold.engine.planning.units import typical_rows
from everyfold.engine.reading.permutations import permuted
from everyfold.engine.records import Candidate, Data, Task
from everyfold.engine.request import Request, UnsupportedWarning, is_refused
from everyfold.engine.scoring.fold_scorers import FoldScorer, by_name, why_not_judged
from everyfold.engine.scoring.metrics import (
    ExplainedDeviance,
    is_own_score,
    may_ask_for_probabilities,
    unusual_score,
    usual_score,
)
from everyfold.engine.source_data import SourceData
from everyfold.estimators.model import Model, read_weights
from everyfold.estimators.sources import check_model, read_source
from everyfold.estimators.targets import NotSpedUpError, Reading, Target, Warp
from everyfold.folds import Folds
from everyfold.io import RowSource
from everyfold.io.fold_rules import read_rule
from everyfold.losses import Multinomial
from everyfold.operators import Structure


def read(request: Request) -> Data:
    """Read a request: each of its parts once, raising what is wrong with it.

    Estimators come first: no data are touched for one that is refused.
    """
    request.check_combinations()
    others = Others(request)
    models = read_models(request, others)
    request = request.indexed()
    candidates = read_candidates(models, request, others)
    own = request
    if is_own_score(request.scorer) and models:  # a candidate may have another last step
        request = replace(request, scorer=check_scoring(models[0].estimator))
    X, y, refused = request.X, request.y, others.refused
    if request.is_source:
        return _in_blocks(request, candidates, others)
    candidates, targets = _targets(candidates, y, others)
    if not candidates:
        return _refitted(own, splits_of(request), others)
    if not hasattr(X, "shape") and get_tags(request.estimator).input_tags.pairwise:
        raise ValueError(  # scikit-learn's words
            "Precomputed kernels or affinity matrices have to be passed as arrays or sparse "
            "matrices."
        )
    has_steps = any(candidate.parts.steps for candidate in candidates)
    is_raw = has_steps or any(c.model.choice.takes_any_rows for c in candidates)
    rows = X if is_raw else read_rows(X, request.estimator)
    check_consistent_length(rows, y)
    candidates = _fitting(candidates, rows, targets, others)
    if not candidates:
        return _refitted(own, splits_of(request), others)
    splits = splits_of(request) if others.foreign else None
    folds = _folds(request, rows, splits, literal=has_steps)
    if request.options.granularity is not None:
        request.check_folds(len(folds))
    if request.wants.partition:
        check_partition(folds, request.cv)
    n_foreign = len(others.foreign)
    tasks, numbered = _tasks(request, candidates, targets, folds, others)
    if len(others.foreign) > n_foreign:
        splits = [(fold.train, fold.test) for fold in folds]
    judge = tasks[0].judge if numbered else None
    # A function of the user's own may look at more than held-out values.
    has_own = judge is not None and not judge.is_of_sklearn
    if not numbered or (has_own and _is_left_by_scorer(request, tasks[0], numbered, others)):
        return _refitted(own, [(fold.train, fold.test) for fold in folds], others)
    if request.cvs or request.orders:
        tasks, numbered = _further(request, numbered[0], tasks[0], rows, literal=has_steps)
    if request.options.ridge_scaling == "mean":
        _check_scaling(tasks)
    refits, n = _own(own, splits), num_samples(rows)
    found = {candidate.number: candidate for candidate in numbered}
    data = Data(rows, y, n, tasks, found, refused, others.reasons, refits, is_raw=is_raw)
    return _without_refused(data, others)


def _fitting(
    candidates: Sequence[Candidate], X: Matrix, targets: dict[Reading, Target], others: Others
) -> list[Candidate]:
    """The candidates that go with these rows and targets; the others fail."""
    found = []
    checked: set[type] = set()
    for candidate in candidates:
        model = candidate.model
        try:
            model.columns_of_ridges(targets[model.reading].columns.shape[1])
            kind = type(candidate.parts.final)
            if model.choice.is_precomputed and not candidate.parts.steps and kind not in checked:
                check_kernel_matrix(kind, X)
                checked.add(kind)
        except (TypeError, ValueError) as error:
            others.refuse(candidate.number, error)
        else:
            found.append(candidate)
    if not found:
        others.check_any()
    return found


def _without_refused(data: Data, others: Others) -> Data:
    """The data without candidates whose parameters ``fit`` refuses together, or for such rows."""
    known: dict[Hashable, Exception | None] = {}
    found = dict(data.candidates)
    for number, candidate in data.candidates.items():
        asked = combination(candidate.parts.final)
        X = None if asked is None else typical_rows(data, candidate)
        if X is None:
            continue
        key = asked, candidate.task, issparse(X)
        if key not in known:
            target = data.tasks[candidate.task].target
            known[key] = objection(candidate.parts.final, target, is_sparse=issparse(X))
        error = known[key]
        if error is not None:
            others.refuse(number, error)
            del found[number]
    if not found:
        others.check_any()
    return data if len(found) == len(data.candidates) else replace(data, candidates=found)


def _refitted(request: Request, splits: Sequence[tuple[Index, Index]], others: Others) -> Data:
    """The data of candidates that are all left to refits of the estimators themselves."""
    X, refits = request.X, _own(request, splits)
    return Data(X, request.y, num_samples(X), (), {}, others.refused, others.reasons, refits)


def _is_left_by_scorer(
    request: Request, task: Task, candidates: Sequence[Candidate], others: Others
) -> bool:
    """Whether candidates are left to refits, as the scorer looks at more than held-out values."""
    scorer, data = request.scorer, (request.X, request.y)
    if not len(task.whole.test.parts) or request.options.fallback == "refuse":
        return False
    rows = task.whole.test.parts[0]
    reason = why_not_judged(scorer, task.target, data, request.metadata.score, rows)
    for candidate in candidates if reason else ():
        others.set_aside(candidate.number, ValueError(reason))
    return bool(reason)


def not_sped_up(request: Request) -> str:
    """Why nothing speeds up any candidate of a request; empty if something does."""
    others = Others(request)
    models = read_models(request, others)
    if not request.is_source:
        found = [Candidate(m.number, m.model, split_steps(m.estimator, {})) for m in models]
        _targets(found, request.y, others)
    are_all = len(others.foreign) == len(request.candidates)
    return next(iter(others.reasons.values())) if are_all else ""


def _own(request: Request, splits: Sequence[tuple[Index, Index]] | None) -> Request | None:
    """What the estimators themselves are refitted by, if any of them may be."""
    if splits is None and request.scorer is None:
        return None
    options = request.options
    if options.granularity is not None:
        options = replace(options, granularity=None)
    own = replace(request, cv=splits, options=options, orders=(), cvs=())
    values = [value for params in request.candidates for value in params.values()]
    values.append(getattr(final_step(request.estimator), "operator", None))
    # Operators draw landmarks: what may have one gets its seed here, once.
    if not any(isinstance(value, Structure | BaseEstimator) for value in values):
        return own
    plant = request.options.seeds.plant
    candidates = [
        {name: plant(value) for name, value in params.items()} for params in request.candidates
    ]
    return replace(own, estimator=plant(request.estimator), candidates=candidates)


# -- targets, weights, folds -------------------------------------------------------------------


def _targets(
    candidates: Sequence[Candidate], y: Targets, others: Others
) -> tuple[list[Candidate], dict[Reading, Target]]:
    """Y as every candidate reads it; raises what is wrong with it, or with class weights."""
    targets: dict[Reading, Target] = {}
    found = []
    for candidate in candidates:
        model: Model = candidate.model
        try:
            if model.reading not in targets:
                targets[model.reading] = model.reading.read(y)
        except NotSpedUpError as error:
            others.set_aside(candidate.number, error)
            continue
        try:
            if model.class_weight is not None or model.loss.has_log_link:
                model.check_labels(targets[model.reading])
        except NotSpedUpError as error:
            others.set_aside(candidate.number, error)
        except ValueError as error:
            others.refuse(candidate.number, error)
        else:
            if targets[model.reading].is_joint:
                candidate = replace(candidate, model=replace(model, loss=Multinomial()))
            found.append(candidate)
    if not found:
        others.check_any()
    return found, targets


def _folds(
    request: Request, X: Matrix, splits: Sequence[tuple[Index, Index]] | None, *, literal: bool
) -> Folds:
    """The folds of a splitter; leave-one-out without n arrays of n rows.

    ``literal`` keeps the order of the training rows, which transformers may depend on.
    """
    if request.options.closed is not None:
        return Folds.whole(num_samples(X))
    n = num_samples(X)
    if splits is not None:
        return Folds.from_splits(splits, n, literal=literal)
    splitter = _splitter(request)
    if type(splitter) is LeaveOneOut and not literal:
        return Folds.leave_one_out(n)
    # A splitter of this library: no training set is written out.
    if hasattr(splitter, "held_out_sets") and not literal:
        return Folds(n, *splitter.held_out_sets(request.X, request.y))
    return Folds.from_splits(_each_split(request, splitter), n, literal=literal)


def _splitter(request: Request) -> Splitter:
    return check_cv(request.cv, request.y, classifier=is_classifier(request.estimator))


def splits_of(request: Request) -> list[tuple[Index, Index]]:
    """What the splitter gives; it is asked once, as it may be one that is used up."""
    return list(_each_split(request, _splitter(request)))


def _each_split(request: Request, splitter: Splitter) -> Iterator[tuple[Index, Index]]:
    """The same one by one; says at the end what is wrong with their number."""
    X, y, params = request.X, request.y, request.metadata.split
    can_count = hasattr(splitter, "get_n_splits")
    count = splitter.get_n_splits(X, y, **params) if can_count else None
    found = 0
    for split in splitter.split(X, y, **params):
        found += 1
        yield split
    if count is not None and found != count:
        raise ValueError(
            "cv.split and cv.get_n_splits return inconsistent results. Expected "
            f"{count} splits, got {found}"
        )
    if not found:
        raise ValueError(f"{NO_FITS} cv={request.cv!r} yields no split")


def check_partition(folds: Folds, cv: Splitter) -> None:
    """Raise unless every row is tested exactly once."""
    rows = folds.test_rows
    if len(rows) != folds.n or len(np.unique(rows)) != folds.n:
        raise ValueError(
            "cross_val_predict only works for partitions, as do calibration and intervals: "
            f"cv={cv!r} does not test every row exactly once; use KFold, StratifiedKFold or "
            "GroupKFold, or cross_val_score"
        )


def _tasks(
    request: Request,
    candidates: Sequence[Candidate],
    targets: dict[Reading, Target],
    folds: Folds,
    others: Others,
) -> tuple[tuple[Task, ...], list[Candidate]]:
    """A task for every way to read y and every set of weights; most grids have one."""
    numbers: dict[Hashable, int] = {}
    tasks: list[Task] = []
    found = []
    for candidate in candidates:
        weight = candidate.parts.params.get("sample_weight")
        key = candidate.model.reading, id(weight)
        if key not in numbers:
            numbers[key] = len(tasks)
            tasks.append(_task(request, targets[candidate.model.reading], weight, folds))
        # The weights of balanced classes are refused where a class has none.
        if weight is not None and candidate.model.class_weight != "balanced":
            task = tasks[numbers[key]]
            try:
                task.target.check_weights(task.weights, folds)
            except NotSpedUpError as error:
                others.set_aside(candidate.number, error)
                continue
        found.append(replace(candidate, task=numbers[key]))
    return tuple(tasks), found


def _further(
    request: Request, candidate: Candidate, task: Task, rows: Matrix, *, literal: bool
) -> tuple[tuple[Task, ...], list[Candidate]]:
    """A task for each of several orders of y or ways to split the rows, and a candidate for it."""

    def split(y: Targets, cv: Splitter) -> Folds:
        return _folds(replace(request, y=y, cv=cv), rows, None, literal=literal)

    if request.orders:
        return permuted(request, candidate, task, partial(split, cv=_splitter(request)))
    tasks = tuple(replace(task, folds=split(request.y, cv)) for cv in request.cvs)
    return tasks, [replace(candidate, number=i, task=i) for i in range(len(tasks))]


def _task(request: Request, target: Target, sample_weight: Targets, folds: Folds) -> Task:
    weights = np.ones(folds.n)
    if sample_weight is not None:
        weights = read_weights(sample_weight, folds.n)
        target = target.learnt_with(weights)
    judge = None
    if request.scorer is not None:
        data, score = (request.X, request.y), request.metadata.score
        judge = FoldScorer(request.scorer, target, data, score, request.options.error_score)
    wants, closed = request.wants, request.options.closed
    by = wants.selects_by if isinstance(wants.selects_by, str) else "score"
    task = Task(target, weights, folds, judge, wants.train_scores, wants.labels_only, closed)
    return replace(
        task,
        keeps_values=wants.keeps is not None,
        best_by=by if wants.keeps == "best" else None,
        near_identity=request.options.near_identity,
    )


def _check_scaling(tasks: Sequence[Task]) -> None:
    """One number of rows scales the ridge of the refitted model, whichever candidate wins."""
    counts = {int(np.count_nonzero(task.weights)) for task in tasks}
    if len(counts) > 1:
        raise ValueError(
            "ridge_scaling='mean' multiplies the ridge by the number of rows with positive weight, "
            f"which differs between candidates ({sorted(counts)}), as some ask for sample_weight "
            "and some do not; search them separately"
        )


# -- sources of rows ---------------------------------------------------------------------------


def _in_blocks(request: Request, candidates: Sequence[Candidate], others: Others) -> SourceData:
    """The data of a source of rows; refuses what needs all rows at once."""
    source: RowSource = request.X
    for error in others.foreign.values():
        raise error
    final = final_step(request.estimator)
    if not takes_sources(final):
        raise ValueError(
            f"{type(final).__name__} cannot be fitted to a source of rows; use "
            "KernelRegressor, KernelClassifier and their kin (LSSVR, LSSVC, HuberSVC, "
            "KernelLogisticClassifier, …), KernelRidge, Ridge, RidgeClassifier or "
            "LogisticRegression"
        )
    for candidate in candidates:
        scaler_of(candidate.parts)
        check_model(candidate.model)
    if len({freeze(candidate.model.class_weight) for candidate in candidates}) > 1:
        raise ValueError(
            "class_weight differs between candidates, which is not possible with a source of "
            "rows; search one class_weight at a time"
        )
    reader = read_source(source, candidates[0].model)
    rule = read_rule(request.cv, source)
    has_steps, wants = any(candidate.parts.steps for candidate in candidates), request.wants
    decides = "score" if wants.selects_by is True else wants.selects_by
    moments = find_moments(source, rule) if has_steps else None
    return SourceData(
        None,
        None,
        source.n_rows or 0,
        (),
        {candidate.number: candidate for candidate in candidates},
        others.refused,
        jobs=None if source.workers() is None else 1,  # each pass has all workers of a cluster
        source=source,
        reader=reader,
        rule=rule,
        scorer=request.scorer,
        error_score=request.options.error_score,
        moments=moments,
        has_journal=request.wants.journal,
        best_by=decides if wants.refits and isinstance(decides, str) else None,
    )


NO_FITS = "No fits were performed. Was the CV iterator empty? Were there no candidates?"


@dataclass(frozen=True)
class Readable:
    """An estimator with a candidate's parameters, and what it asks for."""

    number: int
    estimator: Estimator
    model: Model


@dataclass
class Others:
    """Candidates that are not evaluated here.

    Attributes
    ----------
    refused : dict
        Those that no fit would take.
    foreign : dict
        Those that only refits of the estimator itself can evaluate.
    """

    request: Request
    refused: dict[int, Failure] = field(default_factory=dict)
    foreign: dict[int, Exception] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    """Why the foreign ones are."""

    def refuse(self, number: int, error: Exception) -> None:
        """Let a candidate fail, with what is being raised."""
        if self.request.options.error_score == "raise":
            raise error
        self.refused[number] = Failure.caught(error)

    def set_aside(self, number: int, error: Exception) -> None:
        """Leave a candidate to refits, if these are allowed."""
        if not shares_distributions(self.request, number):
            self.request.check_fallback(error)
        self.foreign[number] = error
        self.reasons[number] = getattr(error, "reason", str(error))

    def check_any(self) -> None:
        """Raise the first refusal, where no candidate is left."""
        if not self.foreign and self.refused:
            raise next(iter(self.refused.values())).error


def shares_distributions(request: Request, number: int) -> bool:
    """Whether a candidate's folds share all that scorers of predicted distributions look at.

    That is known to the scorers (:mod:`everyfold.gaussian_process`), not to the engine.
    """
    metadata, scorers = request.metadata, list(by_name(request.scorer).values())
    if request.wants.train_scores or metadata.fit or metadata.score:
        return False
    if not all(hasattr(scorer, "shares_folds") for scorer in scorers):
        return False
    (estimator,) = configured(request.estimator, [request.candidates[number]])
    return bool(scorers[0].shares_folds(estimator))


def read_models(request: Request, others: Others) -> list[Readable]:
    """All candidates that can be sped up."""
    if not request.candidates:
        raise ValueError(f"{NO_FITS} The grid has none")
    options = request.options
    found: list[Readable] = []
    is_of_low_rank = options.is_of_low_rank
    for number, estimator in enumerate(configured(request.estimator, request.candidates)):
        final = final_step(estimator)
        try:
            check_parameters(estimator)
        except (TypeError, ValueError) as error:
            others.refuse(number, error)
            continue
        try:
            if final is not estimator:
                split_steps(estimator, {})  # refuses steps that cannot be read
            model = options.apply(read_estimator(final))
            warp = None if final is estimator else warp_of(estimator)
            if warp is not None:
                model = _warped(model, warp)
            if is_of_low_rank and not hasattr(final, "operator"):
                model = replace(model, is_stand_in=True)
            model.choice.resolve_for_any()
        except UnknownEstimatorError as error:
            others.set_aside(number, error)
        except (TypeError, ValueError) as error:
            (others.set_aside if _is_valid(final) else others.refuse)(number, error)
        else:
            if options.order != "auto" or len(model.ridges) > 1:
                check_order(model, options.order)
            if options.closed is not None:
                options.closed.check(model.loss, chooses_ridge=model.chooses_ridge)
            found.append(Readable(number, estimator, model))
    if not found:
        others.check_any()
    return _judged_alike(found, request.scorer, others)


def _warped(model: Model, warp: Warp) -> Model:
    """The model with the transformation of its targets."""
    is_shared = model.loss.has_constant_curvature and not model.chooses_ridge
    is_several = len(model.ridges) > 1 and not model.chooses_ridge
    if is_several or not (is_shared or warp.is_fixed):
        raise ValueError(
            "TransformedTargetRegressor(transformer=...) gives every fold different targets, "
            "which can share a factorisation only with squared loss and a single alpha"
        )
    return replace(model, warp=warp, flattens=False)


def _judged_alike(found: Sequence[Readable], scorer: Scorer, others: Others) -> list[Readable]:
    """Keep those of the first one's kind, classifier or regressor, with that kind's usual score."""
    kept = []
    is_own = is_own_score(scorer)
    asked = usual_score(scorer._estimator) if is_own else None
    for item in found:
        own = usual_score(item.estimator) if is_own else None
        has_deviance = ExplainedDeviance in (type(asked), type(own))
        if item.model.is_classifier != found[0].model.is_classifier:
            others.set_aside(item.number, ValueError(_MIXED))
        elif is_own and (own is None or (own != asked and has_deviance)):
            others.set_aside(item.number, unusual_score(item.estimator))
        elif item.model.calibrates and any(
            map(may_ask_for_probabilities, by_name(scorer).values())
        ):
            others.set_aside(item.number, ValueError(_CALIBRATES))
        else:
            kept.append(item)
    return kept


_CALIBRATES = (
    "scoring uses the probabilities of SVC(probability=True), which calibrates them by a "
    "cross-validation of its own; use a score of predictions or decision values, or "
    "FastCalibratedClassifierCV(SVC()) for probabilities"
)
_MIXED = "the grid mixes classifiers and regressors; search them separately"


def read_candidates(
    models: Sequence[Readable], request: Request, others: Others
) -> list[Candidate]:
    """The candidates with their share of the metadata; those that refuse it fail alone."""
    found: list[Candidate] = []
    for item in models:
        try:
            parts = split_steps(item.estimator, request.metadata.fit)
            if parts.params:
                _check_fit_params(parts)
        except (MetadataError, UnsetMetadataPassedError, TypeError) as error:
            others.refuse(item.number, error)
        except ValueError as error:
            others.set_aside(item.number, error)
        else:
            found.append(Candidate(item.number, item.model, parts))
    if not found:
        others.check_any()
    return found


def configured(estimator: Estimator, candidates: Sequence[Params]) -> Iterator[Estimator]:
    """The estimator with the parameters of each candidate.

    Where these are all its own, a copy of one clone takes them: ``clone`` and ``set_params`` read
    the signature of ``__init__`` three times, which is most of the cost of a small candidate.
    """
    if len(candidates) == 1 and not candidates[0]:
        yield estimator
        return
    blank = clone(estimator)
    is_plain = getattr(type(blank), "set_params", None) is BaseEstimator.set_params
    own = set(blank.get_params(deep=False)) if is_plain else set()
    for params in candidates:
        if own.issuperset(params):
            configured = copy(blank)
            for name, value in params.items():
                setattr(configured, name, value)
        else:
            configured = clone(estimator).set_params(**_unshared(params))
        yield configured


# The classes of which this process has been told that they are refitted.
_TOLD: set[type] = set()


def warn_of_refits(estimators: Iterable[Estimator], words: str) -> None:
    """Warn that estimators are refitted, once for each class in a process.

    Nothing is said of those whose ``fit`` does nothing worth speeding up.
    """
    finals = [final_step(estimator) for estimator in estimators]
    kinds = {type(final) for final in finals if not _needs_no_fit(final)}
    # A filter that makes an error of it means every call and estimator, and not the first one only.
    if kinds - _TOLD or is_refused():
        warn(words, UnsupportedWarning)
        _TOLD.update(kinds)


def forget_warnings() -> None:
    """Let this process be told again of all refits, as tests need it."""
    _TOLD.clear()


def _needs_no_fit(final: Estimator) -> bool:
    if isinstance(final, DummyClassifier | DummyRegressor | FrozenEstimator):
        return True
    if getattr(final, "cv", None) == "prefit":
        return True
    if isinstance(final, GaussianProcessRegressor):  # without a fit it predicts by its prior
        return False
    return hasattr(final, "__sklearn_tags__") and not get_tags(final).requires_fit


def _unshared(params: Params) -> Params:
    """The parameters of one candidate, with steps that other candidates do not share.

    ``set_params`` may change a step that it has just set: ``step__degree`` after ``step``.
    """
    return {
        name: clone(value) if isinstance(value, BaseEstimator) else value
        for name, value in params.items()
    }


def _is_valid(estimator: Estimator) -> bool:
    """Whether fitting would take the parameters; those of scikit-learn's have been checked."""
    if not is_ours(estimator):
        return True
    try:
        read_estimator(estimator).choice.resolve_for_any()
    except (TypeError, ValueError):
        return False
    return True


def _check_fit_params(parts: Parts) -> None:
    """Refuse whatever the model's ``fit`` is to get besides sample weights."""
    unknown = sorted(set(parts.params) - {"sample_weight"})
    if type(parts.final) is OneVsRestClassifier and parts.params:
        raise MetadataError(f"OneVsRestClassifier.fit does not take {sorted(parts.params)}")
    if unknown:
        is_ours_alone = any(has_fit_parameter(parts.final, name) for name in unknown)
        raise (ValueError if is_ours_alone else MetadataError)(
            f"params has {unknown}, which {type(parts.final).__name__}.fit does not take here; "
            f"only 'sample_weight' is allowed{advice_on(unknown)}"
        )
