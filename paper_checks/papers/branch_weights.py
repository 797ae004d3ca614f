"""Branch weights and the rates that go with them: Chizat, MiniCPM, Megatron-LM and BranchNorm, at initialisation.

A rule of both is held against how the first update of a Pre-LN stack grows, by two routes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sympy import Expr, Rational, S, log, sqrt

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import Amendment, Claim, Finding, Kind, Part, Route, Verdict, claim
from depthlaw.paper_checks.claims.statements import Changeable, Values
from depthlaw.paper_checks.routes import algebra, second_meanfield
from depthlaw.paper_checks.routes.checks import Answers, awaits, check, order_key, order_of
from depthlaw.theory.symbols import L, scratch

if TYPE_CHECKING:
    from depthlaw.theory.schemes import Scheme


@dataclass(frozen=True, kw_only=True)
class BranchRule(Changeable):
    """branch, rate: what multiplies each branch and the learning rate, in L sublayers. order: of the first update under
    an optimizer of the FFN-only rung (sgd, adam, lamb or muon)."""

    branch: Expr
    rate: Expr = S.One
    optimizer: str = "adam"
    order: Expr = S.One
    norm: str = "pre"

    @property
    def text(self) -> str:
        rule = f"a branch times {self.branch} and a rate times {self.rate}"
        return f"{rule} make the first update under {self.optimizer} of order {self.order} in L sublayers"

    @property
    def scheme(self) -> Scheme:
        return second_meanfield.variant("pre-ln", norm=self.norm, branch_weight=self.branch)


_LENGTHS = (16, 256, 4096)
AT_ONE_RATE = "the first update at one rate, at initialisation"
OWN_CRITERION = f"{AT_ONE_RATE} (the project's criterion of a rate for all depths, not the source's)"


@check(Route.MEANFIELD, "leading order of the update of Pre-LN FFN sublayers with these branches, times the rate")
def _by_order(s: BranchRule) -> Answers:
    from depthlaw.theory.meanfield.growth import update_order
    from depthlaw.theory.meanfield.setting import Setting
    from depthlaw.theory.meanfield.update import predict

    order = update_order(Setting.of(s.scheme, s.optimizer))
    power, *_ = order_key(order.times(order_of(s.rate)))
    holds = order_key(order) == order_key(order_of(s.order / s.rate)) and order.growth == 0
    if holds:
        return Answers(holds=[True], numbers={"power": str(power)})
    weight, falls = s.branch.as_independent(L)
    updates = (f"{float(predict(s.scheme, s.optimizer, length).update):.4g}" for length in _LENGTHS)
    lengths = ",".join(map(str, _LENGTHS))
    rule = f"--norm {s.norm} --branch-weight {float(weight):.6g},{falls.as_base_exp()[1] if falls != 1 else 0}"
    example = {
        "printed": s.text,
        "found": f"it grows as L^({power}); before the rate it is {', '.join(updates)} at L = {lengths}",
        "command": f"depthlaw predict {rule} --optimizer {s.optimizer} --sublayers {lengths}",
    }
    return Answers(holds=[False], numbers={"power": str(power)}, counterexample=example)


@check(Route.NUMERIC, "the update over the printed order, summed sublayer by sublayer, at 10^2, 10^4 and 10^6")
def _by_sum(s: BranchRule) -> list[bool | None]:
    def log_order(length: int) -> float:
        return float(log(s.order / s.rate).subs(L, length).evalf())

    ratios = second_meanfield.log_ratios(s.scheme, log_order, "relu", "layernorm", s.optimizer)
    return [algebra.settles(ratios)]


BRANCH = (_by_order, _by_sum)

# ---------------------------------------------------------------- Chizat and MiniCPM: the rate that goes with a branch

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
    name=OWN_CRITERION,
    locator="the configuration: scale_depth",
    quote="a branch of 1.4/sqrt(N), N layers, and a rate that is not scaled with depth",
    summary="a branch of 1.4/sqrt(N) and one rate keep Adam's first update as it is (the project's criterion)",
    statement=_MINICPM,
    checks=BRANCH,
    mutants=changed(_MINICPM, order=[L, 1 / L], branch=S.One),
    expected=Verdict.REFUTED,
    instead=Amendment(
        statement=_MINICPM.with_(order=sqrt(L)), text="the first update under Adam grows as the square root of depth"
    ),
    condition="SGD, or a rate that falls as 1/sqrt(N)",
    finding=Finding(
        "MiniCPM's branch, of order 1/sqrt(N), with an unscaled rate lets Adam's first update grow as sqrt(N), at "
        "initialisation: it is half of depth-muP, whose rate falls as 1/sqrt(N) (MiniCPM prints the rule, not that the "
        "update stays)",
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
    name="that a law is not counted twice, at initialisation",
    locator="pull requests 4381 and 4999, not merged",
    quote="depth_mult^-1 on the branch, and the output matrices' init times depth_mult^(1/2), so that (2N)^(-1/2) is "
    "not counted twice",
    summary="with a branch of 1/m the output matrices' own 1/sqrt(2N) is taken back by sqrt(m)",
    statement=_MEGATRON,
    checks=(_counted_once,),
    mutants=changed(_MEGATRON, init=[0, 1], branch=[0, -Rational(1, 2)]),
)

# ---------------------------------------------------------------- BranchNorm: a branch weight that rises in training

_EARLY = BranchRule(branch=1 / sqrt(L), optimizer="sgd", norm="post")
_LATER = "training runs of DeepNorm and BranchNorm at several depths"

_BN_01 = Claim(
    id="BN-01",
    kind=Kind.RESULT,
    locator="abstract",
    quote="BranchNorm, which rescales the non-residual branch in accordance with the training period, stabilises the "
    "training at the early stage, and encourages better convergence later",
    summary="a branch weight that rises from 0 to 1 stabilises Post-LN early, and it converges better later",
    parts=(
        Part(
            name="early: while the weight is at most 1/sqrt(L), the update at the initial matrices",
            statement=_EARLY,
            checks=BRANCH,
            mutants=changed(_EARLY, branch=[L ** -Rational(1, 4), S.One]),
        ),
        Part(
            name="later",
            statement=Values.of("BranchNorm's loss at the end is lower than DeepNorm's"),
            checks=(awaits(_LATER),),
            expected=Verdict.UNDECIDED,
            open=_LATER,
        ),
    ),
)

CLAIMS = (_BN_01, _CZ_01, _MC_01, _MG_01)
