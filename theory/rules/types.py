"""What a rule is: for each side the family, the chosen member and the alternatives; and a rule in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from sympy import Eq, Expr, Integer, S

from depthlaw.theory.rules.growing import GrowingUpdate
from depthlaw.theory.rules.magnitude import StackUpdate, compact, lr_multiplier
from depthlaw.theory.rules.selection import Member
from depthlaw.theory.symbols import M, N, branch_weight


def plainly(expr: Expr) -> Expr:
    """The expression at branch weight 1 and learning-rate multiplier 1, as in every rule of the tables."""
    return expr.xreplace({branch_weight: S.One, lr_multiplier: S.One})


@dataclass(frozen=True, kw_only=True)
class SideRule:
    """The rule for one side. ``init_gain`` None: no gain keeps the update flat, and ``update_order`` says how it grows.

    Every expression is exact, in the counts N and M; ``member`` and the alternatives carry the same fields.

    >>> from depthlaw.theory.rules.solve import solve_rule
    >>> side = solve_rule("post", "sgd").sides[0]
    >>> side.formula["family"], side.formula["branch_at_init"]
    ('2*N*lambda**2/alpha**2 = 1', '(2*N)**(-3/4)')
    >>> [found.name for found in side.alternatives]
    ['deepnet', 'alpha-one', 'relative', 'lambda-one', 'learning-rate', 'branch-weight', 'depth-mup']
    >>> side.alternative("branch-weight").branch_weight
    sqrt(2)/(2*sqrt(N))
    """

    name: str
    num_layers: Expr
    num_sublayers: Expr
    update_sum: StackUpdate | GrowingUpdate
    """The sum that is held at 1; its ``total`` is in alpha, lambda, the branch weight b and the lr multiplier rho."""
    member: Member
    init_gain: Mapping[str, Expr] | None
    """The gain of each role."""
    lr_multiplier: Mapping[str, Expr]
    """The learning-rate multiplier of each role."""
    alternatives: tuple[Member, ...]

    @property
    def family(self) -> Eq:
        """The whole family: update = 1, one gain lambda for all matrices of a branch."""
        return Eq(plainly(self.update_sum.total), 1, evaluate=False)

    @property
    def coupling(self) -> Expr:
        """What stands between this side and the output: 1 for the side that ends in it."""
        return self.update_sum.coupling

    @property
    def residual_weight(self) -> Expr:
        return self.member.residual_weight

    @property
    def branch_weight(self) -> Expr:
        return self.member.branch_weight

    @property
    def gain(self) -> Expr | None:
        """The gain of the scaled matrices."""
        return self.member.init_gain

    @property
    def update_order(self) -> Expr:
        return self.member.update

    @property
    def relative_update_order(self) -> Expr:
        return self.member.relative_update

    @property
    def branch_at_init(self) -> Expr:
        return self.member.branch_at_init

    @property
    def formula(self) -> dict[str, str]:
        """The rule's formulas as text that ``sympify`` reads (the family: as an equation)."""
        gate = {"fc3_lr_multiplier": compact(self.lr_multiplier["fc3"])} if "fc3" in self.lr_multiplier else {}
        return gate | {
            "family": f"{self.family.lhs} = {self.family.rhs}",
            "residual_weight": compact(self.residual_weight),
            "branch_weight": compact(self.branch_weight),
            "init_gain": "none" if self.gain is None else compact(self.gain),
            "lr_multiplier": compact(self.member.lr_multiplier),
            "update_order": compact(self.update_order),
            "relative_update_order": compact(self.relative_update_order),
            "branch_at_init": compact(self.branch_at_init),
        }

    def alternative(self, name: str) -> Member:
        """The alternative of that name."""
        return _named(name, self.alternatives, f"the rule for the {self.name}")


_Named = TypeVar("_Named", SideRule, Member)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What keeps the model update from growing with depth, for one norm placement, optimizer and architecture.

    sides: one ``SideRule`` each for encoder and decoder, those that there are. ``side(name)`` finds one.

    >>> from depthlaw.theory.rules.solve import solve_rule
    >>> rule = solve_rule("pre", "lamb", "decoder")
    >>> rule.select, [side.name for side in rule.sides]
    ('alpha-one', ['decoder'])
    >>> rule.side("decoder").formula["init_gain"]
    '1/sqrt(2*M)'
    """

    norm: str
    optimizer: str
    architecture: str
    select: str
    sides: tuple[SideRule, ...]
    why: tuple[str, ...]
    """Every step of the argument, in order."""

    def __repr__(self) -> str:
        laws = ", ".join(f"{side.name} {side.formula['residual_weight']}" for side in self.sides)
        return f"<Rule: {self.norm}-norm under {self.optimizer}, {self.select}: residual weight of the {laws}>"

    def side(self, name: str) -> SideRule:
        """The side of that name."""
        return _named(name, self.sides, self.architecture)


def _named(name: str, among: tuple[_Named, ...], where: str) -> _Named:
    for candidate in among:
        if candidate.name == name:
            return candidate
    raise ValueError(f"{where} has no {name!r}, only {', '.join(candidate.name for candidate in among)}")


@dataclass(frozen=True, kw_only=True)
class SideNumbers:
    """One side of a rule in numbers; ``init_gain`` None where no gain keeps the update flat."""

    residual_weight: float
    branch_weight: float
    init_gain: dict[str, float] | None
    lr_multiplier: dict[str, float]
    update_order: float
    relative_update_order: float
    branch_at_init: float


def evaluate(rule: Rule, **counts: int) -> dict[str, SideNumbers]:
    """The rule in numbers, by side: N layers of an encoder, M of a decoder. ValueError on a missing or unusable count.

    >>> from depthlaw.theory.rules.solve import evaluate, solve_rule
    >>> numbers = evaluate(solve_rule("post", "sgd", "encoder-decoder", "deepnet"), N=18, M=18)["decoder"]
    >>> round(numbers.residual_weight, 4), round(numbers.init_gain["fc1"], 4), numbers.init_gain["q"]
    (2.7108, 0.2608, 1.0)
    >>> evaluate(solve_rule("post", "sgd", "encoder-decoder"), N=18)
    Traceback (most recent call last):
        ...
    ValueError: encoder-decoder needs M
    """
    letters = {str(letter): letter for letter in (N, M)}
    needed = {str(letter) for side in rule.sides for letter in side.num_layers.free_symbols}
    if missing := sorted(needed - counts.keys()):
        raise ValueError(f"{rule.architecture} needs {' and '.join(missing)}")
    if unknown := sorted(counts.keys() - letters.keys()):
        raise ValueError(f"no count is called {', '.join(unknown)} (allowed: N, M)")
    for name, count in counts.items():
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ValueError(f"{name} must be a positive whole number of layers, not {count!r}")
    at = {letters[name]: Integer(count) for name, count in counts.items()}

    def number(expr: Expr) -> float:
        return float(expr.subs(at).evalf())

    return {
        side.name: SideNumbers(
            residual_weight=number(side.residual_weight),
            branch_weight=number(side.branch_weight),
            init_gain=None if side.init_gain is None else {r: number(gain) for r, gain in side.init_gain.items()},
            lr_multiplier={role: number(rate) for role, rate in side.lr_multiplier.items()},
            update_order=number(side.update_order),
            relative_update_order=number(side.relative_update_order),
            branch_at_init=number(side.branch_at_init),
        )
        for side in rule.sides
    }
