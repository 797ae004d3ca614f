"""The engine of ``depthlaw verify``: claims, mutants and table cells into one document."""
