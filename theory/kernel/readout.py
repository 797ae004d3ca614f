"""What the objective asks of the last hidden states: the Gram matrix of its gradient there, and the head's own part.

Head rows are N(0, gain^2/d). One logit: the last token of each sequence by one row, or each token by a row of its own,
summed; the mean over the batch. A cross-entropy: logits z are Gaussian over classes with the tokens' Gram matrix,
labels are random, and with e = (softmax(z) - label) / tokens read the gradient at token i is e_i head. Rows of the head
are orthogonal as d grows, so its Gram matrix is e e^T, averaged over fixed quasi-random z and labels.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy.special import ndtr, softmax

from depthlaw.theory.kernel.factored import factored_of_few
from depthlaw.theory.kernel.gram import Array, Gram, diagonal, entry_sum, factor, nuclear
from depthlaw.theory.kernel.points import normals
from depthlaw.theory.kernel.setting import Inputs
from depthlaw.theory.kernel.update import Part

NUM_DRAWS = 512
_NUM_CARRIED = 8


class Reading:
    """What an objective asks of the last hidden states, at several sets of points.

    gradient: G, (sets, n, n), the mean over logits and labels of its gradient's Gram matrix. head: the head's part.
    carried: single draws of G, for what is not linear in it, such as ||g||_1; for a logit, whose G is not random, G
    itself. Their sizes sqrt(tr G) are scaled together so that their mean is that of many draws: what only scales G is
    exact.
    """

    def __init__(self, inputs: Inputs, last: Gram, sets: Array, *, has_factored: bool = False) -> None:
        self._has_factored = has_factored
        read, shape = inputs.read, (len(sets), *last.gap.shape[-2:])
        self._hidden = np.broadcast_to(last.full, shape)[:, read[:, None], read]
        if inputs.loss == "ce":
            whole, drawn, self.head = self._cross_entropy(inputs, sets)
        else:
            whole, self.head = self._logit(inputs)
            drawn = [whole]
        whole, *drawn = (inputs.head_gain**2 * gradient for gradient in (whole, *drawn))
        self.head = replace(self.head, weight=inputs.head_gain)
        self.gradient, *self.carried = (_among(shape, read, gradient) for gradient in (whole, *drawn))

    def _logit(self, inputs: Inputs) -> tuple[Array, Part]:
        """The gradient of logits, and the head's part. The head has a row for each place in a sequence that is read."""
        places = inputs.read % inputs.num_tokens
        rows = np.unique(places)
        sums = (places == rows[:, None]) / inputs.batch_size  # (rows, read)
        gram = sums @ self._hidden @ sums.T
        squares, every = diagonal(gram), np.eye(len(rows))
        return sums.T @ sums, Part(
            role="head",
            square=squares.sum(-1),
            root=np.sqrt(squares).sum(-1),
            nuclear=nuclear(gram, every),
            factored=factored_of_few(every, gram) if self._has_factored else None,
            weight=1.0,
            size=math.sqrt(len(rows)),
        )

    def _cross_entropy(self, inputs: Inputs, sets: Array) -> tuple[Array, list[Array], Part]:
        n, classes = self._hidden.shape[-1], inputs.num_classes
        points, hidden = normals(NUM_DRAWS, (n, classes + 1), (0, sets, 7)), self._hidden[:, None]
        logits = inputs.head_gain * factor(hidden) @ points[..., :classes]
        labels = np.minimum((ndtr(points[..., classes]) * classes).astype(int), classes - 1)
        errors = (softmax(logits, axis=-1) - np.eye(classes)[labels]) / n
        gram = errors @ errors.mT
        sizes = np.sqrt(diagonal(gram).sum(-1))
        half, number = NUM_DRAWS // 2, 1 if n == 1 else _NUM_CARRIED
        chosen = [place for i in range((number + 1) // 2) for place in (i, half + i)][:number]
        scale = (sizes.mean(-1) / sizes[:, chosen].mean(-1)) ** 2
        by_class = ((errors.mT @ hidden) * errors.mT).sum(-1)
        squares = np.maximum(entry_sum(gram * hidden), 0.0)
        return (
            gram.mean(1),
            [scale[:, None, None] * gram[:, label] for label in chosen],
            Part(
                role="head",
                square=squares.mean(-1),
                length=np.sqrt(squares).mean(-1),
                root=np.sqrt(by_class.clip(min=0.0)).sum(-1).mean(-1),
                nuclear=nuclear(gram[:, :256], hidden).mean(-1),
                factored=np.mean([factored_of_few(errors[:, sample].mT, self._hidden) for sample in range(256)], 0)
                if self._has_factored
                else None,
                weight=1.0,
                size=math.sqrt(classes),
            ),
        )


def _among(shape: tuple[int, ...], read: Array, gradient: Array) -> Array:
    """The gradient of the tokens that are read, as one among all tokens: the others have none."""
    whole = np.zeros(shape)
    whole[:, read[:, None], read] = gradient
    return whole
