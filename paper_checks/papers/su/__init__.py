"""Su Jianlin's article, section by section."""
