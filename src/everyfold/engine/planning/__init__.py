"""From data to a plan: which method evaluates which candidates, at what cost."""
