"""What layers that are visited several times with the same weights count as in a rule.

A matrix that is visited R times has R gradients, which are alike where branches are small beside the stream, and so is
what it adds to the stream. A step of degree p in the gradient then moves the output by R^(p+1) times as much, where R
layers of their own move it R times as much: under SGD (p = 1) R^2, under optimizers that normalise the gradient (p = 0)
R. The rest of a rule's argument sees visits as it sees layers, so its formulas hold of as many layers.

Behind a norm within the branch (sub) the argument is of a stream that grows, whose early visits move the output further
than late ones; there nothing is said.
"""

from __future__ import annotations

from depthlaw.theory.optimizers import optimizer as optimizer_named


def counts_as(optimizer: str, num_layers: int, visits: int) -> int:
    """The layers of their own by whose number a rule's formulas hold of so many layers, visited so often.

    >>> from depthlaw.theory.rules.visits import counts_as
    >>> counts_as("sgd", 6, 4), counts_as("adam", 6, 4)
    (96, 24)
    """
    return num_layers * visits ** int(optimizer_named(optimizer).gradient_degree + 1)
