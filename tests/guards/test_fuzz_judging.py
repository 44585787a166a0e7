"""Random judgements beside loops of refits; ``make fuzz`` examines a thousand."""

from dataclasses import replace

import numpy as np
import pytest

from everyfold.judge import model_scores, row_influence
from tests.guards import fuzz_judging
from tests.guards.fuzz_judging import Difference, examine

pytestmark = pytest.mark.filterwarnings("ignore")  # as ``examine`` does


@pytest.mark.parametrize("start", range(0, 40, 10))
def test_random_judgements_agree_with_refits(start):
    found = {seed: examine(seed) for seed in range(start, start + 10)}
    different = [f"{seed}: {words}" for seed, (kind, words) in found.items() if kind != "agree"]
    advice = "python -m tests.guards.fuzz_judging --verbose --cases 1 --start SEED shows a case"
    assert not different, "\n".join([advice, *different])


def differ(kind, seeds=range(6)):
    count = 0
    for seed in seeds:
        try:
            getattr(fuzz_judging, f"examine_{kind}")(np.random.default_rng(seed))
        except Difference:
            count += 1
    return count


@pytest.mark.parametrize("kind", ["interval", "comparison", "influence"])
def test_a_wrong_number_is_found(monkeypatch, kind):
    """The fuzz test can fail: errors off by a thousandth and values by a millionth are found."""
    judge, deletions = model_scores.ModelScores.judge, row_influence.deletions
    predictions = row_influence.fold_predictions

    def off(self, *asked):
        found = judge(self, *asked)
        return replace(found, bounds=replace(found.bounds, error=1.001 * found.bounds.error))

    def moved(*asked):
        for own in deletions(*asked):
            own.values[-1] += 1e-4
            yield own

    def shifted(*asked):
        held_out, values = predictions(*asked)
        values[-1] += 1e-4
        return held_out, values

    assert differ(kind) == 0
    monkeypatch.setattr(model_scores.ModelScores, "judge", off)
    monkeypatch.setattr(row_influence, "deletions", moved)
    monkeypatch.setattr(row_influence, "fold_predictions", shifted)
    assert differ(kind) >= 1
