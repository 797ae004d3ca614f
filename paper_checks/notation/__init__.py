"""Formulas as our texts have them, read once and written as text, LaTeX or MathML."""
