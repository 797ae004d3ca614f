"""Learning rates by depth for steps of a fixed norm (Muon, Muon on spheres, Hyperball), of the first update.

All but one know the rule by its formula alone; Hyperball's abstract says less than what is listed of it: that such
steps improve how a rate transfers over depths, beside a decoupled weight decay.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from sympy import Expr, S, sqrt

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import Amendment, Check, Claim, Finding, Kind, Part, Route, Verdict, claim
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.papers.branch_weights import AT_ONE_RATE, BRANCH, OWN_CRITERION, BranchRule
from depthlaw.paper_checks.routes import second_meanfield
from depthlaw.paper_checks.routes.checks import Answers, awaits, check
from depthlaw.paper_checks.routes.drawn import WIDTH, PreNorm
from depthlaw.theory.symbols import L

_SWEEPS = "sweeps of the learning rate at several depths, each trained as its source trains"
_PLAIN = BranchRule(branch=S.One, optimizer="muon", order=sqrt(L))


def _first_update(
    statement: BranchRule, name: str = AT_ONE_RATE, checks: tuple[Check, ...] = BRANCH, **rest: Any
) -> Part:
    orders = [order for order in (S.One, sqrt(L), L) if order != statement.order]
    return Part(
        name=name,
        statement=statement,
        checks=checks,
        mutants=changed(statement, order=orders[1:], branch=[1 / L**2]),
        **rest,
    )


def _trained(name: str, statement: Values) -> Part:
    return Part(name=name, statement=statement, checks=(awaits(_SWEEPS),), expected=Verdict.UNDECIDED, open=_SWEEPS)


# ---------------------------------------------------------------- SP-01, SP-02: spectral muP

_SPECTRAL = BranchRule(branch=1 / L, optimizer="muon")

_SP_01 = claim(
    "SP-01",
    kind=Kind.RESULT,
    source="spectral",
    name="the first update, at initialisation",
    locator="the rule for blocks of two maps and more",
    quote="residual multiplier 1/L where blocks have k >= 2 transformations; Muon's rate without a factor of L",
    summary="with a branch of 1/L Muon's first update does not grow with depth at one learning rate",
    statement=_SPECTRAL,
    checks=BRANCH,
    mutants=changed(_SPECTRAL, branch=[1 / sqrt(L), S.One], rate=[1 / sqrt(L), L]),
)

_SP_02 = Claim(
    id="SP-02",
    kind=Kind.RESULT,
    source="spectral",
    locator="the experiments with LayerNorm",
    quote="with LayerNorm the standard parametrisation's best learning rate is 2^-7 at depths of 4 to 256",
    summary="one rate is best for Pre-LN at every depth from 4 to 256, though its first update grows as sqrt(L)",
    parts=(
        _first_update(_PLAIN),
        _trained("the best rate", Values.of("the best rate is 2^{power} at depths of 4 to 256", power=-7)),
    ),
)

# ---------------------------------------------------------------- HP-01, HP-02: HyperP, Muon on spheres

_HYPERP = BranchRule(branch=1 / sqrt(L), rate=1 / sqrt(L), optimizer="muon")


@cache
def _moved(num_sublayers: int, branch: float, rate: float) -> float:
    """How far a logit moves in a step of Muon that keeps every matrix's norm, in a drawn Pre-LN stack."""
    import torch

    stack = PreNorm(num_sublayers, branch)
    matrices, *rest = stack.drawn
    u, _, v = torch.linalg.svd(stack.gradients)
    lengths = matrices.norm(dim=(-2, -1), keepdim=True)
    moved = matrices + rate * lengths * (u @ v) / WIDTH**0.5
    moved = moved * lengths / moved.norm(dim=(-2, -1), keepdim=True)
    return float(stack.logit(moved, *rest) - stack.logit(matrices, *rest))


@check(Route.MEASURED, "a logit's move in one step on the spheres, drawn Pre-LN stacks of 8 and 128 sublayers")
def _on_spheres(s: BranchRule) -> Answers:
    def at(expr: Expr, length: int) -> float:
        return float(expr.subs(L, length).evalf())

    moved = [_moved(n, at(s.branch, n), 0.01 * at(s.rate, n)) / at(s.order, n) for n in (8, 128)]
    return Answers(holds=[abs(math.log(moved[1] / moved[0])) < math.log(2)], numbers={"over the order": moved})


_HP_01 = claim(
    "HP-01",
    kind=Kind.RESULT,
    source="hyperp",
    name="the first update, at initialisation",
    locator="Theorem 3",
    quote="a perturbation of O(L alpha_L eta), so that a branch of 1/sqrt(L) needs eta ~ L^(-1/2), Muon on spheres",
    summary="under Muon on spheres a branch of 1/sqrt(L) needs a learning rate of 1/sqrt(L)",
    statement=_HYPERP,
    checks=(*BRANCH, _on_spheres),
    mutants=changed(_HYPERP, rate=[S.One, 1 / L], branch=1 / L),
)

_FALL = Values.of("from 8 layers to 24 without depth-muP the best rate falls by a factor of {fall}", fall=2)


@check(Route.MEANFIELD, "Muon's first update of Pre-LN at 8 and 24 layers, to half a step of a grid of sqrt(2)")
def _fall_by_theory(s: Values) -> Answers:
    from depthlaw.theory.meanfield.update import predict

    few, many = (predict("pre-ln", "muon", 2 * layers).update for layers in (8, 24))
    return _compared(many / few, s)


@check(Route.NUMERIC, "the same, summed sublayer by sublayer")
def _fall_by_sum(s: Values) -> Answers:
    few, many = (second_meanfield.log_update("pre-ln", 2 * layers, optimizer="muon") for layers in (8, 24))
    return _compared(math.exp(many - few), s)


def _compared(ratio: float, s: Values) -> Answers:
    holds = abs(math.log2(ratio / float(s["fall"]))) < 1 / 4
    return Answers(holds=[holds], numbers={"predicted fall": round(ratio, 3)})


_HP_02 = Claim(
    id="HP-02",
    kind=Kind.RESULT,
    source="hyperp",
    locator="the experiments on depth",
    quote="without depth-muP the best learning rate falls from 0.016 at 8 layers to 0.008 at 24",
    summary="without depth-muP the best rate halves from 8 to 24 layers, as much as Muon's first update grows",
    parts=(
        Part(
            name="what the first update asks for, at initialisation",
            statement=_FALL,
            checks=(_fall_by_theory, _fall_by_sum),
            mutants=changed(_FALL, fall=[1, sqrt(2), 3]),
        ),
        _trained("the best rates", _FALL),
    ),
)

# ---------------------------------------------------------------- HB-01: Hyperball

_HB_01 = Claim(
    id="HB-01",
    kind=Kind.RESULT,
    source="hyperball",
    locator="the abstract, and a digest",
    quote="updates of a fixed norm transfer the learning rate over depth by themselves; the abstract: they improve "
    "transfer across widths and depths compared to decoupled weight decay",
    summary="steps and weights of a fixed norm make one learning rate do at every depth",
    parts=(
        _first_update(
            _PLAIN.with_(order=S.One),
            name=OWN_CRITERION,
            checks=(*BRANCH, _on_spheres),
            expected=Verdict.REFUTED,
            instead=Amendment(statement=_PLAIN, text="the first update grows as sqrt(L), whatever norm the steps keep"),
            condition="branches of 1/L, or what the abstract says: better than with a decoupled weight decay",
        ),
        _trained(
            "that transfer is better",
            Values.of("over depth the best rate shifts less with steps of a fixed norm than with weight decay"),
        ),
    ),
    finding=Finding(
        "Steps of a fixed norm do not make a rate transfer over depth by themselves, at initialisation: Pre-LN's first "
        "update grows as sqrt(L) under Muon on spheres as well, as HyperP's theorem has it (in Hyperball's abstract "
        "they improve transfer, no more)",
        rank=66,
    ),
)

CLAIMS = (_SP_01, _SP_02, _HP_01, _HP_02, _HB_01)
