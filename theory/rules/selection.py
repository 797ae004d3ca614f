"""Choosing one member of a family: the conditions by which each named selection picks alpha, lambda, b and rho.

The family is one equation (the update is 1 at every depth) in four unknowns; a selection adds three. Solved together
they are a linear system in the logarithms (``magnitude.solve_monomials``), and every member is put back into the
equation before it leaves here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sympy import Expr, Integer, S

from depthlaw.theory.rules.magnitude import NoMemberError, StackUpdate, lr_multiplier, solve_monomials, tidy
from depthlaw.theory.symbols import branch_weight, init_gain, residual_weight


@dataclass(frozen=True, kw_only=True)
class Selection:
    """A named choice: ``conditions(update)`` are monomials that it sets to 1, beside the update itself."""

    name: str
    says: str
    conditions: Callable[[StackUpdate], tuple[Expr, Expr, Expr]]
    counts_matrices: bool = False
    """Whether every matrix counts in the sum. Otherwise a sublayer counts once, as its number of matrices is a
    constant.
    """
    is_rule: bool = True
    """Whether it chooses between alpha and lambda (else it leaves both at 1: a way people train)."""


_PLAIN: Final = (branch_weight, lr_multiplier)
_ALL: Final = (
    Selection(
        name="symmetric",
        says="lambda = 1/alpha",
        conditions=lambda update: (residual_weight * init_gain, *_PLAIN),
    ),
    Selection(
        name="deepnet",
        says="the squared gains of a branch sum to 1/alpha^2, all equal; every matrix counts",
        conditions=lambda update: (
            Integer(update.branch.num_matrices) * init_gain**2 * residual_weight**2,
            *_PLAIN,
        ),
        counts_matrices=True,
    ),
    Selection(name="alpha-one", says="alpha = 1", conditions=lambda update: (residual_weight, *_PLAIN)),
    Selection(
        name="relative",
        says="the relative update |Delta theta|/|theta| is what it is at alpha = lambda = 1",
        conditions=lambda update: (update.relative, *_PLAIN),
    ),
    Selection(name="lambda-one", says="lambda = 1", conditions=lambda update: (init_gain, *_PLAIN)),
    Selection(
        name="learning-rate",
        says="alpha = lambda = 1 and a smaller learning rate",
        conditions=lambda update: (residual_weight, init_gain, branch_weight),
        is_rule=False,
    ),
    Selection(
        name="branch-weight",
        says="alpha = lambda = 1 and a weight b on the branch",
        conditions=lambda update: (residual_weight, init_gain, lr_multiplier),
        is_rule=False,
    ),
    Selection(
        name="depth-mup",
        says="alpha = lambda = 1, b such that the squared branches sum to 1, and the learning rate that goes with it "
        "(the published depth-muP, and the scheme of that name, scale it where a step forgets the gradient's length)",
        conditions=lambda update: (residual_weight, init_gain, update.accumulated),
        is_rule=False,
    ),
)
SELECTIONS: Final[Mapping[str, Selection]] = MappingProxyType({selection.name: selection for selection in _ALL})


@dataclass(frozen=True, kw_only=True)
class Member:
    """One way to keep the update of one stack from growing with depth; every entry in the counts N, M."""

    name: str
    residual_weight: Expr
    branch_weight: Expr
    init_gain: Expr | None
    """None: no gain keeps the update flat."""
    lr_multiplier: Expr
    update: Expr
    """Order of the update: 1 where it is flat."""
    relative_update: Expr
    """Order of |Delta theta|/|theta| over the learning rate; 1 is what alpha = lambda = 1 gives."""
    branch_at_init: Expr
    """Order of one branch beside the stream."""
    accumulated_branch: Expr
    """Order of the sum of squared branches. The argument assumes that it stays bounded."""
    note: str = ""

    @property
    def values(self) -> dict[Expr, Expr]:
        return {
            residual_weight: self.residual_weight,
            init_gain: self.init_gain,
            branch_weight: self.branch_weight,
            lr_multiplier: self.lr_multiplier,
        }

    def put_into(self, expr: Expr) -> Expr:
        """``expr`` at this member's alpha, lambda, b and rho."""
        return tidy(expr.xreplace(self.values))


def select(name: str, update: StackUpdate) -> Member:
    """The member of the family ``update.total == 1`` that a selection picks; NoMemberError where there is none."""
    chosen = SELECTIONS[name]
    try:
        values = solve_monomials((update.total, *chosen.conditions(update)))
    except NoMemberError:
        raise NoMemberError(f"under {update.optimizer.name}, {name!r} ({chosen.says}) picks no single member") from None

    def at(expr: Expr) -> Expr:
        return tidy(expr.xreplace(values))

    member = Member(
        name=name,
        residual_weight=values[residual_weight],
        branch_weight=values[branch_weight],
        init_gain=values[init_gain],
        lr_multiplier=values[lr_multiplier],
        update=at(update.total),
        relative_update=at(update.relative),
        branch_at_init=at(update.branch_at_init),
        accumulated_branch=at(update.side.num_sublayers * update.branch_at_init**2),
        note=chosen.says,
    )
    if member.update != 1:
        raise ArithmeticError(f"{name} was put back into its own constraint and gave {member.update}, not 1")
    return member


def is_relative_free(update: StackUpdate) -> bool:
    """Whether the relative update is the same for every member of the family (LAMB): no alpha, lambda changes it."""
    return tidy(update.relative.xreplace(dict.fromkeys(_PLAIN, S.One))).free_symbols.isdisjoint(
        {residual_weight, init_gain}
    )
