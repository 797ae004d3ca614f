"""A scheme or recipe at a depth and width, as plain numbers for theory and for sims, and what both say of it."""
