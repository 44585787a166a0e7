r"""The compiled solver of SVC and SVR: sequential minimal optimisation (SMO).

One problem covers hinge and :math:`\varepsilon`-insensitive loss, in signed coefficients,

.. math:: \min_\beta \tfrac12 \beta^\top K \beta - p^\top\beta + \varepsilon\|\beta\|_1,
          \quad \mathbf 1^\top\beta = 0, \quad C\,l \le \beta \le C\,h,

with :math:`p = y` always; the hinge has :math:`\varepsilon = 0` and :math:`l_i = 0` or
:math:`h_i = 0` by the sign of :math:`y_i`. ``G = K beta - p`` is the gradient without the
:math:`\varepsilon` term. A row may go up with score ``up - G`` and down with ``low - G``, where
``up`` and ``low`` hold :math:`\pm\varepsilon` by the side of zero the row would move on, or an
infinity where it may not move. The stopping quantity is ``max(up - G) - min(low - G)``; a row
held out has both infinities, so it never moves and its ``G + p + b`` is its held-out value.

Files from the bottom up; each imports only from those before it.

``compiling``, ``intrinsics``
    How it is compiled.
``workspace``
    Memory, made in Python.
``matrices``
    Kernel matrices, and what Python calls to prepare them.
``state``
    The rows of a problem: coefficients, their box, the gradient.
``steps``
    Pair steps along conjugate directions.
``solver``
    The solution for one C.
``folds``, ``singles``
    What Python calls: paths over the Cs, and single rows that are left out.

All but ``workspace`` import numba, which is slow: callers import them where they use them. The
cache on disk is valid while no file of this folder changes, and looks at no other: functions and
constants that are compiled must stand here.

Layout: float32 for what every iteration streams through, float64 for what accumulates; see
``state.Rows``. All vectors are padded to the row length of K, which the caller makes a multiple of
the vector width, so that no loop has a scalar tail. The few rows of a direction stand together in
``D``, where loops over them become vectors, too. The rounding of the float32 gradient is bounded as
it grows, and the gradient computed anew in float64 before the bound could matter to the answer.

Short code compiles soon. Entries take arrays, so that types are checked, and at once go over to
pointers, which are shorter to handle; memory is made by the caller. numba optimises a function once
by itself and again within each that calls it. So the larger ones are merged into the entry that
calls them, and only those that have several callers, or a loop over rows, are compiled by
themselves.
"""
