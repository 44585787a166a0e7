"""Hostile files and arguments for the command line: ``python -m tests.guards.hostile --cases 600``.

Every case is one that must be refused: an exit code that is not 0, a message without a traceback
and without control characters, no hang, and every file as it was before. Cases are drawn by their
number, so that a failure is found again; what a file may take in memory is a megabyte here, so
that bombs are small.
"""

import argparse
import gzip
import io
import os
import socket
import subprocess
import sys
import tempfile
import warnings
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import skops.io
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer

from everyfold.cli.model_file import TRUSTED
from tests.shell import Done, Hanging, run

MOST_BYTES = 1_000_000
ROWS = 24
_rng = np.random.default_rng(7)
GOOD_X = _rng.normal(size=(ROWS, 3)).round(3)
GOOD = pd.DataFrame(GOOD_X, columns=["a", "b", "c"]).assign(
    label=np.where(GOOD_X[:, 0] > 0, "yes", "no"), y=(GOOD_X[:, 0] + GOOD_X[:, 1] ** 2).round(3)
)
LABELS = ("-m", "svc", "-t", "label", "-g", "C=1", "-g", "gamma=0.1", "--cv", "3")
NUMBERS = ("-m", "kernel-ridge", "--drop", "label", "-g", "alpha=1", "-g", "gamma=0.1", "--cv", "3")
NASTY = ("\x1b[31m", "\x07", "\u202e", "\x00"[:0] + "\x7f", "=1+1", "\r", "☃", "\udcff")


@dataclass
class Case:
    """Files by name (bytes, or what makes them of a path), arguments, and standard input."""

    family: str
    argv: tuple
    files: dict = field(default_factory=dict)
    stdin: bytes = b""


def csv(table, **options):
    return table.to_csv(index=False, **options).encode()


def nasty(rng):
    return str(rng.choice(np.array(NASTY, dtype=object)))


def command(rng, name):
    """One of the commands that read a table."""
    options = LABELS if rng.random() < 0.5 else NUMBERS
    word = str(rng.choice(["search", "plan"]))
    return (word, name, *options)


# -- tables ----------------------------------------------------------------------------------------


def noise(rng):
    suffix = rng.choice([".csv", "", ".parquet", ".npy", ".npz", ".svm", ".gz", ".tsv"])
    raw = rng.bytes(int(rng.integers(300, 3000)))
    starts = [b"", b"PAR1", b"\x93NUMPY", b"PK\x03\x04", b"\x1f\x8b\x08", b"\xef\xbb\xbf"]
    content = starts[int(rng.integers(len(starts)))] + raw
    return Case("noise", command(rng, f"n{suffix}"), {f"n{suffix}": content})


def cut(rng):
    """Files of every kind that end too early."""
    buffer = io.BytesIO()
    GOOD.to_parquet(buffer)
    arrays, one = io.BytesIO(), io.BytesIO()
    np.savez_compressed(arrays, X=GOOD_X, y=GOOD["y"])
    np.save(one, GOOD_X)
    kinds = {
        "p.parquet": buffer.getvalue(),
        "z.npz": arrays.getvalue(),
        "n.npy": one.getvalue(),
        "g.csv.gz": gzip.compress(csv(GOOD)),
    }
    name = str(rng.choice(list(kinds)))
    raw = kinds[name]
    return Case("cut", command(rng, name), {name: raw[: int(rng.integers(4, len(raw) - 12))]})


def bomb(rng):
    """Little that becomes much: more than a file may take."""
    size = 2 * MOST_BYTES
    kind = rng.choice(["gzip", "npz", "parquet", "npy", "stdin", "plain", "wide"])
    rows = csv(pd.concat([GOOD] * (size // 500)))
    if kind == "gzip":
        return Case("bomb", command(rng, "b.csv.gz"), {"b.csv.gz": gzip.compress(rows)})
    if kind == "stdin":
        return Case("bomb", command(rng, "-"), stdin=rows)
    if kind == "plain":
        return Case("bomb", command(rng, "b.csv"), {"b.csv": rows})
    if kind == "wide":
        names = ",".join(f"c{i}" for i in range(100_001))
        values = ",".join("1" * 100_001)
        return Case("bomb", command(rng, "-"), stdin=f"{names}\n{values}\n".encode()[:990_000])
    buffer = io.BytesIO()
    if kind == "npz":
        np.savez_compressed(buffer, X=np.zeros((size // 16, 2)), y=np.zeros(size // 16))
    elif kind == "parquet":
        pd.DataFrame({"a": np.zeros(size // 8), "label": "x", "y": 1.0}).to_parquet(buffer)
    else:
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({10**12}, 3), }}"
        header = header.ljust(117) + "\n"
        buffer.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
        buffer.write(bytes(2400))
    return Case("bomb", command(rng, f"b.{kind}"), {f"b.{kind}": buffer.getvalue()})


class Pickled:
    """An object whose pickle makes a folder when it is read."""

    def __reduce__(self):
        return os.mkdir, ("exploded",)


def arrays(rng):
    """NumPy files that are no tables."""
    pickled = np.array([Pickled()], dtype=object)
    contents = [
        {"X": pickled, "y": np.zeros(1)},
        {"X": GOOD_X, "y": pickled},
        {"Y": GOOD_X},
        {"X": GOOD_X},
        {"X": GOOD_X, "y": np.zeros(ROWS - 1)},
        {"X": np.zeros((2, 3, 4)), "y": np.zeros(2)},
        {"X": np.zeros((ROWS, 0)), "y": GOOD["y"]},
        {"X": np.zeros((0, 3)), "y": np.zeros(0)},
        {"X": GOOD_X.astype(complex), "y": GOOD["y"]},
        {"X": np.full((ROWS, 3), np.nan), "y": GOOD["y"]},
        {"X": np.full((ROWS, 3), "a\x1b"), "y": GOOD["y"]},
        {"X": GOOD_X, "y": np.full(ROWS, np.inf)},
        {"X": GOOD_X, "y": np.zeros((ROWS, 2))},
        {"X": np.array(5.0), "y": GOOD["y"]},
    ]
    chosen, buffer = contents[int(rng.integers(len(contents)))], io.BytesIO()
    np.savez(buffer, **chosen)
    options = ("-m", "kernel-ridge", "-g", "alpha=1", "--cv", "3")
    return Case("arrays", ("search", "a.npz", *options), {"a.npz": buffer.getvalue()})


def svmlight(rng):
    good = "".join(f"{i % 2} 1:{i} 3:{i % 5}\n" for i in range(12))
    wrong = [
        "1 1:2 2", "1 1:x", "1 a:1", "1 1:1:1", "1 -3:1", "x 1:1", "1 1:nan", "1 2:inf",
        f"1 {10**15}:1", f"1 {10**30}:1", "1 200000000:1", "1 3:1 2:1 1e3:5", "1 1:1e999",
        f"1 1:{nasty(rng)}",
    ]  # fmt: skip
    line = wrong[int(rng.integers(len(wrong)))]
    raw = (good + line + "\n").encode(errors="surrogatepass")
    return Case("svmlight", ("search", "s.svm", "-m", "svc", "-g", "C=1"), {"s.svm": raw})


def _spoiled(rng, table):
    """A cell, a column or the shape of a good table is spoiled."""
    column, row = str(rng.choice(["a", "b", "c"])), int(rng.integers(ROWS))
    table = table.astype({column: object})
    cells = ["x", "1,5", "--", "0x1F", "1_000", "inf", "-Infinity", "1e999", "", "NaN", *NASTY[:5]]
    table.loc[row, column] = str(rng.choice(np.array(cells, dtype=object)))
    return table


def cells(rng):
    return Case("cells", command(rng, "t.csv"), {"t.csv": csv(_spoiled(rng, GOOD))})


def shapes(rng):
    """Text that is no table, or one that nothing can be learned from."""
    text, line = csv(GOOD).decode(), int(rng.integers(1, ROWS))
    lines = text.splitlines()
    wrong = {
        "ragged": "\n".join([*lines[:line], f"{lines[line]},5{nasty(rng)}", *lines[line + 1 :]]),
        "short": "\n".join([*lines[:line], lines[line].rpartition(",")[0], *lines[line + 1 :]]),
        "quote": text.replace(",no,", ',"no,', 1),
        "zero": text.replace("no", "n\0o", 1),
        "blank": "\n" * line,
        "header": lines[0] + "\n",
        "one row": "\n".join(lines[:2]),
        "one column": "\n".join(part.split(",")[0] for part in lines),
        "one class": csv(GOOD.assign(label="no", y=1)).decode(),
        "bad cell": "\n".join([*lines[:line], f"{lines[line]}O", *lines[line + 1 :]]),
        "half label": csv(GOOD.assign(label=["", *GOOD["label"][1:]], y="")).decode(),
        "names only": ",".join(nasty(rng) + str(i) for i in range(5)),
    }
    kind = str(rng.choice(list(wrong)))
    raw = wrong[kind].encode("utf-8", "surrogatepass")
    options = NUMBERS if kind in ("bad cell", "half label") else LABELS
    return Case(f"shapes: {kind}", ("search", "t.csv", *options), {"t.csv": raw})


def encodings(rng):
    encoding = str(rng.choice(["utf-16", "utf-32", "latin1", "cp037"]))
    raw = csv(GOOD.assign(label=np.where(GOOD["y"] > 0.4, "größer", "kleiner"))).decode()
    return Case("encodings", ("search", "t.csv", *LABELS), {"t.csv": raw.encode(encoding)})


# -- files that are none, and files to be written --------------------------------------------------


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


SPECIAL = {
    "folder": lambda path: path.mkdir(),
    "socket": make_socket,
    "pipe": os.mkfifo,
    "circle": lambda path: path.symlink_to(path.name),
    "dangling": lambda path: path.symlink_to("nowhere"),
}


def special(rng):
    kind = str(rng.choice([*SPECIAL, "absent", "long", "nasty"]))
    names = {"long": "x" * 300, "nasty": f"no{nasty(rng)}such", "absent": "gone.csv"}
    name = names.get(kind, kind)
    files = {name: SPECIAL[kind]} if kind in SPECIAL else {}
    argv = command(rng, name)
    if rng.random() < 0.3:
        argv = ("predict", name, "good.csv") if rng.random() < 0.5 else ("predict", "m.skops", name)
    return Case(f"special: {kind}", argv, files)


def outputs(rng):
    option = str(rng.choice(["--out", "--save", "--oof", "--plot", "--journal"]))
    wrong = ["good.csv", "./good.csv", "folder", "no/where", "circle", "x" * 300, "folder/..", ""]
    target = str(rng.choice(wrong))
    files = {"folder": SPECIAL["folder"], "circle": SPECIAL["circle"]}
    argv = ("search", "good.csv", *NUMBERS, option, target)
    return Case(f"outputs: {option} {target[:9]}", argv, files)


def doubled(rng):
    one, two = rng.choice(["--out", "--save", "--oof", "--journal"], 2, replace=False)
    argv = ("search", "good.csv", *NUMBERS, str(one), "a.csv", str(two), "./a.csv")
    return Case("doubled", argv)


def journals(rng):
    """Journals of something else, or damaged where it matters."""
    contents = [
        b"everyfold-journal-1 ffffffff {}\n" * 2,
        b"a,b\n1,2\n",
        b"\x00" * 50,
        rng.bytes(80),
    ]
    contents += [b"everyfold-journal-1 00000000 x\n{}\n", b"everyfold-journal-3 00000000 {}\n{}\n"]
    raw = contents[int(rng.integers(len(contents)))]
    return Case(
        "journals", ("search", "good.csv", *NUMBERS, "--journal", "j", "--resume"), {"j": raw}
    )


# -- arguments -------------------------------------------------------------------------------------

WRONG = {
    "--cv": ["0", "1", "-5", "1e3", "9" * 20, "9" * 5000, "5x", "x5", "0x10", "group:", "time:-1",
             "loo2", "2x999999999", "3.5", "999999999", "", "time:99", "²", "٣٣x"],
    "--order": ["-1", "0", "999999999", "1.5", "nan", "infinity", "", "1001", "²"],
    "--seed": ["-1", "4294967296", "9" * 30, "x", "1.5", ""],
    "--operator": ["nystrom", "nystrom:0", "nystrom:-4", "fourier:x", "nystrom:" + "9" * 30, "dens",
                   "nystrom:1e3", "", "nystrom:5:5", "fourier:²"],
    "--grid": ["alpha", "alpha=", "=1", "alpha=x", "alpha=-1", "alpha=nan", "alpha=inf", "beta=1",
               "alpha=logspace(0,1,1000000000)", "alpha=logspace(0,1)", "alpha=linspace(0,1,-5)",
               "alpha=logspace(0,999,5)", "alpha=exec(1,2,3)", "alpha=1;2", "C=1", "kernel=rbf",
               "alpha=logspace(0,1,1e3)", "gamma=0", "alpha=" + ",".join(map(str, range(10_001))),
               "alpha=__import__('os')", "alpha=1e999", "gamma=geomspace(-1,1,5)"],
    "--top": ["0", "-3", "x", ""],
    "--n-jobs": ["0", "100000", "-100000", "x", "1.5"],
    "--confirm": ["-1", "x", "1.5", "9" * 40],
    "--scoring": ["acuracy", "", "__class__", "roc_auc", "r2; drop", "f1"],
    "--criterion": ["gvc", "", "span"],
    "--ridge-scaling": ["max", ""],
    "--preprocessing": ["never", ""],
    "--task": ["clustering", "", "classification"],
    "--kernel": ["rfb", "", "precomputed", "../rbf"],
    "--model": ["scv", "", "SVC", "os.system"],
    "--impute": ["zero", ""],
    "--one-hot": ["z", "y", "label", "99", ""],
    "--ordinal": ["z", "y", "a=1,2", "=", "", "b=" + ",".join("x" * 99)],
    "--dates": ["iso", "%d.%m.%Y", "%", "%Q%n%", "", "%" * 999],
    "--target": ["z", "99", "-99", "9" * 5000, "²", "--5", ""],
    "--drop": ["z", "99", "9" * 40, ""],
    "--groups": ["z", "y", "99"],
    "--weights": ["label", "a", "z", "y"],
    "--id": ["z", "y"],
    "--interval": ["0", "1", "-0.5", "nan", "inf", "x", "0.999", "0.9"],
    "--proba": [],
    "--resume": [],
    "--unknown": ["1"],
}  # fmt: skip


def arguments(rng):
    option = str(rng.choice(list(WRONG)))
    values = WRONG[option]
    argv = ["search", "good.csv", *NUMBERS, option]
    if values:
        value = values[int(rng.integers(len(values)))]
        if rng.random() < 0.25:
            value = f"{value}{nasty(rng)}"
        argv.append(value)
    return Case(f"arguments: {option}", tuple(argv))


def usage(rng):
    wrong = [
        (), ("serach",), ("search",), ("search", "good.csv"), ("predict",), ("predict", "m.skops"),
        ("fit", "good.csv", "-m", "svc"), ("search", "good.csv", "extra", *NUMBERS),
        ("search", "--", "--out"), ("fit", "good.csv", *NUMBERS), (f"--{nasty(rng)}",),
        ("predict", "m.skops", "good.csv", "--proba"), (nasty(rng), "good.csv"),
        ("predict", "m.skops", "good.csv", "--interval", "0.9"),
        ("predict", "m.skops", "good.csv", "--id", "z"), ("predict", "good.csv", "m.skops"),
        ("judge", "m.skops"), ("judge", "good.csv", "good.csv"), ("compare", "m.skops", "good.csv"),
        ("judge", "m.skops", "good.csv", "-t", "a"), ("compare", "m.skops", "r.skops", "good.csv"),
        ("judge", "r.skops", "good.csv", "-t", "label"),
        *(("judge", "m.skops", "good.csv", *wrong) for wrong in
          (("--level", "nan"), ("--cv", "0"), ("--cv", "99"), ("--report", "good.csv"))),
        ("fit", "good.csv", "-m", "lssvm", "--drop", "label", "-p", "alpha=1,2", "--save", "x"),
        ("fit", "good.csv", "-m", "lssvm", "--drop", "label", "-p", "alpha=-1", "--save", "x"),
    ]  # fmt: skip
    return Case("usage", wrong[int(rng.integers(len(wrong)))])


def predictions(rng):
    """Rows that a model was not fitted on."""
    tables = [
        GOOD[["a", "b"]],
        GOOD.drop(columns="c").assign(d=1),
        GOOD.assign(a=np.nan),
        GOOD.assign(b="x\x1b"),
        GOOD.assign(c=np.inf),
        GOOD[:0],
    ]
    raw = csv(tables[int(rng.integers(len(tables)))])
    if rng.random() < 0.3:
        raw = csv(GOOD[["a", "b"]], header=False)
    return Case("predictions", ("predict", "m.skops", "new.csv"), {"new.csv": raw})


# -- model files -----------------------------------------------------------------------------------


def _set(value, *path):
    """A change: what is at a path of attributes, keys and numbers of a record becomes a value."""

    def change(record, rng):
        for step in path[:-1]:
            record = _get(record, step)
        old = _get(record, path[-1])
        new = value(old, rng) if callable(value) else value
        if isinstance(record, dict | list):
            record[path[-1]] = new
        else:
            setattr(record, path[-1], new)

    return change


def _get(record, step):
    return record[step] if isinstance(record, dict | list) else getattr(record, step)


def _one(wrong):
    def spoil(old, rng):
        new = np.array(old, dtype=float)
        new.flat[int(rng.integers(new.size))] = wrong
        return new

    return spoil


def _longer(old, rng):
    return np.concatenate([old, old])


def _shorter(old, rng):
    return old[: len(old) // 2]


NOT_FINITE = [np.nan, np.inf, -np.inf]
CHANGES = {
    "m.skops": [  # an SVC
        *(_set(_one(x), "svc", "support_vectors_") for x in NOT_FINITE),
        *(_set(_one(x), "svc", "_dual_coef_") for x in NOT_FINITE),
        *(_set(_one(x), "svc", "_intercept_") for x in NOT_FINITE),
        *(_set(how, "svc", name) for how in (_longer, _shorter)
          for name in ("support_vectors_", "support_", "_n_support", "classes_")),
        _set(lambda old, rng: old[:, :-1], "svc", "support_vectors_"),
        _set(lambda old, rng: old[:, :-1], "svc", "_dual_coef_"),
        _set(lambda old, rng: old + np.array([1, 0], dtype=old.dtype), "svc", "_n_support"),
        _set(lambda old, rng: old * np.array([-1, 1], dtype=old.dtype), "svc", "_n_support"),
        _set(lambda old, rng: old * 10**6, "svc", "_n_support"),
        *(_set(x, "svc", "_gamma") for x in (-1.0, 0.0, np.nan, np.inf, 10**40, "scale", None)),
        *(_set(x, "svc", "kernel") for x in ("precomputed", "sigmoid", "../x", 5, None)),
        *(_set(x, "svc", "degree") for x in (-1, 0, np.nan)),
        *(_set(x, "svc", "C") for x in (-1.0, 0.0, np.inf)),
        *(_set(x, "svc", "n_features_in_") for x in (-3, 2, 10**9)),
        *(_set(_one(x), "scaler", "mean_") for x in NOT_FINITE),
        *(_set(_one(x), "scaler", "scale_") for x in (np.nan, np.inf, 0.0, -1.0)),
        *(_set(how, "scaler", name) for how in (_longer, _shorter) for name in ("mean_", "scale_")),
    ],
    "e.skops": [  # a KernelRidge behind an encoder
        *(_set(x, "layout", "kinds") for x in (("number",) * 4, ("one-hot",), 5, ("other",) * 4)),
        _set(("number", "number", "number", ("on", "off")), "layout", "kinds"),
        *(_set(x, "encoder", "transformers_") for x in ([], None, [("a", "drop", [0])])),
        *(_set(x, "encoder", "n_features_in_") for x in (-1, 3, 10**9, "4")),
        *(_set(x, "one_hot", "categories_") for x in ([], [np.array(["no"], dtype=object)], None)),
        _set(lambda old, rng: [np.append(old[0], "x")], "one_hot", "categories_"),
        _set("error", "one_hot", "handle_unknown"),
        *(_set(how, "scaler", name) for how in (_longer, _shorter) for name in ("mean_", "scale_")),
        *(_set(_one(x), "scaler", "mean_") for x in NOT_FINITE),
        *(_set(how, "kernel-ridge", name) for how in (_longer, _shorter)
          for name in ("dual_coef_", "X_fit_")),
        _set(lambda old, rng: old[:, :-1], "kernel-ridge", "X_fit_"),
        _set(3, "kernel-ridge", "n_features_in_"),
    ],
    "r.skops": [  # a KernelRidge with intervals
        *(_set(_one(x), "kernel-ridge", "dual_coef_") for x in NOT_FINITE),
        *(_set(_one(x), "kernel-ridge", "X_fit_") for x in NOT_FINITE),
        *(_set(how, "kernel-ridge", name) for how in (_longer, _shorter)
          for name in ("dual_coef_", "X_fit_")),
        *(_set(x, "kernel-ridge", "gamma") for x in (-1.0, 0.0, np.nan)),
        *(_set(x, "kernel-ridge", "alpha") for x in (-1.0, np.nan)),
        *(_set(_one(x), "intervals", "conformity_scores_") for x in (*NOT_FINITE, -1.0)),
        *(_set(how, "intervals", name) for how in (_longer, _shorter)
          for name in ("conformity_scores_", "_fold_of")),
        _set(lambda old, rng: old + 100, "intervals", "_fold_of"),
        _set(lambda old, rng: old - 100, "intervals", "_fold_of"),
        _set("gone", "intervals"),
    ],
}  # fmt: skip
ANY = [
    *(_set(x, "format") for x in ("other", None, 5)),
    *(_set(x, "version") for x in (0, 3, "2", None, np.nan)),
    *(_set(x, "estimator") for x in (None, "SVC", [], {}, 5.0)),
    *(_set(x, "layout") for x in (None, {}, [], {"n_features": 3, "nonsense": 1})),
    *(_set(x, "layout", "n_features") for x in (-1, 0, 5, "3", 10**30, np.nan)),
    *(_set(x, "layout", "positions") for x in ((0, 1, 99), (0, 1, -7), (0, 1), ("a", "b", "c"))),
    *(_set(x, "layout", "names") for x in (("a",), ("a", "b", "c", "d"))),
    *(_set(x, "layout", "index_base") for x in (5, -1, "x")),
    _set(lambda old, rng: RandomForestClassifier(2).fit(GOOD_X, GOOD["label"]), "estimator"),
    _set(lambda old, rng: CountVectorizer(input="filename"), "estimator"),
    _set(lambda old, rng: CountVectorizer(input="filename"), "parameters"),
    _set(lambda old, rng: Path("exploded"), "parameters"),
    _set(lambda old, rng: {"deep": np.zeros(3, dtype=complex)}, "parameters"),
]


def models(rng):
    """Model files with one thing that no fit leaves behind."""
    name = str(rng.choice(list(CHANGES)))
    whole = [*CHANGES[name], *ANY]
    change = whole[int(rng.integers(len(whole)))]

    def write(path):
        record = skops.io.loads((path.parent / name).read_bytes(), trusted=TRUSTED)
        first, last = (step for _, step in record["estimator"].steps)
        view = {**record, "svc": last, "kernel-ridge": last, "scaler": first, "encoder": first}
        if name == "e.skops":
            parts = first.named_transformers_
            view |= {"scaler": parts["numbers"][-1], "one_hot": parts["one-hot"][-1]}
        change(view, rng)
        kept = {key: value for key, value in view.items() if key in record}
        skops.io.dump(kept, path)

    argv = ("predict", "w.skops", "good.csv")
    family = f"models: {name} {whole.index(change)}"
    return Case(family, argv, {"w.skops": write})


def archives(rng):
    """Files that only look like models."""
    kind = str(rng.choice(["cut", "flipped", "bomb", "zip", "pickle", "json", "noise", "deep"]))

    def write(path):
        raw = (path.parent / "m.skops").read_bytes()
        if kind == "cut":
            raw = raw[: int(rng.integers(1, len(raw) - 10))]
        elif kind == "flipped":
            with zipfile.ZipFile(io.BytesIO(raw)) as archive:
                member = archive.infolist()[int(rng.integers(len(archive.infolist())))]
            start = member.header_offset + 30 + len(member.filename)
            raw = bytearray(raw)
            raw[start + int(rng.integers(member.compress_size))] ^= 0xFF
        elif kind == "noise":
            raw = rng.bytes(500)
        elif kind == "pickle":
            raw = __import__("pickle").dumps(Pickled())
        else:
            buffer = io.BytesIO()
            with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
                deep = "[" * 100_000 if kind == "deep" else "{}" if kind == "json" else "no JSON"
                archive.writestr("schema.json", deep)
                if kind == "bomb":
                    archive.writestr("a.npy", bytes(3 * MOST_BYTES))
            raw = buffer.getvalue()
        path.write_bytes(bytes(raw))

    return Case(f"archives: {kind}", ("predict", "w.skops", "good.csv"), {"w.skops": write})


FAMILIES = (
    *(noise, cut, bomb, arrays, svmlight, cells, shapes, encodings, special, outputs, doubled),
    *(journals, arguments, arguments, arguments, usage, predictions, models, models, models),
    archives,
)


def case(number):
    """The case of a number: families take turns."""
    rng = np.random.default_rng([17, number])
    return FAMILIES[number % len(FAMILIES)](rng)


# -- running ---------------------------------------------------------------------------------------


def make_models(folder):
    """The good table and two good models of it."""
    (folder / "good.csv").write_bytes(csv(GOOD))
    fits = [
        ("-m", "svc", "-t", "label", "--drop", "y", "-p", "gamma=0.1", "--save", "m.skops"),
        ("-m", "kernel-ridge", "--drop", "label", "-p", "gamma=0.1", "--interval", "0.8", "--save"),
        ("-m", "kernel-ridge", "-p", "gamma=0.1", "--save", "e.skops"),
    ]
    for fit in (fits[0], (*fits[1], "r.skops"), fits[2]):
        done = run(folder, "fit", "good.csv", *fit)
        assert done.code == 0, done.err


def contents(folder):
    """What is in a folder, by name: bytes of files, targets of links, kinds of the rest."""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.is_symlink():
            found[path.name] = os.readlink(path)
        else:
            found[path.name] = path.read_bytes() if path.is_file() else path.stat().st_mode
    return found


def run_process(folder, *argv, stdin, seconds):
    """The same as ``run``, by a process of its own."""
    command = [sys.executable, "-c", "from everyfold.cli import main; main()", *argv]
    try:
        done = subprocess.run(
            command, cwd=folder, input=stdin, capture_output=True, timeout=5 * seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Hanging from error
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def wrongs(number, models, folder, *, as_process=False, seconds=60):
    """What is wrong with how a case is refused; nothing, if all is well."""
    made = case(number)
    for name in ("good.csv", "m.skops", "r.skops", "e.skops"):
        (folder / name).write_bytes((models / name).read_bytes())
    for name, content in made.files.items():
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            before = os.getcwd()
            os.chdir(folder)
            content(folder / name)
            os.chdir(before)
    before = contents(folder)
    try:
        with (
            warnings.catch_warnings(),
            patch("everyfold.cli.readers.most_bytes", lambda: MOST_BYTES),
            patch("everyfold.cli.readers._PATIENCE", 0.1),
        ):
            warnings.simplefilter("default")
            runner = run_process if as_process and "bomb" not in made.family else run
            done = runner(folder, *made.argv, stdin=made.stdin, seconds=seconds)
    except Hanging:
        return f"{number} ({made.family}) hangs: {made.argv}"
    except BaseException as error:
        return f"{number} ({made.family}) raises {error!r}: {made.argv}"
    found = list(_faults(done, before, contents(folder)))
    return f"{number} ({made.family}) {'; '.join(found)}: {made.argv} {done}" if found else ""


def _faults(done, before, after):
    if done.code in (0, 130):
        yield f"exit code {done.code}"
    if "Traceback" in done.err + done.out:
        yield "traceback"
    if any(not (c.isprintable() or c == "\n") for c in done.err + done.out):
        yield "control characters"
    if done.code and "error:" not in done.err.lower() and "Usage" not in done.err:
        yield "no message"
    if len(done.err) > 20_000:
        yield f"{len(done.err)} letters of messages"
    changed = [name for name in before if after.get(name) != before[name]]
    if changed:
        yield f"changed {changed}"
    if new := [name for name in after if name not in before]:
        yield f"left {new}"


def main(cases, start):
    """Run cases in this process, every fiftieth in one of its own; the number of failures."""
    failures = []
    with tempfile.TemporaryDirectory() as place:
        (models := Path(place) / "models").mkdir()
        make_models(models)
        for number in range(start, start + cases):
            (folder := Path(place) / str(number)).mkdir()
            if words := wrongs(number, models, folder, as_process=number % 50 == 0):
                print(words, flush=True)
                failures.append(number)
    print(f"{cases} hostile cases from {start}: {len(failures)} not refused as they should be")
    return len(failures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=600)
    parser.add_argument("--start", type=int, default=0)
    options = parser.parse_args()
    sys.exit(bool(main(options.cases, options.start)))
