"""The Magneto paper, section by section."""
