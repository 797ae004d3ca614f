"""The audit: any ``torch.nn.Module`` against a scheme or a recipe.

``inputs`` finds out what a module is given, ``graph`` keeps what flows in one forward pass, ``look`` reads residual
streams, sublayers and the roles of parameters from that, and ``branch`` what one branch is made of.
"""
