"""What to choose: a rule for a depth, and what to change as a model gets deeper, ranked and as code."""
