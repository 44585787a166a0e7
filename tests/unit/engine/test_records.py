"""Outcomes on some folds become one outcome on all of them, field by field."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from everyfold.crossval.base import Failure
from everyfold.engine.records import Outcome, join
from everyfold.estimators.targets import Numbers

TARGET = Numbers.read([1.0, 2.0])
LATE = Failure.of(ValueError("late"))

# By field: its value on fold 0, on fold 1, and on both.
CASES = {
    "number": (3, 3, 3),
    "folds": (np.array([0]), np.array([1]), np.array([0, 1])),
    "scores": ([0.5], [0.25], [0.5, 0.25]),
    "train_scores": ([0.75], [1.0], [0.75, 1.0]),
    "is_exact": (np.array([True]), np.array([False]), np.array([True, False])),
    "condition": (np.array([1.0]), np.array([2.0]), np.array([1.0, 2.0])),
    "radius": (np.array([0.1]), np.array([0.2]), np.array([0.1, 0.2])),
    "failures": ({}, {1: LATE}, {1: LATE}),
    "values": (np.ones((2, 1)), np.zeros((1, 1)), np.array([[1.0], [1.0], [0.0]])),
    "target": (None, TARGET, TARGET),
    "sizes": ([2], [1], [2, 1]),
    "n_weighted": (None, 7, 7),
    "seconds": ((1.0, 2.0), (0.5, 0.25), (1.5, 2.25)),
    "method": ("one way", "another", "one way; another"),
    "operator": ("rank 3", "rank 5", "rank 5"),
    "caveat": ("", "up to 3 %", "up to 3 %"),
    "is_of_another_model": (False, True, True),
    "residual_trace": (0.5, 2.0, 2.0),
    "is_identity": (True, False, False),
    "is_unique": (True, False, False),
    "is_refit": (False, True, True),
    "pilot": (0, 1, 1),
    "errors": (np.array([0.5]), np.array([1.5]), np.array([0.5, 1.5])),
    "is_restated": (False, True, True),
    "only_label": (("a",), ("b",), None),
    "status": ("", "estimated", "estimated"),
    "landmarks": (0, 128, 128),
    "times": ([(1.0, 0.5)], [(2.0, 0.25)], [(1.0, 0.5), (2.0, 0.25)]),
    "rank": (3, 5, 5),
    "fitted": (["model 0"], ["model 1"], ["model 0", "model 1"]),
    "whole": (None, ("coefficients", "intercepts", True), ("coefficients", "intercepts", True)),
}


@pytest.fixture
def parts():
    return [Outcome(**{name: case[k] for name, case in CASES.items()}) for k in (0, 1)]


def test_every_field_has_a_case():
    assert list(CASES) == [known.name for known in fields(Outcome) if known.init]


@pytest.mark.parametrize("name", CASES)
def test_every_field_is_joined(name, parts):
    found, wanted = getattr(join(reversed(parts)), name), CASES[name][2]
    if isinstance(wanted, np.ndarray):
        np.testing.assert_array_equal(found, wanted)
    else:
        assert found == wanted


def test_fields_that_no_part_has_stay_empty(parts):
    bare = [Outcome(*(getattr(part, name) for name in list(CASES)[:8])) for part in parts]
    whole = join(bare)
    assert whole.values is whole.times is None
    assert not whole.method


def test_equal_labels_of_all_folds_stay():
    first = Outcome(**{name: case[0] for name, case in CASES.items()})
    second = Outcome(**{name: case[1] for name, case in CASES.items() if name != "only_label"})
    second.__dict__["only_label"] = ("a",)
    assert join([first, second]).only_label == ("a",)
