"""Liu, Jiang & Liao (2014): cross-validation by influence functions. Tables 1, 2 and Figure 1."""

from __future__ import annotations

import numpy as np
from benchmarks.papers.study import Found, Grid, Machine, Method, libsvm, powers, printed, widths
from benchmarks.papers.tables import DiscrepancyTable, ErrorTable, Table, TimeTable

from everyfold import LSSVC, LSSVR

PAPER = "2014"
TITLE = "2014: Approximating cross-validation by Bouligand influence functions"

SETS = libsvm(
    "ionosphere 351, breast-cancer 683, diabetes 768, fourclass 862, australian 690, heart 270, "
    "german.numer 1000, liver-disorders 345, sonar 208, a2a 2265, bodyfat 252, housing 506, "
    "mpg 392, pyrim 74, triazines 186, eunite2001 336, space_ga 3107, cpusmall 8192 2560, "
    "mg 1385, abalone 4177"
)
SHARE, SPLITS = 0.5, 10
GRID = Grid(widths(range(-6, 9)), powers(range(-7, 3)))
LSSVM = Machine(LSSVC(), LSSVR())
FOLDS = (5, 10, 20)

EP = Method("EP", LSSVM, options={"criterion": "eigenvalue_perturbation"})
ELOO = Method("ELOO", LSSVM)
KCV = {k: Method(f"{k}CV", LSSVM, k, {"order": "exact"}) for k in FOLDS}
BIF = {k: Method(f"BIF-{k}CV", LSSVM, k, {"order": 3}) for k in FOLDS}
STAR = Method("(★) 10", LSSVM, 10, {"order": np.inf})
DEFAULT = Method("default 10", LSSVM, 10, {"n_confirm": "auto"}, scaling="sum")
WIDE = 0.2
EXCLUDING = Method(f"BIF-10CV, {WIDE}", LSSVM, 10, {"order": 3, "near_identity": WIDE})
PAIRS = tuple(method for k in FOLDS for method in (KCV[k], BIF[k]))
COLUMNS = "EP ELOO 5CV BIF-5CV 10CV BIF-10CV 20CV BIF-20CV"
AGAINST = {
    "EP": "10CV",
    "ELOO": "10CV",
    **{f"BIF-{k}CV": f"{k}CV" for k in FOLDS},
    "(★) 10": "10CV",
    "default 10": "10CV",
}

ERRORS = printed(
    """
ionosphere 14.74±3.97 6.65±1.47 7.16±1.54 8.18±1.54 7.16±2.07 7.61±1.69 8.18±1.54 8.07±1.68
breast-cancer 3.58±0.38 3.07±0.59 3.45±0.81 3.45±0.81 3.45±0.81 3.45±0.81 3.45±0.81 3.45±0.81
diabetes 24.22±1.67 23.83±1.69 22.24±2.47 22.24±2.47 22.66±2.23 22.66±2.23 22.50±2.18 22.50±2.18
fourclass 22.87±0.98 19.49±2.03 18.19±3.32 18.19±3.32 18.19±3.32 18.19±3.32 17.12±2.28 17.12±2.28
australian 13.51±1.38 14.29±1.81 15.19±2.18 15.19±2.18 14.09±1.96 14.09±1.96 14.49±2.35 14.49±2.35
heart 18.96±3.08 19.70±4.19 16.56±3.35 17.41±1.69 16.15±3.33 17.85±2.25 16.15±2.98 17.59±3.07
german.numer 25.84±2.84 26.38±2.31 25.52±1.45 25.52±1.45 25.28±1.38 25.28±1.38 25.28±1.38 25.28±1.38
liver-disorders 39.42±4.06 31.39±3.71 29.71±1.86 29.71±1.86 29.25±2.73 31.21±1.29 31.10±3.43 31.10±3.43
sonar 17.12±2.39 16.15±3.65 16.92±4.49 17.88±2.08 17.12±4.58 18.62±2.45 16.92±4.69 17.32±2.45
a2a 20.38±1.68 18.90±1.01 18.98±0.95 18.98±0.95 19.10±0.96 19.10±0.96 19.10±1.05 19.10±1.05
bodyfat 5.1e-5±3.1e-5 3.9e-5±9.9e-6 4.5e-5±1.4e-5 4.5e-5±1.4e-5 4.5e-5±1.4e-5 4.5e-5±1.4e-5 4.5e-5±1.4e-5 4.5e-5±1.4e-5
housing 31.3±6.4 24.3±3.4 23.9±3.8 23.9±3.8 23.98±3.8 23.9±3.8 23.9±3.8 23.9±3.8
mpg 12.4±2.2 9.6±1.5 8.7±0.8 8.7±0.8 8.7±0.8 8.6±0.8 8.6±0.8 8.6±0.8
pyrim 1.2e-2±4.0e-3 1.4e-2±4.2e-3 1.0e-2±2.9e-3 1.1e-2±2.4e-3 1.0e-2±2.9e-3 1.1e-2±2.4e-3 1.0e-2±2.9e-3 1.1e-2±2.1e-3
triazines 2.0e-2±2.9e-3 2.2e-2±3.3e-3 2.3e-2±3.6e-3 2.3e-2±4.4e-3 2.2e-2±3.2e-3 2.2e-2±3.7e-3 2.3e-2±3.1e-3 2.3e-2±4.4e-3
eunite2001 700.4±118.4 625.8±62.1 593.1±95.0 592.5±95.0 596.9±95.8 594.6±96.3 596.9±95.8 594.6±96.2
space_ga 2.7e-2±3.9e-3 1.9e-2±2.0e-3 1.9e-2±2.0e-3 1.9e-2±2.0e-3 1.9e-2±2.0e-3 1.9e-2±2.0e-3 1.9e-2±2.0e-3 1.9e-2±2.0e-3
cpusmall 42.0±13.1 44.5±4.4 42.9±5.9 42.9±5.9 42.9±5.9 42.91±5.9 42.9±5.9 42.9±5.9
mg 1.6e-2±3.3e-4 1.5e-2±7.6e-4 1.5e-2±9.7e-4 1.5e-2±9.7e-4 1.5e-2±9.7e-4 1.5e-2±9.7e-4 1.5e-2±9.7e-4 1.5e-2±9.7e-4
abalone 6.4±0.5 5.7±0.5 5.5±0.3 5.5±0.3 5.5±0.3 5.5±0.3 5.5±0.3 5.5±0.3
""",  # noqa: E501
    COLUMNS,
)
SECONDS = printed(
    """
ionosphere 0.91±0.01 0.43±0.02 0.87±0.02 0.47±0.01 2.02±0.03 0.66±0.01 4.60±0.03 1.02±0.01
breast-cancer 2.99±0.05 1.42±0.11 2.88±0.06 1.70±0.04 6.83±0.15 2.20±0.05 14.03±0.23 3.21±0.08
diabetes 3.57±0.04 2.10±0.09 3.30±0.04 2.57±0.03 8.17±0.21 3.46±0.03 21.63±0.11 5.15±0.04
fourclass 4.23±0.02 2.50±0.08 4.40±0.17 3.31±0.09 11.64±0.25 4.39±0.18 26.05±0.48 6.52±0.27
australian 2.82±0.17 1.45±0.23 2.70±0.09 1.71±0.03 6.81±0.04 2.19±0.01 13.76±0.04 3.17±0.08
heart 0.58±0.01 0.30±0.01 0.58±0.01 0.32±0.02 1.31±0.02 0.45±0.01 2.79±0.03 0.73±0.02
german.numer 7.02±0.06 3.85±0.13 6.78±0.12 4.65±0.10 16.89±0.18 6.10±0.11 38.88±0.34 8.99±0.07
liver-disorders 1.04±0.04 0.42±0.02 0.81±0.01 0.46±0.01 1.96±0.02 0.62±0.02 4.02±0.08 0.97±0.02
sonar 0.54±0.01 0.25±0.01 0.48±0.01 0.23±0.00 1.05±0.02 0.36±0.02 2.24±0.03 0.57±0.01
a2a 58.44±0.21 31.87±0.20 52.66±0.15 37.50±0.39 142.92±0.70 46.57±0.27 308.06±0.96 64.85±0.38
bodyfat 0.76±0.01 0.30±0.04 0.59±0.03 0.32±0.02 1.28±0.06 0.45±0.02 2.61±0.16 0.72±0.04
housing 1.78±0.01 0.86±0.03 1.60±0.04 0.91±0.02 3.63±0.12 1.22±0.02 8.38±0.20 1.85±0.01
mpg 1.01±0.02 0.52±0.04 0.99±0.01 0.57±0.01 2.31±0.00 0.77±0.01 4.94±0.02 1.19±0.01
pyrim 0.23±0.01 0.09±0.01 0.20±0.01 0.09±0.01 0.40±0.01 0.15±0.01 0.78±0.01 0.24±0.01
triazines 0.39±0.03 0.22±0.01 0.46±0.01 0.21±0.00 0.94±0.02 0.30±0.00 2.00±0.03 0.50±0.01
eunite2001 0.17±0.07 0.42±0.03 0.83±0.07 0.43±0.02 1.75±0.08 0.61±0.02 3.83±0.20 0.94±0.04
space_ga 97.77±0.15 64.89±6.29 93.65±0.45 69.84±0.62 252.3±0.77 85.49±0.28 600.1±0.42 117.8±0.2
cpusmall 73.65±0.03 41.69±0.25 68.49±2.48 48.38±1.28 172.2±5.66 60.21±0.82 395.8±11.9 85.01±1.33
mg 16.25±0.05 8.49±0.17 13.36±0.47 8.99±0.07 37.17±0.46 13.00±0.04 81.72±0.73 19.15±0.02
abalone 275.5±3.52 152.8±3.45 253.2±2.66 168.7±1.92 730.4±3.62 196.7±1.56 1760.9±8.05 255.1±3.41
""",
    COLUMNS,
)

TABLE_1 = ErrorTable(
    paper=PAPER,
    name="table1",
    title="Table 1: test errors, order 3",
    rows=SETS,
    grid=GRID,
    share=SHARE,
    splits=SPLITS,
    methods=(EP, ELOO, *PAIRS, STAR, DEFAULT),
    printed=ERRORS,
    references=AGAINST,
)
NARROW = ("ionosphere", "heart", "sonar", "triazines")
PRINTED_AS = {"10CV": "10CV", "BIF-10CV": "BIF-10CV", EXCLUDING.name: "BIF-10CV"}
IDENTITY = ErrorTable(
    paper=PAPER,
    name="identity",
    title="Table 1 with another rule for kernels near the identity",
    note=(
        f"BIF-10CV, {WIDE} is `near_identity={WIDE}`: kernels are excluded if the median over the "
        "rows of their largest kernel value with another row is at most that; BIF-10CV is the "
        "default, 1.5e-8. The paper prints no number."
    ),
    rows=tuple(rows for rows in SETS if rows.label in NARROW),
    grid=GRID,
    share=SHARE,
    splits=SPLITS,
    methods=(KCV[10], BIF[10], EXCLUDING),
    printed={
        label: {name: own[of] for name, of in PRINTED_AS.items()}
        for label, own in ERRORS.items()
        if label in NARROW
    },
    references={"BIF-10CV": "10CV", EXCLUDING.name: "10CV"},
)
TABLE_2 = TimeTable(
    paper=PAPER,
    name="table2",
    title="Table 2: time, order 3",
    rows=SETS,
    grid=GRID,
    share=SHARE,
    methods=(EP, ELOO, *BIF.values(), STAR, DEFAULT),
    refits=tuple(Method(f"{k}CV", LSSVM, k) for k in FOLDS),
    against=AGAINST,
    thin=(5, 5),
    printed=SECONDS,
    timed=("heart", "diabetes", "german.numer", "mg"),
)
CHOSEN = ("heart", "liver-disorders", "ionosphere", "sonar", "diabetes")
CHOSEN += ("bodyfat", "housing", "mpg", "pyrim", "eunite2001")
FIGURE_1 = DiscrepancyTable(
    paper=PAPER,
    name="figure1",
    title="Figure 1: held-out values of the series against those of refits, by order",
    rows=tuple(rows for rows in SETS if rows.label in CHOSEN),
    grid=GRID,
    share=SHARE,
    methods=tuple(KCV.values()),
    orders=(1, 2, 3, 4, 5),
    splits=1,
)
TABLES: tuple[Table, ...] = (TABLE_1, IDENTITY, TABLE_2, FIGURE_1)


def remarks(found: Found) -> str:
    """What was taken, what was found."""
    verdicts = {k: TABLE_1.verdict(found, BIF[k].name, KCV[k].name) for k in FOLDS}
    third = FIGURE_1.orders.index(3)
    far = [
        series[third]
        for rows in FIGURE_1.rows
        for method in FIGURE_1.methods
        if (series := FIGURE_1.relative(found, rows.label, method.name))
    ]
    return f"""\
The model is an LS-SVM with bias for labels and numbers; λ is a ridge in the "mean" convention, and
the criterion is the error rate or the squared error. BIF-kCV is `order=3` with
`ridge_scaling="mean"`. As in the footnote of the paper, kernel matrices near the identity are
excluded. EP is `criterion="eigenvalue_perturbation"`, whose definition is ours. kCV is the exact
formula, which equals refits, so that (★) is the same number; our default uses the "sum" convention.
cpusmall is a sub-sample of 2,560 rows: the printed times (42 s against 32 s for a2a and 65 s for
space_ga) indicate that the paper used about that many of the 8,192.

By the t-test, BIF-5CV is {verdicts[5]}; BIF-10CV is {verdicts[10]}; BIF-20CV is {verdicts[20]}.
The paper
prints the same errors for BIF and CV on most sets. The rule for kernels near the identity
decides part of this, see the second table. Our default is
{TABLE_1.verdict(found, DEFAULT.name, "10CV")}; ELOO is
{TABLE_1.verdict(found, "ELOO", "10CV")}. Our 10CV is within one printed standard deviation of the
printed mean on {TABLE_1.near_printed(found, "10CV")} sets, our BIF-10CV on
{TABLE_1.near_printed(found, "BIF-10CV")}.

Figure 1 is for the candidate that kCV selects. For it, the root mean square difference between
order 3 and refits, relative to the values, is at most {max(far, default=np.nan):.1e}, with a median
of {np.median(far or [np.nan]):.1e}. Selection is misled by other candidates, with a small ridge or
a narrow kernel, whose errors the series under-estimates (see the figure in the section 2018)."""
