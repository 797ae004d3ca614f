"""Leading orders of closed forms, each with how it was shown."""
