"""Wang et al., "DeepNet: Scaling Transformers to 1,000 Layers", arXiv 2203.00555: alpha and beta of DeepNorm.

Its letters: N encoder and M decoder layers; alpha the weight of the skip; v, w the scales of a branch's two matrices,
beta where both are one; e and d for the sides of an encoder-decoder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import mpmath
from sympy import Expr, Rational, S, floor, log, simplify, sqrt

from paper_checks.claims.claim import (
    Amendment,
    Cell,
    Check,
    Claim,
    Evidence,
    Finding,
    Kind,
    Mutant,
    Part,
    Route,
    Verdict,
)
from paper_checks.claims.statements import Decimals, Growth, Values
from paper_checks.papers.deepnet.parts import BETWEEN, PRINTED, TEXTS, Scales, deepnet_scales, one_token
from paper_checks.papers.deepnet.runs import COUNTS, GROWTH_ON_RECORD, encoder_share
from paper_checks.routes import algebra, one_liners, second_meanfield
from paper_checks.routes.checks import GROWTH, all_of, check, derived, outcome
from paper_checks.routes.intervals import exponent
from paper_checks.routes.kernel import GROWTH_BY_KERNEL_ANEW, kernel_too
from paper_checks.routes.recorded_stacks import recorded_too
from theory.symbols import L, M, N, init_gain
from theory.symbols import residual_weight as alpha

HALF, QUARTER, SIXTEENTH = Rational(1, 2), Rational(1, 4), Rational(1, 16)
SECTION = "Section 4"

DECIMALS = (("alpha", "0.81"), ("beta", "0.87"))
NUM_SUBLAYERS = {"encoder": 2 * N, "decoder": 2 * M, "decoder of two": 3 * M}
_WHERE = {"encoder": ("encoder", "encoder"), "decoder": ("decoder", "decoder")}
_OF_TWO = N**4 * M


@cache
def _side(architecture: str, name: str, coupling: str = "once") -> Any:
    return _rule(architecture, coupling).side(name)


@cache
def _rule(architecture: str, coupling: str = "once") -> Any:
    from theory.rules.solve import solve_rule

    chosen = coupling if architecture == "encoder-decoder" else None
    return solve_rule("post", "sgd", architecture, "deepnet", coupling=chosen, with_alternatives=False)


def _place(which: str) -> tuple[str, str]:
    return _WHERE.get(which) or ("encoder-decoder", which.split(maxsplit=1)[0])


def _derived_rule(which: str) -> Check:
    architecture, name = _place(which)

    def values() -> dict[str, Expr]:
        found = _side(architecture, name)
        return {"alpha": found.residual_weight, "beta": found.gain}

    return derived("the derived rule: every matrix counted, v^2 + w^2 = 1/alpha^2", values, steps=_why(architecture))


def _why(architecture: str) -> Callable[[], tuple[str, ...]]:
    return lambda: _rule(architecture).why


def _by_hand(count: Callable[[], Expr]) -> Check:
    """The source's own condition and choice, put in."""

    def decide(s: Values) -> list[bool | None]:
        squares = 2 * s["beta"] ** 2
        return [
            algebra.equal(count() * squares / s["alpha"] ** 2, S.One),
            algebra.equal(squares * s["alpha"] ** 2, S.One),
        ]

    return check(
        Route.ARITHMETIC,
        "its condition that the sum over sublayers is 1, and its choice v^2 + w^2 = 1/alpha^2, put in",
        decide,
        is_direct=True,
    )


def _cells(architecture: str, side: str, texts: tuple[str, str], decimals: int | None = None) -> tuple[Cell, ...]:
    where = (("architecture", architecture), ("side", side))
    return tuple(
        Cell(table="deepnet", where=where, column=column, printed=text, decimals=decimals)
        for column, text in zip(("alpha", "beta"), texts, strict=True)
    )


def _row(id_: str, which: str, quote: str, *more: Part, extra: tuple[Cell, ...] = ()) -> Claim:
    a, b = PRINTED[which]
    statement = Values.of(alpha=a, beta=b)
    counts = {symbol: symbol / 2 for symbol in (N, M)}
    part = Part(
        name="alpha and beta",
        statement=statement,
        checks=(_derived_rule(which), _by_hand(lambda: NUM_SUBLAYERS[which])),
        mutants=(
            Mutant(name="half the layers", statement=statement.with_(alpha=a.xreplace(counts))),
            Mutant(name="beta with the count of alpha", statement=statement.with_(beta=1 / a)),
        ),
    )
    return Claim(
        id=id_,
        kind=Kind.RESULT,
        source="deepnet",
        locator=f"{SECTION}, the table of alpha and beta",
        quote=quote,
        summary="{}: alpha = {}, beta = {}".format(which, *TEXTS[which]),
        parts=(part, *more),
        cells=(*_cells(*_place(which), TEXTS[which]), *extra),
    )


def _flat(activation: str) -> Part:
    statement = Growth(scheme="deepnorm", activation=activation, order=S.One)
    part = Part(
        name=f"the true update under SGD does not grow, {activation}",
        statement=statement,
        checks=(*GROWTH, GROWTH_ON_RECORD),
        mutants=(
            Mutant(name="grows as L^(1/4)", statement=statement.with_(order=L**QUARTER)),
            Mutant(name="without alpha and beta", statement=statement.with_(scheme="post-ln")),
        ),
    )
    return kernel_too(recorded_too(part), GROWTH_BY_KERNEL_ANEW) if activation == "relu" else kernel_too(part)


# ---------------------------------------------------------------- DN-07: the encoder of two

_EXACT = Values.of(
    alpha=27**-SIXTEENTH * _OF_TWO**SIXTEENTH,
    beta=27**SIXTEENTH / sqrt(2) * _OF_TWO**-SIXTEENTH,
)


def _count_of_encoder() -> Expr:
    """2N sublayers, each through M cross-attentions of v_d w_d / alpha_d."""
    a, b = PRINTED["decoder of two"]
    return M * b**2 / a * 2 * N


def _constants(values: Callable[[], Mapping[str, Expr]], detail: str, is_direct: bool) -> Check:
    """Two decimals against exact constants, rounded half up and half to even."""

    def run(statement: Decimals) -> Evidence:
        answers, numbers = [], {}
        for name, printed in statement.entries:
            constant = values()[name]
            digits = len(printed.partition(".")[2])
            found = algebra.roundings(mpmath.mpf(str(constant.evalf(30))), digits)
            answers.append(set(found.values()) == {printed})
            numbers[name] = {"exact": str(constant), "value": float(constant), **found}
        return Evidence(
            route=Route.ARITHMETIC if is_direct else Route.PROOF,
            num_effective=len(answers),
            verdict=outcome(all(answers)),
            detail=detail,
            numbers=numbers,
        )

    return Check(route=Route.ARITHMETIC if is_direct else Route.PROOF, run=run, is_direct=is_direct)


def _derived_constants() -> dict[str, Expr]:
    side = _side("encoder-decoder", "encoder")
    found = {"alpha": side.residual_weight / _OF_TWO**SIXTEENTH, "beta": side.gain * _OF_TWO**SIXTEENTH}
    return {name: found[name].subs({N: 1, M: 1}) for name in found}


def _constants_by_hand() -> dict[str, Expr]:
    """alpha_e^4 = M (12M)^(-1/2) (3M)^(-1/4) 2N at N = M = 1, and beta_e = 1/(sqrt(2) alpha_e)."""
    a = _count_of_encoder().subs({N: 1, M: 1}) ** QUARTER
    return {"alpha": a, "beta": 1 / (sqrt(2) * a)}


@dataclass(frozen=True, kw_only=True)
class Bounded:
    """The encoder's share of the update is bounded, whatever N and M."""

    alpha: Expr
    beta: Expr

    @property
    def text(self) -> str:
        letters = f"alpha_e = {self.alpha}, beta_e = {self.beta}"
        return f"the encoder's sum of ||dF/dtheta||^2 is bounded for all N and M: {letters}"

    def of_encoder(self) -> dict[Expr, Expr]:
        return {alpha: self.alpha, init_gain: self.beta}


def _is_bounded(share: Expr) -> bool:
    form = algebra.log_form(share)
    return all(form.coeff(log(count)) <= 0 for count in (N, M))


def _share_with(coupling: str, detail: str) -> Check:
    """The derived sum under one coupling; the other readings beside it."""

    def run(s: Bounded) -> Evidence:
        from theory.rules.types import plainly

        found = {}
        for name in ("once", "own-gradient", "mean-square"):
            total = plainly(_side("encoder-decoder", "encoder", name).update_sum.total)
            found[name] = total.xreplace(s.of_encoder())
        bounded = {name: _is_bounded(share) for name, share in found.items()}
        return Evidence(
            route=Route.PROOF,
            num_effective=1,
            verdict=outcome(bounded[coupling]),
            detail=detail,
            numbers={n: {"share": str(simplify(share)), "bounded": bounded[n]} for n, share in found.items()},
        )

    return Check(route=Route.PROOF, run=run)


def _share_by_letters(s: Bounded) -> Evidence:
    """c^2 sum (v_e^2 + w_e^2)/alpha_e^2, c = sum v_d w_d / alpha_d: the coupling moves F, and scales the gradient."""
    a, b = PRINTED["decoder of two"]
    coupling = M * b**2 / a
    share = coupling**2 * 2 * N * 2 * s.beta**2 / s.alpha**2
    holds = _is_bounded(share)
    exactly = {f"{n}, {n}": float(f"{_share_of_scalars(deepnet_scales(n, n), n, n):.3g}") for n in (6, 18, 100, 500)}
    example = {
        "printed": "the encoder's share of the update is bounded: it is 1",
        "found": "the sum over the encoder is set to 1/c, c = M v_d w_d/alpha_d what the cross-attentions pass on; the "
        f"encoder's gradient is scaled by c too, so its share is c^2/c = c = {_SHARE}, above 1 from "
        f"M = {_FIRST_ABOVE} on",
        "the share at N, M with the scalar model's own slopes in place of 'about 1' (DN-08)": exactly,
        "command": one_liners.ENCODER_SHARE,
    }
    return Evidence(
        route=Route.ARITHMETIC,
        num_effective=1,
        verdict=outcome(holds),
        detail="c^2 sum over the encoder of (v^2 + w^2)/alpha^2, c = M v_d w_d/alpha_d, with the paper's own "
        "approximations; beside it the scalar model without them, whose slopes multiply to more than 1 (DN-08)",
        numbers={"share": str(simplify(share)), "share at N, M in the scalar model itself, printed decimals": exactly},
        counterexample=None if holds else example,
    )


def _share_of_scalars(scales: Scales, num_encoder: int, num_decoder: int) -> float:
    """The encoder's sum of (dF/dv)^2 + (dF/dw)^2, every input 1."""
    (a_e, b_e), (a_d, b_d) = scales
    root = math.sqrt(a_e**2 + b_e**4)
    slope, own = (a_e + b_e**2) / root, math.sqrt(2) * b_e * a_e * (a_e - b_e**2) / root**3
    below = slope ** (2 * num_encoder - 1)
    root = math.sqrt(a_d**2 + b_d**4)
    passing, entering = (a_d + b_d**2) / root, b_d**2 / root
    stays = a_d / root
    total = 0.0
    for _ in range(num_decoder):  # self-attention, cross-attention, ffn: dy/d(the encoder's output)
        total = ((total * passing) * stays + entering) * passing
    return 2 * num_encoder * (own * below * total) ** 2


def _scales(s: Bounded, num_encoder: int, num_decoder: int) -> Scales:
    at = {N: num_encoder, M: num_decoder}
    encoder, decoder = (s.alpha, s.beta), PRINTED["decoder of two"]
    return Scales(*[(float(a.subs(at)), float(b.subs(at))) for a, b in (encoder, decoder)])


def _share_by_closed_form(s: Bounded) -> Evidence:
    """One token: the encoder gets 1 - (1 + r^2)^(-M) of the squared gradient, r = v_d w_d / alpha_d."""
    lines = {f"M to 10^6, N = {n}": [(n, m) for m in second_meanfield.LENGTHS] for n in (1, 100)}
    lines |= {f"N to 10^6, M = {m}": [(n, m) for n in second_meanfield.LENGTHS] for m in (1, 100)}
    answers, numbers = [], {}
    for name, counts in lines.items():
        shares = [one_token(_scales(s, *pair), *pair)[0] for pair in counts]
        logs = [math.log(share) for share in shares]
        answers.append(algebra.settles(logs) or algebra.falls_away(logs))
        numbers[name] = [float(f"{share:.4g}") for share in shares]
    return Evidence(
        route=Route.MEANFIELD,
        num_effective=len(answers),
        verdict=outcome(all(answers)),
        detail="the encoder's share at infinite width, one token on either side, relu, in closed form at 10^2, 10^4, "
        "10^6: matrices of different layers are independent, so no two cross-attentions' contributions correlate",
        numbers=numbers,
    )


_NO_GROWTH = 1 / 16
"""Half the power of N that a beta off by N^(1/16) would give the share."""


def _share_on_record(s: Bounded) -> Evidence:
    """Real encoder-decoders: how the encoder's share grows with M and with N."""
    start, by_decoder, by_encoder = (encoder_share(_scales(s, *counts), counts) for counts in COUNTS)
    (n, m), (_, most_m), (most_n, _) = COUNTS
    power_of_m, power_of_n = exponent(start, by_decoder, most_m / m), exponent(start, by_encoder, most_n / n)
    readings = {"own-gradient": 1 / 4, "once": 0.0, "mean-square": -3 / 4}
    within = [name for name, power in readings.items() if power_of_m.low < power < power_of_m.high]
    return Evidence(
        route=Route.MEASURED,
        num_effective=2,
        verdict=outcome(all_of([power_of_m.is_below(BETWEEN), power_of_n.is_below(_NO_GROWTH)])),
        detail=f"the encoder's sum of ||df/dW||^2 / d in recorded encoder-decoders, 4 tokens, d = 32, {len(start)} "
        f"seeds: its power of M from {m} to {most_m} at N = {n} (no growth is below 1/8), of N from {n} to {most_n} "
        f"at M = {m} (below 1/16)",
        numbers={"power of M": power_of_m.text, "readings inside": within, "power of N": power_of_n.text},
    )


_COUPLING = M * PRINTED["decoder of two"][1] ** 2 / PRINTED["decoder of two"][0]
"""c, what the cross-attentions pass on; and the encoder's share of the update at the printed alpha and beta."""
_ROOT = simplify(M**QUARTER / _COUPLING)
_FIRST_ABOVE = int(floor(_ROOT**4)) + 1
"""The least M at which the share is above 1."""
_SHARE = f"M^(1/4)/{_ROOT.evalf(3)}"
_PRINTED_SHARE = Bounded(alpha=_EXACT["alpha"], beta=_EXACT["beta"])
_OWN_ALPHA = (2 * N * _COUPLING**2) ** QUARTER
"""alpha_e^4 = 2N c^2 in place of 2N c."""


_DN_07 = Claim(
    id="DN-07",
    kind=Kind.RESULT,
    source="deepnet",
    locator=f"{SECTION}, the table of alpha and beta, and Appendix B",
    quote="alpha_e = 0.81 (N^4 M)^(1/16), beta_e = 0.87 (N^4 M)^(-1/16)",
    summary="encoder of an encoder-decoder: alpha = 0.81 (N^4 M)^(1/16), beta = 0.87 (N^4 M)^(-1/16)",
    uses=("DN-06",),
    parts=(
        Part(
            name="the law, with exact constants",
            statement=_EXACT,
            checks=(_derived_rule("encoder of two"), _by_hand(_count_of_encoder)),
            mutants=(
                Mutant(name="N and M swapped", statement=_EXACT.with_(alpha=(M**4 * N / 27) ** SIXTEENTH)),
                Mutant(name="an eighth", statement=_EXACT.with_(alpha=(_OF_TWO / 27) ** (2 * SIXTEENTH))),
            ),
        ),
        Part(
            name="the constants 0.81 and 0.87",
            statement=Decimals(DECIMALS),
            checks=(
                _constants(_derived_constants, "the derived rule's constants, to two decimals", False),
                _constants(_constants_by_hand, "27^(-1/16) and 27^(1/16)/sqrt(2), to two decimals", True),
            ),
            mutants=(
                Mutant(name="one in the last place", statement=Decimals((("alpha", "0.82"), ("beta", "0.87")))),
                Mutant(name="the other one's", statement=Decimals((("alpha", "0.87"), ("beta", "0.81")))),
            ),
        ),
        Part(
            name="the encoder's share of the update is bounded in the model that it is derived in, its own gradient "
            "passing the cross-attentions too",
            statement=_PRINTED_SHARE,
            checks=(
                _share_with(
                    "own-gradient",
                    "the derived sum, every contribution with the same sign, as d = 1 has it: the gradient of an "
                    "encoder's weight is scaled by c = M v_d w_d/alpha_d, and what it moves is once more",
                ),
                Check(route=Route.ARITHMETIC, run=_share_by_letters, is_direct=True),
            ),
            mutants=(
                Mutant(name="no alpha and beta", statement=Bounded(alpha=S.One, beta=S.One)),
                Mutant(
                    name="beta larger by M^(1/16)",
                    statement=replace(_PRINTED_SHARE, beta=_PRINTED_SHARE.beta * M**SIXTEENTH),
                ),
            ),
            instead=Amendment(
                statement=Bounded(alpha=_OWN_ALPHA, beta=1 / (sqrt(2) * _OWN_ALPHA)),
                text=f"bounded with alpha_e = (2N c^2)^(1/4) = {float((2 / _ROOT**2) ** QUARTER):.3f} (N^2 M)^(1/8), "
                f"c = M v_d w_d / alpha_d; with the printed ones the share is c = {_SHARE}",
            ),
            condition=f"M <= {_FIRST_ABOVE - 1}, up to which {_SHARE} is at most 1; or a wide network (next part)",
            expected=Verdict.REFUTED,
        ),
        Part(
            name="the encoder's share of the update is bounded in a wide network",
            statement=_PRINTED_SHARE,
            checks=(
                _share_with(
                    "mean-square",
                    "the derived sum with its own gradient passing M independent cross-attentions, which add as "
                    "squares: coupling M (v_d w_d/alpha_d)^2: alpha_e is then larger and beta_e smaller than it "
                    "takes. Beside it the readings once, as DeepNet counts, and own-gradient, with M^2 for M",
                ),
                Check(route=Route.MEANFIELD, run=_share_by_closed_form, is_direct=True),
                Check(route=Route.MEASURED, run=_share_on_record, is_direct=True),
            ),
            mutants=(
                Mutant(name="no alpha and beta", statement=Bounded(alpha=S.One, beta=S.One)),
                Mutant(name="beta grows", statement=replace(_PRINTED_SHARE, beta=_OF_TWO**SIXTEENTH)),
                Mutant(
                    name="beta larger by N^(1/16)",
                    statement=replace(_PRINTED_SHARE, beta=_PRINTED_SHARE.beta * N**SIXTEENTH),
                ),
                Mutant(
                    name="beta larger by N^(1/8)",
                    statement=replace(_PRINTED_SHARE, beta=_PRINTED_SHARE.beta * N ** (2 * SIXTEENTH)),
                ),
            ),
        ),
    ),
    cells=_cells("encoder-decoder", "encoder", ("0.81*(N**4*M)**(1/16)", "0.87*(N**4*M)**(-1/16)"), decimals=2),
    expected=Verdict.REFUTED,
    finding=Finding(
        "DeepNet's alpha and beta for the encoder of an encoder-decoder follow from a sum that counts the "
        "passage through the cross-attentions once; the gradient passes them too, and in that model the "
        "encoder's share then grows as M^(1/4)/{root:.3g}, past 1 at M = {first}. In wide networks it stays "
        "bounded, derived and measured, so they are safe there",
        rank=120,
        numbers={"root": _ROOT, "first": _FIRST_ABOVE},
    ),
)

CLAIMS: tuple[Claim, ...] = (
    _row(
        "DN-04",
        "encoder",
        "encoder-only: alpha = (2N)^(1/4), beta = (8N)^(-1/4)",
        _flat("relu"),
        _flat("gelu"),
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
    ),
    _row("DN-05", "decoder", "decoder-only: alpha = (2M)^(1/4), beta = (8M)^(-1/4)"),
    _row("DN-06", "decoder of two", "encoder-decoder, decoder: alpha = (3M)^(1/4), beta = (12M)^(-1/4)"),
    _DN_07,
)
