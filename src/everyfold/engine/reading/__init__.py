"""From a request to data: estimators become models, splitters become folds."""
