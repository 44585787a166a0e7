"""From held-out values to scores."""
