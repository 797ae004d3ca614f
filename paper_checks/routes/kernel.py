"""What the kernel rung says of a claim: real Transformers, softmax attention and FFN in turn, N = 4 to 1,000 layers.

The numbers are those of ``kernel_laws``, kept in a file: infinite width, 16 tokens, every parameter of a default model
trained. They are theory's, so this route is independent of measurement, and not of the mean field: schemes and
optimizers are the same objects. A law that is not kept leaves a statement open.

The order. The exponent is a slope in log L, with equal weights, as in ``recorded_stacks``, and what a claim says is
held against the same other orders: it holds where the exponent is nearer to it than to any of these. It must do so over
all depths and over the deeper half of them, and fails where it does over neither; else it is open. The interval is that
of the quasi-random averages of softmax, whose errors the laws state, from four sets of points each.

A sum over sublayers that grows without bound may have a constant beside it, which bends log L out of recognition: the
update is (a + b order)/gain^2 then. So of an order that grows, times gain^2, the exponent is that of the rises
dT/d log L of T = gain^2 U, which a does not touch: 0 of log L, p of L^p.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sympy import Expr, lambdify, log

from depthlaw.paper_checks.claims.claim import Check, Part, Route
from depthlaw.paper_checks.claims.statements import Growth
from depthlaw.paper_checks.routes import second_meanfield
from depthlaw.paper_checks.routes.checks import Answers, check
from depthlaw.paper_checks.routes.intervals import ends
from depthlaw.paper_checks.routes.recorded_stacks import LEVEL, halfway, holds
from depthlaw.sims import stats
from depthlaw.sims.stats import Estimate, combined, slope_weights
from depthlaw.theory.symbols import L

if TYPE_CHECKING:
    from depthlaw.paper_checks.experiments.kernel_laws import Law

FIRST, LAST = 4, 1000
"""N, from which and up to which a law counts."""
DEEP = 250
"""N, from which on a role is called flat or growing."""
SHALLOW = (1, 2, 4)
"""N of the networks that are derived anew."""
UPDATE = "update"
"""In place of a role: the branch matrices together."""
NETWORK, GROWING = "network", "roles that grow"
BY_ROLE = f"power of L by role, N = {DEEP} to {LAST}"
"""Keys of the numbers of evidence."""


@dataclass(frozen=True, kw_only=True)
class InTransformer(Growth):
    """The same of a real Transformer, where everything trains, and of one role's part of its update."""

    role: str = UPDATE

    @property
    def text(self) -> str:
        part = "the matrices" if self.role == UPDATE else self.role
        return f"softmax attention and FFN in turn, 16 tokens, {part}: {super().text}"


# ---------------------------------------------------------------- a law, and its exponents


def law(statement: Growth, arch: str = "encoder") -> Law:
    """The kept law of a statement's network. LookupError where it is not kept to the largest depth."""
    from depthlaw.paper_checks.experiments import kernel_laws

    options = {"activation": statement.activation, "norm_kind": statement.norm_kind, "arch": arch}
    kept = kernel_laws.law(statement.scheme, statement.optimizer, **options)
    most = 250 if arch == "encoder-decoder" else LAST
    if missing := [n for n in kernel_laws.LENGTHS if FIRST <= n <= most and n not in kept.updates]:
        raise LookupError(f"no law of {statement.scheme} is kept at N = {', '.join(map(str, missing))}")
    return kept


class Curve(NamedTuple):
    """Logarithms of a quantity at L sublayers, and their standard errors."""

    lengths: np.ndarray
    logs: np.ndarray
    errors: np.ndarray

    def deeper_half(self) -> Curve:
        return Curve(*(column[len(column) // 2 :] for column in self))

    def times(self, log_factor: Callable[[float], float]) -> Curve:
        return self._replace(logs=self.logs + [log_factor(length) for length in self.lengths.tolist()])

    def unit(self) -> Curve:
        """1 at the same lengths, without error."""
        return self._replace(logs=np.zeros(len(self.logs)), errors=np.zeros(len(self.logs)))


def curve(of_law: Law, role: str = UPDATE, first: int = FIRST, last: int = LAST) -> Curve:
    """A role's update, N from first to last. ValueError where the role gets no update."""
    values = {n: value for n, value in of_law.of(role).items() if first <= n <= last}
    if not all(value > 0 for value in values.values()):
        raise ValueError(f"the update of {role} is 0, which has no order")
    lengths = 2 * np.array(list(values), dtype=float)
    return Curve(lengths, np.log(list(values.values())), np.array([of_law.errors[role][n] for n in values]))


def exponent(points: Curve, level: float = LEVEL) -> Estimate:
    """The slope in log L."""
    weights = slope_weights(np.log(points.lengths))
    return _estimate(float(weights @ points.logs), weights, points.errors, level)


def rise_exponent(points: Curve) -> Estimate:
    """The slope of the logarithm of the rises per log L; -infinity where it does not rise all the way."""
    x, values = np.log(points.lengths), np.exp(points.logs - points.logs.max())
    rises = np.diff(values)
    if rises.min() <= 0:
        return Estimate(-math.inf, 0.0, -math.inf, -math.inf, len(values))
    weights = slope_weights((x[1:] + x[:-1]) / 2)
    shares = np.zeros(len(values))
    shares[1:] += weights * values[1:] / rises
    shares[:-1] -= weights * values[:-1] / rises
    return _estimate(float(weights @ np.log(rises / np.diff(x))), shares, points.errors)


def _estimate(mean: float, weights: np.ndarray, errors: np.ndarray, level: float = LEVEL) -> Estimate:
    """Errors at different depths are independent, each the scatter of a few sets of quasi-random points."""
    from depthlaw.theory.kernel.predict import REPLICATES

    parts = [Estimate(0.0, error, None, None, REPLICATES) for error in errors.tolist()]
    low, high = ends(combined(weights.tolist(), parts, level))
    return Estimate(mean, math.hypot(*(weights * errors)), mean + low, mean + high, len(weights))


@cache
def _logarithm(order: Expr) -> Callable[[float], float]:
    return lambdify(L, log(order), modules="math")


# ---------------------------------------------------------------- what is found of an order


class Answer(NamedTuple):
    """answer: whether the order holds. numbers: what says so."""

    answer: bool | None
    numbers: Mapping[str, str]


def follows(of_law: Curve, order: Expr, is_upper: bool, log_gain: Callable[[float], float] | None = None) -> Answer:
    """Whether a law follows an order.

    log_gain: log gain^2 by L, where a constant may stand beside an order that grows; None: there is none.
    """
    fit, what, unit = exponent, "power of L", of_law.unit()
    if log_gain is not None:
        early, late = (_logarithm(order)(length) + log_gain(length) for length in (1e6, 1e12))
        if late > early + 1e-6:
            fit, what = rise_exponent, "power of L of its rises"
            of_law, unit = of_law.times(log_gain), unit.times(log_gain)
    numbers: dict[str, str] = {}
    answers = []
    for name, part, unit_part in (("", of_law, unit), ("deeper half, ", of_law.deeper_half(), unit.deeper_half())):

        def stated(expr: Expr, unit: Curve = unit_part) -> float:
            return fit(unit.times(_logarithm(expr))).mean

        power = fit(part)
        answers.append(holds(power, order, is_upper, stated))
        numbers[f"{name}{what}"] = f"{power.low:.3f} to {power.high:.3f}"
        numbers[f"{name}stated"] = f"{stated(order):.3f}, next by {2 * halfway(order, stated):.2g}"
    return Answer(answers[0] if answers[0] is answers[1] else None, numbers)


def _growth(statement: Growth) -> Answers:
    kept = law(statement)
    role = statement.role if isinstance(statement, InTransformer) else UPDATE
    of_role, updates = curve(kept, role), kept.of(role)

    def log_gain(length: float) -> float:
        return 2 * math.log(second_meanfield.coefficients(statement.scheme, round(length)).gain_in)

    is_of_all = role == UPDATE
    answer, numbers = follows(of_role, statement.order, statement.is_upper, log_gain if is_of_all else None)
    network = f"--scheme {statement.scheme} --activation {statement.activation} --norm-kind {statement.norm_kind}"
    shown = (FIRST, 64, LAST)
    command = f"depthlaw predict --attention --optimizer {statement.optimizer} {network} --roles --layers "
    name = "the branch matrices" if is_of_all else role
    example = {
        "printed": statement.printed_order,
        "found": ", ".join(f"{updates[n]:.4g} at N = {n}" for n in shown) + f", of {name}",
        "command": command + ",".join(map(str, shown)),
    }
    return Answers(
        holds=[answer],
        num_effective=len(of_role.lengths),
        detail=f"real Transformers at infinite width, softmax attention over 16 tokens and FFN in turn, N = {FIRST} to "
        f"{LAST}: the power of L that the update of {name} goes with, over all depths and over the deeper half",
        numbers={**numbers, **roles_beside(statement, kept)},
        counterexample=example if answer is False else None,
    )


@cache
def _shallow(scheme: str, optimizer: str, activation: str, norm_kind: str) -> Mapping[int, Mapping[str, float]]:
    """The updates of shallow networks by N and role, derived now."""
    from depthlaw.paper_checks.experiments.kernel_laws import network_of

    networks = {n: network_of(scheme, n, activation=activation, norm_kind=norm_kind) for n in SHALLOW}
    theories = {n: network.theory(optimizer) for n, network in networks.items()}
    return {n: {UPDATE: theory.update, **theory.roles} for n, theory in theories.items()}


def _growth_anew(statement: Growth) -> Answers:
    """ArithmeticError where the law has another number for a shallow network than is derived now."""
    from depthlaw.paper_checks.experiments.kernel_kept import DIGITS

    kept, answers = law(statement), _growth(statement)
    names = (statement.scheme, statement.optimizer, statement.activation, statement.norm_kind)
    for n, roles in _shallow(*names).items():
        for role, value in roles.items():
            if not math.isclose(value, kept.of(role)[n], rel_tol=10.0 ** (1 - DIGITS)):
                raise ArithmeticError(f"{role} at N = {n}: {kept.of(role)[n]:g} is kept, {value:g} is derived now")
    detail = f"{answers.detail}; at N = {', '.join(map(str, SHALLOW))} derived anew, and the same"
    return replace(answers, detail=detail)


GROWTH_BY_KERNEL = check(Route.KERNEL, "", _growth)
"""A growth law of a real Transformer."""
GROWTH_BY_KERNEL_ANEW = check(Route.KERNEL, "", _growth_anew, is_slow=True)
"""The same, and the shallowest networks of the law are derived here and now."""


def kernel_too(part: Part, check: Check = GROWTH_BY_KERNEL) -> Part:
    """The part with this route besides."""
    return replace(part, checks=(*part.checks, check))


# ---------------------------------------------------------------- who keeps the promise of a flat update


def roles_beside(statement: Growth, kept: Law) -> dict[str, Any]:
    """For the numbers of evidence: the power of each role of a default model, and which of them grow.

    The power is that from N = DEEP on, None of a role that gets no update. A role grows where the 0.95 interval of its
    power is above half of that of log L, the slowest that counts as growth. No verdict hangs on it.
    """
    powers: dict[str, float | None] = {}
    growing = []
    for role in (UPDATE, *kept.roles):
        powers[role] = None
        if all(kept.of(role)[n] for n in kept.updates if n >= DEEP):
            deep = curve(kept, role, first=DEEP)
            power = exponent(deep, stats.LEVEL)
            edge = exponent(deep.unit().times(lambda length: math.log(math.log(length)))).mean / 2
            powers[role] = round(round(power.mean, 3), 2) + 0.0
            if ends(power).low > edge:
                growing.append(role)
    kinds = [name for name in (statement.activation, statement.norm_kind) if name not in ("relu", "layernorm")]
    return {
        NETWORK: ", ".join([f"{statement.scheme} under {statement.optimizer}", *kinds]),
        BY_ROLE: powers,
        GROWING: growing,
    }
