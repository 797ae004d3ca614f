"""What was measured, with what and when: the format, and the files."""
