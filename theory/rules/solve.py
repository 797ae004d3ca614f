"""Solves "the model update does not depend on the number of layers" for residual weight, gain and learning rate.

``solve_rule(norm, optimizer, architecture)`` returns a ``Rule``: for each side the whole family, the member that a
selection picks, the alternatives that people train with, and in ``why`` every step of the argument, written by the code
that takes the step. Optimizers enter by their two degrees alone, branches by their number of matrices, so either can be
one's own.

There are two arguments, both of the magnitude rung. Small branches (post, pre, no norm): the stream stays O(1), and the
probes of ``magnitude`` see each matrix. Growing stream (sub, and pre at unscaled gains): what arrives at sublayer l
falls with the stream's size (``growing``), and the sum over l is what has to be held.
Source: S1-22..S1-41, S2-03, S2-19, S2-21, DN-04..DN-07, LI-05.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from sympy import Expr, S

from depthlaw.theory.optimizers import optimizer as optimizer_named
from depthlaw.theory.rules.growing import GrowingUpdate, cross_at_one, grown_member, power_sum
from depthlaw.theory.rules.magnitude import (
    Branch,
    Degrees,
    NoMemberError,
    StackUpdate,
    compact,
    coupling_of,
    gate_rate,
    tidy,
)
from depthlaw.theory.rules.selection import SELECTIONS, Member, is_relative_free, select
from depthlaw.theory.rules.types import Rule, SideNumbers, SideRule, evaluate, plainly
from depthlaw.theory.schemes import nearest
from depthlaw.theory.stack import ARCHITECTURES, SCALED_ROLES, UNSCALED_ROLES, Architecture, Side, SublayerKind
from depthlaw.theory.symbols import L, init_gain

__all__ = ["COUPLINGS", "NORMS", "Rule", "SideNumbers", "SideRule", "evaluate", "solve_rule", "update_under"]

NORMS: Final = {
    "post": "a norm after each sublayer, LN(alpha x + b F(x))",
    "pre": "a norm before each branch, x + b F(LN(x))",
    "sub": "a norm before each branch and one before its last matrix, x + b W2 LN(phi(W1 LN(x)))",
    "none": "no norm, x + b F(x)",
}
COUPLINGS: Final = {
    "once": "the encoder's own update is multiplied by the coupling once, as DeepNet does",
    "own-gradient": "the encoder's own gradient passes the coupling too, so it enters to the power p + 1",
    "mean-square": "as own-gradient, and the cross-attentions add as independent contributions",
}
_Small = dict[str, tuple[StackUpdate, Member]]
_Grown = dict[str, tuple[GrowingUpdate, Member]]
_Sums = Mapping[str, tuple[StackUpdate | GrowingUpdate, Member]]


def solve_rule(
    norm: str,
    optimizer: Degrees | str,
    architecture: Architecture | str = "encoder",
    select: str | None = None,
    *,
    num_matrices: int = 2,
    zero_last: bool = False,
    is_gated: bool = False,
    coupling: str | None = None,
    with_alternatives: bool = True,
) -> Rule:
    """The residual weight, gains and learning rate that keep the update from growing with the number of layers.

    norm: where norms stand, a name of ``NORMS``: post, pre, sub or none. optimizer: a name of
    ``theory.optimizers.OPTIMIZERS``, or any object with the two degrees. architecture: encoder, decoder,
    encoder-decoder, or an ``Architecture``. select: which member of the family; ``theory.rules.selection.SELECTIONS``
    says what each is. post: symmetric (the default,
        or alpha-one where, as under LAMB, the relative update is the same for every member), deepnet, alpha-one,
        relative or lambda-one. pre, none: alpha-one, and relative where its alpha is 1. sub: leading-log.
    num_matrices: how many matrices stand on a branch's value path.
    zero_last: whether the last of them starts at 0, as in Fixup; not for sub, nor for two sides.
    is_gated: whether the FFNs are gated, with a third matrix, fc3, at gain 1 and a learning rate of its own.
    coupling: how the encoder of an encoder-decoder reaches the output, a name of ``COUPLINGS``; once, if left out. sub
        has one of its own.
    with_alternatives: whether to derive what else people train with, ``SideRule.alternatives``.

    Returns, for each side, the whole family and the chosen member as exact expressions in N and M layers, and in
    ``why`` each step of the argument, assumptions included. It is the magnitude argument of the papers, so these are
    orders: ``theory.rules.check`` says whether the true update of the FFN stack stays flat. ValueError, in one line,
    where a name is unknown or the combination has no answer. Source: S1-22..S1-41, S2-03, S2-19, S2-21, DN-04..DN-07,
    LI-05.

    >>> from depthlaw.theory.rules.solve import solve_rule
    >>> rule = solve_rule("post", "adam")
    >>> side = rule.sides[0]
    >>> side.family
    Eq(2*N*lambda/alpha, 1)
    >>> side.residual_weight, side.gain, side.update_order
    (sqrt(2)*sqrt(N), sqrt(2)/(2*sqrt(N)), 1)
    >>> rule.why[-3]
    'encoder: over 2*N sublayers, 2*N*lambda/alpha = 1'
    >>> solve_rule("post", "sgd", "encoder", select="deepnet").sides[0].formula["init_gain"]
    '(8*N)**(-1/4)'
    >>> [side.formula["init_gain"] for side in solve_rule("sub", "sgd", "encoder-decoder").sides]
    ['sqrt(log(3*M)*log(2*N)/3)', 'sqrt(log(3*M))']
    >>> print(solve_rule("sub", "adam").sides[0].gain)
    sqrt(2)*sqrt(N)
    """
    if norm not in NORMS:
        raise ValueError(nearest(str(norm), list(NORMS), "norm placement"))
    if isinstance(optimizer, str):
        optimizer = optimizer_named(optimizer)
    if isinstance(architecture, str):
        if architecture not in ARCHITECTURES:
            raise ValueError(nearest(architecture, list(ARCHITECTURES), "architecture"))
        architecture = ARCHITECTURES[architecture]
    if coupling is not None and (coupling not in COUPLINGS or norm == "sub"):
        allowed = "none, as its bound couples in mean square" if norm == "sub" else ", ".join(COUPLINGS)
        raise ValueError(f"coupling {coupling!r} is not one for norm {norm!r} (allowed: {allowed})")
    if is_gated and (zero_last or num_matrices != 2):
        raise ValueError("a gated FFN is derived beside branches of two matrices, none of which starts at 0")
    if zero_last and norm == "sub":
        raise ValueError("norm 'sub' and a last matrix that starts at 0 were not derived together")
    if zero_last and len(architecture.sides) > 1:
        raise ValueError("with a last matrix of 0 no gradient passes the cross-attention: solve each side by itself")
    problem = _Problem(
        norm=norm,
        optimizer=optimizer,
        architecture=architecture,
        branch=Branch(num_matrices=num_matrices, inner_norm=norm == "sub", zero_last=zero_last),
        is_gated=is_gated,
        coupling=coupling or "once",
        with_alternatives=with_alternatives,
    )
    return problem.growing(select) if norm == "sub" else problem.small_branches(select)


def update_under(rule: Rule, optimizer: Degrees | str) -> dict[str, Expr]:
    """Order of the update, by side, when the network of ``rule`` is trained with another optimizer.

    optimizer: a name, or any object with the two degrees. ValueError where the rule sets no gain.

    >>> from depthlaw.theory.rules.solve import solve_rule, update_under
    >>> update_under(solve_rule("post", "sgd"), "adam")
    {'encoder': sqrt(2)*sqrt(N)}
    >>> update_under(solve_rule("post", "adam"), "sgd")
    {'encoder': 1/(2*N)}
    """
    if isinstance(optimizer, str):
        optimizer = optimizer_named(optimizer)
    out = {}
    for side in rule.sides:
        if side.gain is None:
            raise ValueError(f"the rule for norm {rule.norm!r} under {rule.optimizer} sets no gain")
        moved = side.update_sum.under(optimizer)
        out[side.name] = side.member.put_into(moved.total)
    return out


@dataclass(kw_only=True)
class _Problem:
    """One call of ``solve_rule``: what is asked, and the argument as it is made."""

    norm: str
    optimizer: Degrees
    architecture: Architecture
    branch: Branch
    is_gated: bool
    coupling: str
    with_alternatives: bool
    why: list[str] = field(default_factory=list)
    _cache: dict[tuple[str, Expr, bool], StackUpdate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sides = self.architecture.sides
        self.readers = [side for side in sides if side.positions(SublayerKind.CROSS)]
        if len(self.readers) > 1 or (self.readers and len(sides) != 2):
            raise ValueError(f"{self.architecture.name}: cross-attention must read the other one of two sides")
        # A side that is read is solved after the side that reads it, through which its update passes.
        self.order = [*self.readers, *(side for side in sides if side not in self.readers)]

    def say(self, *parts: str) -> None:
        self.why.append("".join(parts))

    def reader_of(self, side: Side) -> Side | None:
        """The side whose cross-attentions read this one."""
        return self.readers[0] if self.readers and side not in self.readers else None

    # ------------------------------------------------------------ small branches: post, pre, none

    def stack_update(self, side: Side, coupling: Expr, counts_matrices: bool) -> StackUpdate:
        key = (side.name, coupling, counts_matrices)
        if key not in self._cache:
            self._cache[key] = StackUpdate(
                side=side,
                branch=self.branch,
                optimizer=self.optimizer,
                coupling=coupling,
                passes_gradient=self.coupling != "once",
                counts_matrices=counts_matrices,
            )
        return self._cache[key]

    def members(self, name: str) -> _Small:
        """By side: the sum to be held at 1, and the member that the selection picks."""
        updates: _Small = {}
        for side in self.order:
            coupling = S.One
            if reader := self.reader_of(side):
                branch = updates[reader.name][1].branch_at_init
                coupling = coupling_of(reader, branch, is_coherent=self.coupling != "mean-square")
            update = self.stack_update(side, coupling, SELECTIONS[name].counts_matrices)
            member = select(name, update)
            if self.norm != "post" and member.residual_weight != 1:
                raise NoMemberError(
                    f"norm {self.norm!r} has residual weight 1, and {name!r} ({SELECTIONS[name].says}) under "
                    f"{self.optimizer.name} would need {compact(member.residual_weight)}"
                )
            updates[side.name] = (update, member)
        return updates

    def small_branches(self, asked: str | None) -> Rule:
        rules = [name for name, selection in SELECTIONS.items() if selection.is_rule]
        if asked is not None and asked not in rules:
            raise ValueError(nearest(asked, rules, "selection"))
        plain = self.stack_update(self.order[0], S.One, False)
        self._argue_small(plain)
        name = asked or ("symmetric" if self.norm == "post" else "alpha-one")
        if is_relative_free(plain) and asked in (None, "relative"):
            name = "alpha-one"
            self.say(
                f"under {self.optimizer.name} the relative update is the learning rate for every member of the family, "
                "so nothing is lost by alpha = 1"
            )
        elif asked is None and self.norm != "post":
            self.say(f"norm {self.norm!r} leaves no use for a residual weight")
        self.say(f"selection {name}: {SELECTIONS[name].says}")
        if not SELECTIONS[name].counts_matrices:
            self.say("a sublayer counts once: its number of matrices is a constant")
        chosen = self.members(name)
        for side in self.order:
            self._argue_small_side(*chosen[side.name])
        return self._rule(name, chosen, self._small_alternatives(name) if self.with_alternatives else [])

    def _argue_small(self, plain: StackUpdate) -> None:
        branch, optimizer = self.branch, self.optimizer
        p, t = optimizer.gradient_degree, optimizer.parameter_degree
        self.say(
            f"{NORMS[self.norm]}; each branch is a product of {branch.num_matrices} matrices, each a magnitude "
            "lambda_i times a near-orthogonal frame"
        )
        if self.norm == "post":
            self.say(f"LN(alpha x + b F) = LN(x + (b/alpha) F): the branch has magnitude {branch.magnitude} beside x")
        else:
            self.say(f"the branch has magnitude {branch.magnitude} beside a stream of O(1), with alpha = 1")
        self.say(
            "assumed: the gradient that arrives from above is O(1). q and k keep gain 1: their gradients are taken to "
            "be small, behind the softmax"
        )
        self.say("gradient of matrix i, d branch / d lambda_i: ", ", ".join(map(str, branch.gradients)))
        if branch.zero_last:
            self.say("the last matrix starts at 0, so at the start only its own gradient is not 0")
        self.say(
            f"a step of {optimizer.name} has degree {p} in the gradient and {t} in the parameter: a matrix changes the "
            f"loss by |g|^{p + 1} |theta|^{t}: ",
            ", ".join(str(plainly(change)) for change in plain.by_matrix),
        )
        self._argue_gate()

    def _argue_gate(self) -> None:
        if self.is_gated:
            self.say(
                "a gated FFN is W2 (phi(W1 u) * W3 u), of degree 1 in each of its three matrices (phi too, but for a "
                "constant, where it is silu or gelu). W3 keeps gain 1, so its branch is as large as one of two "
                "matrices, and it changes the loss as W1 does where its learning rate is multiplied by "
                f"{gate_rate(self.branch, self.optimizer)} besides; that one matrix more is a constant, not counted. "
                "The exact moments below have it at the rate of the others"
            )

    def _argue_small_side(self, update: StackUpdate, member: Member) -> None:
        name = update.side.name
        if reader := self.reader_of(update.side):
            self.say(
                f"{name}: reaches the output through {reader.num_layers} cross-attentions, coupling "
                f"{compact(update.coupling)}; {COUPLINGS[self.coupling]}"
            )
        self.say(f"{name}: over {update.side.num_sublayers} sublayers, {plainly(update.total)} = 1")
        self.say(
            f"{name}: alpha = {compact(member.residual_weight)}, lambda = {compact(member.init_gain)}; the relative "
            f"update is {compact(member.relative_update)} times that of alpha = lambda = 1"
        )
        self.say(
            f"{name}: at the start a branch has {compact(member.branch_at_init)}, the squares of all sum to "
            f"{compact(member.accumulated_branch)}; the O(1) assumed above needs that sum bounded"
        )

    def _small_alternatives(self, name: str) -> list[_Sums]:
        """Every other selection that has a member here, and the ways of training that leave alpha = lambda = 1."""
        out: list[_Sums] = []
        for other in SELECTIONS:
            # Unscaled gains: under pre the stream then grows, without a norm it explodes.
            is_grown = other == "learning-rate" and self.norm == "pre"
            if other == name or (other == "learning-rate" and self.norm == "none" and not self.branch.zero_last):
                continue
            try:
                out.append(self.grown_members(other) if is_grown else self.members(other))
            except NoMemberError:
                continue
        if self.norm == "pre":
            grown = self.grown_members("growing-gains")
            if all(member.init_gain is not None for _, member in grown.values()):
                out.append(grown)
        return out

    # ------------------------------------------------------------ growing streams: sub, and pre at unscaled gains

    def grown_members(self, name: str) -> _Grown:
        """``members`` for a stream of unscaled branches."""
        sums = [
            GrowingUpdate(side=side, branch=self.branch, optimizer=self.optimizer, reader=self.reader_of(side))
            for side in self.order
        ]
        return {update.side.name: (update, grown_member(name, update)) for update in sums}

    def growing(self, asked: str | None) -> Rule:
        if asked not in (None, "leading-log"):
            raise ValueError(f"norm 'sub' has one gain and alpha = 1: no selection {asked!r} (allowed: leading-log)")
        chosen = self.grown_members("leading-log")
        self._argue_growing(chosen[self.order[0].name][0])
        for side in self.order:
            self._argue_growing_side(*chosen[side.name])
        others: list[_Sums] = []
        if self.with_alternatives:
            others = [self.grown_members("learning-rate"), *(self.members(n) for n in ("branch-weight", "depth-mup"))]
        others += self._unscaled_cross(chosen)
        return self._rule("leading-log", chosen, others)

    def _unscaled_cross(self, chosen: _Grown) -> list[_Sums]:
        """The encoder's rule where the cross-attention keeps gain 1, as the source initialises it."""
        out: list[_Sums] = []
        for side in self.order:
            reader = self.reader_of(side)
            if reader is None or (gain := chosen[reader.name][1].init_gain) is None:
                continue
            update = cross_at_one(chosen[side.name][0], gain)
            member = grown_member("unscaled-cross", update)
            self.say(
                f"{side.name}: that took one gain for all sublayers of the {reader.name}, but the source leaves its "
                f"cross-attention at gain 1. Then the coupling is {update.coupling}, and "
                f"{plainly(update.total)} = 1: lambda = {compact(member.init_gain)}"
            )
            out.append({side.name: (update, member)})
        return out

    def _argue_growing(self, update: GrowingUpdate) -> None:
        branch, optimizer = self.branch, self.optimizer
        p, t = optimizer.gradient_degree, optimizer.parameter_degree
        self.say(f"{NORMS[self.norm]}; all {branch.num_matrices} matrices of a branch at one gain lambda")
        self.say(
            f"a branch has magnitude {branch.magnitude}, so the stream has second moment {update.stream_second} after "
            "l sublayers, the input dropped, and the gradient that arrives is the inverse root of it"
        )
        self.say(
            f"gradient of each matrix of sublayer l: {update.gradient}. The earlier matrices stand behind a norm: the "
            "branch has degree 0 in them, their gradient degree -1, and a probe alone would see nothing"
        )
        self.say(
            f"a step of {optimizer.name} has degree {p} in the gradient and {t} in the parameter: a matrix changes the "
            f"loss by |g|^{p + 1} |theta|^{t} = {plainly(update.term)}"
        )
        self.say(
            f"summed over l = 1..L: {plainly(update.gain_power)} times {power_sum(update.exponent)}, of order "
            f"{update.growth(L)}; constants dropped"
        )
        self._argue_gate()

    def _argue_growing_side(self, update: GrowingUpdate, member: Member) -> None:
        name = update.side.name
        if update.reader is not None:
            self.say(
                f"{name}: its gradient passes the cross-attentions, in mean square {update.coupling_exact}, to leading "
                f"order {update.coupling}, at any one gain"
            )
        if member.init_gain is None:
            self.say(
                f"{name}: over {update.side.num_sublayers} sublayers the update is {compact(member.update)} whatever "
                f"lambda: Sub-LN under {self.optimizer.name} is invariant to the gains, and no gain can do it. A "
                f"learning rate times {compact(1 / member.update)} holds it"
            )
        else:
            self.say(f"{name}: over {update.side.num_sublayers} sublayers, {plainly(update.total)} = 1")
            self.say(
                f"{name}: lambda = {compact(member.init_gain)}; the relative update is "
                f"{compact(member.relative_update)} times that of lambda = 1"
            )

    # ------------------------------------------------------------ the result

    def _rule(self, name: str, chosen: _Sums, others: list[_Sums]) -> Rule:
        return Rule(
            norm=self.norm,
            optimizer=self.optimizer.name,
            architecture=self.architecture.name,
            select=name,
            sides=tuple(self._side_rule(side, *chosen[side.name], others) for side in self.architecture.sides),
            why=tuple(self.why),
        )

    def _side_rule(
        self, side: Side, update: StackUpdate | GrowingUpdate, member: Member, others: list[_Sums]
    ) -> SideRule:
        gains = None if member.init_gain is None else MappingProxyType(self._gains(side, member.init_gain))
        rates = dict.fromkeys(self._gains(side, S.One), member.lr_multiplier)
        if self.is_gated and member.init_gain is not None:
            rate = gate_rate(self.branch, self.optimizer).xreplace({init_gain: member.init_gain})
            rates["fc3"] = tidy(member.lr_multiplier * rate)
        return SideRule(
            name=side.name,
            num_layers=side.num_layers,
            num_sublayers=side.num_sublayers,
            update_sum=update,
            member=member,
            init_gain=gains,
            lr_multiplier=MappingProxyType(rates),
            alternatives=tuple(alternative[side.name][1] for alternative in others if side.name in alternative),
        )

    def _gains(self, side: Side, scaled: Expr) -> dict[str, Expr]:
        """A gain for every matrix role of a side; branches of other than two matrices are numbered."""
        out: dict[str, Expr] = {}
        for kind in side.layer:
            out.update(dict.fromkeys(UNSCALED_ROLES[kind], S.One))
            names = SCALED_ROLES[kind]
            if self.branch.num_matrices != len(names):
                names = tuple(f"{kind.value}_{i + 1}" for i in range(self.branch.num_matrices))
            is_left = kind is SublayerKind.CROSS and self.norm == "sub"  # the source does not scale it
            out.update(dict.fromkeys(names, S.One if is_left else scaled))
            if self.branch.zero_last:
                out[names[-1]] = S.Zero
            if self.is_gated and kind is SublayerKind.FFN:
                out["fc3"] = S.One
        return out
