"""What flows in a module: its residual streams, their sublayers, and what each branch is made of.

``graph`` keeps what one forward pass does, ``look`` reads a model from it with ``stream`` and ``sublayer``, ``branch``
tells the roles of one branch with ``norms``, ``weights`` and ``functions``, and ``rest`` what stands outside.
"""
