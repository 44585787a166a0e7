"""What is said of the trust that a score deserves, where it should be and where it should not."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, LeaveOneOut
from sklearn.svm import SVC

from everyfold import FastGridSearchCV, HuberSVC
from everyfold.judge import equal_rows, verdict
from everyfold.judge.verdicts import _beyond
from everyfold.papers import MethodOptions

X, Y = load_diabetes(return_X_y=True)
X, Y = X[:150], Y[:150] - Y[:150].mean()
RNG = np.random.default_rng(0)
IDS = np.repeat(np.arange(40), 4)
Z = RNG.normal(size=(160, 3))
SHIFTED = 2.0 * RNG.normal(size=40)[IDS] + Z[:, 0] + 0.3 * RNG.normal(size=160)
GRID = {"alpha": [0.01, 0.1, 1.0], "gamma": [1.0, 3.0, 10.0]}


def lines(found, topic):
    return [line for line in found.lines if line.topic == topic]


@pytest.fixture(scope="module")
def search():
    return FastGridSearchCV(KernelRidge(kernel="rbf"), GRID).fit(X, Y)


def test_an_interval_ends_where_scores_do():
    search = FastGridSearchCV(SVC(), {"C": [1.0, 10.0]}, cv=10).fit(*load_iris(return_X_y=True))
    found = verdict(search)
    assert found.interval.estimate < found.interval.high == 1.0


def test_a_result_is_printed_in_a_few_words(search):
    assert "p-value" in str(search.compare(0, 5))
    assert repr(search.out_of_fold()).count("array") == 1
    interval = verdict(search).interval
    assert interval._repr_html_() == str(interval)


def test_every_topic_has_a_line(search):
    found = verdict(search, X, Y)
    assert [line.topic for line in found.lines][:2] == ["score", "exact"]
    assert {"candidates", "grid", "rows", "leaks"} <= {line.topic for line in found.lines}
    assert found.interval.low < found.interval.estimate < found.interval.high
    assert not found.problems
    assert str(found).count("\n") == len(found.lines) - 1
    assert "<table>" in found._repr_html_()


def test_without_rows_the_score_is_said_to_be_selected(search):
    found = verdict(search)
    assert "too optimistic" in lines(found, "score")[0].words
    assert lines(found, "score")[0].remedy == "score_interval(search, X, y)"
    assert lines(found, "leaks")[0].remedy == "verdict(search, X, y)"
    again = verdict(search, X, Y)
    assert "too optimistic" not in lines(again, "score")[0].words


def test_values_of_all_candidates_make_rows_needless():
    kept = FastGridSearchCV(KernelRidge(kernel="rbf"), GRID, method=MethodOptions(keeps="all"))
    assert verdict(kept.fit(X, Y)).interval.method == "bbc"


def test_candidates_that_are_as_good(search):
    (line,) = lines(verdict(search), "candidates")
    count = np.count_nonzero(~search.significantly_worse())
    assert line.words.startswith(f"{count} of 9 are")


def test_the_edge_of_the_grid():
    edge = FastGridSearchCV(KernelRidge(kernel="rbf", gamma=3.0), {"alpha": [10.0, 100.0]})
    (line,) = lines(verdict(edge.fit(X, Y)), "grid")
    assert "smallest of its grid" in line.words
    assert line.remedy == "param_grid['alpha'] += [1, 0.1]"


@pytest.mark.parametrize(
    ("values", "side", "expected"),
    [
        ([0.1, 1, 10, "scale"], "largest", [100, 1000]),
        ([2, 3, 4], "largest", [5, 6]),
        ([2, 3, 4], "smallest", [1]),
        ([1, 2], "smallest", []),
        ([-1.0, 0.0, 1.0], "smallest", [-2, -3]),
    ],
)
def test_values_beyond_a_grid(values, side, expected):
    assert _beyond(values, side) == expected


@pytest.mark.filterwarnings("ignore::everyfold.InexactWarning")
def test_scores_that_are_no_refits():
    first = MethodOptions(order=1)
    fast = FastGridSearchCV(HuberSVC(), {"C": [0.1, 10.0]}, method=first).fit(X, Y > 0.0)
    assert not fast.cv_results_["is_exact"].any()
    (line,) = lines(verdict(fast), "exact")
    assert line.remedy == "method='exact'"
    assert line.is_problem


def test_rows_that_do_not_fit():
    wild = Y.copy()
    wild[17] += 50.0 * Y.std()
    search = FastGridSearchCV(KernelRidge(kernel="rbf"), GRID).fit(X, wild)
    found = verdict(search, X, wild)
    assert lines(found, "rows")[0].words.endswith(": 17")
    assert any("heavy tails" in line.words for line in found.problems)


def test_labels_that_do_not_fit():
    far = np.vstack([RNG.normal(-3.0, 1.0, (40, 2)), RNG.normal(3.0, 1.0, (40, 2))])
    labels = np.repeat(["a", "b"], 40)
    far[5], labels[5] = -4.0, "b"
    for found in (
        verdict(SVC(kernel="linear"), far, labels),
        verdict(FastGridSearchCV(SVC(), {"C": [0.1, 1.0]}).fit(far, labels), far, labels),
    ):
        assert lines(found, "rows")[0].words.endswith(": 5")


class TestLeaks:
    def test_equal_rows(self):
        twice = np.vstack([Z, Z[:30]])
        found = verdict(Ridge(), twice, np.concatenate([SHIFTED, SHIFTED[:30]]), cv=KFold(5))
        (line,) = lines(found, "leaks")
        assert line.is_problem
        assert "60 of 190 test rows have an equal row" in line.words
        sets = equal_rows(twice)
        assert np.array_equal(sets[:30], sets[160:])
        assert len(np.unique(sets)) == 160
        of_sparse = equal_rows(sparse.csr_matrix(twice))
        assert np.array_equal(of_sparse[:, None] == of_sparse, sets[:, None] == sets)

    def test_repaired_by_groups(self):
        twice, y = np.vstack([Z, Z[:30]]), np.concatenate([SHIFTED, SHIFTED[:30]])
        found = verdict(Ridge(), twice, y, cv=GroupKFold(5), groups=equal_rows(twice))
        assert not lines(found, "leaks")[0].is_problem

    def test_columns_that_look_like_ids(self):
        order = RNG.permutation(160)
        with_ids = np.column_stack([Z, RNG.permutation(40)[IDS]])[order]
        (line,) = lines(verdict(Ridge(), with_ids, SHIFTED[order]), "leaks")
        assert "column 3 looks like the label of groups" in line.words
        assert line.remedy.startswith("groups=X[:, 3]")
        found = verdict(Ridge(), with_ids, SHIFTED[order], groups=IDS[order])
        assert not lines(found, "leaks")[0].is_problem

    def test_quantities_are_no_ids(self):
        ages = RNG.integers(20, 60, 160)
        y = 0.1 * ages + Z[:, 0]
        assert not lines(verdict(Ridge(), np.column_stack([Z, ages]), y), "leaks")[0].is_problem

    def test_columns_by_their_names(self):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(Z, columns=["a", "b", "c"]).assign(patient_id=IDS)
        y = Z[:, 0] + RNG.normal(size=160)
        (line,) = lines(verdict(Ridge(), frame.drop(columns="c"), y), "leaks")
        assert line.remedy.startswith("groups=X['patient_id']")
        frame = frame.drop(columns="patient_id").set_index(pandas.Index(IDS))
        (line,) = lines(verdict(Ridge(), frame, y), "leaks")
        assert line.remedy.startswith("groups=X.index")

    def test_a_column_that_is_the_target(self):
        (line,) = lines(verdict(Ridge(), np.column_stack([Z, 2.0 * SHIFTED]), SHIFTED), "leaks")
        assert "column 3 alone tells the target" in line.words
        (line,) = lines(verdict(Ridge(), Z, Z[:, 1] > 0.0, scoring="r2"), "leaks")
        assert "column 1" in line.words

    def test_folds_that_divide_groups(self):
        found = verdict(Ridge(), Z, SHIFTED, cv=KFold(5, shuffle=True), groups=IDS)
        assert any("divide groups" in line.words for line in lines(found, "leaks"))

    def test_groups_of_fit_are_remembered(self):
        search = FastGridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=GroupKFold(4))
        search.fit(Z, SHIFTED, groups=IDS)
        found = verdict(search, Z, SHIFTED)
        assert found.interval.unit == "group"
        assert not lines(found, "leaks")[0].is_problem


def test_searches_of_scikit_learn():
    theirs = GridSearchCV(KernelRidge(kernel="rbf"), GRID).fit(X, Y)
    found = verdict(theirs, X, Y)
    assert {"score", "exact", "candidates", "leaks"} == {line.topic for line in found.lines}
    assert "refits" in lines(found, "exact")[0].words
    assert verdict(theirs).interval.method == "corrected-t"


@pytest.mark.parametrize("cv", [LeaveOneOut(), list(KFold(3).split(X))])
def test_folds_that_no_outer_loop_has(cv):
    search = FastGridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=cv)
    search.fit(X, Y) if isinstance(cv, list) else search.set_params(
        scoring="neg_mean_squared_error"
    ).fit(X, Y)
    found = verdict(search, X, Y)
    assert found.interval.low < found.interval.high


def test_no_winner():
    search = FastGridSearchCV(
        Ridge(), {"alpha": [0.1, 1.0]}, refit=False, scoring=["r2", "neg_max_error"]
    )
    (line,) = verdict(search.fit(X, Y)).lines
    assert line.is_problem
    with pytest.raises(ValueError, match="needs rows"):
        verdict(Ridge())


def test_notebooks_and_reports_show_it(search, tmp_path):
    pytest.importorskip("jinja2")
    assert "not significantly worse than the best" in search._repr_html_()
    page = search.report(tmp_path / "report.html").read_text("utf-8")
    assert "What can be trusted" in page
    assert "score_interval(search, X, y)" in page
    assert "FastGridSearchCV(" in repr(search)
    assert str(search) == f"{search!r}\n{verdict(search)}"
    assert str(clone(search)) == f"{search}" == repr(search)
