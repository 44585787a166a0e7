"""Linear algebra: the only package that factorises matrices.

The other packages call its functions by what they do, not by the routines of LAPACK behind them.
"""
