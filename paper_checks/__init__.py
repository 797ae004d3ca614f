"""Claims, verdicts, the command line: the only floor that knows both ``theory`` and ``sims``."""
