"""What a claim, a statement, a check, evidence and a verdict are, and how a verdict folds."""
