"""Second moments through a stack of scalars: recursion, closed form, long sums, growth."""
