"""Branch weights and the learning rates that go with them: Chizat, MiniCPM and Megatron-LM, at initialisation."""

from __future__ import annotations

from sympy import Rational, S, sqrt

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import Amendment, Finding, Kind, Route, Verdict, claim
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.routes import algebra
from depthlaw.paper_checks.routes.branches import BRANCH, BranchRule
from depthlaw.paper_checks.routes.checks import check
from depthlaw.theory.symbols import L, scratch

_CHIZAT = BranchRule(branch=1 / L, rate=L, optimizer="sgd")

_CZ_01 = claim(
    "CZ-01",
    kind=Kind.RESULT,
    name="its part in the depth",
    locator="the paper's code",
    quote="a branch of 1/(L M), and gradient descent's rate times L M D",
    summary="with a branch of 1/L gradient descent's rate is times L: its first update then does not depend on depth",
    statement=_CHIZAT,
    checks=BRANCH,
    mutants=changed(_CHIZAT, rate=[S.One, sqrt(L), L**2], branch=1 / sqrt(L)),
)

_MINICPM = BranchRule(branch=Rational(7, 5) / sqrt(L / 2))

_MC_01 = claim(
    "MC-01",
    kind=Kind.RESULT,
    name="the first update",
    locator="the configuration: scale_depth",
    quote="a branch of 1.4/sqrt(N), N layers, and a rate that is not scaled with depth",
    summary="with a branch of 1.4/sqrt(N) Adam's first update does not grow with depth at one learning rate",
    statement=_MINICPM,
    checks=BRANCH,
    mutants=changed(_MINICPM, order=[L, 1 / L], branch=S.One),
    expected=Verdict.REFUTED,
    instead=Amendment(
        statement=_MINICPM.with_(order=sqrt(L)), text="the first update under Adam grows as the square root of depth"
    ),
    condition="SGD, or a rate that falls as 1/sqrt(N)",
    finding=Finding(
        "MiniCPM's branch, of order 1/sqrt(N), with an unscaled rate lets Adam's first update grow as sqrt(N): it is "
        "half of depth-muP, whose rate falls as 1/sqrt(N)",
        rank=64,
    ),
)

# ---------------------------------------------------------------- Megatron-LM: the output matrices' own law

_m, _N0 = scratch("m", positive=True), scratch("N_0", positive=True)
_MEGATRON = Values.of(
    "a branch of m^({branch}), and output matrices whose std is sigma/sqrt(2 N) times m^({init}), N = m N_0: the "
    "branch adds 1/m of what it adds at N_0 layers",
    branch=-1,
    init=Rational(1, 2),
)


@check(Route.ARITHMETIC, "branch weight times std at N = m N_0, over that at N_0")
def _counted_once(s: Values) -> list[bool | None]:
    added = _m ** s["branch"] * _m ** s["init"] / sqrt(2 * _m * _N0)
    return [algebra.equal(added * sqrt(2 * _N0), 1 / _m)]


_MG_01 = claim(
    "MG-01",
    kind=Kind.RESULT,
    name="that a law is not counted twice",
    locator="pull requests 4381 and 4999, not merged",
    quote="depth_mult^-1 on the branch, and the output matrices' init times depth_mult^(1/2), so that (2N)^(-1/2) is "
    "not counted twice",
    summary="with a branch of 1/m the output matrices' own 1/sqrt(2N) is taken back by sqrt(m)",
    statement=_MEGATRON,
    checks=(_counted_once,),
    mutants=changed(_MEGATRON, init=[0, 1], branch=[0, -Rational(1, 2)]),
)

CLAIMS = (_CZ_01, _MC_01, _MG_01)
