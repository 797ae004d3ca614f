"""The update of real stacks by autograd, for what Magneto's paper and slides say of one: its mean, with an interval.

A network is ``sims.model.Transformer`` of square FFN sublayers, d wide, with gains of its own for each of them,

    W1 ~ N(0, w_l^2/d),   W2 ~ N(0, v_l^2/d),   x_0 ~ N(0, 1),   f = head . x_last,   head ~ N(0, 1/d),

one token, and U = sum over its matrices of |df/dW|_F^2 / d, which is what one step of SGD changes f by, in units of
eta d. A sample is one network's U, averaged over pairs of an input and a head; networks are independent, so are the
samples. At a width d the update is larger than at infinite width by a share of the order of L/d.

How to use it:

    stack = Stack(placement="sub", v=(1.0,) * 24, w=(1.0,) * 24)    # or "pre", "post", "none", "peri"; any activation
    found = measure(stack)                          # .mean, .low, .high: a t interval; cached, seeds fixed
    found.is_below(9.47)                            # True, False, or None where the interval has it inside
    ratio = quotient(measure(one), measure(other))  # an interval again
    check = measured("...", cases)                  # cases(statement) gives Case(name, found, most) for found <= most

An encoder-decoder has ``encoder_v`` and ``encoder_w`` as well; v and w are then the decoder's, whose sublayers are
self, cross, ffn in turn, each W2 LN(phi(W1 LN(...))) as Theorem 3.3 writes it, the cross-attention's of the encoder's
output.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from paper_checks.claims.claim import Check, Evidence, Route
from paper_checks.routes.checks import all_of, outcome
from paper_checks.routes.intervals import Interval, interval

NUM_NETWORKS, NUM_PAIRS = 24, 8
"""Independent networks, and pairs of input and head over which one of them is averaged."""
_AT_ONCE = 4_000_000
"""Numbers of gradients that are held at a time."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Gains by sublayer, the first first. has_head: df/dhead counts, too, as where theta includes the readout."""

    placement: str
    v: tuple[float, ...]
    w: tuple[float, ...]
    encoder_v: tuple[float, ...] = ()
    encoder_w: tuple[float, ...] = ()
    activation: str = "relu"
    norm_kind: str = "layernorm"
    has_head: bool = False
    width: int = 64


# ---------------------------------------------------------------- the networks


@cache
def updates(stack: Stack, num_networks: int = NUM_NETWORKS) -> tuple[float, ...]:
    """U of each network, in units of eta d."""
    numbers = (len(stack.v) + len(stack.encoder_v)) * 2 * stack.width**2 * NUM_PAIRS
    size = max(1, _AT_ONCE // numbers)
    seeds = range(num_networks)
    return tuple(u for first in seeds[::size] for u in _several(stack, seeds[first : first + size]))


def _several(stack: Stack, seeds: Sequence[int]) -> list[float]:
    """The networks of those seeds, at once: df/dW of each pair by itself."""
    import torch
    from torch.func import functional_call, grad, vmap

    models = [_model(stack, seed) for seed in seeds]
    named = [dict(model.named_parameters()) for model in models]
    matrices = {name: torch.stack([one[name].detach() for one in named]) for name in named[0]}
    inputs = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(1_000_000 + seed)  # another stream than the model's
        shape = (3, NUM_PAIRS, stack.width)
        x_PD, y_PD, head_PD = torch.randn(shape, generator=generator, dtype=torch.float64)
        inputs.append((x_PD, y_PD, head_PD / math.sqrt(stack.width)))

    def logit(trained: dict[str, Any], x_D: Any, y_D: Any) -> Any:
        given = {name: value for name, value in trained.items() if name != "head"}
        arguments = (x_D[None, None], y_D[None, None]) if stack.encoder_v else (x_D[None, None],)
        return functional_call(models[0], given, arguments)[0, 0] @ trained["head"]

    def squares(given: dict[str, Any], x_D: Any, y_D: Any, head_D: Any) -> Any:
        grads = grad(logit)({**given, "head": head_D}, x_D, y_D)
        return sum(one.square().sum() for name, one in grads.items() if stack.has_head or name != "head")

    by_pair = vmap(squares, in_dims=(None, 0, 0, 0))
    found_SP = vmap(by_pair)(matrices, *map(torch.stack, zip(*inputs, strict=True)))
    return (found_SP.mean(1) / stack.width).tolist()


def _model(stack: Stack, seed: int) -> Any:
    from sims.model import ModelConfig, SublayerConfig, Transformer

    class TwoSided(Transformer):
        """Its cross-attentions as Theorem 3.3 has them: sublayers like all others, which read the encoder's output."""

        def _branch(self, name: str, kind: str, u_BTD: Any, memory_BSD: Any, is_causal: bool) -> Any:
            side, index = name.split("_")
            is_cross = side == "decoder" and int(index) % 3 == 1
            return super()._branch(name, kind, memory_BSD if is_cross else u_BTD, None, is_causal)

    def side(v: Sequence[float], w: Sequence[float]) -> tuple[SublayerConfig, ...]:
        return tuple(SublayerConfig(kind="ffn", gains={"fc1": b, "fc2": a}) for a, b in zip(v, w, strict=True))

    first, second = side(stack.encoder_v, stack.encoder_w), side(stack.v, stack.w)
    config = ModelConfig(
        encoder=first or second,
        decoder=second if first else (),
        placement=stack.placement,
        d_model=stack.width,
        ffn_ratio=1,
        activation=stack.activation,
        norm_kind=stack.norm_kind,
    )
    return (TwoSided if first else Transformer)(config, seed)


# ---------------------------------------------------------------- intervals


def measure(stack: Stack, num_networks: int = NUM_NETWORKS) -> Interval:
    """Where the mean update lies, by independent networks."""
    return interval(updates(stack, num_networks))


def quotient(first: Interval, second: Interval) -> Interval:
    """One mean over another, at the ends of both intervals; both must be positive."""
    if min(first.low, second.low) <= 0:
        raise ValueError(f"an interval reaches 0: {first.text}, {second.text}")
    return Interval(first.low / second.high, first.high / second.low)


# ---------------------------------------------------------------- a check


class Case(NamedTuple):
    """A measured number that a statement says is at most ``most``."""

    name: str
    found: Interval
    most: float


def measured(
    detail: str,
    cases: Callable[[Any], Iterable[Case]],
    *,
    counterexample: Callable[[Any, Case], dict[str, Any]] | None = None,
) -> Check:
    """Holds where every interval lies below its bound, fails where one lies above, is open where one has it inside.

    counterexample: of the first case that fails, where the command line has something to show of it.
    """

    def run(statement: Any) -> Evidence:
        tried = list(cases(statement))
        answers = [case.found.is_below(case.most) for case in tried]
        failing = next((case for case, holds in zip(tried, answers, strict=True) if holds is False), None)
        return Evidence(
            route=Route.MEASURED,
            num_effective=sum(answer is not None for answer in answers),
            verdict=outcome(all_of(answers)),
            detail=detail,
            numbers={case.name: f"{case.found.text} against {case.most:.3g}" for case in tried},
            counterexample=counterexample(statement, failing) if failing and counterexample else None,
        )

    return Check(route=Route.MEASURED, run=run, is_direct=True)
