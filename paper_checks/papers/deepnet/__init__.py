"""The DeepNet paper, section by section."""
