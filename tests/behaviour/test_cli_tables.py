"""Tables as people have them, in the shell: text, categories, dates, decimal commas, gaps."""

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.svm import SVC

from everyfold import LSSVR
from everyfold.cli import load_model
from tests.shell import run

RNG = np.random.default_rng(3)
N = 60
TABLE = pd.DataFrame(
    {
        "age": RNG.normal(40.0, 10.0, N).round(1),
        "colour": RNG.choice(["red", "green", "blue"], N),
        "size": RNG.choice(["S", "M", "L"], N),
        "day": pd.date_range("2020-01-01", periods=N).strftime("%Y-%m-%d"),
        "shop": RNG.integers(0, 3, N),
    }
)
TABLE["bought"] = np.where((TABLE["age"] > 40.0) ^ (TABLE["colour"] == "red"), "yes", "no")
ORDER = ["S", "M", "L"]
FOLDS = ("--cv", "3", "-g", "C=1,10", "-g", "gamma=0.1,1")
ENCODE = ("--dates", "iso", "--ordinal", "size=S,M,L", "--one-hot", "shop")


def write(folder, table, name="t.csv", **how):
    table.to_csv(folder / name, index=False, **how)
    return name


def features(table):
    """The rows as scikit-learn's transformers take them."""
    X = table[["age", "colour", "size", "day", "shop"]].astype(object)
    X["day"] = (pd.to_datetime(table["day"]) - pd.Timestamp(0)) / pd.Timedelta(days=1)
    X["shop"] = table["shop"].astype(str)
    return X.where(X.notna(), None)


def pipeline(model, *first, words=()):
    """The same by hand: ``first`` are steps for numbers, ``words`` those for text."""
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    ordinal = make_pipeline(*words, OrdinalEncoder(categories=[ORDER]), StandardScaler())
    parts = [
        ("numbers", make_pipeline(*first, StandardScaler()), ["age", "day"]),
        ("one-hot", make_pipeline(*words, one_hot), ["colour", "shop"]),
        ("ordinal", ordinal, ["size"]),
    ]
    return Pipeline([("encoder", ColumnTransformer(parts)), ("model", model)])


def refused(done, *words):
    assert (done.code, done.out) == (2, ""), done
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err.splitlines()[-1], done.err
    return done


def test_words_categories_and_dates_are_encoded_in_every_fold(tmp_path):
    name = write(tmp_path, TABLE)
    done = run(
        tmp_path, "search", name, "-m", "svc", *ENCODE, *FOLDS, "--json", "--save", "m.skops"
    )
    assert done.code == 0, done.err
    cv = StratifiedKFold(3, shuffle=True, random_state=0)
    grid = {"model__C": [1.0, 10.0], "model__gamma": [0.1, 1.0]}
    X, y = features(TABLE), TABLE["bought"]
    theirs = GridSearchCV(pipeline(SVC()), grid, cv=cv).fit(X, y)
    found = json.loads(done.out)
    assert found["best"]["mean_test_score"] == pytest.approx(theirs.best_score_, rel=1e-12)
    assert len({row["mean_test_score"] for row in found["top"]}) > 1
    for words in (
        "one-hot encoded: column 'colour' (3 values), column 'shop' (3 values)",
        "turned into days since 1970: column 'day'",
        "encoded in order: column 'size' (S < M < L)",
    ):
        assert f"note: {words}" in done.err
    predicted = run(tmp_path, "predict", "m.skops", name).out.split()[1:]
    assert_array_equal(predicted, theirs.predict(X))
    # the encoding is part of the saved estimator, which takes rows as they are written
    rows = features(TABLE).to_numpy()
    assert_array_equal(load_model(tmp_path / "m.skops").estimator.predict(rows), predicted)


def test_a_category_that_was_never_seen_has_no_column(tmp_path):
    done = run(
        tmp_path, "fit", write(tmp_path, TABLE), "-m", "svc", "--drop", "day", "--save", "m.skops"
    )
    assert done.code == 0, done.err
    new = TABLE.assign(colour="violet", shop=7)
    done = run(tmp_path, "predict", "m.skops", write(tmp_path, new, "new.csv"), "--decision")
    assert done.code == 0, done.err
    model = load_model(tmp_path / "m.skops").estimator
    rows = new[["age", "colour", "size", "shop"]].to_numpy(object)
    rows[:, 1] = "another"
    decided = [float(line.split(",")[1]) for line in done.out.split()[1:]]
    assert_allclose(decided, model.decision_function(rows), rtol=1e-12)
    # a category without a place in an order is refused
    command = ("fit", "t.csv", "-m", "svc", *ENCODE, "--save", "m.skops")
    assert run(tmp_path, *command).code == 0
    wrong = write(tmp_path, TABLE.assign(size="XL"), "wrong.csv")
    refused(run(tmp_path, "predict", "m.skops", wrong), "'XL' in row 1, not one of S < M < L")
    wrong = write(tmp_path, TABLE.assign(day="soon"), "wrong.csv")
    refused(run(tmp_path, "predict", "m.skops", wrong), "'day' has cells that are no dates")


def test_all_columns_that_cannot_be_used_are_named_at_once(tmp_path):
    table = TABLE.assign(name=[f"n{i}" for i in range(N)], weight=["1.5"] * (N - 1) + ["oak"])
    table = table[[*table.columns.drop("bought"), "bought"]]
    table.loc[4, "age"] = np.nan
    table.loc[5, "colour"] = None
    done = refused(
        run(tmp_path, "search", write(tmp_path, table), "-m", "svc"),
        "column 'age' has 1 missing cell (empty or NaN) of 60, first in row 5",
        "column 'colour' has 1 missing cell (empty or NaN) of 60, first in row 6",
        "--impute median",
        "column 'day' has dates such as '2020-01-01'; turn them into days with --dates iso",
        "column 'name' has 60 different texts in 60 rows, such as 'n0'",
        "column 'weight' has 59 numbers of 60, but 'oak' in row 60; correct the cell",
    )
    assert done.err.count("error:") == 1


def test_empty_cells_are_filled_in_from_the_training_rows(tmp_path):
    table = TABLE.copy()
    table.loc[::7, "age"] = np.nan
    table.loc[::9, "colour"] = None
    table.loc[::11, "size"] = None
    table.loc[::13, "day"] = None
    table["shop"] = table["shop"].astype(object)
    name = write(tmp_path, table)
    done = run(
        *(tmp_path, "search", name, "-m", "svc", *ENCODE, *FOLDS),
        *("--impute", "median", "--json", "--proba", "--save", "m.skops"),
    )
    assert done.code == 0, done.err
    median = SimpleImputer(strategy="median")
    frequent = SimpleImputer(strategy="most_frequent", missing_values=None)
    X = features(table)
    X[["age", "day"]] = X[["age", "day"]].astype(float)
    cv = StratifiedKFold(3, shuffle=True, random_state=0)
    grid = {"model__C": [1.0, 10.0], "model__gamma": [0.1, 1.0]}
    ours = json.loads(done.out)["best"]["splits"]
    theirs = GridSearchCV(pipeline(SVC(), median, words=[frequent]), grid, cv=cv)
    theirs.fit(X, table["bought"])
    index = theirs.best_index_
    assert ours == [theirs.cv_results_[f"split{i}_test_score"][index] for i in range(3)]
    done = run(tmp_path, "predict", "m.skops", name, "--proba")
    assert done.code == 0, done.err
    assert done.out.split()[0] == "prediction,probability_no,probability_yes"
    # a file of a single row may lack any cell
    write(tmp_path, table.head(1), "one.csv")
    assert run(tmp_path, "predict", "m.skops", "one.csv").code == 0


def test_intervals_out_of_fold_values_and_a_journal_of_words(tmp_path):
    name = write(tmp_path, TABLE)
    options = ("-m", "lssvm", "-t", "age", "--drop", "day", "-g", "alpha=1", "-g", "gamma=0.1")
    more = ("--journal", "j", "--interval", "0.8", "--save", "m.skops", "--report", "r.html")
    done = run(tmp_path, "search", name, *options, *more, "--oof", "oof.csv")
    assert done.code == 0, done.err
    assert len(pd.read_csv(tmp_path / "oof.csv")) == N
    done = run(tmp_path, "predict", "m.skops", name, "--interval", "0.8")
    values = np.array([line.split(",") for line in done.out.split()[1:]], dtype=float)
    assert (values[:, 1] < values[:, 2]).all()
    numbers = [("numbers", StandardScaler(), ["shop"])]
    words = [("words", OneHotEncoder(sparse_output=False), ["colour", "size", "bought"])]
    model = make_pipeline(ColumnTransformer(numbers + words), LSSVR(alpha=1.0, gamma=0.1))
    assert_allclose(values[:, 0], model.fit(TABLE, TABLE["age"]).predict(TABLE), rtol=1e-8)
    # other words are other data
    write(tmp_path, TABLE.assign(colour=["red", *TABLE["colour"][1:]][::-1]))
    done = run(tmp_path, "search", name, *options, "--journal", "j", "--resume")
    refused(done, "--journal j belongs to another search: it differs in data (X)")


def test_decimal_commas_and_semicolons_are_found_and_said(tmp_path):
    numbers = TABLE[["age", "shop"]].assign(b=TABLE["age"] / 4, bought=TABLE["bought"])
    name = write(tmp_path, numbers, sep=";", decimal=",")
    done = run(tmp_path, "search", name, "-m", "svc", *FOLDS, "--json", "--save", "m.skops")
    assert done.code == 0, done.err
    assert "note: the delimiter is ';'" in done.err
    assert "note: read decimal commas in columns 'age', 'b'" in done.err
    plain = run(
        tmp_path, "search", write(tmp_path, numbers, "p.csv"), "-m", "svc", *FOLDS, "--json"
    )
    assert "note: the delimiter" not in plain.err
    assert json.loads(plain.out)["best"] == json.loads(done.out)["best"]
    # a model finds its columns in either kind of file, and a file without names has no header
    predicted = [run(tmp_path, "predict", "m.skops", name).out for name in ("t.csv", "p.csv")]
    assert predicted[0] == predicted[1]
    write(tmp_path, numbers, "bare.csv", sep=";", decimal=",", header=False)
    done = run(tmp_path, "plan", "bare.csv", "-m", "svc")
    assert f"{N} rows, 3 features" in done.err
    assert "decimal commas in columns 0, 2" in done.err


def test_dates_of_other_formats_and_of_parquet(tmp_path):
    german = TABLE[["day", "bought"]].assign(day=pd.to_datetime(TABLE["day"]))
    days = (german["day"] - pd.Timestamp(0)) / pd.Timedelta(days=1)
    german.to_parquet(tmp_path / "d.parquet")
    write(tmp_path, german.assign(day=german["day"].dt.strftime("%d.%m.%Y")))
    refused(run(tmp_path, "plan", "t.csv", "-m", "svc"), "dates such as '01.01.2020'")
    wrong = run(tmp_path, "plan", "t.csv", "-m", "svc", "--dates", "iso")
    refused(wrong, "which are not of the format iso")
    for name, form in (("t.csv", "%d.%m.%Y"), ("d.parquet", "iso")):
        command = ("fit", name, "-m", "svc", "--dates", form, "-p", "gamma=1", "--save", "m.skops")
        assert run(tmp_path, *command).code == 0
        scaler = load_model(tmp_path / "m.skops").estimator["encoder"].transformers_[0][1][0]
        assert scaler.mean_ == pytest.approx([days.mean()], rel=1e-12)
        assert run(tmp_path, "predict", "m.skops", name).code == 0


def test_options_of_columns_that_do_not_fit(tmp_path):
    name = write(tmp_path, TABLE)
    for options, words in (
        (("--one-hot", "bought"), "--one-hot: column 'bought' is no feature"),
        (("--one-hot", "color"), "did you mean 'colour'?"),
        (("--ordinal", "size=S,M"), "has 'L', which --ordinal size=S,M has not"),
        (("--ordinal", "siz=S,M"), "did you mean 'size'?"),
    ):
        refused(run(tmp_path, "plan", name, "-m", "svc", "--dates", "iso", *options), words)
    np.savez(tmp_path / "a.npz", X=np.ones((4, 2)), y=[0, 1, 0, 1])
    refused(
        run(tmp_path, "plan", "a.npz", "-m", "svc", "--one-hot", "0"), "--one-hot does not apply"
    )


@pytest.mark.parametrize("how", [(), ("--no-standardise",)])
def test_numbers_beside_words_are_numbers_without_a_scaler_too(tmp_path, how):
    name = write(tmp_path, TABLE.drop(columns="day"))
    options = ("-m", "svc", "-p", "gamma=0.1", *how, "--save", "m.skops")
    assert run(tmp_path, "fit", name, *options).code == 0
    assert run(tmp_path, "predict", "m.skops", name).code == 0
    encoder = load_model(tmp_path / "m.skops").estimator["encoder"]
    scaler = encoder.named_transformers_["numbers"][-1]
    assert (scaler.with_mean, scaler.with_std) == ((False, False) if how else (True, True))


def test_the_plan_says_what_groups_and_low_rank_mean(tmp_path):
    name = write(tmp_path, TABLE.drop(columns="day"))
    grouped = ("--groups", "shop", "--cv", "group:3", "-g", "C=1", "-g", "gamma=1")
    for command in ("plan", "search"):
        found = run(tmp_path, command, name, "-m", "svc", *grouped).out
        assert "3 groups; the rows of one are always held out together" in found
    assert "\ncompilation" in run(tmp_path, "plan", name, "-m", "svc", *grouped).out
    low = run(tmp_path, "plan", name, "-m", "lssvm", "--operator", "nystrom:9", "-g", "alpha=1").out
    assert "refits are those of the approximate model, nystrom:9" in low
    assert "compilation" not in low
