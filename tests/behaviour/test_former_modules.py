"""Modules that were documented under another name work for one release, with a warning."""

import importlib

import pytest

import everyfold.papers


@pytest.mark.parametrize("name", ["GACV", "GCV", "Granularity", "SpanRule", "choose_granularity"])
def test_criteria_are_found_under_their_former_name(name):
    former = importlib.import_module("everyfold.criteria")
    with pytest.warns(DeprecationWarning, match=f"from everyfold.papers import {name}") as warned:
        assert getattr(former, name) is getattr(everyfold.papers, name)
    assert warned[0].filename == __file__


def test_other_names_are_not():
    former = importlib.import_module("everyfold.criteria")
    with pytest.raises(AttributeError, match="no attribute 'HeldOut'"):
        _ = former.HeldOut
