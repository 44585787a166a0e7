"""What a search is about to do, all of it decided before the first kernel."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.utils import Bunch
from sklearn.utils.validation import _num_samples, check_consistent_length

from everyfold.criteria import Folds, InexactWarning
from everyfold.engines import Bench
from everyfold.execute import local_threads, map_unordered
from everyfold.model import read_weights
from everyfold.preprocess import freeze
from everyfold.scoring import Judge
from everyfold.search.candidates import Options
from everyfold.streaming import StreamTrial, run_stream
from everyfold.units import Candidate, Rawdata, Trial, Unit, Verdict, group, run, set_up, share_out
from everyfold.validation import read_fit_params

MANY_FOLDS = 20
"""Beyond this many folds, preparing the rows of each anew costs more than the rest."""


@dataclass(frozen=True)
class Setup:
    """Rows in memory, cut into folds and units of work."""

    data: Rawdata
    folds: Folds
    units: list[Unit]
    is_per_fold: bool
    has_steps: bool
    notes: tuple[str, ...]

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.data.n

    @property
    def n_weighted(self) -> int:
        """The number of rows with positive weight."""
        return int(np.count_nonzero(self.units[0].trial.bench.weights))

    @property
    def n_kernels(self) -> int:
        """The number of kernels."""
        return len(self.units)

    @cached_property
    def sizes(self) -> list[int]:
        """How many test rows each fold has."""
        return [len(test) for test in self.folds.tests]

    @property
    def longest_path(self) -> int:
        """The largest number of candidates that share a kernel and all but the ridge."""
        return max(len(members) for unit in self.units for members in unit.groups)

    def trial_of(self, number: int) -> Trial:
        """How a candidate is judged."""
        return next(
            unit.trial
            for unit in self.units
            for group in unit.groups
            if any(candidate.number == number for candidate in group)
        )

    def work(self, n_jobs: int | None) -> Iterator[list[Verdict]]:
        """The verdicts of all candidates, kernel by kernel, in the order they get done.

        Jobs are threads for the folds of one kernel where an engine can use them, and joblib's
        workers with a kernel each elsewhere.
        """
        threaded = share_out(self.units, local_threads(n_jobs))
        if threaded is not None:
            return map_unordered(run, threaded, 1, self.data.n)
        return map_unordered(run, self.units, n_jobs, self.data.n)

    @property
    def preprocessing(self) -> str:
        """How steps in front of the model are fitted, in words."""
        if not self.has_steps:
            return "none"
        if self.is_per_fold:
            return "steps fitted on the training rows of each fold, once for all candidates alike"
        return "steps fitted once, on all rows: folds are not wholly independent of their test rows"


@dataclass(frozen=True)
class StreamSetup:
    """Rows of a source, read in blocks; what is known of its folds is known after a pass."""

    trial: StreamTrial
    candidates: list[Candidate]
    is_per_fold: bool = True
    has_steps: bool = False
    notes: tuple[str, ...] = ()
    preprocessing: str = "none"

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.trial.source.n_rows or 0

    n_weighted = n

    @property
    def n_kernels(self) -> int:
        """The number of kernels."""
        return len({candidate.kernel_key for candidate in self.candidates})

    @property
    def sizes(self) -> list[int]:
        """How many rows each fold has, after the first pass."""
        return self.trial.sizes

    @property
    def longest_path(self) -> int:
        """The largest number of candidates on one kernel."""
        keys = [candidate.kernel_key for candidate in self.candidates]
        return max(keys.count(key) for key in keys)

    def work(self, n_jobs: int | None) -> Iterator[list[Verdict]]:
        """The verdicts of all candidates, batch by batch; BLAS shares the work out itself."""
        return run_stream(self.trial, self.candidates)


def set_up_table(
    data: tuple[Any, Any],
    rows: Any,
    folds: Folds,
    routed: Bunch,
    candidates: Sequence[Candidate],
    options: Options,
    judge: tuple[Any, bool],
) -> Setup:
    """Decide how rows are prepared, and cut the work into units.

    Parameters
    ----------
    data : tuple (X, y)
        As the user passed them.
    rows : array, CSR matrix or data frame
        X, checked if no step comes before the kernel.
    folds, routed, candidates, options
    judge : tuple (scorers, with_train)
    """
    y, n = data[1], _num_samples(rows)
    scorers, with_train = judge
    check_consistent_length(rows, y)
    has_steps = any(candidate.parts.steps for candidate in candidates)
    weights = read_weights(read_fit_params(candidates[0].parts).get("sample_weight"), n)
    is_per_fold, notes, prepared = _decide_preprocessing(candidates, rows, folds, options)
    if not is_per_fold:
        folds = Folds.from_splits(((fold.train, fold.test) for fold in folds), n)
    _check_order(options, folds, has_steps and is_per_fold, with_train)
    raw = Rawdata(rows, y, n, is_per_fold, prepared)
    units = []
    for alike in _by_target(candidates):
        target = alike[0].model.target(y)
        trial = set_up(
            Bench(target, weights, folds, options.order),
            Judge(scorers, target, data, routed.scorer.score, options.error_score),
            with_train=with_train,
        )
        units += group(alike, raw, trial)
    return Setup(raw, folds, units, is_per_fold, has_steps, notes)


def _by_target(candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """Candidates that read y alike: all of them, unless the grid has several ways to vote."""
    found: dict[Any, list[Candidate]] = {}
    for candidate in candidates:
        found.setdefault(freeze(candidate.model.voting), []).append(candidate)
    return list(found.values())


def _decide_preprocessing(
    candidates: Sequence[Candidate], X: Any, folds: Folds, options: Options
) -> tuple[bool, tuple[str, ...], dict[Any, Any]]:
    """Whether each fold prepares its own rows, what is to be said about it, and rows it made."""
    if not any(candidate.parts.steps for candidate in candidates):
        return True, (), {}
    if options.preprocessing == "per_fold":
        return True, (), {}
    if options.preprocessing == "auto" and len(folds) <= MANY_FOLDS:
        return True, (), {}
    different = {candidate.parts.key: candidate.parts for candidate in candidates}
    is_supervised, prepared = False, {}
    for key, parts in different.items():
        rows = parts.without_y(X)
        is_supervised |= rows is None
        if len(different) == 1:  # more of them might not fit in memory together
            prepared[key] = rows
    if options.preprocessing == "once" and is_supervised:
        raise ValueError(
            "preprocessing='once' fits the steps on all rows, but some of them look at y, which "
            "would leak into every fold; use preprocessing='per_fold'"
        )
    if options.preprocessing == "once" or is_supervised:
        return is_supervised, (), prepared
    note = (
        f"with {len(folds)} folds the steps of the Pipeline were fitted once, on all rows, and not "
        f"on each fold's training rows as GridSearchCV does"
    )
    advice = "; pass preprocessing='per_fold' for that, or 'once' to agree"
    warnings.warn(note + advice, InexactWarning, stacklevel=5)
    return False, (note,), prepared


def _check_order(options: Options, folds: Folds, is_prepared: bool, with_train: bool) -> None:
    if not options.is_finite:
        return
    for is_wrong, what in (
        (is_prepared, "steps that are fitted per fold; use preprocessing='once'"),
        (with_train, "training scores; use return_train_score=False"),
        (not folds.are_removable, "folds that do not just remove rows; use another cv"),
    ):
        if is_wrong:
            raise ValueError(
                f"order={options.order!r} is not available with {what} or order='auto'"
            )
