"""Checks that many claims share: printed values against derived ones, and growth laws by two routes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

from sympy import Expr, S, lambdify, log, sqrt, sympify

from depthlaw.paper_checks.claims.claim import Amendment, Check, Evidence, Mutant, Part, Route, Sentence, Verdict
from depthlaw.paper_checks.claims.statements import Growth, Values
from depthlaw.paper_checks.routes import algebra, second_meanfield
from depthlaw.theory.symbols import L


def outcome(holds: bool | None) -> Verdict:
    """CONFIRMED, REFUTED, or UNDECIDED where nothing was shown."""
    return {True: Verdict.CONFIRMED, False: Verdict.REFUTED, None: Verdict.UNDECIDED}[holds]


def all_of(answers: Sequence[bool | None]) -> bool | None:
    """False if any is, else None if any is, else True; None of nothing."""
    if False in answers:
        return False
    return None if None in answers or not answers else True


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a route says of a statement, case by case, and what people may want to see of it.

    holds: by case, None where it was not decided. num_effective: how many cases were tried, where ``holds`` has one
    answer for many. detail: where it depends on the statement, in the place of the check's. numbers, steps and
    counterexample: as in ``Evidence``.
    """

    holds: Sequence[bool | None]
    num_effective: int | None = None
    detail: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    steps: Sequence[str] = ()
    counterexample: Mapping[str, Any] | None = None

    def evidence(self, route: Route, detail: str = "") -> Evidence:
        decided = sum(answer is not None for answer in self.holds)
        return Evidence(
            route=route,
            num_effective=decided if not decided or self.num_effective is None else self.num_effective,
            verdict=outcome(all_of(self.holds)),
            detail=self.detail or detail,
            numbers=dict(self.numbers),
            steps=tuple(self.steps),
            counterexample=self.counterexample,
        )


Decide = Callable[[Any], Sequence[bool | None] | Answers]
"""What a check asks of a statement: an answer for each case."""


@overload
def check(route: Route, detail: str, decide: Decide, **how: Any) -> Check: ...


@overload
def check(route: Route, detail: str, **how: Any) -> Callable[[Decide], Check]: ...


def check(
    route: Route,
    detail: str,
    decide: Decide | None = None,
    *,
    steps: Callable[[], Sequence[str]] | None = None,
    **how: Any,
) -> Check | Callable[[Decide], Check]:
    """A check from a function that answers for each case in turn; without the function, a decorator that makes one.

    detail: what is done, in one line. steps: where they do not depend on the statement. how: is_open and is_slow
    of ``Check``.

    >>> from depthlaw.paper_checks.claims.claim import Route, perform
    >>> from depthlaw.paper_checks.claims.statements import Values
    >>> from depthlaw.paper_checks.routes.checks import Answers, check
    >>> @check(Route.ARITHMETIC, "the printed number, below 1")
    ... def is_small(statement):
    ...     return Answers(holds=[statement["x"] < 1], numbers={"x": int(statement["x"])})
    >>> [(told.verdict.value, told.numbers) for told in (perform(is_small, Values.of(x=x)) for x in (0, 2))]
    [('CONFIRMED', {'x': 0}), ('REFUTED', {'x': 2})]
    """

    def made(decide: Decide) -> Check:
        def run(statement: Any) -> Evidence:
            answers = decide(statement)
            if not isinstance(answers, Answers):
                answers = Answers(holds=list(answers))
            return (answers if steps is None else replace(answers, steps=steps())).evidence(route, detail)

        return Check(route=route, run=run, **how)

    return made if decide is None else made(decide)


def python_command(code: str) -> str:
    """A command that shows a counterexample with nothing of this project: Python, or Python and torch."""
    return f'python -c "{code}"'


def awaits(what: str) -> Check:
    """A statement that only training decides: open until records of it are there."""
    return check(Route.MEASURED, f"awaits {what}", lambda _: [None], is_open=True)


def derived(detail: str, values: Callable[[], Mapping[str, Expr]], *, route: Route = Route.PROOF, **how: Any) -> Check:
    """Each printed value against the derived one of that name, by ``algebra.equal``. how: as ``check`` has it."""

    def decide(statement: Values) -> Answers:
        expected = values()
        holds = [algebra.equal(statement[name], expr) for name, expr in expected.items()]
        return Answers(holds=holds, numbers={name: str(expr) for name, expr in expected.items()})

    return check(route, detail, decide, **how)


# ---------------------------------------------------------------- growth laws


def order_key(order: Any) -> tuple[Expr, Expr, Expr]:
    """(power, log power, log-log power) of a theory's order; ArithmeticError of a quantity that vanishes."""
    if order.is_zero:
        raise ArithmeticError("it vanishes identically, and has no order")
    return order.power, order.log_power, order.loglog_power


def order_of(expr: Expr, variable: Expr = L) -> Any:
    """The leading order of an expression, a number included."""
    from depthlaw.theory.asymptotics.orders import Order, leading_order

    return leading_order(expr, variable) if expr.has(variable) else Order(coefficient=expr)


@check(Route.MEANFIELD, "leading order of the exact update at infinite width")
def _growth_by_closed_form(statement: Growth) -> Answers:
    from depthlaw.theory.meanfield.growth import update_order
    from depthlaw.theory.meanfield.setting import Setting

    setting = Setting.of(statement.scheme, statement.optimizer, statement.activation, statement.norm_kind)
    derived, printed = update_order(setting), order_of(statement.order)
    key = order_key(derived)
    difference = _compare(key, order_key(printed))
    if derived.growth == 0 and printed.growth == 0:
        holds = difference == 0 or (statement.is_upper and difference < 0)
    else:
        holds = difference == 0 and algebra.equal(derived.growth, printed.growth) is True
    numbers: dict[str, Any] = {
        "coefficient": "not stated" if derived.coefficient is S.NaN else f"{float(derived.coefficient):.6g}",
        "power": str(key[0]),
        "power_value": None if key[0] is S.Infinity else round(float(str(key[0].evalf(15))), 6),
        "log_power": str(key[1]),
        "loglog_power": str(key[2]),
        "growth": str(derived.growth),
    }
    return Answers(
        holds=[holds],
        detail=f"leading order of the exact update at infinite width: {order_text(numbers)}",
        numbers=numbers,
        steps=derived.shown_by,
        counterexample=None if holds else counterexample(statement, order_text(numbers)),
    )


def order_text(numbers: Mapping[str, Any]) -> str:
    """An order in one line, its coefficient and power to six digits."""
    factors = [] if numbers["coefficient"] == "not stated" else [str(numbers["coefficient"])]
    if numbers["power_value"] not in (None, 0.0):
        power = numbers["power_value"]
        factors.append("L" if power == 1 else f"L^{power:g}")
    for name, base in (("log_power", "log L"), ("loglog_power", "log log L")):
        if numbers[name] != "0":
            factors.append(f"({base})^({numbers[name]})" if numbers[name] != "1" else base)
    if numbers["growth"] != "0":
        factors.append(f"exp({short_growth(numbers['growth'])})")
    return " * ".join(factors) or "1"


def short_growth(growth: str) -> str:
    """An exponent with its constant as a number: 0.04*L."""
    expr = sympify(growth, locals={"L": L})
    number, rest = expr.as_independent(L, as_Add=False)
    return f"{float(str(number.evalf(15))):.3g} {rest}"


def _compare(first: Sequence[Expr], second: Sequence[Expr]) -> int:
    """Sign of the first difference of two (power, log power, log-log power), decided by 40 digits or exactly 0."""
    for a, b in zip(first, second, strict=True):
        if a == b:
            continue
        if a is S.Infinity:
            return 1
        value = (a - b).evalf(algebra.DIGITS)
        if abs(value) > 1e-30:
            return 1 if value > 0 else -1
    return 0


def counterexample(statement: Growth, true_order: str) -> dict[str, Any]:
    """The network, its update at three depths beside the printed order, and the command that shows it."""
    from depthlaw.theory.meanfield.update import predict

    is_explosive = "exp" in true_order and statement.scheme == "post-ln"
    lengths = (10, 100, 1000) if is_explosive else (10**3, 10**6, 10**9)
    value = lambdify(L, statement.order, modules="math")
    setting: dict[str, Any] = {"activation": statement.activation, "norm_kind": statement.norm_kind}
    rows = []
    for length in lengths:
        update = predict(statement.scheme, statement.optimizer, length, **setting).update
        over = float(f"{update / float(value(length)):.6g}")
        rows.append({"num_sublayers": length, "update": float(f"{update:.12g}"), "update_over_printed_order": over})
    network = {"scheme": statement.scheme, "optimizer": statement.optimizer, **setting}
    options = {**network, "sublayers": ",".join(map(str, lengths))}
    command = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in options.items())
    return {
        "printed": statement.printed_order,
        "found": true_order,
        **network,
        "rows": rows,
        "command": f"depthlaw predict {command}",
    }


@check(Route.NUMERIC, "the update summed sublayer by sublayer")
def _growth_by_sum(statement: Growth) -> Answers:
    log_order = lambdify(L, log(statement.order), modules="math")
    ratios = second_meanfield.log_ratios(
        statement.scheme, log_order, statement.activation, statement.norm_kind, statement.optimizer
    )
    holds = algebra.settles(ratios) or (statement.is_upper and algebra.falls_away(ratios))
    return Answers(
        holds=[holds],
        num_effective=len(ratios),
        detail="update / order, the update summed sublayer by sublayer with moments by quadrature: "
        + ("settles" if holds else "does not settle"),
        numbers={
            str(length): float(f"{math.exp(ratio):.6g}") if abs(ratio) < 700 else f"exp({ratio:.6g})"
            for length, ratio in zip(second_meanfield.LENGTHS, ratios, strict=True)
        },
    )


GROWTH = (_growth_by_closed_form, _growth_by_sum)
"""The leading order of theory's exact mean field; and ``second_meanfield`` at 10^2, 10^4, 10^6 sublayers."""


def growth_part(
    name: str,
    statement: Growth,
    *,
    expected: Verdict = Verdict.CONFIRMED,
    instead: tuple[Expr, str | Sentence] | None = None,
    condition: str | Sentence | None = None,
    wrong: Expr | None = None,
) -> Part:
    """The update of a network against a printed order. ``instead``: its true order, which both routes must accept."""
    flipped = wrong if wrong is not None else sqrt(L) * statement.order
    return Part(
        name=name,
        statement=statement,
        checks=GROWTH,
        mutants=(Mutant(name=f"order {flipped}", statement=statement.with_(order=flipped)),),
        expected=expected,
        instead=None if instead is None else Amendment(statement=statement.with_(order=instead[0]), text=instead[1]),
        condition=condition,
    )
