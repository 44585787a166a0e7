"""Options that exclude each other: the guide prints the table that the code reads."""

from pathlib import Path

import numpy as np
import pytest

from everyfold import LSSVR, FastGridSearchCV, papers
from everyfold.engine.request import INCOMPATIBLE

GUIDE = Path(__file__).parents[2] / "docs" / "search.md"


def test_the_guide_prints_the_table_of_the_code():
    text = GUIDE.read_text("utf-8")
    table = text.partition("\n### Options that exclude each other\n")[2].partition("\n\n|")[2]
    lines = ("|" + table.partition("\n\n")[0]).splitlines()[2:]
    expected = [
        f"| `{option}` | {condition} | `{other}` | {other_condition} | {advice} |"
        for option, condition, other, other_condition, advice in INCOMPATIBLE
    ]
    assert lines == expected


def test_a_row_is_refused_before_work_with_its_advice():
    X = np.arange(20.0)[:, None]
    search = FastGridSearchCV(LSSVR(), {"alpha": [1.0]}, cv=5, method=papers.gcv())
    with pytest.raises(ValueError, match="criterion='gcv' cannot be combined with cv=5, as it has"):
        search.fit(X, X[:, 0])
