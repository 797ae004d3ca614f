"""The ways to check a statement: algebra, search, a second mean field, the kernel, networks, records, training."""
