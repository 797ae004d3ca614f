"""The generated pages for people, their figures, and what notebooks write with."""
