"""A scheme, its depth and its width, lowered to plain numbers for theory and for sims; and what both say of it."""
