"""What layers that are visited several times with the same weights count as in a rule.

A matrix that is visited R times has R gradients, which are alike where branches are small beside the stream, and so is
what it adds to the stream. A step of degree p in the gradient then moves the output by R^(p+1) times as much, where R
layers of their own move it R times as much: under SGD (p = 1) R^2, under optimizers that normalise the gradient (p = 0)
R. The rest of a rule's argument sees visits as it sees layers, so its formulas hold of as many layers; of both sides of
an encoder-decoder too, whose memory R visits of a cross-attention read alike.

Behind a norm within the branch (sub) the stream grows, and what arrives at a sublayer falls as the stream's size. At
the first visit the branches of K sublayers add up in quadrature, and the sublayer at place k gets 1/sqrt(k), 2 sqrt(K)
in all; later visits add the same once more, so at visit r the stream is r sqrt(K) and each sublayer gets 1/(r sqrt(K)).
With H = 1 + 1/2 + ... + 1/R, steps of p = 0 move the output by 2 sqrt(K) + (H - 1) sqrt(K), as K ((1 + H)/2)^2
sublayers of their own do. Under p = 1 no number of layers is told: their sum goes as log K, that of visits as H^2.
"""

from __future__ import annotations

import math
from fractions import Fraction

from depthlaw.theory.optimizers import optimizer as optimizer_named


def weight_of_visits(norm: str, optimizer: str, visits: int) -> Fraction:
    """How many layers of their own one layer counts as that is visited so often. ValueError, in one line, where that
    is not derived.

    >>> from depthlaw.theory.rules.visits import weight_of_visits
    >>> [str(weight_of_visits("post", name, 4)) for name in ("sgd", "adam")], str(weight_of_visits("sub", "adam", 4))
    (['16', '4'], '1369/576')
    """
    degree = int(optimizer_named(optimizer).gradient_degree)
    if norm != "sub":
        return Fraction(visits**2 if degree else visits)
    if degree:
        raise ValueError(
            f"the rule for norm 'sub' and layers that are visited again is derived for optimizers that normalise the "
            f"gradient, such as adam, not {optimizer}"
        )
    heard = 1 + sum((Fraction(1, visit) for visit in range(1, visits + 1)), Fraction(0))
    return heard * heard / 4


def counts_as(norm: str, optimizer: str, num_layers: int, visits: int) -> int:
    """The layers of their own by whose number a rule's formulas hold of so many layers, visited so often.

    >>> from depthlaw.theory.rules.visits import counts_as
    >>> counts_as("post", "sgd", 6, 4), counts_as("post", "adam", 6, 4), counts_as("sub", "adam", 6, 4)
    (96, 24, 15)
    """
    return math.ceil(num_layers * weight_of_visits(norm, optimizer, visits))
