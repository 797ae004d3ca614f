"""The audit: any ``torch.nn.Module`` against a scheme or a recipe.

``builders`` and ``inputs`` find out what to build and what it is given, ``reading`` what flows in it, ``checks`` what
is wrong beside what is expected, and ``text`` says it.
"""
