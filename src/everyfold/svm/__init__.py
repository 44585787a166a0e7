"""The duals of SVC and SVR: fold paths and single rows, compiled; plain arrays in and out."""
