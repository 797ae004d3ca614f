"""The rows of Su's table: alpha and lambda of each optimizer, the conditions that they solve, and what is true of them.

His letters: N layers, 2N residual branches; lambda the magnitude of a matrix, alpha the weight of the skip.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from sympy import Expr, Rational, S, log

from paper_checks.claims.broken import broken
from paper_checks.claims.claim import Check, Claim, Kind, Mutant, Part, Route, claim
from paper_checks.claims.statements import Growth, Values
from paper_checks.papers.su.sublayers import shown
from paper_checks.routes import algebra
from paper_checks.routes.checks import GROWTH, Answers, check, derived
from paper_checks.routes.intervals import OF_FEW, interval
from paper_checks.routes.kernel import kernel_too
from paper_checks.routes.printed_tables import read
from paper_checks.routes.recorded_stacks import recorded_too
from sims.stats import slope_weights
from theory.symbols import L, N
from theory.symbols import init_gain as lam
from theory.symbols import residual_weight as alpha

HALF, QUARTER = Rational(1, 2), Rational(1, 4)
TWO_N = 2 * N
OPTIMIZERS = ("sgd", "adam", "lamb")
TARGETS = {"sgd": TWO_N**-HALF, "adam": 1 / TWO_N, "lamb": 1 / TWO_N}
"""What he asks of the gradient's size (of |theta| |g| under LAMB) so that 2N branches sum to O(1)."""
TABLE_TEXTS = {
    "sgd": ("(2*N)**(1/4)", "(2*N)**(-1/4)"),
    "adam": ("(2*N)**(1/2)", "(2*N)**(-1/2)"),
    "lamb": ("1", "(2*N)**(-1/2)"),
}
TABLE = {name: (read(alpha_text), read(lam_text)) for name, (alpha_text, lam_text) in TABLE_TEXTS.items()}
"""(alpha, lambda) of his summary."""


@cache
def _rule(norm: str, optimizer: str, select: str | None) -> Any:
    from theory.rules.solve import solve_rule

    return solve_rule(norm, optimizer, "encoder", select)


def side(norm: str, optimizer: str, select: str | None = None) -> Any:
    """The derived rule of an encoder."""
    return _rule(norm, optimizer, select).sides[0]


def why(norm: str, optimizer: str, select: str | None = None) -> Callable[[], Sequence[str]]:
    """Its derivation, as a check asks for it."""
    return lambda: _rule(norm, optimizer, select).why


def size(optimizer: str, a: Expr, gain: Expr) -> Expr:
    """His magnitudes: the gradient is lambda/alpha; under LAMB the parameter's magnitude lambda comes with it."""
    return gain**2 / a if optimizer == "lamb" else gain / a


# ---------------------------------------------------------------- measured

DEPTHS = (2, 5, 12)
"""Layers, of an attention and an FFN each."""
_OF_GRADIENTS = 256
"""Networks, so that the interval of a power of squared gradients reaches a third of the way to what is allowed; with a
quarter of them the answer hangs on the seeds."""
_HALFWAY = 1 / 8
"""The powers of depth of gains and gradients are multiples of 1/4: this is halfway from none to the nearest other."""
_NETWORKS = f"real Transformers of {', '.join(map(str, DEPTHS))} layers, relu, {{}} each, every matrix counted"
_NEARER = "as an interval nearer to 0 than to the next other, 1/4 for gains and gradients and 1/2 for their squares"
Member = tuple[Expr, Expr]
"""Residual weight and gain, in N."""


@cache
def _log_updates(optimizer: str, placement: str, width: int, num_seeds: int, member: Member) -> np.ndarray:
    """[seed, depth], at each of DEPTHS, of Transformers whose matrices all have the member's gain."""
    from sims.measure import Question, collect
    from sims.model import BRANCH_ROLES, ModelConfig, alternating
    from sims.update import Task

    columns = []
    for num_layers in DEPTHS:
        weight, gain = (float(expr.subs(N, num_layers)) for expr in member)
        encoder = alternating(2 * num_layers, residual_weight=weight, gains=dict.fromkeys(BRANCH_ROLES, gain))
        config = ModelConfig(encoder=encoder, placement=placement, d_model=width, ffn_ratio=1)
        question = Question(config=config, task=Task(num_tokens=4, readout="sum"), optimizers=(optimizer,))
        columns.append(collect(question, range(num_seeds))[f"{optimizer}/update"])
    return np.log(np.stack(columns, 1))


def _no_power_of_depth(logs: Mapping[str, tuple[str, np.ndarray]]) -> Answers:
    """By name, the optimizer and logarithms [seed, depth], whose slopes are 0 if the statement holds."""
    holds: list[bool | None] = []
    numbers = {}
    for name, (optimizer, logs_SN) in logs.items():
        power = interval((logs_SN @ slope_weights(np.log(DEPTHS))).tolist(), OF_FEW)
        edge = 2 * _HALFWAY if optimizer == "sgd" else _HALFWAY  # SGD's update squares the gradient
        holds.append(power.within(-edge, edge))
        numbers[name] = [shown(end, 2) for end in power]
    return Answers(holds=holds, num_effective=sum(each.size for _, each in logs.values()), numbers=numbers)


def flat_sums(placement: str, members: Callable[[Values], Mapping[str, tuple[str, Member]]]) -> Check:
    """members: what the statement sets, by name: the optimizer, and (alpha, lambda). Its update keeps its size."""

    def decide(s: Values) -> Answers:
        return _no_power_of_depth(
            {
                name: (optimizer, _log_updates(optimizer, placement, 32, 16, member))
                for name, (optimizer, member) in members(s).items()
            }
        )

    detail = f"{_NETWORKS.format(16)}: the power of depth of what one step changes, {_NEARER}"
    return check(Route.MEASURED, detail, decide, is_direct=True)


def scaled_gradients(members: Mapping[str, Member]) -> Check:
    """The statement says of each member by what its gradients are those of alpha = lambda = 1 at the same depth."""

    def decide(s: Values) -> Answers:
        networks = "sgd", "post", 64, _OF_GRADIENTS
        original, logs = _log_updates(*networks, (S.One, S.One)), {}
        for name, printed in s:
            squares = [2 * math.log(printed.subs(N, num_layers)) for num_layers in DEPTHS]
            logs[name] = "sgd", _log_updates(*networks, members[name]) - original - squares
        return _no_power_of_depth(logs)

    detail = (
        f"{_NETWORKS.format(_OF_GRADIENTS)}: squared gradients over those of alpha = lambda = 1 at the same depth and "
        f"over the printed square, the power of depth that is left, {_NEARER}"
    )
    return check(Route.MEASURED, detail, decide, is_direct=True)


# ---------------------------------------------------------------- claims of each optimizer


def constraint(id_: str, optimizer: str, text: str, printed: Expr, locator: str, quote: str) -> Claim:
    """A printed ratio lambda/alpha that keeps the update of SGD or Adam from growing with N."""

    def family(s: Values) -> list[bool | None]:
        return [algebra.equal(side("post", optimizer).family.lhs.xreplace({lam: s["ratio"] * alpha}), S.One)]

    def summed(s: Values) -> list[bool | None]:
        return [algebra.equal(TWO_N * s["ratio"] ** (2 if optimizer == "sgd" else 1), S.One)]

    def members(s: Values) -> Mapping[str, tuple[str, Member]]:
        """The symmetric one, and the one with alpha = 1."""
        root = s["ratio"] ** HALF
        return {"symmetric": (optimizer, (1 / root, root)), "alpha = 1": (optimizer, (S.One, s["ratio"]))}

    statement = Values.of(ratio=printed)
    return claim(
        id_,
        kind=Kind.STEP,
        locator=locator,
        quote=quote,
        summary=f"under {optimizer} the number of layers cancels where {text}",
        uses=("S1-22", {"sgd": "S1-05", "adam": "S1-31"}[optimizer]),
        statement=statement,
        checks=(
            check(Route.PROOF, f"the derived family under {optimizer}", family, steps=why("post", optimizer)),
            check(Route.ARITHMETIC, "the sum over 2N branches of what each changes is 1", summed, is_direct=True),
            flat_sums("post", members),
        ),
        mutants=broken(statement),
    )


def flat(scheme: str, optimizer: str, activation: str = "relu", name: str = "") -> Part:
    """The true update of a network with these gains does not grow with depth."""
    statement = Growth(scheme=scheme, optimizer=optimizer, activation=activation, order=S.One)
    part = Part(
        name=name or f"the true update does not grow, {activation}",
        statement=statement,
        checks=GROWTH,
        mutants=(
            Mutant(name="grows as log L", statement=statement.with_(order=log(L))),
            Mutant(name="a scheme that is not flat", statement=statement.with_(scheme="post-ln")),
            *broken(statement),
        ),
    )
    return kernel_too(recorded_too(part)) if activation == "relu" else part


def solution(
    id_: str, optimizer: str, locator: str, quote: str, uses: tuple[str, ...], *more: Part, **rest: Any
) -> Claim:
    """alpha and lambda for one optimizer, solved; and the true update of the network that has them."""
    a, gain = TABLE[optimizer]
    statement = Values.of(alpha=a, lam=gain)
    chosen = "the symmetric member" if optimizer != "lamb" else "the member alpha = 1"

    def from_rule() -> dict[str, Expr]:
        derived_side = side("post", optimizer)
        return {"alpha": derived_side.residual_weight, "lam": derived_side.gain}

    def by_hand(s: Values) -> list[bool | None]:
        chosen = s["alpha"] if optimizer == "lamb" else s["alpha"] * s["lam"]
        return [algebra.equal(size(optimizer, s["alpha"], s["lam"]), TARGETS[optimizer]), algebra.equal(chosen, S.One)]

    solved = Part(
        name="alpha and lambda",
        statement=statement,
        checks=(
            derived(f"{chosen} of the derived family", from_rule, steps=why("post", optimizer)),
            check(Route.ARITHMETIC, f"his condition and {chosen}, put in", by_hand, is_direct=True),
            flat_sums("post", lambda s: {optimizer: (optimizer, (s["alpha"], s["lam"]))}),
        ),
        mutants=broken(statement),
    )
    return Claim(
        id=id_,
        kind=Kind.RESULT,
        locator=locator,
        quote=quote,
        summary="under {} alpha = {}, lambda = {}".format(optimizer, *TABLE_TEXTS[optimizer]),
        uses=uses,
        parts=(solved, *more, flat(f"su-{optimizer}", optimizer), flat(f"su-{optimizer}", optimizer, "gelu")),
        **rest,
    )
