"""What the first step of a run is predicted to change in the logits, by role, before it is taken.

The kernel rung knows how far a logit moves under a step of its own. A step of training is pulled by many logits, at
many tokens, and how far their pulls agree is the data's doing. There are two ends:

- high: all tokens are pulled alike, as where frequent words are learnt first, and the batch is large. What the tokens'
  gradients have in common is then all of the step.
- low: labels have nothing in common. The step is a sum of gradients of which each token's is only one.

What two tokens of different sequences have in common is U_c^2, from the update U of the mean of all tokens' logits and
that of the mean of a sequence's; U_1 is the update of one token's. Of steps that are signs, high is U_c and low is
U_c^2 / U_1, sublayer by sublayer.

One logit is pulled, and others move too, since V rows of a head lie in d dimensions. Root mean square over logits:
sqrt(1/V + s/d) of what a logit would move by itself. s, the spread, is d tr K^2 / (tr K)^2, where K = J J^T takes a
change at the matrix to the end: 1 where J is the identity, 2 of a square Gaussian matrix; of freely independent factors
s - 1 adds up. A sign instead of a gradient's own direction adds pi/2 - 1, at the high end, where the gradient of a
matrix is of rank one.

Both ends are widened by 1 + L/d, the order of what a finite width changes, and by the standard error of what a few
sequences of the probe have in common.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from depthlaw.auditing.beyond import in_words, left_out
from depthlaw.auditing.reading.look import Built
from depthlaw.auditing.updates import as_config
from depthlaw.network.kernel import as_inputs, as_transformer, update_of
from depthlaw.sims.config import ModelConfig, Task
from depthlaw.theory.kernel.gram import Array, Gram
from depthlaw.theory.kernel.predict import Inputs as KernelInputs
from depthlaw.theory.kernel.predict import KernelUpdate, Stream
from depthlaw.theory.kernel.update import unit_power
from depthlaw.watching.record import Prediction

LONGEST = 10.0
"""Seconds of the processor after which a prediction is given up."""
_SIGN_STEPS = ("Adam", "AdamW")
"""Classes whose first step is the learning rate times the sign of the gradient."""
_STEP = "adamw"
_SEQUENCES, _TOKENS = 4, 8
_EFFORT = 0.125
"""Of quasi-random points: their error is some percent, and both ends lie much further apart."""
_SIGNS = math.pi / 2 - 1
"""What signs add to the spread, where they stand for a gradient of rank one."""
_MOST_EPS = 1e-6
"""Of the optimizer: with a larger one beside it, an entry's first step may be smaller than its sign."""
_ALIKE = 1e-3
_MOST_TRIED, _POWERS, _BEYOND = 12, 16, 5.0
"""Matrices whose largest singular value is looked at, steps of power iteration, and how far beyond its mean that value
may be: 5 in one of 300,000."""
_COUNTS = 0.1
"""What is below a tenth adds less than a hundredth to a mean square."""


class _TooLongError(ValueError):
    pass


def predict(built: Built, optimizers: Sequence[Any], start: int) -> Prediction:
    """Of the first step of these optimizers; ``why`` says why there is no prediction. Nothing is raised."""
    began = time.thread_time()
    try:
        roles, wider = _predicted(built, optimizers, start, began)
        why = None
    except Exception as error:  # a prediction is no reason to end a watch
        roles, wider, why = {}, 1.0, in_words(error)
    return Prediction(roles=roles, wider=wider, why=why, seconds=round(time.thread_time() - began, 3))


def _predicted(
    built: Built, optimizers: Sequence[Any], start: int, began: float
) -> tuple[Mapping[str, tuple[float, float]], float]:
    if why := _unknown(built, optimizers, start):
        raise ValueError(why)
    config, sampled = as_config(built), _sampled(built)

    def advance(_: float) -> None:
        if time.thread_time() - began > LONGEST:
            raise _TooLongError(f"it would take more than {LONGEST:g} seconds")

    def ask(num_rows: int) -> KernelUpdate:
        """Of the mean of the logits of each of so many parts of the tokens, each part by a row of its own."""
        task = Task(num_tokens=num_rows, batch_size=sampled.num_all // num_rows)
        inputs = replace(sampled, **vars(as_inputs(task, config)))
        transformer = as_transformer(config, head_size=config.size_of_head)
        return update_of(transformer, inputs, _STEP, replicates=1, effort=_EFFORT, advance=advance)

    every, parts = ask(1), ask(sampled.num_parts)
    ones = parts if sampled.num_parts == sampled.num_all else ask(sampled.num_all)
    ends = _ends(built, config, sampled, (every, parts, ones))
    wider = (1 + len(config.encoder) / config.d_model) * (1 + sampled.scatter)
    return {role: (low / wider, high * wider) for role, (low, high) in ends.items()}, wider


# ---------------------------------------------------------------- of what there is a prediction


def _unknown(built: Built, optimizers: Sequence[Any], start: int) -> str:
    """Why nothing is predicted; empty where something is."""
    others = {type(optimizer).__name__ for optimizer in optimizers} - {*_SIGN_STEPS}
    cases = {
        "the run goes on from an earlier step": start > 0
        or any(getattr(optimizer, "state", None) for optimizer in optimizers),
        f"the length of the first step of {' and '.join(sorted(others)) or 'no optimizer'} depends on the loss, or is "
        "not derived": bool(others) or not optimizers,
        f"an eps above {_MOST_EPS:g} makes the first step smaller than a sign": any(
            group.get("eps", 0.0) > _MOST_EPS for optimizer in optimizers for group in optimizer.param_groups
        ),
        "the model is trained already: gains of its norms differ from entry to entry": _is_trained(built),
        "the model is trained already, or its matrices do not start as independent draws": _has_structure(built),
        f"not all of it was read: {(*built.unread, *built.joined, '')[0]}": bool(built.unread or built.joined),
        "layers share their matrices": bool(built.shared),
        "layers start as copies of one another": _has_copies(built),
        "each token meets a few experts of many": built.has_experts,
        "its FFN has an activation that is not known": any(
            sub.kind == "ffn" and not sub.activation for sub in built.sublayers
        ),
        "biases do not start at 0 (torch's nn.Linear draws them), and count beside their matrices": _has_biases(built),
        "skips go round several sublayers": bool(built.long_skips),
        "of an encoder and a decoder, what the tokens of both have in common is not derived": len(built.sides) > 1,
        "its head starts at 0, so that the first step moves nothing else": any(
            role == "head" and not built.flow.parameters[name].any() for name, role in built.others.items()
        ),
    }
    return next((why for why, holds in cases.items() if holds), "")


def _is_trained(built: Built) -> bool:
    gains = [built.flow.parameters[name].detach() for name, role in built.others.items() if role == "norm_gain"]
    return any(bool((gain - gain.flatten()[0]).abs().max() > _ALIKE * gain.abs().max()) for gain in gains)


def _has_structure(built: Built) -> bool:
    """Whether some matrix has a singular value that independent entries do not give. The largest of m x n normal ones
    of variance 1 has a mean of at most sqrt(m) + sqrt(n), and is more than t above it with a probability of at most
    exp(-t^2 / 2) (Vershynin, arXiv 1011.3027, corollary 5.35). Power iteration comes near to it from below."""
    generator = torch.Generator().manual_seed(0)
    for weight in built.weights[:: -(-len(built.weights) // _MOST_TRIED)]:
        matrix = weight.of(weight.parameter.detach()).flatten(1).float()
        vector = torch.randn(matrix.shape[1], generator=generator).to(matrix.device)
        for _ in range(_POWERS):
            vector = matrix.T @ (matrix @ vector)
            vector = vector / vector.norm().clamp(min=torch.finfo(vector.dtype).tiny)
        edge = sum(map(math.sqrt, matrix.shape)) + _BEYOND
        if (matrix @ vector).norm() > edge * matrix.std():
            return True
    return False


def _has_biases(built: Built) -> bool:
    """Beside what their matrices add to entries of size 1."""
    largest = max(weight.std * math.sqrt(weight.shape[-1]) for weight in built.weights)
    biases = [built.flow.parameters[name].detach().square().mean().sqrt().item() for name in built.biases]
    return max(biases, default=0.0) > _COUNTS * largest


def _has_copies(built: Built) -> bool:
    weights = [weight for weight in built.weights if weight.role == "fc2"]
    values = [weight.of(weight.parameter.detach()) for weight in weights]
    return any(torch.equal(values[0], other) for other in values[1:] if other.shape == values[0].shape)


# ---------------------------------------------------------------- tokens


@dataclass(frozen=True, kw_only=True)
class _Sampled(KernelInputs):
    """Tokens of several sequences: the first of each, the second of each, and so on. products: of any two, where the
    stream begins, over the width and the stream's mean square."""

    products: Array = field(compare=False)
    num_sequences: int

    @property
    def num_parts(self) -> int:
        """Whose tokens' means have in common what is asked for: sequences or, of one sequence, its tokens."""
        return self.num_sequences if self.num_sequences > 1 else self.num_all

    @property
    def scatter(self) -> float:
        """The relative standard error of the root of what parts have in common, where the stream begins: by leaving out
        each part in turn."""
        number = self.num_parts
        parts = np.arange(self.num_all) % number
        sums = (parts == np.arange(number)[:, None]).astype(float)
        between = sums @ self.products @ sums.T
        np.fill_diagonal(between, 0.0)
        total, by_part = between.sum(), between.sum(0)
        if number < 3 or total <= 0:
            return 1.0
        without = (total - 2 * by_part) / ((number - 1) * (number - 2))
        error = math.sqrt((number - 1) * float(np.var(without)))
        return min(error / (2 * total / (number * (number - 1))), 1.0)

    @property
    def groups(self) -> Array:
        return np.arange(self.num_all) % self.num_sequences

    @property
    def positions(self) -> Array:
        return np.arange(self.num_all) // self.num_sequences

    @property
    def read(self) -> Array:
        return np.arange(self.num_all)

    def gram_of(self, side: int) -> Gram:
        level = float(self.products.max())
        return Gram(level, level - self.products).times((self.embedding_std * self.embedding_multiplier) ** 2)


def _sampled(built: Built) -> _Sampled:
    """A few tokens of a few sequences of the probe, evenly spaced."""
    value = built.start_value
    if value is None:
        raise ValueError("where its residual stream begins is not known")
    if built.flow.output.shape[:-1].numel() != value.shape[:-1].numel():
        raise ValueError("it does not answer each of its tokens")
    tokens = _by_sequence(built, value.detach().double())
    sequences, places = (
        np.linspace(0, most - 1, min(most, number)).round().astype(int)
        for most, number in zip(tokens.shape[:2], (_SEQUENCES, _TOKENS), strict=True)
    )
    chosen = tokens[sequences][:, places].transpose(0, 1).flatten(0, 1)
    square = tokens.square().mean().item()
    if built.norm_kind == "layernorm":
        chosen = chosen - chosen.mean(-1, keepdim=True)
    count = len(chosen)
    if count == 1:
        raise ValueError("the probe is a single token")
    return _Sampled(
        products=(chosen @ chosen.T / (chosen.shape[-1] * square)).cpu().numpy(),
        num_sequences=len(sequences),
        num_tokens=count,
    )


def _by_sequence(built: Built, value: Tensor) -> Tensor:
    """(sequences, tokens, d): which tokens are of one sequence is seen by what the last answer depends on."""
    if value.ndim == 2:
        return value[None]
    flow, start = built.flow, built.sublayers[0].start
    vector = torch.zeros_like(flow.output)
    vector.flatten(0, -2)[-1] = torch.randn(vector.shape[-1], generator=torch.Generator().manual_seed(0)).to(vector)
    gradient = flow.back((flow.end, 0), vector, [start], flow.active).get(start)
    if gradient is not None and value.ndim == 3 and gradient.numel() == value.numel():
        depends = gradient.reshape(value.shape).abs().sum(-1) > 0
        if not depends[:-1].any():
            return value
        if not depends[:, :-1].any():
            return value.transpose(0, 1)
    raise ValueError("which of its tokens are of one sequence is not known")


# ---------------------------------------------------------------- both ends


def _ends(
    built: Built, config: ModelConfig, sampled: _Sampled, answers: tuple[KernelUpdate, KernelUpdate, KernelUpdate]
) -> dict[str, tuple[float, float]]:
    """By role, the least and the most that a step changes, per unit learning rate. answers: of the mean of all tokens'
    logits, of one in each part, and of one at each token."""
    width, num_parts, num_ones = config.d_model, sampled.num_parts, sampled.num_all
    rows = math.inf if built.flow.output.shape[-1] == width else built.flow.output.shape[-1]
    by_role: dict[str, tuple[float, float]] = {}

    def add(role: str, values: Sequence[float], spread: float, signs: float) -> None:
        power = 1.0 if role == "head" else 0.5  # of a part's size, in which rows of their own add up
        whole, part, single = values[0], values[1] / num_parts**power, values[2] / num_ones**power
        common = max(num_parts * whole**2 - part**2, 0.0) / (num_parts - 1)
        low, high = (
            (1.0, 1.0) if role == "head" else (math.sqrt(1 / rows + s / width) for s in (spread, spread + signs))
        )
        unit, (least, most) = width ** (1.5 - unit_power(_STEP, role)), by_role.get(role, (0.0, 0.0))
        by_role[role] = (
            least + (unit * low * common / single if single else 0.0),
            most + unit * high * math.sqrt(common),
        )

    layers = zip(*(answer.layers["encoder"] for answer in answers), strict=True)
    for of_sublayer, spread in zip(layers, _spreads(config, answers[0].streams["encoder"]), strict=True):
        for role in of_sublayer[0]:
            add(role, [of[role] for of in of_sublayer], spread + _within(config, role), _SIGNS * _size(config, role))
    for role in ("norm_gain", "norm_bias", "head"):  # behind all sublayers; each row of a head has a pull of its own
        inside = [sum(layer.get(role, 0.0) for layer in answer.layers["encoder"]) for answer in answers]
        if role in answers[0].roles and (role != "head" or _has_head(built)):
            rest = [max(of.roles[role] - within, 0.0) for of, within in zip(answers, inside, strict=True)]
            add(role, rest, 1.0, _SIGNS)
    return {role: ends for role, ends in by_role.items() if role not in left_out(built)}


def _has_head(built: Built) -> bool:
    return any(role == "head" for role in built.others.values())


def _spreads(config: ModelConfig, streams: Sequence[Stream]) -> list[float]:
    """Of what takes a change behind each sublayer to the end: each later sublayer passes a part of the gradient by
    itself, along the stream, and the rest through its branch, which is a product of random matrices."""
    spreads, spread = [1.0], 1.0
    places = zip(config.encoder[1:], streams[1:], streams[2:], strict=False)
    for sublayer, before, behind in reversed([*places]):
        along = sublayer.residual_weight**2
        if "post" in (sublayer.norms or ()):
            along = (1 - behind.branch_share) / before.second_moment
        part = min(along * 10 ** (behind.log10_gradient_square - before.log10_gradient_square), 1.0)
        # of I + B, tr K^2 = 1 + 4 b + s_B b^2 where tr B B^T = b, over (1 + b)^2; here part = 1 / (1 + b)
        of_branch = 1.0 + _within(config, "v" if sublayer.kind == "attention" else "fc1") + 1.0
        spread += 2 * part * (1 - part) + (of_branch - 1) * (1 - part) ** 2
        spreads.append(spread)
    return spreads[::-1]


def _within(config: ModelConfig, role: str) -> float:
    """What the branch's last matrix adds to the spread, where it stands behind this one: a matrix of d rows adds d over
    its columns, twice that where half of these are shut (relu)."""
    known = {"q": 1.0, "k": 1.0, "v": 1.0, "fc1": 2 * _size(config, role), "fc3": 2 * _size(config, role)}
    return known.get(role, 0.0)


def _size(config: ModelConfig, role: str) -> float:
    """The width over that of what this matrix writes to."""
    return config.d_model / config.hidden if role in ("fc1", "fc3") else 1.0
