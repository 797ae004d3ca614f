"""Which learning rate goes with which branch weight: how the update of a Pre-LN stack grows, by two routes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sympy import Expr, S, log

from depthlaw.paper_checks.claims.claim import Route
from depthlaw.paper_checks.claims.statements import Changeable
from depthlaw.paper_checks.routes import algebra, second_meanfield
from depthlaw.paper_checks.routes.checks import Answers, check, order_key, order_of, python_command
from depthlaw.theory.symbols import L

if TYPE_CHECKING:
    from depthlaw.theory.schemes import Scheme


@dataclass(frozen=True, kw_only=True)
class BranchRule(Changeable):
    """branch, rate: what multiplies each branch and the learning rate, in L sublayers. order: of the first update under
    an optimizer of the FFN-only rung (sgd, adam or lamb)."""

    branch: Expr
    rate: Expr = S.One
    optimizer: str = "adam"
    order: Expr = S.One

    @property
    def text(self) -> str:
        rule = f"a branch times {self.branch} and a rate times {self.rate}"
        return f"{rule} make the first update under {self.optimizer} of order {self.order} in L sublayers"

    @property
    def scheme(self) -> Scheme:
        from depthlaw.theory.schemes import SCHEMES
        from depthlaw.theory.stack import PRE, Stack

        stack = Stack(placement=PRE, branch_weight=self.branch)
        return replace(SCHEMES["pre-ln"], name=f"branch {self.branch}", stack=stack)


@check(Route.MEANFIELD, "leading order of the update of Pre-LN FFN sublayers with these branches, times the rate")
def _by_order(s: BranchRule) -> Answers:
    from depthlaw.theory.meanfield.growth import update_order
    from depthlaw.theory.meanfield.setting import Setting

    found = update_order(Setting.of(s.scheme, s.optimizer))
    power, *_ = order_key(found.times(order_of(s.rate)))
    holds = order_key(found) == order_key(order_of(s.order / s.rate)) and found.growth == 0
    sizes = [s.branch, s.rate, *([s.branch] if s.optimizer == "sgd" else [])]  # SGD's step is as long as the gradient
    moved = " * ".join(["n", *(f"n**({float(order_key(order_of(size))[0])})" for size in sizes)])
    example = {
        "printed": s.text,
        "found": f"n branches together move it by L^({power}), up to a constant",
        "command": python_command(f"print(*[{moved} for n in (16, 256, 4096)])"),
    }
    return Answers(holds=[holds], numbers={"power": str(power)}, counterexample=None if holds else example)


@check(Route.NUMERIC, "the update over the printed order, summed sublayer by sublayer, at 10^2, 10^4 and 10^6")
def _by_sum(s: BranchRule) -> list[bool | None]:
    def log_order(length: int) -> float:
        return float(log(s.order / s.rate).subs(L, length).evalf())

    ratios = second_meanfield.log_ratios(s.scheme, log_order, "relu", "layernorm", s.optimizer)
    return [algebra.settles(ratios)]


BRANCH = (_by_order, _by_sum)
