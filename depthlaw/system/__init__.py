"""Files, processes, Ctrl-C and printed pages: what every room may use."""
