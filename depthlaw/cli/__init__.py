"""The command line: a module for each command, each importing what it needs when it runs."""
