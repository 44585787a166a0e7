"""``benchmarks/dropin.py``: foreign scripts with our names in place, and what is said of them."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "dropin.py"

SAME = """
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score

X, y = load_diabetes(return_X_y=True)
X, y = X[:60], y[:60]
search = GridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=3).fit(X, y)
print(f"{search} has {search.best_score_:.12f} in 0.123 seconds")
print(cross_val_score(Ridge(), X, y, cv=3))
"""

OTHER = """
import sklearn.model_selection
from sklearn.linear_model import Ridge

search = sklearn.model_selection.GridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=3)
search.fit([[0.0], [1.0], [2.0], [3.0], [4.0], [6.0]], [0.0, 1.0, 2.0, 3.0, 5.0, 4.0])
if "is_exact" in search.cv_results_:
    raise RuntimeError("not scikit-learn's table")
"""


@pytest.fixture(scope="module")
def dropin():
    spec = importlib.util.spec_from_file_location("dropin", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["dropin"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["dropin"]


def test_two_scripts_are_run_both_ways(dropin, tmp_path, capsys):
    (tmp_path / "same.py").write_text(SAME)
    (tmp_path / "other.py").write_text(OTHER)
    (tmp_path / "unrelated.py").write_text("print('no search')")
    output = tmp_path / "found.txt"
    assert dropin.main([str(tmp_path), "--output", str(output)]) == 1
    printed = capsys.readouterr().out
    assert output.read_text() == printed
    equal = next(line for line in printed.splitlines() if line.endswith("same.py"))
    assert equal.startswith(("equal", "slower"))  # the first call may load compiled code
    assert equal.split()[1:3] == ["2", "calls"]
    failed = next(line for line in printed.splitlines() if line.endswith("other.py"))
    assert failed.startswith("fails with ours")
    assert "not scikit-learn's table" in printed
    assert "unrelated" not in printed
    assert "2 scripts: " in printed


def test_printed_numbers_are_compared_to_a_tolerance(dropin):
    one = "GridSearchCV() took 3.2 s\nscore 0.9131 of <f at 0x7f01>\n\nbest {'C': 10}"
    near = "FastGridSearchCV()  took 0.1 s\nscore 0.9132 of <f at 0x7f02>\nbest {'C': 10}"
    assert dropin.differing_lines(one, near, 1e-3) == []
    verbose = "Fitting 5 folds for each of 2 candidates, totalling 10 fits\n"
    assert dropin.differing_lines(verbose + one, f"kernel 1/2, 2 s\n{near}", 1e-3) == []
    assert len(dropin.differing_lines(one, near, 1e-5)) == 1
    assert len(dropin.differing_lines(one, near.replace("10", "1"), 1e-3)) == 1
    assert len(dropin.differing_lines(one, near.replace("best", "worst"), 1e-3)) == 1
    assert len(dropin.differing_lines(one, f"{near}\nmore", 1e-3)) == 1


def test_results_are_compared_by_their_largest_difference(dropin):
    nan = float("nan")
    plain = {"mean_test_score": [0.5, nan, 100.0], "labels": ["a", "b"]}
    assert dropin.largest_difference(plain, plain) == 0.0
    other = plain | {"mean_test_score": [0.5, nan, 101.0]}
    assert dropin.largest_difference(plain, other) == pytest.approx(0.01)
    assert dropin.largest_difference(plain, plain | {"mean_test_score": [0.5, 1.0, 1.0]}) > 1.0
    assert dropin.largest_difference(plain, plain | {"labels": ["a", "c"]}) == 1.0
    assert dropin.largest_difference(plain, {"labels": ["a", "b"]}) > 1.0
