"""The solver of SVC and SVR: the problems of libsvm for all folds, all C and single rows left out.

It is compiled by numba and knows nothing of estimators: arrays go in and come out.
"""
