"""The command line, as users meet it: real files, real processes, real exit codes.

Most commands are run by a process that has the package imported already and forks for every
command, since importing takes longer than anything else here.
"""

import csv
import gzip
import html
import io
import json
import os
import pickle
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import skops.io
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix
from sklearn.datasets import dump_svmlight_file, load_diabetes, load_iris
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import r2_score, root_mean_squared_error
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    LeaveOneOut,
    StratifiedKFold,
    cross_val_predict,
)
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

import everyfold
from everyfold import (
    LSSVC,
    LSSVR,
    FastGridSearchCV,
    HuberSVC,
    KernelLogisticClassifier,
    QuadraticSVR,
)
from everyfold.cli import load_model

EVERYFOLD = [sys.executable, "-c", "from everyfold.cli import main; main()"]
ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "120", "TERM": "xterm"}

SERVER = """
import contextlib, io, json, os, sys
from everyfold.cli import main

def run(argv):
    sys.argv = ["everyfold", *argv]
    try:
        main()
    except SystemExit as end:
        return end.code or 0

with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
    run(sys.argv[1:])  # imports and compiled code are loaded once
for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if child == 0:
        os.chdir(order["cwd"])
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(order[name], flags), number)
        code = run(order["argv"])
        sys.stdout.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Done(NamedTuple):
    code: int
    out: str
    err: str


def order(server, folder, argv, stdin=b""):
    """Have the server run a command in a folder."""
    files = {name: folder / f".{name}" for name in ("stdin", "stdout", "stderr")}
    files["stdin"].write_bytes(stdin)
    words = {"argv": [str(word) for word in argv], "cwd": str(folder)}
    server.stdin.write(json.dumps(words | {k: str(v) for k, v in files.items()}) + "\n")
    server.stdin.flush()
    code = int(server.stdout.readline())
    return Done(code, files["stdout"].read_text(), files["stderr"].read_text())


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("server") / "iris.csv"
    iris_frame().to_csv(path, index=False)
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, "search", path, "--model", "svc", *QUICK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def cli(server, tmp_path):
    """Run a command in tmp_path and return its exit code, stdout and stderr."""

    def run(*argv, stdin=b""):
        done = order(server, tmp_path, argv, stdin)
        assert ("Traceback" in done.err) == ("--debug" in argv)
        assert "Traceback" not in done.out
        return done

    return run


# -- data: 90 rows of iris with labels as text, 80 of diabetes ------------------------------------

X_IRIS, y_iris = load_iris(return_X_y=True)
X_IRIS, SPECIES = X_IRIS[::2][:75], np.array(["setosa", "versicolor", "virginica"])[y_iris[::2]]
X_SUGAR, y_sugar = (part[:80] for part in load_diabetes(return_X_y=True))
IRIS_NAMES = ["sepal_l", "sepal_w", "petal_l", "petal_w"]


def iris_frame():
    return pd.DataFrame(X_IRIS, columns=IRIS_NAMES).assign(species=SPECIES)


@pytest.fixture
def iris(tmp_path):
    iris_frame().to_csv(tmp_path / "iris.csv", index=False)
    return tmp_path / "iris.csv"


@pytest.fixture
def sugar(tmp_path):
    frame = pd.DataFrame(X_SUGAR, columns=[f"x{i}" for i in range(10)])
    frame.insert(3, "progress", y_sugar)
    frame.to_csv(tmp_path / "sugar.csv", index=False)
    return tmp_path / "sugar.csv"


QUICK = ("--cv", "3", "-g", "C=1,10", "-g", "gamma=0.05,0.5")


def scaled(model):
    return Pipeline([("scaler", StandardScaler()), ("model", model)])


def iris_search(X=X_IRIS, y=SPECIES):
    """GridSearchCV's answer to QUICK."""
    cv = StratifiedKFold(3, shuffle=True, random_state=0)
    grid = {"model__C": [1.0, 10.0], "model__gamma": [0.05, 0.5]}
    return GridSearchCV(scaled(SVC()), grid, cv=cv).fit(X, y)


# -- the real executable --------------------------------------------------------------------------


def test_the_entry_point_is_installed_and_knows_its_version():
    executable = Path(sys.executable).parent / "everyfold"
    done = subprocess.run([executable, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"everyfold {everyfold.__version__}\n"
    assert done.stderr == ""


def read_terminal(process, master):
    """All that the process writes to the terminal until it closes it."""
    seen = b""
    while True:
        ready, _, _ = select.select([master], [], [], 60)
        assert ready, seen
        try:
            piece = os.read(master, 4096)
        except OSError:  # Linux: the other end is closed
            piece = b""
        if not piece:
            process.wait(30)
            return seen.decode()
        seen += piece


def test_progress_bar_on_a_terminal(iris):
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*EVERYFOLD, "search", str(iris), "--model", "lssvm", "--cv", "3"],
        stdout=subprocess.PIPE,
        stderr=slave,
        env=ENVIRONMENT,
    )
    os.close(slave)
    with process:
        screen = read_terminal(process, master)
        table = process.stdout.read().decode()
    os.close(master)
    assert process.returncode == 0, screen
    assert "\x1b[" in screen  # a bar that is drawn over and over
    assert "━" in screen
    assert re.search(r"7/7", screen)
    assert "kernel 1/7" not in screen
    assert "accuracy" in table
    assert "\x1b[" not in table


def test_sigint_gives_130_and_the_finished_candidates(cli, sugar, tmp_path):
    process = subprocess.Popen(
        [
            *(*EVERYFOLD, "search", str(sugar), "-t", "progress", "--model", "svr"),
            *("-g", "gamma=logspace(-4,1,100)", "-g", "C=logspace(0,5,30)"),
            *("--out", str(tmp_path / "done.csv"), "--save", str(tmp_path / "m.skops")),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        start_new_session=True,
    )
    seen = ""
    while "kernel " not in seen:
        line = process.stderr.readline()
        assert line, seen
        seen += line
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.endswith("everyfold: interrupted\n")
    assert "Traceback" not in err
    assert re.search(r"^ *1 .* yes$", out, re.MULTILINE)
    finished = int(re.search(r"^search +(\d+) candidates", out, re.MULTILINE)[1])
    assert 0 < finished < 3000
    assert "interrupted before all candidates were done" in out
    rows = pd.read_csv(tmp_path / "done.csv")
    assert len(rows) == finished
    best = SVR(C=rows["C"][0], gamma=rows["gamma"][0], epsilon=rows["epsilon"][0])
    _, columns = read_predictions(cli("predict", "m.skops", sugar).out)
    expected = scaled(best).fit(X_SUGAR, y_sugar).predict(X_SUGAR)
    assert_allclose(np.array(columns[0], float), expected, rtol=1e-8)


def test_a_broken_pipe_is_quiet(iris):
    command = " ".join([sys.executable, "-c", '"from everyfold.cli import main; main()"'])
    search = f"search {iris} --model kernel-ridge --cv 3 --quiet --top 90"
    done = subprocess.run(
        f"({command} {search}; echo $? >&2) | true",
        shell=True,
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=False,
    )
    assert done.stderr == "141\n"  # what a shell says of tools that SIGPIPE ends


# -- search ---------------------------------------------------------------------------------------


def test_search_prints_a_table_and_the_plan(cli, iris):
    done = cli("search", iris, "--model", "svc", *QUICK)
    assert done.code == 0
    best = iris_search()
    header, rule, first, *others = done.out.splitlines()
    assert header.split() == ["rank", "C", "gamma", "accuracy", "std.", "error", "exact"]
    assert set(rule.strip()) == {"─"}
    rank, C, gamma, score, error, exact = first.split()
    assert rank == "1"
    assert (float(C), float(gamma)) == tuple(best.best_params_.values())
    assert score == f"{best.best_score_:.4f}"
    spread = best.cv_results_["std_test_score"][best.best_index_]
    assert error == f"{spread / np.sqrt(2):.4f}"
    assert exact == "yes"
    assert len([line for line in others if line.endswith(" yes")]) == 3
    assert "search         4 candidates = 2 kernels with up to 2 ridges each, 75 rows, 3 folds" in (
        done.out
    )
    assert "SVC, rbf kernel, classification: 75 rows, 4 features" in done.err
    assert "kernel 2/2, 4/4 candidates" in done.err


def test_json_is_all_there_is_on_stdout_and_equals_grid_search(cli, iris):
    done = cli("search", iris, "--model", "svc", *QUICK, "--json", "--top", "2", "--quiet")
    assert (done.code, done.err) == (0, "")
    record = json.loads(done.out)
    best = iris_search()
    assert record["best"]["params"] == {
        name.removeprefix("model__"): value for name, value in best.best_params_.items()
    }
    assert_allclose(record["best"]["mean_test_score"], best.best_score_, rtol=1e-12)
    assert len(record["best"]["splits"]) == record["folds"] == 3
    assert (record["candidates"], len(record["top"]), record["is_complete"]) == (4, 2, True)
    assert record["best"]["confirmed_test_score"] is None
    assert record["plans"][0]["kernels"] == 2
    assert record["estimator"] == "SVC"


def test_out_has_every_candidate_and_every_fold(cli, sugar, tmp_path):
    grid = ("-g", "alpha=0.01,0.1,1", "-g", "gamma=0.01,0.1")
    args = ("-t", "progress", "--model", "kernel-ridge", "--cv", "4", "--seed", "7", *grid)
    assert cli("search", sugar, *args, "--out", "all.csv").code == 0
    rows = pd.read_csv(tmp_path / "all.csv")
    X, y = X_SUGAR, y_sugar
    slow = GridSearchCV(
        scaled(KernelRidge(kernel="rbf")),
        {"model__alpha": [0.01, 0.1, 1.0], "model__gamma": [0.01, 0.1]},
        cv=KFold(4, shuffle=True, random_state=7),
    ).fit(X, y)
    theirs = pd.DataFrame(slow.cv_results_).rename(
        columns={"param_model__alpha": "alpha", "param_model__gamma": "gamma"}
    )
    both = rows.merge(theirs.astype({"alpha": float, "gamma": float}), on=["alpha", "gamma"])
    assert len(both) == len(rows) == 6
    assert rows["mean_test_score"].is_monotonic_decreasing
    for name in ("mean_test_score", *(f"split{i}_test_score" for i in range(4))):
        assert_allclose(both[f"{name}_x"], both[f"{name}_y"], rtol=1e-8)
    assert both["is_exact"].all()


def test_default_grid_is_around_the_median_distance(cli, iris):
    record = json.loads(cli("plan", iris, "--model", "lssvm", "--json").out)
    Z = StandardScaler().fit_transform(X_IRIS)
    squares = ((Z[:, None] - Z[None]) ** 2).sum(axis=2)
    centre = 1.0 / np.median(squares[squares > 0.0])
    gammas = record["grid"]["gamma"]
    assert min(gammas) < centre < max(gammas)
    assert min(abs(np.log(gammas) - np.log(centre))) < 0.05
    assert_allclose(np.diff(np.log10(gammas)), 0.5, atol=0.01)
    assert_allclose(np.diff(np.log10(record["grid"]["alpha"])), 0.5, atol=0.01)


def test_edges_are_reported_and_expand_goes_beyond(cli, iris, tmp_path):
    small = ("--model", "lssvm", "--cv", "3", "-g", "alpha=10,100", "-g", "gamma=1e-4,1e-3")
    done = cli("search", iris, *small)
    assert "the best gamma=0.001 is the largest of its grid; use --expand" in done.err
    grown = cli("search", iris, *small, "--expand", "--json", "--out", "all.csv")
    record = json.loads(grown.out)
    assert max(record["grid"]["gamma"]) == 1.0
    assert record["candidates"] == sum(plan["candidates"] for plan in record["plans"]) > 4
    seen = pd.read_csv(tmp_path / "all.csv")[["alpha", "gamma"]]
    assert not seen.duplicated().any()
    assert len(seen) == len(record["grid"]["alpha"]) * len(record["grid"]["gamma"])
    first = json.loads(cli("search", iris, *small, "--json").out)
    assert record["best"]["mean_test_score"] > first["best"]["mean_test_score"]


def test_a_winner_that_needs_no_model_is_warned_of_once(cli, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=60), "b": rng.normal(size=60)})
    frame["class"] = np.where(np.arange(60) % 6 == 0, "rare", "usual")
    frame.to_csv(tmp_path / "rare.csv", index=False)
    constant = ("--model", "svc", "-g", "gamma=0.1", "--cv", "3")
    done = cli("search", "rare.csv", *constant, "-g", "C=0.001")
    assert done.err.count("predicts 'usual' for every held-out row") == 1
    assert "predicts 'usual' for every held-out row" in done.out  # among the notes of the plan
    grown = cli("search", "rare.csv", *constant, "-g", "C=0.001,0.002", "--expand", "--json")
    assert grown.err.count("predicts 'usual' for every held-out row") == 1
    plans = json.loads(grown.out)["plans"]
    assert any("'usual' for every held-out row" in note for note in plans[0]["notes"])
    assert not cli("search", "rare.csv", *constant, "-g", "C=0.001", "--quiet").err


def test_scores_of_single_rows_are_those_of_all_rows_together(cli, tmp_path):
    X, y = (part[:40] for part in load_diabetes(return_X_y=True))
    np.savez(tmp_path / "few.npz", X=X, y=y)
    model = (
        "few.npz",
        "--model",
        "kernel-ridge",
        "-k",
        "linear",
        "-g",
        "alpha=1",
        "--no-standardise",
    )
    args = (*model, "--cv", "loo", "--scoring")
    values = cross_val_predict(KernelRidge(), X, y, cv=LeaveOneOut())
    done = cli("search", *args, "r2")
    assert done.err.count("scores are those of all held-out rows together") == 1
    *_, score, exact = done.out.splitlines()[2].split()  # there is no standard error
    assert (score, exact) == (f"{r2_score(y, values):.4f}", "yes")
    best = json.loads(cli("search", *args, "neg_root_mean_squared_error", "--json").out)["best"]
    assert_allclose(best["mean_test_score"], -root_mean_squared_error(y, values), rtol=1e-8)
    assert best["standard_error"] is None


def test_confirm_scores_again_by_refits(cli, iris):
    args = ("--model", "kernel-logistic", "--no-standardise", *QUICK, "--confirm", "2")
    done = cli("search", iris, *args, "--json")
    top = json.loads(done.out)["top"]
    confirmed = [row["confirmed_test_score"] for row in top]
    assert sum(score is not None for score in confirmed) == 2
    assert top[0]["confirmed_test_score"] == max(score for score in confirmed if score is not None)
    assert "refitted" in cli("search", iris, *args).out.splitlines()[0]


def test_plot_and_save_write_files(cli, iris, tmp_path):
    done = cli("search", iris, "-m", "svc", *QUICK, "--plot", "s.png", "--save", "m.skops", "-q")
    assert (done.code, done.err) == (0, "")
    assert (tmp_path / "s.png").read_bytes()[:4] == b"\x89PNG"
    predicted = cli("predict", "m.skops", iris).out.split()[1:]
    assert_array_equal(predicted, iris_search().predict(X_IRIS))
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("extra", [[], ["--expand"], ["--cv", "2x3"]], ids=str)
def test_report_is_a_page_with_the_command_that_repeats_it(cli, iris, tmp_path, extra):
    frame = iris_frame()
    frame.insert(0, "flower", [f"<b>{k}" for k in range(len(frame))])
    frame.to_csv(tmp_path / "named.csv", index=False)
    command = ["search", "named.csv", "-m", "svc", *QUICK, "--id", "flower", *extra]
    done = cli(*command, "--report", "r.html")
    assert done.code == 0, done.err
    assert "wrote r.html: " in done.err
    page = (tmp_path / "r.html").read_text()
    assert html.escape(shlex.join(["everyfold", *command, "--report", "r.html"])) in page
    assert "Confusion matrix of held-out rows" in page
    assert re.search(r"<td>&lt;b&gt;\d+</td>", page)
    assert "<b>" not in page
    is_honest = not extra
    assert ("Honest accuracy" in page) == is_honest


def test_report_of_a_criterion(cli, iris, tmp_path):
    grid = ["-g", "alpha=0.1,1", "-g", "gamma=0.1,1"]
    done = cli("search", iris, "-m", "lssvm", *grid, "--criterion", "gcv", "--report", "r.html")
    assert done.code == 0, done.err
    assert "takes the place of folds" in (tmp_path / "r.html").read_text()


def test_plan_prints_without_running(cli, sugar):
    # running them would take much longer than the time that is allowed here
    grid = ("-g", "gamma=logspace(-4,1,100)", "-g", "C=logspace(0,8,20)")
    start = time.perf_counter()
    done = cli("plan", sugar, "-t", "progress", "--model", "svr", *grid, "--no-standardise")
    assert time.perf_counter() - start < 10
    assert done.code == 0
    for words in ("2000 candidates = 100 kernels with up to 20 ridges", "80 rows, 10 folds"):
        assert words in done.out
    for line in ("operator +dense", "method +support vector paths", "exact +yes", r"estimate +\d"):
        assert re.search(rf"^{line}", done.out, re.MULTILINE), line
    assert "rank" not in done.out


@pytest.mark.parametrize("model", ["svc", "lssvm", "kernel-logistic"])
@pytest.mark.parametrize("how", [[], ["--no-standardise"]])
def test_plan_and_search_name_the_same_method(cli, iris, model, how):
    ridge = "alpha" if model == "lssvm" else "C"
    args = (
        iris,
        "-m",
        model,
        "--cv",
        "3",
        "-g",
        "gamma=0.1,scale",
        "-g",
        f"{ridge}=1,9",
        *how,
        "-q",
    )
    planned, done = cli("plan", *args).out, cli("search", *args).out
    for word in ("search", "operator", "method", "preprocessing"):
        lines = re.findall(rf"^{word} .*$", planned, re.MULTILINE)
        assert lines
        assert lines == re.findall(rf"^{word} .*$", done, re.MULTILINE)


def test_help_has_examples(cli):
    for command in ("search", "plan", "fit", "predict"):
        done = cli(command, "--help")
        assert done.code == 0
        assert re.search(rf"^ +everyfold {command} \S+", done.out, re.MULTILINE)
    assert all(name in cli("--help").out for name in ("search", "plan", "fit", "predict"))


# -- formats --------------------------------------------------------------------------------------


def write_iris(path):
    """Iris in the format the name asks for; labels are numbers where it knows no others."""
    codes = np.unique(SPECIES, return_inverse=True)[1].astype(float)
    name = path.name
    if name.endswith(".parquet"):
        iris_frame().astype({"species": "category"}).to_parquet(path)
    elif ".svm" in name or name == "bare":
        with io.BytesIO() as text:
            dump_svmlight_file(X_IRIS, codes, text, zero_based=False)
            path.write_bytes(
                gzip.compress(text.getvalue()) if name.endswith(".gz") else text.getvalue()
            )
    elif name.endswith(".npy"):
        np.save(path, np.column_stack([X_IRIS, codes]))
    elif name.endswith(".npz"):
        np.savez(path, X=X_IRIS, y=SPECIES)
    elif name.endswith(".tsv"):
        iris_frame().to_csv(path, index=False, sep="\t", encoding="utf-8-sig")
    elif name.endswith(".csv.gz"):
        iris_frame().to_csv(path, index=False)
    else:
        iris_frame().to_csv(path, index=False, header=False, sep=";")


FILES = ["i.parquet", "i.svm", "i.svm.gz", "bare", "i.npy", "i.npz", "i.tsv", "i.csv.gz", "i.txt"]


@pytest.mark.parametrize("name", FILES)
def test_formats(cli, tmp_path, name):
    write_iris(tmp_path / name)
    done = cli("search", name, "--model", "svc", *QUICK, "--json")
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert (record["rows"], record["features"]) == (75, 4)
    assert_allclose(record["best"]["mean_test_score"], iris_search().best_score_, rtol=1e-12)


def test_standard_input_and_a_target_by_position(cli, sugar):
    args = ("--model", "lssvm", "--cv", "3", "-g", "alpha=1", "-g", "gamma=0.1", "--json")
    by_name = cli("search", sugar, "-t", "progress", *args)
    piped = cli("search", "-", "-t", "3", *args, stdin=sugar.read_bytes())
    assert piped.code == 0, piped.err
    assert json.loads(piped.out)["best"] == json.loads(by_name.out)["best"]
    assert json.loads(piped.out)["target"] == "progress"


def test_a_header_of_positions_is_a_header(cli, tmp_path):
    frame = iris_frame()
    frame.columns = ["0", "1", "2", "3", "y"]
    frame["y"] = np.unique(SPECIES, return_inverse=True)[1]
    frame.to_csv(tmp_path / "p.csv", index=False)
    assert json.loads(cli("plan", "p.csv", "-m", "svc", "--json").out)["rows"] == 75
    frame.to_csv(tmp_path / "q.csv", index=False, header=False)
    assert json.loads(cli("plan", "q.csv", "-m", "svc", "--json").out)["rows"] == 75
    taken = json.loads(cli("plan", "q.csv", "-m", "svc", "--json", "--header").out)
    assert taken["rows"] == 74


def test_a_column_without_a_name_is_pointed_out(cli, tmp_path):
    iris_frame().to_csv(tmp_path / "numbered.csv")
    done = cli("plan", "numbered.csv", "-m", "svc")
    assert (
        "column 0 has no name and may be a mere row number; leave it out with --drop 0" in done.err
    )
    dropped = cli("plan", "numbered.csv", "-m", "svc", "--drop", "0")
    assert "75 rows, 4 features" in dropped.err
    assert "warning" not in dropped.err


def test_names_that_repeat_fall_back_on_positions(cli, tmp_path):
    frame = iris_frame()
    frame.columns = ["a", "a", "b", "c", "y"]
    frame.to_csv(tmp_path / "twice.csv", index=False)
    assert cli("fit", "twice.csv", "-m", "svc", "-p", "gamma=0.1", "--save", "m.skops").code == 0
    predicted = cli("predict", "m.skops", "twice.csv").out.split()[1:]
    assert_array_equal(predicted, scaled(SVC(gamma=0.1)).fit(X_IRIS, SPECIES).predict(X_IRIS))


def test_the_target_decides_what_lssvm_does(cli, iris, sugar):
    few = ("-m", "lssvm", "--json")
    assert json.loads(cli("plan", iris, *few).out)["estimator"] == "LSSVC"
    assert json.loads(cli("plan", sugar, *few, "-t", "progress").out)["estimator"] == "LSSVR"
    assert (
        "LSSVC, rbf kernel, classification"
        in cli("plan", iris, "-m", "kernel-ridge", "-g", "alpha=1").err
    )


# -- bad input ------------------------------------------------------------------------------------


def refused(done, *words):
    assert done.code == 2, done
    assert done.out == ""
    *_, last = done.err.splitlines()
    assert last.startswith("everyfold: error: ")
    assert done.err.count("error:") == 1
    for word in words:
        assert word in last


BAD_FILES = {
    "empty.csv": (b"", "is empty"),
    "header.csv": (b"a,b,y\n", "header but no row"),
    "ragged.csv": (b"a,b,y\n1,2,0\n1,2\n3,4,1\n", "line 3 has 2 fields, but the first has 3"),
    "quote.csv": (b'a,b,y\n1,2,0\n1,"2"x,1\n', "line 3 is malformed"),
    "latin.csv": ("a,b,y\n1,2,caf\u00e9\n".encode("latin1"), "line 2 is not UTF-8"),
    "zero.csv": (b"a,b\0,y\n1,2,0\n", "not a text file"),
    "word.csv": (
        b"a,b,y\n1,2,0\n3,oak,1\n4,5,0\n6,7,1\n",
        "column 'b' has 3 numbers of 4, but 'oak' in row 2",
    ),
    "nan.csv": (b"a,b,y\n1,,0\n3,NaN,1\n4,5,1\n", "column 'b' has 2 missing cells"),
    "inf.csv": (b"a,b,y\n1,inf,0\n3,4,1\n", "column 'b' has 1 infinite"),
    "label.csv": (b"a,b,y\n1,2,x\n3,4,\n", "the target, column 'y', has 1 missing"),
    "one.csv": (b"a,b,y\n1,2,x\n3,4,x\n", "one class only (x)"),
    "alone.csv": (b"y\n1\n2\n", "no feature"),
    "real.csv": (b"a,b,y\n1,2,0.5\n3,4,1\n", "no class labels; for regression use"),
    "bad.parquet": (b"PAR1 but no more", "not a readable Parquet file"),
    "bad.svm": (b"1 1:2 2:3\n0 1:2 2:x\n", "line 2: '2:x' is not index:value"),
    "label.svm": (b"1 1:2\ncat 1:3\n", "line 2: the label 'cat' is not a number"),
    "bad.csv.gz": (gzip.compress(b"a,b\n1,2\n" * 99)[:30], "gzip file is damaged"),
    "bad.npy": (b"\x93NUMPY\x01\x00 no", "not a NumPy file"),
    "bad.npz": (b"PK\x03\x04 no", "not a NumPy archive"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files(cli, tmp_path, name):
    content, words = BAD_FILES[name]
    (tmp_path / name).write_bytes(content)
    refused(cli("search", name, "--model", "svc"), name, words)


def test_missing_files_and_directories(cli, tmp_path):
    refused(cli("search", "nowhere.csv", "--model", "svc"), "nowhere.csv: there is no such file")
    refused(cli("search", tmp_path, "--model", "svc"), "is a directory")


def test_pickles_in_data_are_not_loaded(cli, tmp_path):
    np.save(tmp_path / "p.npy", np.array([[1, {}]], dtype=object), allow_pickle=True)
    refused(cli("search", "p.npy", "--model", "svc"), "not a NumPy file of numbers")


BAD_OPTIONS = [
    (["--model", "scv"], "did you mean 'svc'?"),
    (["--kernel", "rfb"], "did you mean 'rbf'?"),
    (["--kernel", "cosine"], "--model lssvm has them all"),
    (["--grid", "gama=1"], "did you mean 'gamma'?"),
    (["--grid", "alpha=1"], "regularised by C, alpha = 1/(2 C)"),
    (["--grid", "C"], "not of the form name=value"),
    (["--grid", "C=ten"], "'ten' is not a number"),
    (["--grid", "C=0"], "C must be greater than 0"),
    (["--grid", "C=logspace(1,2)"], "takes (from, to, number of values)"),
    (["--grid", "C=lgspace(1,2,3)"], "'lgspace' is not one of logspace"),
    (["--scoring", "acuracy"], "did you mean 'accuracy'?"),
    (["--order", "first"], "--order 'first' is not auto"),
    (["--order", "1"], "use --preprocessing once or --order auto"),
    (["--cv", "1"], "--cv '1' is not a number of folds from 2 on"),
    (["--cv", "40"], "there are only 25 rows in the largest class"),
    (["--target", "specie"], "did you mean 'species'?"),
    (["--target", "9"], "there are 5 columns"),
    (["--target", "sepal_l", "--drop", "species"], "no class labels"),
    (["--drop", "petal"], "is not a column; did you mean 'petal_l'?"),
    (["--task", "regression"], "does not suit --model svc"),
    (["--confirm", "some"], "--confirm 'some' is not auto"),
    (["--top", "0"], "--top must be"),
    (["--out", "no/where.csv"], "there is no directory no"),
    (["--save", "."], "is a directory"),
    (["--plot", "surface.xyz"], "must end in one of"),
    (["--plot", "s.png", "-g", "C=1", "-g", "gamma=1"], "needs a numeric parameter"),
]


@pytest.mark.parametrize(("options", "words"), BAD_OPTIONS)
def test_bad_options_are_refused_before_work(cli, iris, options, words):
    # an option that appears twice counts the last time
    refused(cli("search", iris, "--model", "svc", *options), words)


def test_numbers_wanted_but_labels_given(cli, iris):
    refused(cli("search", iris, "--model", "svr"), "has labels such as 'setosa'", "--model svc")


def test_usage_errors(cli, iris):
    for argv in (["serch"], ["search"], ["search", iris, "--modle", "svc"]):
        done = cli(*argv)
        assert (done.code, done.out) == (2, "")
        assert "Usage: everyfold" in done.err
    done = cli("search", iris)  # which names the models, more use than the usage of the command
    assert (done.code, done.out) == (2, "")
    assert "--model is missing; use --model svc for labels" in done.err


def test_a_failure_during_the_work_is_1(cli, iris, sugar, tmp_path):
    # found out only when the first fold is scored: without an intercept, predictions are negative
    score = "neg_mean_gamma_deviance"
    args = ("-m", "kernel-ridge", "-k", "linear", "-t", "progress", "-g", "alpha=0.1,1")
    args += ("--scoring", score, "--out", "all.csv")
    done = cli("search", sugar, *args)
    assert (done.code, done.out) == (1, "")
    assert f"error: no candidate has a score: --scoring {score} failed in every fold" in done.err
    assert "strictly positive y and y_pred" in done.err
    args = ("--model", "svc", *QUICK, "--scoring", "roc_auc")
    words = "--scoring roc_auc is not for labels setosa, versicolor, virginica; use roc_auc_ovr"
    refused(cli("search", iris, *args), words)
    assert not (tmp_path / "all.csv").exists()


def test_debug_shows_the_traceback(cli, iris):
    done = cli("search", iris, "--model", "scv", "--debug")  # the fixture looks for it
    assert done.code == 2
    assert "Known are svc, svr, logistic, linear-svc, ridge, kernel-ridge" in done.err


# -- fit, predict and the model file ---------------------------------------------------------------

MODELS = {
    "svc": (SVC(C=10.0, gamma=0.1), ["C=10", "gamma=0.1"]),
    "svr": (SVR(C=100.0, gamma=0.1, epsilon=2.0), ["C=100", "gamma=0.1", "epsilon=2"]),
    "kernel-ridge": (KernelRidge(kernel="rbf", alpha=0.1, gamma=0.1), ["alpha=0.1", "gamma=0.1"]),
    "lssvm": (LSSVC(alpha=0.1, gamma=0.1), ["alpha=0.1", "gamma=0.1"]),
    "lssvm, numbers": (LSSVR(alpha=0.1, gamma=0.1), ["alpha=0.1", "gamma=0.1"]),
    "kernel-logistic": (KernelLogisticClassifier(C=10.0, gamma=0.1), ["C=10", "gamma=0.1"]),
    "svc, linear": (SVC(kernel="linear", C=0.1), ["C=0.1"]),
    "kernel-ridge, linear": (KernelRidge(alpha=0.1), ["alpha=0.1"]),
    "lssvm, linear": (LSSVC(kernel="linear", alpha=0.1), ["alpha=0.1"]),
    "svc, polynomial": (
        SVC(kernel="poly", C=1.0, gamma=0.1, degree=2, coef0=1.0),
        ["C=1", "gamma=0.1", "degree=2"],
    ),
    "lssvm, laplacian": (LSSVC(kernel="laplacian", gamma=0.2), ["gamma=0.2"]),
    "lssvm, cosine": (LSSVC(kernel="cosine"), []),
    "huber-svc": (HuberSVC(C=10.0, gamma=0.1, h=0.2), ["C=10", "gamma=0.1", "h=0.2"]),
    "quadratic-svr": (
        QuadraticSVR(C=10.0, gamma=0.1, epsilon=2.0),
        ["C=10", "gamma=0.1", "epsilon=2"],
    ),
}


def fit_args(name, params):
    model, _, kernel = name.partition(", ")
    kernel = kernel if kernel not in ("", "numbers") else "rbf"
    return ["--model", model, "--kernel", kernel, *(a for p in params for a in ("-p", p))]


def read_predictions(text):
    header, *rows = csv.reader(io.StringIO(text))
    return header, list(zip(*rows, strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_fit_and_predict_equal_the_estimator(cli, iris, sugar, name):
    estimator, params = MODELS[name]
    is_classifier = hasattr(estimator, "decision_function")
    path, X, y = (iris, X_IRIS, SPECIES) if is_classifier else (sugar, X_SUGAR, y_sugar)
    target = [] if is_classifier else ["-t", "progress"]
    done = cli("fit", path, *target, *fit_args(name, params), "--save", "m.skops")
    assert done.code == 0, done.err
    header, columns = read_predictions(cli("predict", "m.skops", path, "--decision").out)
    fitted = scaled(estimator).fit(X, y)
    if not is_classifier:
        assert header == ["prediction", "decision"]
        assert_allclose(np.array(columns[0], float), fitted.predict(X), rtol=1e-10, atol=1e-9)
        return
    assert header == ["prediction", *(f"decision_{label}" for label in fitted.classes_)]
    assert_array_equal(columns[0], fitted.predict(X))
    decided = np.array(columns[1:], float).T
    assert_allclose(decided, fitted.decision_function(X), rtol=1e-10, atol=1e-10)


def test_two_classes_and_no_scaling(cli, tmp_path):
    frame = iris_frame()[25:]
    frame.to_csv(tmp_path / "two.csv", index=False)
    X, y = frame[IRIS_NAMES].to_numpy(), frame["species"].to_numpy()
    args = ("-p", "C=5", "-p", "gamma=0.3", "--no-standardise", "--save", "m.skops")
    assert cli("fit", "two.csv", "-m", "svc", *args).code == 0
    assert cli("predict", "m.skops", "two.csv", "--decision", "--out", "p.csv").out == ""
    predicted = pd.read_csv(tmp_path / "p.csv")
    fitted = SVC(C=5.0, gamma=0.3).fit(X, y)
    assert_array_equal(predicted["prediction"], fitted.predict(X))
    assert_allclose(predicted["decision"], fitted.decision_function(X), atol=1e-10)


def test_predict_finds_columns_by_name_or_position(cli, iris, tmp_path):
    assert cli("fit", iris, "-m", "svc", "-p", "gamma=0.1", "--save", "m.skops").code == 0
    expected = cli("predict", "m.skops", iris).out
    frame = iris_frame()
    frame[IRIS_NAMES[::-1]].to_csv(tmp_path / "reversed.csv", index=False)
    frame[IRIS_NAMES].to_csv(tmp_path / "bare.csv", index=False, header=False)
    frame.to_csv(tmp_path / "full.csv", index=False, header=False)
    np.savez(tmp_path / "rows.npz", X=X_IRIS)
    for name in ("reversed.csv", "bare.csv", "full.csv", "rows.npz"):
        assert cli("predict", "m.skops", name).out == expected, name
    frame[IRIS_NAMES[:3]].to_csv(tmp_path / "less.csv", index=False)
    refused(cli("predict", "m.skops", "less.csv"), "less.csv", "no column 'petal_w'")
    frame[IRIS_NAMES[:3]].to_csv(tmp_path / "bare3.csv", index=False, header=False)
    refused(cli("predict", "m.skops", "bare3.csv"), "3 columns", "4 features")


def test_svmlight_rows_keep_the_indices_of_the_training_file(cli, tmp_path):
    (tmp_path / "a.svm").write_text(
        "".join(f"{i % 2} 0:{i % 3} 1:{i % 2} 2:1\n" for i in range(20))
    )
    # neither the first nor the last index of the training file appears here
    (tmp_path / "b.svm").write_text("0 1:0\n0 1:1\n")
    assert cli("fit", "a.svm", "-m", "svc", "-p", "gamma=1", "--save", "m.skops").code == 0
    X = np.array([[i % 3, i % 2, 1] for i in range(20)], float)
    fitted = scaled(SVC(gamma=1.0)).fit(X, [i % 2 for i in range(20)])
    expected = fitted.decision_function([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    _, columns = read_predictions(cli("predict", "m.skops", "b.svm", "--decision").out)
    assert_allclose(np.array(columns[1], float), expected, atol=1e-10)


@pytest.mark.parametrize("model", ["svc", "lssvm"])
def test_wide_sparse_rows_stay_sparse(cli, tmp_path, model):
    rng = np.random.default_rng(0)
    columns = np.sort(rng.choice(400_000, (60, 5), replace=False))
    columns[:, 0] = np.arange(60) % 3  # something to learn
    rows, values = np.repeat(np.arange(60), 5), rng.normal(size=300)
    X = csr_matrix((values, (rows, columns.ravel())), (60, 400_000))
    y = np.arange(60) % 3
    dump_svmlight_file(X, y, str(tmp_path / "wide.svm"), zero_based=False)
    args = ("-m", model, "-p", "gamma=1e-3", "--save", "m.skops")
    assert cli("fit", "wide.svm", *args).code == 0
    assert (tmp_path / "m.skops").stat().st_size < 1_000_000 + 8 * 400_000
    # trailing features that do not appear are zero
    dump_svmlight_file(X[:7, :5], y[:7], str(tmp_path / "narrow.svm"), zero_based=False)
    last = int(X.indices.max()) + 1
    estimator = SVC(gamma=1e-3) if model == "svc" else LSSVC(gamma=1e-3)
    fitted = Pipeline([("s", StandardScaler(with_mean=False)), ("m", estimator)])
    fitted.fit(X[:, :last], y)
    for name, rows in (("wide.svm", X[:, :last]), ("narrow.svm", X[:7, :5])):
        wide = csr_matrix((rows.data, rows.indices, rows.indptr), (rows.shape[0], last))
        _, columns = read_predictions(cli("predict", "m.skops", name, "--decision").out)
        assert_array_equal(np.array(columns[0], int), fitted.predict(wide))
        decided = np.array(columns[1:], float).T
        assert_allclose(decided, fitted.decision_function(wide), atol=1e-10)


def test_fit_needs_one_value_and_a_file(cli, iris):
    refused(cli("fit", iris, "-m", "svc"), "needs --save")
    refused(cli("fit", iris, "-m", "svc", "-p", "C=1,2", "--save", "m.skops"), "give one value")
    refused(cli("fit", iris, "-m", "svc", "-p", "c=1", "--save", "m.skops"), "did you mean 'C'?")


@pytest.fixture(scope="session")
def model_bytes(server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    iris_frame().to_csv(folder / "iris.csv", index=False)
    argv = ["fit", "iris.csv", "-m", "svc", "-p", "gamma=0.1", "--save", "m.skops"]
    assert order(server, folder, argv).code == 0
    return (folder / "m.skops").read_bytes()


def test_the_model_file_is_one_of_skops(model_bytes):
    record = skops.io.loads(model_bytes)  # an SVC has no types that skops does not know
    assert (record["format"], record["version"], record["model"]) == ("everyfold model", 2, "svc")
    assert record["everyfold"] == everyfold.__version__
    assert record["parameters"] == {"gamma": 0.1}
    assert (record["kernel"], record["is_sparse"]) == ("rbf", False)
    assert record["layout"]["names"] == tuple(IRIS_NAMES)
    assert_array_equal(record["estimator"].classes_, np.unique(SPECIES))
    assert_allclose(record["estimator"]["scaler"].mean_, X_IRIS.mean(axis=0))


def other_version(record):
    record["version"] = 3


def foreign(record):
    record["format"] = "other"


def without_layout(record):
    del record["layout"]


def other_layout(record):
    record["layout"]["n_features"] = 3


def wrong_positions(record):
    record["layout"]["positions"] = (0, 1, 2, 99)


def no_estimator(record):
    record["estimator"] = "SVC"


def other_estimator(record):
    record["estimator"]["model"].n_features_in_ = record["estimator"].steps[0][1].scale_ = None
    record["estimator"].steps[0][1].n_features_in_ = 7


def untrusted(record):
    record["estimator"] = Path("exploded")


TAMPERED = {
    other_version: "format version 3, written by everyfold",
    foreign: "not a model file",
    without_layout: "damaged (KeyError: 'layout')",
    other_layout: "not those of 3 features",
    wrong_positions: "positions lie outside",
    no_estimator: "damaged",
    other_estimator: "7 features, but 4 in its layout",
    untrusted: "Untrusted types found in the file: ['pathlib.PosixPath']",
}


@pytest.mark.parametrize("tamper", TAMPERED, ids=lambda f: f.__name__)
def test_tampered_model_files_are_refused(cli, iris, tmp_path, model_bytes, tamper):
    record = skops.io.loads(model_bytes)
    tamper(record)
    skops.io.dump(record, tmp_path / "m.skops")
    refused(cli("predict", "m.skops", iris), "m.skops", TAMPERED[tamper])


def test_load_model_is_the_loader_of_the_command_line(tmp_path, model_bytes):
    path = tmp_path / "m.skops"
    path.write_bytes(model_bytes)
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
    names: dict = {}
    exec(page.partition("```python\n")[2].partition("```")[0], names)
    for estimator in (load_model(str(path)).estimator, names["read_estimator"](path)):
        assert (estimator.predict(X_IRIS) == SPECIES).mean() > 0.9
    for tamper, words in TAMPERED.items():
        record = skops.io.loads(model_bytes)
        tamper(record)
        skops.io.dump(record, path)
        with pytest.raises(ValueError, match=re.escape(words)):
            load_model(path)
    record["estimator"] = FastGridSearchCV(SVC(), {})  # a type of this library, but of no model
    skops.io.dump(record, path)
    with pytest.raises(ValueError, match=r"load_model: .*Untrusted types .*FastGridSearchCV"):
        names["read_estimator"](path)


def test_the_first_format_is_refused_with_the_command_to_run(cli, iris, tmp_path):
    meta = {
        **{"format": "everyfold model", "version": 1, "model": "svc", "kernel": {"name": "rbf"}},
        **{"parameters": {"C": 10.0, "gamma": 0.1}, "layout": {"target": "species"}},
    }
    np.savez(tmp_path / "old.npz", meta=np.array(json.dumps(meta)), scale=np.ones(4))
    done = cli("predict", "old.npz", iris)
    command = "everyfold fit DATA --model svc --kernel rbf --param C=10.0 --param gamma=0.1 "
    command += "--target species --save old.skops"
    refused(done, "old.npz", "format version 1", command)
    assert cli(*shlex.split(command.replace("DATA", iris.name))[1:]).code == 0
    assert cli("predict", "old.skops", iris).code == 0


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


def test_files_that_are_no_models_are_refused(cli, iris, tmp_path, model_bytes):
    (tmp_path / "half.skops").write_bytes(model_bytes[: len(model_bytes) // 2])
    (tmp_path / "pickle.skops").write_bytes(pickle.dumps(Bomb()))
    np.save(tmp_path / "array.npy", np.zeros(3))
    skops.io.dump(Bomb(), tmp_path / "bomb.skops")
    np.savez(tmp_path / "pickled.npz", meta=np.array([Bomb()], dtype=object))
    with zipfile.ZipFile(tmp_path / "zip.skops", "w") as archive:
        archive.writestr("schema.json", b"no JSON")
    flipped = bytearray(model_bytes)
    flipped[len(flipped) // 2] ^= 0xFF
    (tmp_path / "flipped.skops").write_bytes(flipped)
    names = ("half.skops", "pickle.skops", "bomb.skops", "zip.skops", "flipped.skops")
    for name in (*names, "array.npy", "pickled.npz", "iris.csv"):
        refused(cli("predict", name, iris), name, "not a model file")
    refused(cli("predict", "gone.skops", iris), "no such file")
    refused(cli("predict", tmp_path, iris), "is a directory")
    assert not (tmp_path / "exploded").exists()


# -- documentation ---------------------------------------------------------------------------------


def test_the_session_of_the_documentation(cli, tmp_path):
    page = Path(__file__).parents[2] / "docs" / "cli.md"
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert len(commands) >= 6
    for first, *others in commands:
        if first == "python":
            subprocess.run([sys.executable, *others], cwd=tmp_path, check=True)
        else:
            assert first == "everyfold"
            done = cli(*others)
            assert done.code == 0, done.err
    assert len(pd.read_csv(tmp_path / "all.csv")) == 27
    assert list(pd.read_csv(tmp_path / "predictions.csv")) == ["prediction"]
    assert list(pd.read_csv(tmp_path / "bounds.csv")) == ["prediction", "lower", "upper"]
    assert list(pd.read_csv(tmp_path / "named.csv")) == ["flower", "prediction"]
    assert set(pd.read_csv(tmp_path / "held-out.csv")["folds"]) == {3}
    assert {"best.skops", "model.skops", "surface.png"} <= {
        path.name for path in tmp_path.iterdir()
    }
