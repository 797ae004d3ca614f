"""The slides of Magneto."""
