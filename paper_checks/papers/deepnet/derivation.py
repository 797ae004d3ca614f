"""Wang et al., "DeepNet: Scaling Transformers to 1,000 Layers", arXiv 2203.00555: alpha and beta of DeepNorm, DN-04 to
DN-07, and the goal that they are derived for, an update of Theta(eta) at any depth, DN-10.

Its letters: N encoder and M decoder layers; alpha the weight of the skip; v, w the scales of a branch's two matrices,
beta where both are one; e and d for the sides of an encoder-decoder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from functools import cache
from typing import Any

from sympy import Expr, Rational, S, cancel, floor, log, simplify, sqrt

from depthlaw.paper_checks.claims.claim import (
    Amendment,
    Cell,
    Check,
    Claim,
    Finding,
    Kind,
    Mutant,
    Part,
    Route,
    Verdict,
)
from depthlaw.paper_checks.claims.statements import Decimals, Growth, Values
from depthlaw.paper_checks.papers.deepnet import runs
from depthlaw.paper_checks.papers.deepnet.models import (
    PRINTED,
    TEXTS,
    Scales,
    one_token,
    scalar_sides,
    scales_at,
    sensitivities,
)
from depthlaw.paper_checks.papers.deepnet.theorems import post_norm
from depthlaw.paper_checks.routes import algebra, kernel, second_meanfield
from depthlaw.paper_checks.routes.checks import GROWTH, Answers, check, derived, order_key, order_of, python_command
from depthlaw.paper_checks.routes.intervals import exponent, exponent_of_means, interval
from depthlaw.paper_checks.routes.recorded_stacks import STACKS_ON_RECORD
from depthlaw.theory.symbols import L, M, N, init_gain
from depthlaw.theory.symbols import residual_weight as alpha

QUARTER, SIXTEENTH = Rational(1, 4), Rational(1, 16)
_TABLE = "Section 4, the table of alpha and beta"
_OF_TWO = N**4 * M


# ---------------------------------------------------------------- the rows of the table


@cache
def _rule(architecture: str, coupling: str = "once") -> Any:
    from depthlaw.theory.rules.solve import solve_rule

    chosen = coupling if architecture == "encoder-decoder" else None
    return solve_rule("post", "sgd", architecture, "deepnet", coupling=chosen, with_alternatives=False)


def _place(which: str) -> tuple[str, str]:
    """Architecture and side."""
    side, _, of_two = which.partition(" ")
    return ("encoder-decoder", side) if of_two else (side, side)


def _derived(which: str) -> dict[str, Expr]:
    architecture, name = _place(which)
    side = _rule(architecture).side(name)
    return {"alpha": side.residual_weight, "beta": side.gain}


def _row_checks(which: str, num_sublayers: Expr) -> tuple[Check, ...]:
    """By the derived rule; and the source's own condition and choice, put in."""

    def by_hand(s: Values) -> list[bool | None]:
        squares, a = 2 * s["beta"] ** 2, s["alpha"]
        return [algebra.equal(num_sublayers * squares / a**2, S.One), algebra.equal(squares * a**2, S.One)]

    rule = "the derived rule: every matrix counted, v^2 + w^2 = 1/alpha^2"
    condition = "its condition that the sum over sublayers is 1, and its choice v^2 + w^2 = 1/alpha^2, put in"
    return (
        derived(rule, lambda: _derived(which), steps=lambda: _rule(_place(which)[0]).why),
        check(Route.ARITHMETIC, condition, by_hand),
    )


def _cells(which: str, decimals: int | None = None) -> tuple[Cell, ...]:
    where = tuple(zip(("architecture", "side"), _place(which), strict=True))
    return tuple(
        Cell(table="deepnet", where=where, column=column, printed=text, decimals=decimals)
        for column, text in zip(("alpha", "beta"), TEXTS[which], strict=True)
    )


def _row(id_: str, which: str, num_sublayers: Expr, quote: str, *more: Part, extra: tuple[Cell, ...] = ()) -> Claim:
    statement = Values(tuple(zip(("alpha", "beta"), PRINTED[which], strict=True)))
    checks = _row_checks(which, num_sublayers)
    return Claim(
        id=id_,
        kind=Kind.RESULT,
        locator=_TABLE,
        quote=quote,
        summary="{}: alpha = {}, beta = {}".format(which, *TEXTS[which]),
        parts=(Part(name="alpha and beta", statement=statement, checks=checks), *more),
        cells=(*_cells(which), *extra),
    )


def _flat(name: str, activation: str, *more: Check) -> Part:
    statement = Growth(scheme="deepnorm", activation=activation, order=S.One)
    checks = (*GROWTH, runs.growth_on_record, *more)
    return Part(name=f"{name}, {activation}", statement=statement, checks=checks)


_DN_04 = _row(
    "DN-04",
    "encoder",
    2 * N,
    "encoder-only: alpha = (2N)^(1/4), beta = (8N)^(-1/4)",
    _flat("the true update under SGD does not grow", "relu", STACKS_ON_RECORD, kernel.GROWTH_BY_KERNEL_ANEW),
    _flat("the true update under SGD does not grow", "gelu", kernel.GROWTH_BY_KERNEL),
    extra=(
        Cell(
            table="bounds",
            where=(("scheme", "deepnorm"),),
            column="bound",
            printed="eta*Sum((v[l]**2 + w[l]**2)/alpha**2, (l, 1, L))",
            note="the sum that its derivation sets to 1",
        ),
        Cell(table="bounds", where=(("scheme", "deepnorm"),), column="order", printed="1"),
    ),
)
_DN_05 = _row("DN-05", "decoder", 2 * M, "decoder-only: alpha = (2M)^(1/4), beta = (8M)^(-1/4)")
_DN_06 = _row("DN-06", "decoder of two", 3 * M, "encoder-decoder, decoder: alpha = (3M)^(1/4), beta = (12M)^(-1/4)")


# ---------------------------------------------------------------- DN-07: the encoder of two

_EXACT = Values.of(alpha=(_OF_TWO / 27) ** SIXTEENTH, beta=(_OF_TWO / 27) ** -SIXTEENTH / sqrt(2))
_COUPLING = M * PRINTED["decoder of two"][1] ** 2 / PRINTED["decoder of two"][0]
"""c = M v_d w_d / alpha_d, what the cross-attentions pass on; and the encoder's share of the update at the printed
alpha and beta."""
_COUNT = _COUPLING * 2 * N
"""2N sublayers, each through the cross-attentions."""


def _constants(route: Route, detail: str, values: Callable[[], Mapping[str, Expr]], **options: bool) -> Check:
    """Two decimals against exact constants, rounded half up and half to even."""

    def decide(s: Decimals) -> Answers:
        answers, numbers = [], {}
        for name, printed in s.entries:
            constant = values()[name].subs({N: 1, M: 1})
            rounded = algebra.roundings(Decimal(str(constant.evalf(30))), len(printed.partition(".")[2]))
            answers.append(set(rounded.values()) == {printed})
            numbers[name] = {"exact": str(constant), "value": float(constant), **rounded}
        return Answers(holds=answers, numbers=numbers)

    return check(route, f"{detail}, to two decimals", decide, **options)


_SHARE_OF_PRINTED = replace(
    _EXACT,
    words="the encoder's sum of ||dF/dtheta||^2 is bounded for all N and M: alpha_e = {alpha}, beta_e = {beta}",
)


def _is_bounded(share: Expr) -> bool:
    form = algebra.log_form(share)
    return all(form.coeff(log(count)) <= 0 for count in (N, M))


def _share_with(coupling: str, detail: str) -> Check:
    """The derived sum under one coupling; the other readings beside it."""

    def decide(s: Values) -> Answers:
        from depthlaw.theory.rules.types import plainly

        shares = {}
        for name in ("once", "own-gradient", "mean-square"):
            total = plainly(_rule("encoder-decoder", name).side("encoder").update_sum.total)
            shares[name] = total.xreplace({alpha: s["alpha"], init_gain: s["beta"]})
        bounded = {name: _is_bounded(share) for name, share in shares.items()}
        numbers = {n: {"share": str(simplify(share)), "bounded": bounded[n]} for n, share in shares.items()}
        return Answers(holds=[bounded[coupling]], numbers=numbers)

    return check(Route.PROOF, detail, decide)


def _share_of_scalars(num_layers: int) -> float:
    """The encoder's sum of (dF/dv)^2 + (dF/dw)^2 at the printed scales, N = M, every input 1."""
    encoder, decoder = scalar_sides(num_layers)
    printed = math.sqrt(2) * encoder[0].v / encoder[0].alpha * num_layers * decoder[0].ratio
    return float(sum((printed * true) ** 2 for true, _ in sensitivities(encoder, decoder)[: len(encoder)]))


@check(Route.ARITHMETIC, "c^2 times the sum of (v^2 + w^2)/alpha^2, c = M v_d w_d/alpha_d")
def _share_by_letters(s: Values) -> Answers:
    share = _COUPLING**2 * 2 * N * 2 * s["beta"] ** 2 / s["alpha"] ** 2
    holds = _is_bounded(share)
    exactly = {f"{n}, {n}": float(f"{_share_of_scalars(n):.3g}") for n in (6, 18, 100, 500)}
    example = {
        "printed": "the encoder's share of the update is bounded: it is 1",
        "found": "the sum over the encoder is set to 1/c, c = M v_d w_d/alpha_d what the cross-attentions pass on; the "
        f"encoder's gradient is scaled by c too, so its share is c^2/c = c = {_SHARE}, above 1 from "
        f"M = {_FIRST_ABOVE} on",
        "the share at N, M with the scalar model's own slopes in place of 'about 1' (DN-08)": exactly,
        "command": python_command(
            "print('share', *(M * (12 * M) ** -0.5 / (3 * M) ** 0.25 for M in (432, 433, 10**6)))"
        ),
    }
    numbers = {"share": str(simplify(share)), "share at N, M in the scalar model itself, printed decimals": exactly}
    return Answers(holds=[holds], numbers=numbers, counterexample=None if holds else example)


def _scales(s: Values, counts: tuple[int, int]) -> Scales:
    return scales_at((s["alpha"], s["beta"]), PRINTED["decoder of two"], *counts)


@check(Route.MEANFIELD, "infinite width, one token, relu: cross-attentions add as squares")
def _share_by_closed_form(s: Values) -> Answers:
    lines = {f"M to 10^6, N = {n}": [(n, m) for m in second_meanfield.LENGTHS] for n in (1, 100)}
    lines |= {f"N to 10^6, M = {m}": [(n, m) for n in second_meanfield.LENGTHS] for m in (1, 100)}
    answers, numbers = [], {}
    for name, line in lines.items():
        shares = [one_token(_scales(s, counts), *counts)[0] for counts in line]
        logs = [math.log(share) for share in shares]
        answers.append(algebra.settles(logs) or algebra.falls_away(logs))
        numbers[name] = [float(f"{share:.4g}") for share in shares]
    return Answers(holds=answers, numbers=numbers)


@check(
    Route.MEASURED,
    f"recorded encoder-decoders of (N, M) = {runs.COUNTS}, d = {runs.WIDTH}: the power of M of the encoder's sum of "
    "||df/dW||^2 / d is below 1/8, that of N below 1/16",
)
def _share_on_record(s: Values) -> Answers:
    start, by_decoder, by_encoder = (runs.encoder_share(_scales(s, counts), counts) for counts in runs.COUNTS)
    (n, m), (_, most_m), (most_n, _) = runs.COUNTS
    power_of_m, power_of_n = exponent(start, by_decoder, most_m / m), exponent(start, by_encoder, most_n / n)
    readings = {"own-gradient": 1 / 4, "once": 0.0, "mean-square": -3 / 4}
    inside = [name for name, power in readings.items() if power_of_m.low < power < power_of_m.high]
    numbers = {"power of M": power_of_m.text, "readings inside": inside, "power of N": power_of_n.text}
    half = 1 / 16  # of the power of N that a beta off by N^(1/16) would give the share
    answers = [power_of_m.is_below(runs.BETWEEN), power_of_n.is_below(half)]
    return Answers(holds=answers, numbers=numbers | {"seeds": len(start)})


_ROOT = M**QUARTER / _COUPLING
_FIRST_ABOVE = int(floor(_ROOT**4)) + 1
"""The least M at which the share is above 1."""
_SHARE = f"M^(1/4)/{_ROOT.evalf(3)}"
_OWN_ALPHA = (2 * N * _COUPLING**2) ** QUARTER
"""alpha_e^4 = 2N c^2 in place of 2N c."""
_DECIMALS = Decimals((("alpha", "0.81"), ("beta", "0.87")))


def _beta_times(factor: Expr) -> Mutant:
    statement = _SHARE_OF_PRINTED.with_(beta=_SHARE_OF_PRINTED["beta"] * factor)
    return Mutant(name=f"beta larger by {factor}", statement=statement)


_NO_SCALES = Mutant(name="no alpha and beta", statement=_SHARE_OF_PRINTED.with_(alpha=1, beta=1))
_DN_07 = Claim(
    id="DN-07",
    kind=Kind.RESULT,
    locator=f"{_TABLE}, and Appendix B",
    quote="alpha_e = 0.81 (N^4 M)^(1/16), beta_e = 0.87 (N^4 M)^(-1/16)",
    summary="encoder of an encoder-decoder: alpha = 0.81 (N^4 M)^(1/16), beta = 0.87 (N^4 M)^(-1/16)",
    uses=("DN-06",),
    parts=(
        Part(
            name="the law, with exact constants",
            statement=_EXACT,
            checks=_row_checks("encoder of two", _COUNT),
        ),
        Part(
            name="the constants 0.81 and 0.87",
            statement=_DECIMALS,
            checks=(
                _constants(Route.PROOF, "the derived rule's constants", lambda: _derived("encoder of two")),
                _constants(
                    Route.ARITHMETIC,
                    "27^(-1/16) and 27^(1/16)/sqrt(2)",
                    lambda: {"alpha": _COUNT**QUARTER, "beta": 1 / (sqrt(2) * _COUNT**QUARTER)},
                ),
            ),
            mutants=(Mutant(name="one in the last place", statement=Decimals((("alpha", "0.82"), ("beta", "0.87")))),),
        ),
        Part(
            name="the encoder's share of the update is bounded in the model that it is derived in, its own gradient "
            "passing the cross-attentions too",
            statement=_SHARE_OF_PRINTED,
            checks=(
                _share_with("own-gradient", "the derived sum, all contributions of one sign, as d = 1 has it"),
                _share_by_letters,
            ),
            mutants=(_NO_SCALES, _beta_times(M**SIXTEENTH)),
            instead=Amendment(
                statement=_SHARE_OF_PRINTED.with_(alpha=_OWN_ALPHA, beta=1 / (sqrt(2) * _OWN_ALPHA)),
                text=f"bounded with alpha_e = (2N c^2)^(1/4) = {float((2 / _ROOT**2) ** QUARTER):.3f} (N^2 M)^(1/8), "
                f"c = M v_d w_d / alpha_d; with the printed ones the share is c = {_SHARE}",
            ),
            condition=f"M <= {_FIRST_ABOVE - 1}, up to which {_SHARE} is at most 1; or a wide network (next part)",
            expected=Verdict.REFUTED,
        ),
        Part(
            name="the encoder's share of the update is bounded in a wide network",
            statement=_SHARE_OF_PRINTED,
            checks=(
                _share_with("mean-square", "the derived sum, M independent cross-attentions adding as squares"),
                _share_by_closed_form,
                _share_on_record,
            ),
            mutants=(_NO_SCALES, _beta_times(N**SIXTEENTH), _beta_times(N ** (2 * SIXTEENTH))),
        ),
    ),
    cells=_cells("encoder of two", decimals=2),
    finding=Finding(
        "DeepNet's alpha and beta for the encoder of an encoder-decoder follow from a sum that counts the passage "
        "through the cross-attentions once; the gradient passes them too, and in that model the encoder's share then "
        "grows as M^(1/4)/{root:.3g}, past 1 at M = {first}. In wide networks it stays bounded, derived and measured, "
        "so they are safe there",
        rank=120,
        numbers={"root": _ROOT, "first": _FIRST_ABOVE},
    ),
)


# ---------------------------------------------------------------- DN-10: all that a default model trains

_ALL = Values.of(
    "deepnorm, fixed width, L sublayers, relu: ||df/dtheta||^2 of the "
    + ", ".join(f"{name} Theta({{{name}}})" for name in runs.GROUPS),
    **{name: 1 / sqrt(L) if name == "query biases" else S.One for name in runs.GROUPS},
)
"""The most that the goal allows. The biases of the queries have less, which does it no harm."""
_TRUE = _ALL.with_(**{"norm gains": L, "norm biases": L, "output biases": sqrt(L)})


@check(Route.MEANFIELD, "by kind, from the derived sublayer; its squared gradient is 1 at every l")
def _by_theory(s: Values) -> list[bool | None]:
    """A norm's gain and bias get D_l = 1, an output bias 1/(alpha^2 + s) of it, fc1's as its W.

    What reaches the scores of an attention, and the biases of its queries with it, passed out and v: s/(alpha^2 + s).
    """
    from depthlaw.theory.meanfield.closedform import symbolic_moments
    from depthlaw.theory.moments import activation
    from depthlaw.theory.schemes import scheme

    stack = scheme("deepnorm").stack
    assert stack.residual_weight is not None
    moments = symbolic_moments(activation("relu"), stack.gain_in)
    passed = post_norm(moments, stack.residual_weight, stack.gain_out, stack.gain_in, sqrt)
    if cancel(passed.gradient_ratio - 1) != 0:
        raise ArithmeticError("a post-norm sublayer with ReLU should pass the squared gradient unchanged")
    each = {
        "matrices": passed.fc1_square + passed.fc2_square,
        "norm gains": S.One,
        "norm biases": S.One,
        "output biases": 1 / passed.sum_second,
        "inner biases": passed.fc1_square,
        "query biases": 1 - stack.residual_weight**2 / passed.sum_second,
    }
    return [order_key(order_of(L * each[name])) == order_key(order_of(order)) for name, order in s]


@check(Route.MEASURED, f"recorded encoders of L = {runs.LENGTHS}: each kind's power of L, to 1/8")
def _by_measuring(s: Values) -> Answers:
    kinds = {length: runs.encoders("deepnorm", "relu", length) for length in runs.LENGTHS}
    (shallow, low), (deepest, high) = kinds.items()
    powers = {name: exponent_of_means(low[name], high[name], deepest / shallow) for name, _ in s}
    stated = {name: runs.power_between(order) for name, order in s}
    answers = [powers[name].within(power - runs.BETWEEN, power + runs.BETWEEN) for name, power in stated.items()]
    numbers: dict[str, Any] = {f"power of L, {name}": power.text for name, power in powers.items()}
    numbers["seeds"] = [len(values["matrices"]) for values in kinds.values()]
    total = ""
    for length, values in kinds.items():
        sums = map(sum, zip(*values.values(), strict=True))
        total = interval([whole / matrix for whole, matrix in zip(sums, values["matrices"], strict=True)]).text
        numbers[f"all over matrices, L = {length}"] = total
    example = {
        "printed": "one SGD step moves F by Theta(eta), whatever the depth",
        "found": f"with norm gains and biases trained, Theta(eta L) at fixed width: at d = {runs.WIDTH}, L = {deepest} "
        f"all parameters move a logit {total} times as far as the matrices do",
        "width": runs.WIDTH,
        "num_sublayers": deepest,
        "command": "depthlaw predict --attention --roles --scheme deepnorm --optimizer sgd --layers 6,24,96 "
        "--width 1024",
    }
    return Answers(holds=answers, numbers=numbers, counterexample=example if False in answers else None)


_KERNEL_ROLES: Mapping[str, tuple[str, ...]] = {
    kernel.UPDATE: ("matrices",),
    "norm_gain": ("norm gains",),
    "norm_bias": ("norm biases",),
    "bias": ("output biases", "inner biases", "query biases"),
}
"""The kernel rung's roles, and the kinds of which each is the sum: it goes as the largest."""


@check(Route.KERNEL, "Transformers at infinite width, N = 4 to 1,000: each role's power of L; linear biases are one")
def _by_kernel(s: Values) -> Answers:
    deepnorm = Growth(scheme="deepnorm", order=S.One)
    law = kernel.law(deepnorm)
    answers = []
    numbers: dict[str, object] = {}
    for role, kinds in _KERNEL_ROLES.items():
        order = max((s[kind] for kind in kinds), key=lambda order: float(order.subs(L, 10**6)))
        powers = kernel.follows(kernel.curve(law, role), order, is_upper=False)
        answers.append(powers.answer)
        numbers |= {f"{role}, {name}": text for name, text in powers.numbers.items()}
    return Answers(holds=answers, numbers=numbers | kernel.roles_beside(deepnorm, law))


_DN_10 = Claim(
    id="DN-10",
    kind=Kind.RESULT,
    locator="Section 4, GOAL",
    quote="GOAL: ||dF|| = Theta(eta) per SGD step after initialisation, as eta goes to 0",
    summary="under DeepNorm one SGD step moves F by Theta(eta), whatever the depth",
    uses=("DN-04",),
    parts=(
        _flat("the weights that the theory covers", "relu", STACKS_ON_RECORD, kernel.GROWTH_BY_KERNEL),
        _flat("the weights that the theory covers", "gelu", kernel.GROWTH_BY_KERNEL),
        Part(
            name="all parameters that a default model trains: norm gains and biases, linear biases",
            statement=_ALL,
            checks=(_by_theory, _by_measuring, _by_kernel),
            mutants=tuple(
                Mutant(name=name, statement=_TRUE.with_(**orders))
                for name, orders in {
                    "output biases as L": {"output biases": L},
                    "norm gains as L^(1/2)": {"norm gains": sqrt(L)},
                    "query biases flat": {"query biases": 1},
                    "norms flat": {"norm gains": 1, "norm biases": 1},
                }.items()
            ),
            instead=Amendment(
                statement=_TRUE,
                text="norm gains and norm biases Theta(L) each, output biases Theta(L^(1/2)), inner biases and, times "
                "d, matrices Theta(1), query biases Theta(L^(-1/2)): a norm's bias adds straight to a stream whose "
                "gradient has one size all along",
            ),
            condition="these parameters are frozen, or the learning rate of norm gains and biases is divided by L and "
            "that of output biases by L^(1/2); or L is below about d/4, where the norms' 2L is below the matrices' d/2",
            expected=Verdict.REFUTED,
        ),
    ),
    finding=Finding(
        "DeepNorm keeps the update of the weight matrices flat in depth, but not that of the norm gains and biases, "
        "which a default model trains too: it grows as L at fixed width. That of linear biases grows as L^(1/2). In "
        "real Transformers with softmax attention it is so too, derived up to {last:,} layers. Su's rules for SGD and "
        "Adam break it in the same roles, LAMB's in the norm gains (as published it moves no bias that is zero), and "
        "at Pre-Norm the linear biases grow as L under SGD and Adam",
        rank=30,
        numbers={"last": kernel.LAST},
    ),
)

CLAIMS: tuple[Claim, ...] = (_DN_04, _DN_05, _DN_06, _DN_07, _DN_10)
