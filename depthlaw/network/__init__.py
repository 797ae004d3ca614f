"""A scheme or recipe at a depth and width, as plain numbers for theory and for sims, and what both say of it."""

EFFORT = {"logit": 1 / 4, "ce": 1 / 16}
"""How many quasi-random points are enough where nobody asks for more, in units of what is usual. The error of a
cross-entropy is that of its labels, and more points do not lessen it."""
ANY_WIDTH = 64
"""Of a network without a width: only ratios to it are read."""
