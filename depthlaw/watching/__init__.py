"""The watch: what each step of a training run moves, by role, as the run goes, and beside a run at another depth.

``roles`` says which entries of which parameter have which role, ``probe`` what a step changed on a fixed batch,
``record`` is the file, and ``watch`` decides when to look and tells what it finds.
"""
