"""``FastGradientSearchCV``: hyper-parameters by the gradient of the held-out error."""
