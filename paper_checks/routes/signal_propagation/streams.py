"""How the second moment of the stream grows with depth, at initialisation: between which orders it lies, by two routes.

The first adds up, in exact algebra, what theory's sublayer adds to the stream. The second is ``second_meanfield``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sympy import Expr, S, Sum, ceiling, exp, harmonic, limit, log, oo, sqrt
from sympy import Symbol as symbol_of

from depthlaw.paper_checks.claims.claim import Route
from depthlaw.paper_checks.claims.statements import Changeable
from depthlaw.paper_checks.routes import algebra, second_meanfield
from depthlaw.paper_checks.routes.checks import Answers, check, python_command
from depthlaw.theory.symbols import L, l

if TYPE_CHECKING:
    from depthlaw.theory.schemes import Scheme


@dataclass(frozen=True, kw_only=True)
class StreamOrder(Changeable):
    """low, high: orders in L sublayers that E x_L^2 is at least, and at most, up to constants; None where not said.
    gains: of W1 and W2, in place of the scheme's; None for its own."""

    scheme: str
    low: Expr | None = None
    high: Expr | None = None
    gains: tuple[Expr | None, Expr | None] = (None, None)

    @property
    def text(self) -> str:
        low = "" if self.low is None else f"Theta({self.low}) <= "
        high = "" if self.high is None else f" <= Theta({self.high})"
        gains = "" if self.gains == (None, None) else f" with gains {' and '.join(map(str, self.gains))}"
        return f"{low}E x_L^2{high} in {self.scheme}{gains}, relu, at initialisation"

    @property
    def meant(self) -> Scheme:
        gains = {name: gain for name, gain in zip(("gain_in", "gain_out"), self.gains, strict=True) if gain is not None}
        return second_meanfield.variant(self.scheme, **gains)


def second_moment(of: str | Scheme) -> Expr:
    """E x_L^2 of a stack of ReLU FFNs with a norm before each branch, in L (even, where the layer's index matters).

    >>> from depthlaw.paper_checks.routes.signal_propagation.streams import second_moment
    >>> second_moment("pre-ln"), second_moment("ln-scaling")
    (L/2 + 1, harmonic(L/2) + 1)
    """
    from depthlaw.theory.meanfield.closedform import symbolic_moments
    from depthlaw.theory.moments import activation
    from depthlaw.theory.schemes import SCHEMES
    from depthlaw.theory.stack import NormKind, transfer

    scheme = SCHEMES[of] if isinstance(of, str) else of
    stack = scheme.stack
    if not stack.placement.pre or stack.residual_weight != 1:
        raise LookupError(f"{scheme.name}: what a branch adds depends on the stream")
    layer = symbol_of("k", integer=True, positive=True)
    names = ("branch_weight", "input_scale", "gain_in", "gain_out")
    letters = {name: getattr(stack, name).subs(ceiling(l / 2), layer) for name in names}
    moments = symbolic_moments(activation("relu"), letters["gain_in"] * letters["input_scale"])
    t = transfer(
        stack.placement, NormKind.LAYERNORM, moments, stream=S.One, residual_weight=S.One, sqrt=sqrt, **letters
    )
    if not t.increment.has(layer):
        return 1 + L * t.increment
    return 1 + 2 * Sum(t.increment, (layer, 1, L / 2)).doit()


def _compared(value: Expr, order: Expr) -> int:
    """1 where the value outgrows the order, 0 where they are of one order, else -1."""
    value = value.replace(harmonic, log)
    ratio = limit(log(value / order), L, oo) if order != 1 or value.has(L) else S.Zero
    return {oo: 1, -oo: -1}.get(ratio, 0)


@check(Route.PROOF, "what each branch adds to the stream, added up")
def _by_algebra(s: StreamOrder) -> Answers:
    value = second_moment(s.meant)
    holds: list[bool | None] = []
    if s.low is not None:
        holds.append(_compared(value, s.low) >= 0)
    if s.high is not None:
        holds.append(_compared(value, s.high) <= 0)
    shown = [{"num_sublayers": n, "stream": float(value.subs(L, n).evalf())} for n in (8, 64, 512)]
    command = python_command(
        f"from depthlaw.paper_checks.routes.second_meanfield import stream; "
        f"print(*[stream('{s.scheme}', n) for n in (8, 64, 512)])"
    )
    return Answers(
        holds=holds,
        numbers={"E x_L^2": str(value)},
        steps=(f"independent layers of mean 0: squares add, and E x_L^2 = {value}",),
        counterexample=None
        if all(holds)
        else {"printed": s.text, "found": f"E x_L^2 = {value}", "streams": shown, "command": command},
    )


@check(Route.NUMERIC, "E x_L^2 / order at 10^2, 10^4, 10^6 sublayers, summed one by one")
def _by_sum(s: StreamOrder) -> list[bool | None]:
    logs = [math.log(second_meanfield.stream(s.meant, length)) for length in second_meanfield.LENGTHS]
    answers: list[bool | None] = []
    for order, sign in ((s.low, 1), (s.high, -1)):
        if order is None:
            continue
        exponent = float if order == exp(L) else lambda n, o=order: float(log(o).subs(L, n).evalf())
        ratios = [sign * (value - exponent(n)) for value, n in zip(logs, second_meanfield.LENGTHS, strict=True)]
        answers.append(algebra.settles(ratios) or algebra.falls_away([-ratio for ratio in ratios]))
    return answers


STREAM = (_by_algebra, _by_sum)
