"""Bounds that the papers prove for their approximations, to report beside a score.

``model_error_bound`` (from a measured norm) and ``expected_residual`` (in advance) are for a
Nyström approximation; :func:`everyfold.granularity_bound` is for an influence series. Most are too
loose to guarantee anything in practice.
"""

from everyfold.papers.published_methods import expected_residual, model_error_bound

__all__ = ["expected_residual", "model_error_bound"]
