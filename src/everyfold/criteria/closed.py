"""Criteria in closed form: one number from one fit, no folds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from everyfold.criteria.base import Closed
from everyfold.operators.base import Array, KernelOperator, Route
from everyfold.solve import Problem


@dataclass(frozen=True)
class GCV(Closed):
    r"""Generalised cross-validation: :math:`n\,\|\rho G y\|^2 / \mathrm{tr}(\rho G)^2`.

    Leave-one-out with every leverage replaced by their mean (Golub, Heath & Wahba 1979); with an
    intercept or weights the residual maker R takes the place of G. It is *not* leave-one-out.

    **Cost** one factorisation for all ridges, 2 n² flops a ridge. **Exact?** As defined.
    """

    route: Route = "eigen"

    def evaluate(
        self, problem: Problem, operator: KernelOperator, ridges: Sequence[float]
    ) -> Iterator[Array]:
        """See base class."""
        active = problem.quadratic.active
        rhos = [problem.rho(ridge, problem.n_active) for ridge in ridges]
        for response in operator.respond_path(problem.quadratic, rhos, self.route):
            trace = response.residual_trace(active)
            value: Array = problem.n_active * response.reduced_norm() / trace**2
            yield value
