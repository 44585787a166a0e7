"""What the descents of a gradient search cost.

The costs are estimated before the work, and added to the plan of the search for the starts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from everyfold.engine.execution.executor import local_threads
from everyfold.engine.planning.costs import COSTS, Cost, CostModel, Workload, feature_seconds
from everyfold.engine.planning.plan import SearchPlan
from everyfold.engine.planning.squared_loss import METHODS
from everyfold.linalg.memory import check_workers

# Gradients of a descent that an estimate assumes: descents end after 3 or more, and after the most
# that are allowed at the latest. It only changes the printed estimate.
TYPICAL_GRADIENTS = 8


def gradient_cost(work: Workload, features: int, cost: CostModel = COSTS) -> Cost:
    """One error with its gradient: a candidate, and products with a column a fold and feature."""
    made = feature_seconds(work.n, work.rank, features, cost)
    judged = METHODS["eigen" if work.is_low_rank else "cholesky"].cost(work, cost)
    columns = 3 * work.n_folds * work.targets + features
    products = work.n * work.rank * (columns * cost.cube_gram + 4 * cost.stream)
    wide = 2 * work.rank + 4 * work.n_folds * work.targets + 3 * features
    blocks = 16 * sum(count * m**2 for m, count in work.groups)
    # The weights of the slopes of a full kernel are two more matrices.
    weights = 0 if work.is_low_rank else 16 * work.n**2
    memory = judged.memory + weights + 8 * work.n * wide + blocks
    return Cost(cost.kernel + made + judged.seconds + products, memory)


# What needs less memory, whichever estimator was passed: not all of them have an operator.
_LOW_RANK = (
    "or an estimator of low rank: LSSVC(operator=Nystrom(1000)), or "
    "LSSVR(operator=Nystrom(1000)) for numbers"
)


@dataclass(frozen=True)
class Descents:
    """Descents on several sets of rows, one for each strength of shrinkage.

    Attributes
    ----------
    sets, strengths, most : int
        The sets of rows, the descents on each of them, and the most gradients of a descent.
    each : Cost
        Of one gradient on all rows.
    """

    sets: int
    strengths: int
    most: int
    each: Cost

    @property
    def seconds(self) -> float:
        """An estimate for all of them."""
        return self.sets * self.strengths * min(self.most, TYPICAL_GRADIENTS) * self.each.seconds

    def check(self, n: int, n_jobs: int | None) -> None:
        """Refuse what does not fit in memory."""
        check_workers(self.each.memory, min(local_threads(n_jobs), self.sets), n, _LOW_RANK)

    def after(self, plan: SearchPlan) -> SearchPlan:
        """The plan of the search for the start, and of the descents from there."""
        words = (
            f"then up to {self.strengths} descents along the gradient on each of {self.sets} sets "
            f"of rows (all, and those of the outer folds), about {TYPICAL_GRADIENTS} gradients and "
            f"at most {self.most} each"
        )
        return replace(
            plan,
            estimate=plan.estimate + self.seconds,
            memory=max(plan.memory, self.each.memory),
            notes=(*plan.notes, words) if self.strengths else plan.notes,
        )
