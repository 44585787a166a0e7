"""What a search is known by in another process: digests of data, folds, candidates and options."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version

from everyfold.evaluate.data import Data
from everyfold.evaluate.digests import Digests
from everyfold.evaluate.request import Request
from everyfold.evaluate.tiles import Unit
from everyfold.types import Params

Fingerprint = dict[str, dict[str, str]]
"""Of every part of a search, what belongs to it by name: a digest, or a version."""

_PACKAGES = ("everyfold", "numpy", "scipy", "scikit-learn", "numba")
_PUBLIC = {
    "asked": "order",
    "train_scores": "return_train_score",
    "keeps": "keep_predictions",
    "pools": "pooled",
    "selects_by": "refit",
}
"""The names of options that users know by others."""


def fingerprint(request: Request, data: Data) -> Fingerprint:
    """What the outcomes of a search depend on.

    ``n_jobs``, ``verbose`` and whether the best is refitted are no part of it.

    **Cost**: one reading of all rows and folds.
    """
    X, metadata = request.X, request.metadata
    more = {**metadata.split, **metadata.score, **metadata.fit}
    asked = {f.name: getattr(request.options, f.name) for f in fields(request.options)}
    asked |= {f.name: getattr(request.wants, f.name) for f in fields(request.wants)}
    asked |= {own: asked.pop(name) for name, own in _PUBLIC.items()}
    asked |= {"scoring": request.scorer, "refit": asked["refit"] or True}
    del asked["n_jobs"]
    rows = (type(X), X.identity()) if request.is_source else X
    parts: dict[str, Params] = {
        "data": {"X": rows, "y": request.y, **more},
        "folds": {"cv": _folds(data)},
        "candidates": {"estimator": request.estimator, "parameters": list(request.candidates)},
        "options": asked,
    }
    return fingerprint_of(parts)


def fingerprint_of(parts: Mapping[str, Mapping[str, object]]) -> Fingerprint:
    """The digests of what belongs to every part of a search, and the versions of the packages."""
    digests = Digests()
    found = {
        part: {name: digests.of(value, name) for name, value in values.items() if value is not None}
        for part, values in parts.items()
    }
    code = digests.code()
    others = {name: own for name, own in digests.packages.items() if name != "sklearn"}
    return {**found, "code": code, "versions": {**others, **versions()}}


def difference(one: Fingerprint, other: Fingerprint) -> list[str]:
    """The parts that differ, and in brackets what of them does.

    Code that only one of them has is named if nothing else differs. Another version of Python
    compiles all code to something else.
    """
    words, alone = [], []
    for part in dict.fromkeys([*one, *other]):
        a, b = one.get(part, {}), other.get(part, {})
        names = [name for name in dict.fromkeys([*a, *b]) if a.get(name) != b.get(name)]
        if part in ("code", "versions"):
            alone += [name for name in names if (name in a) != (name in b)]
            names = [name for name in names if name not in alone]
        if part == "versions":
            names = [f"{name} {a[name]}, now {b[name]}" for name in names]
        if part == "code" and not _is_same_python(one, other):
            continue
        if part == "code":
            names = [f"{name} has changed since" for name in names if not _is_told(name, names)]
        if names:
            words.append(f"{part} ({', '.join(names)})")
    return words or ([f"code ({', '.join(alone)})"] if alone else [])


def _is_same_python(one: Fingerprint, other: Fingerprint) -> bool:
    versions = [each.get("versions", {}).get("python") for each in (one, other)]
    return versions[0] == versions[1]


def _is_told(name: str, names: Sequence[str]) -> bool:
    """Whether it is a module, and something that is in it is among the names."""
    module = name.removeprefix("the module `").removesuffix("`")
    return module != name and any(other.endswith(f" of module {module}") for other in names)


def unit_key(unit: Unit) -> str:
    """What the outcomes of a unit depend on, besides the search; not what it costs."""
    groups = [
        (g.numbers, g.method.criterion, g.method.fallback, g.method.words)
        for kernel in unit.groups
        for g in kernel
    ]
    shape = [len(kernel) for kernel in unit.groups]
    how = unit.structure, unit.shared, unit.order, unit.look, unit.landmarks, unit.drawn
    return Digests().of((groups, shape, unit.folds, *how))


def versions() -> dict[str, str]:
    """Of Python and the packages that results depend on."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


def _folds(data: Data) -> object:
    """All that says which rows are fitted and predicted."""
    if data.stream is not None:
        return data.stream.rule
    if not data.tasks:
        return list(data.splits)
    return list({id(task.folds): task.folds for task in data.tasks}.values())
