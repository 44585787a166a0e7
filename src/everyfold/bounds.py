"""What the papers prove of their approximations: bounds to report beside a score, not certificates.

``model_error_bound`` and ``expected_residual`` are those of a Nyström approximation, measured and
beforehand; :func:`everyfold.granularity_bound` is that of an influence series.
"""

from everyfold.operators.bounds import expected_residual, model_error_bound

__all__ = ["expected_residual", "model_error_bound"]
