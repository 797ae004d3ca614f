"""What a derived bound is: the bound itself, and every approximation on the way to it as a step of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import isfinite
from typing import Any

from sympy import Expr, IndexedBase, Symbol, lambdify

from depthlaw.theory.asymptotics.orders import Order, leading_order
from depthlaw.theory.symbols import L, M, N, gains_in, gains_out, residual_weight


@dataclass(frozen=True, kw_only=True)
class Step:
    """One replacement in a derivation: ``before`` becomes ``after``."""

    name: str
    before: Expr
    after: Expr
    effect: str
    """What it does to the result: "equal" (an identity), "raises", "lowers", or "near" (either way)."""
    condition: str
    small: Expr | None = None
    """What the condition asks to be much less than 1."""
    uniform_after: Expr | None = None
    """The whole bracket after this step, every gain equal to ``init_gain``; in L."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A bound: model update <= ``prefactor`` * ``expression``, for gains v_l, w_l.

    ``theory.bounds.update.derive_bound`` makes them.

    >>> from depthlaw.theory.bounds.update import derive_bound
    >>> bound = derive_bound("sub-ln")
    >>> bound.prefactor, str(bound.order)
    (d*eta, '2*log(N)')
    >>> bound.step(bound.steps[0].name).condition
    "E phi(u)^2 and E phi'(u)^2 count as 1, and no norm removes a mean: true of the identity"
    """

    scheme: str
    prefactor: Expr
    expression: Expr
    """As the source writes it."""
    factorised: Expr
    uniform: Expr
    """Closed form at equal gains ``init_gain`` (and residual weight ``residual_weight``), in L."""
    at_scheme: Expr
    """``uniform`` with the scheme's own gains and residual weight."""
    steps: tuple[Step, ...]
    exact: Expr | None = None
    """What ``expression`` approximates: second moments at the identity activation, input counted, nothing dropped."""
    displacement: Expr | None = None
    """The bound before an optimizer is chosen, in the ``displacements``."""
    coupling: Expr | None = None
    """Encoder-decoder: by how much the encoder's update is multiplied on its way to the output."""
    coupling_uniform: Expr | None = None

    @cached_property
    def order(self) -> Order:
        """Order of ``at_scheme`` in N layers (encoder-decoder: with M = N)."""
        return leading_order(self.at_scheme.subs(L, 2 * N).subs(M, N), N)

    def step(self, name: str) -> Step:
        """The step of that name; KeyError with the names there are."""
        for step in self.steps:
            if step.name == name:
                return step
        raise KeyError(f"no step {name!r}; there are {', '.join(step.name for step in self.steps)}")


def _checked(gains: Sequence[float], name: str) -> list[float]:
    """Gains as floats behind an unused entry 0, so that gains[l] is that of sublayer l."""
    numbers = [float(gain) for gain in gains]
    if not numbers or not all(isfinite(gain) and gain > 0 for gain in numbers):
        raise ValueError(f"{name} must be one or more positive finite numbers, not {list(gains)}")
    return [0 * numbers[0], *numbers]


@cache
def _compiled(expr: Expr, arguments: tuple[Symbol | IndexedBase, ...]) -> Callable[..., float]:
    return lambdify(arguments, expr, modules="math")


def evaluate_sums(expr: Expr, values: Mapping[Any, Any]) -> float:
    """A bound's expression in plain floats: a number per symbol, a list (sublayer 1 first) per indexed one."""
    arguments = tuple(values)
    given = [_checked(value, str(name)) if isinstance(value, Sequence) else value for name, value in values.items()]
    return float(_compiled(expr, arguments)(*given))


def evaluate(bound: Bound, *, v: Sequence[float], w: Sequence[float], alpha: float | None = None) -> float:
    """``bound.factorised`` (without ``prefactor``) of a single stack at per-sublayer gains; alpha for post-norm.

    v, w: gains of W2 and W1, one for each sublayer, the first sublayer first. Costs O(L^2). ValueError on gains that
    are not positive and finite, on unequal lengths, on a missing alpha, on an encoder-decoder.

    >>> from depthlaw.theory.bounds.update import derive_bound, evaluate
    >>> gains = [1, 3, 9, 27]
    >>> round(evaluate(derive_bound("pre-ln"), v=gains, w=gains), 4)
    0.7376
    """
    if bound.coupling is not None:
        raise ValueError(f"{bound.scheme} has two stacks; give evaluate_sums the gains of both")
    if len(v) != len(w):
        raise ValueError(f"v and w must have one gain per sublayer each, not {len(v)} and {len(w)}")
    values = {gains_out: list(v), gains_in: list(w), L: len(v)}
    if bound.factorised.has(residual_weight):
        if alpha is None:
            raise ValueError(f"the bound of {bound.scheme} needs alpha")
        values[residual_weight] = alpha
    return evaluate_sums(bound.factorised, values)
