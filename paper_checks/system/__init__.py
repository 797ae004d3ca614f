"""Files, processes and Ctrl-C: what every room may use."""
