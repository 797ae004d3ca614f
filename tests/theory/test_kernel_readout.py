"""What an objective asks of the last hidden states, against drawn logits and labels, and heads that are written out."""

import math
from functools import cache

import numpy as np
import pytest
from scipy.special import stdtrit

from depthlaw.theory.kernel.gram import Gram
from depthlaw.theory.kernel.predict import Inputs
from depthlaw.theory.kernel.readout import Reading

ERROR = 1e-5
"""The chance that one comparison rejects what is right, had the seeds not been fixed."""
REPLICATES = 8
NUM_DRAWS = 20_000
WIDTH = 64
Samples = dict[str, np.ndarray]


def hidden(inputs: Inputs) -> np.ndarray:
    """(n, WIDTH), of tokens that have something in common, also those of other sequences."""
    generator = np.random.default_rng(11)
    x = generator.normal(size=(inputs.num_tokens * inputs.batch_size, WIDTH)) + 0.8 * generator.normal(size=WIDTH)
    return x / np.sqrt((x**2).mean(1, keepdims=True))


def reading(inputs: Inputs, replicate: int = 0) -> Reading:
    x = hidden(inputs)
    return Reading(inputs, Gram(1.0, 1.0 - x @ x.T / WIDTH), np.array([replicate]))


def predicted(inputs: Inputs) -> Samples:
    """By set of points."""
    runs = [reading(inputs, replicate) for replicate in range(REPLICATES)]
    return {
        "gradient": np.array([run.gradient for run in runs]),
        "square": np.array([run.head.square for run in runs]),
        "root": np.array([run.head.root for run in runs]),
        "nuclear": np.array([run.head.nuclear for run in runs]),
    }


@cache
def drawn(inputs: Inputs, seed: int = 5) -> Samples:
    """By draw of logits and labels. The gradient of the mean loss is by a complex step in each logit."""
    generator = np.random.default_rng(seed)
    x, read, classes = hidden(inputs), inputs.read, inputs.num_classes
    seen = x[read]
    root = np.linalg.cholesky(seen @ seen.T / WIDTH)
    logits = root @ generator.normal(size=(NUM_DRAWS, len(read), classes))
    labels = generator.integers(classes, size=(NUM_DRAWS, len(read)))

    def loss(at: np.ndarray) -> np.ndarray:
        of_label = np.take_along_axis(at, labels[..., None], -1)[..., 0]
        return (np.log(np.exp(at).sum(-1)) - of_label).mean(-1)

    errors = np.zeros_like(logits)
    for token, number in np.ndindex(logits.shape[1:]):
        moved = logits.astype(complex)
        moved[:, token, number] += 1e-30j
        errors[:, token, number] = np.imag(loss(moved)) / 1e-30
    gradient = np.zeros((NUM_DRAWS, len(x), len(x)))
    gradient[:, read[:, None], read] = errors @ errors.mT
    head = errors.mT @ seen / math.sqrt(WIDTH)  # its gradient, over sqrt(d)
    coordinate = root @ generator.normal(size=(NUM_DRAWS, len(read), 1))  # one of infinitely many
    return {
        "gradient": gradient,
        "square": (head**2).sum((1, 2)),
        "root": abs(errors.mT @ coordinate).sum((1, 2)) / math.sqrt(2 / math.pi),
        "nuclear": np.linalg.svd(head[:4_000], compute_uv=False).sum(-1),
    }


def agree(theory: np.ndarray, samples: np.ndarray) -> bool:
    """Whether the means of both may be the same."""
    reach = [-float(stdtrit(len(x) - 1, ERROR / 2)) * x.std(0, ddof=1) / math.sqrt(len(x)) for x in (theory, samples)]
    missed = abs(theory.mean(0) - samples.mean(0)) > np.hypot(*reach) + 1e-12
    return not missed.any()


CROSS_ENTROPIES = [
    Inputs(num_tokens=3, loss="ce", num_classes=5, readout="sum"),
    Inputs(num_tokens=2, batch_size=3, loss="ce", num_classes=4),
]


@pytest.mark.parametrize("inputs", CROSS_ENTROPIES)
def test_a_cross_entropy_is_that_of_drawn_logits(inputs: Inputs) -> None:
    """With an error below a fifth of each number."""
    samples = drawn(inputs)
    for name, value in predicted(inputs).items():
        assert agree(value, samples[name]), name
        assert not agree(1.25 * value, samples[name]), name


def of_logits(inputs: Inputs, head: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The derivatives of the objective in the hidden states and in the head, term by term. head: (rows, WIDTH)."""
    x = hidden(inputs)
    at_hidden, at_head = np.zeros_like(x), np.zeros_like(head)
    for sequence in range(inputs.batch_size):
        for place in range(inputs.num_tokens):
            if inputs.readout == "last" and place < inputs.num_tokens - 1:
                continue
            token, row = sequence * inputs.num_tokens + place, place if inputs.readout == "sum" else 0
            at_hidden[token] += head[row] / inputs.batch_size
            at_head[row] += x[token] / inputs.batch_size
    return at_hidden, at_head


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("readout", ["last", "sum"])
def test_a_logit_is_a_row_of_the_head_for_each_place(readout: str, batch_size: int) -> None:
    inputs = Inputs(num_tokens=4, batch_size=batch_size, readout=readout)
    rows = 4 if readout == "sum" else 1
    head = np.linalg.qr(np.random.default_rng(3).normal(size=(WIDTH, rows)))[0].T  # orthogonal, as at infinite width
    at_hidden, at_head = of_logits(inputs, head)
    theory = reading(inputs)
    assert np.allclose(theory.gradient, at_hidden @ at_hidden.T, rtol=0, atol=1e-12)
    assert len(theory.carried) == 1
    assert (theory.carried[0] == theory.gradient).all()
    assert theory.head.square == pytest.approx((at_head**2).sum() / WIDTH)
    assert theory.head.root == pytest.approx(np.linalg.norm(at_head, axis=1).sum() / math.sqrt(WIDTH))
    assert theory.head.size == pytest.approx(math.sqrt(rows))
    assert theory.head.nuclear == pytest.approx(np.linalg.svd(at_head, compute_uv=False).sum() / math.sqrt(WIDTH))
