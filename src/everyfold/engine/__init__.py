"""From what a user asked for to scores: read, plan, carry out."""
