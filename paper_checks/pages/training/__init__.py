"""TRAINING.md: the page, its sections and figures, from the records of the experiments alone."""
