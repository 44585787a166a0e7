"""Edwards, Zhang, Parker & New (2013), Approximate l-fold cross-validation: all experiments.

Candidates, folds and the order of rows are not in the slides: taken are 15 gammas times 15 ridges,
leave-one-out, and the order of the files. Their measurements of houses are not public; the UCI
energy efficiency data (heating load) stand in for them.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from benchmarks.papers.study import (
    Found,
    Grid,
    Machine,
    Method,
    Result,
    Rows,
    powers,
    printed,
    raetsch,
)
from benchmarks.papers.tables import ErrorTable, Line, PlainTable, Table
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import LeaveOneOut

from everyfold import LSSVC, LSSVR, Circulant, cross_val_score
from everyfold.papers import CirculantWarning

PAPER = "2013"
TITLE = "2013: Approximate l-fold cross-validation with circulant kernels"

SETS = raetsch(
    "titanic 150, breast-cancer 200, diabetes 468, flare-solar 666, banana 400, image 1300, "
    "twonorm 400, german 700, waveform 400, thyroid 140"
)
SPLITS = 10
GRID = Grid(powers(range(-11, 4)), powers(range(-9, 6)), scaling="sum")
LSSVM = Machine(LSSVC(), LSSVR())


@dataclass(frozen=True)
class Steps:
    """Two levels with steps drawn from (low, low + 1) for each repetition; measured if None."""

    low: float | None = None

    def __call__(self, rng: np.random.Generator) -> Circulant:
        """The structure of one repetition."""
        if self.low is None:
            return Circulant()
        return Circulant(steps=tuple(float(h) for h in rng.uniform(self.low, self.low + 1.0, 2)))


EXACT = Method("exact", LSSVM, options={"order": "exact"})
NARROW = Method("H in (1, 2)", LSSVM, options={"operator": Steps(1.0)})
WIDE = Method("H in (10, 11)", LSSVM, options={"operator": Steps(10.0)})
ARRANGED = Method("arranged", LSSVM, options={"operator": Steps()}, is_arranged=True)
DEFAULT = Method("default 10", LSSVM, 10, {"n_confirm": "auto"})
METHODS = (NARROW, WIDE, EXACT, ARRANGED, DEFAULT)
REFERENCES = {method.name: "exact" for method in METHODS if method is not EXACT}

ERRORS = printed(
    """
titanic 23.82±1.44 22.80±0.68 22.92±0.43
breast-cancer 29.87±5.59 26.75±5.92 25.97±4.40
diabetes 25.67±1.13 25.27±2.07 23.00±1.27
flare-solar 35.65±2.78 36.65±2.47 33.75±1.44
banana 14.10±1.74 18.98±1.76 10.97±0.57
image 17.64±1.52 6.89±0.73 2.47±0.53
twonorm 15.64±25.71 6.85±8.86 2.35±0.07
german 29.93±1.61 27.40±1.79 21.87±1.77
waveform 19.85±3.87 17.57±1.93 9.77±0.31
thyroid 29.33±4.07 17.33±3.89 4.17±3.23
""",
    "narrow wide exact",
)
ERRORS = {
    label: {NARROW.name: line["narrow"], WIDE.name: line["wide"], EXACT.name: line["exact"]}
    for label, line in ERRORS.items()
}
BENCHMARK = ErrorTable(
    paper=PAPER,
    name="benchmark",
    title="Benchmark sets: test error of the exact model with the selected candidate",
    rows=SETS,
    grid=GRID,
    share=None,
    splits=SPLITS,
    methods=METHODS,
    printed=ERRORS,
    references=REFERENCES,
    generosity=2,
)

COV = ErrorTable(
    paper=PAPER,
    name="energy",
    title="Energy: coefficient of variation (%)",
    note=(
        "The data are the heating load of UCI energy efficiency: a public substitute for the "
        "houses measured in the paper, not a reproduction. Printed for House 1: CoV 19.6 ± 1.69 "
        "and MAPE 15.3 ± 0.47 with the selected parameters, 20.1 ± 0.81 and 16.1 ± 0.85 in the "
        "column beside them; for S1 13.1 and 10.0, 13.7 and 11.2; for S2 3.1 and 4.7, 6.4 and 4.5."
    ),
    rows=(Rows("libsvm/energy_heating", 768, is_scaled=True),),
    grid=GRID,
    share=0.7,
    splits=10,
    methods=METHODS,
    references=REFERENCES,
    measure="cov",
)
MAPE = replace(COV, title="Energy: mean absolute percentage error", note="", measure="mape")


def leave_one_out(exponent: int) -> Result:
    """Seconds of all leave-one-out errors of one candidate: exact KRR, circulant KRR and LS-SVM.

    Exact up to 2^13. Medians of 3 after a first call that is not counted; exact a single one.
    """
    X = np.random.default_rng(exponent).normal(size=(2**exponent, 2))
    machines = KernelRidge(kernel="rbf", gamma=2.0), LSSVR(gamma=2.0)
    exact = _seconds(machines[0], X, "dense", 1) if exponent <= 13 else np.nan
    circulant = [_seconds(machine, X, Circulant(steps=1.0), 3) for machine in machines]
    return {"values": [exact, *circulant]}


def _seconds(machine: object, X: np.ndarray, operator: object, runs: int) -> float:
    taken = []
    for _ in range(runs + (runs > 1)):
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CirculantWarning)  # rows at random, by design
            cross_val_score(
                machine,
                X,
                X[:, 0],
                cv=LeaveOneOut(),
                scoring="neg_mean_squared_error",
                operator=operator,
            )
        taken.append(time.perf_counter() - start)
    return float(np.median(taken[-runs:]))


PRINTED_TIMES = printed(
    """
E-LOO 4.43 35.25 281.11 – – – – –
A-LOO-LSSVM 1.3 2.6 5.32 10.88 22.45 47.41 101.36 235.83
A-LOO-KRR 0.54 1.06 2.14 4.3 8.55 17.28 35.39 68.22
""",
    "13 14 15 16 17 18 19 20",
)
SCALING = PlainTable(
    paper=PAPER,
    name="scaling",
    title="Scaling: seconds of leave-one-out of one candidate",
    note=(
        "Random rows with 2 features, steps 1, one thread. The time is that of `cross_val_score`, "
        "including the folds. Figures in italics are printed in the paper (2013)."
    ),
    head=("n", "exact KRR", "circulant KRR", "circulant LS-SVM"),
    work=leave_one_out,
    items=tuple(
        Line(
            f"2^{e}",
            (e,),
            tuple(
                PRINTED_TIMES[name].get(str(e), (None,))[0]
                for name in ("E-LOO", "A-LOO-KRR", "A-LOO-LSSVM")
            ),
            is_quick=e <= 16,
        )
        for e in range(13, 21)
    ),
    is_timing=True,
)
TABLES: tuple[Table, ...] = (SCALING, BENCHMARK, COV, MAPE)


def remarks(found: Found) -> str:
    """What was taken, what was found."""
    slopes = [_slope(found, column) for column in (1, 2)]
    printed_slopes = [_slope_of(PRINTED_TIMES[name]) for name in ("A-LOO-KRR", "A-LOO-LSSVM")]
    verdicts = {m.name: BENCHMARK.verdict(found, m.name, EXACT.name) for m in METHODS}
    return f"""\
The slides do not give the candidates, the folds and the order of the rows. We use 15 gammas × 15
ridges, leave-one-out, and the order of the files. The circulant matrix has two levels. The tested
model is the exact LS-SVM with the selected candidate.

Times grow as n^{slopes[0]:.2f} (KRR) and n^{slopes[1]:.2f} (LS-SVM) over the measured sizes; the
printed times grow as n^{printed_slopes[0]:.2f} and n^{printed_slopes[1]:.2f}, and the claim is
n log n. Of the rows, the matrix uses only their order. Compared with exact leave-one-out, selection
with steps in (1, 2) is {verdicts[NARROW.name]}; with steps in (10, 11) it is {verdicts[WIDE.name]}.
If the rows are sorted into the grid (`Circulant().arrange`), selection is
{verdicts[ARRANGED.name]}. Exact selection is within one printed standard deviation of the printed
mean on {BENCHMARK.near_printed(found, EXACT.name)} sets. Our default, 10-fold cross-validation, is
{verdicts[DEFAULT.name]}."""


def _slope(found: Found, column: int) -> float:
    sizes = {line.arguments[0]: SCALING.values(found, line.label) for line in SCALING.items}
    return _slope_of({str(e): (values[column],) for e, values in sizes.items() if values})


def _slope_of(seconds: Mapping[str, Sequence[float]]) -> float:
    if len(seconds) < 2:
        return np.nan
    sizes = [int(exponent) for exponent in seconds]
    return float(np.polyfit(sizes, np.log2([times[0] for times in seconds.values()]), 1)[0])
