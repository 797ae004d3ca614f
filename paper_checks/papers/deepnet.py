"""Wang et al., "DeepNet: Scaling Transformers to 1,000 Layers", arXiv 2203.00555: alpha and beta of DeepNorm.

Its letters: N encoder and M decoder layers; alpha the weight of the skip; v, w the scales of a branch's two matrices,
beta where both are one; e and d for the sides of an encoder-decoder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import mpmath
from sympy import Expr, Rational, S, Sum, log, simplify, sqrt

from paper_checks import direct, exact
from paper_checks.cells import read
from paper_checks.checks import GROWTH, all_of, check, derived, outcome
from paper_checks.claim import Cell, Check, Claim, Evidence, Mutant, Part, Route
from paper_checks.papers.deepnet_parts import BETWEEN, Scales, exponent, is_below, measured, one_token
from paper_checks.statements import Decimals, Growth, Values
from theory.symbols import L, M, N, displacements, l
from theory.symbols import gain_in as w
from theory.symbols import gain_out as v
from theory.symbols import residual_weight as alpha

HALF, QUARTER, SIXTEENTH = Rational(1, 2), Rational(1, 4), Rational(1, 16)
SECTION = "Section 4"

TEXTS = {
    "encoder": ("(2*N)**(1/4)", "(8*N)**(-1/4)"),
    "decoder": ("(2*M)**(1/4)", "(8*M)**(-1/4)"),
    "decoder of two": ("(3*M)**(1/4)", "(12*M)**(-1/4)"),
}
PRINTED = {name: (read(alpha_text), read(beta_text)) for name, (alpha_text, beta_text) in TEXTS.items()}
"""(alpha, beta), exact. The encoder of two is printed with two decimals."""
DECIMALS = (("alpha", "0.81"), ("beta", "0.87"))
NUM_SUBLAYERS = {"encoder": 2 * N, "decoder": 2 * M, "decoder of two": 3 * M}
_WHERE = {"encoder": ("encoder", "encoder"), "decoder": ("decoder", "decoder")}
_OF_TWO = N**4 * M


@cache
def _side(architecture: str, name: str, coupling: str = "once") -> Any:
    return _rule(architecture, coupling).side(name)


@cache
def _rule(architecture: str, coupling: str = "once") -> Any:
    from theory.rules import solve_rule

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
        return [exact.equal(count() * squares / s["alpha"] ** 2, S.One), exact.equal(squares * s["alpha"] ** 2, S.One)]

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
        source="deepnet",
        locator=f"{SECTION}, the table of alpha and beta",
        quote=quote,
        summary="{}: alpha = {}, beta = {}".format(which, *TEXTS[which]),
        parts=(part, *more),
        cells=(*_cells(*_place(which), TEXTS[which]), *extra),
    )


def _flat(activation: str) -> Part:
    statement = Growth(scheme="deepnorm", activation=activation, order=S.One)
    return Part(
        name=f"the true update under SGD does not grow, {activation}",
        statement=statement,
        checks=GROWTH,
        mutants=(
            Mutant(name="grows as L^(1/4)", statement=statement.with_(order=L**QUARTER)),
            Mutant(name="without alpha and beta", statement=statement.with_(scheme="post-ln")),
        ),
    )


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
            found = exact.roundings(mpmath.mpf(str(constant.evalf(30))), digits)
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


def _share_by_rules(statement: Values) -> Evidence:
    """The derived sum under three couplings. Judged by the last: the cross-attentions' matrices are independent."""
    found = _shares_by_rules(statement)
    bounded = {}
    for name, share in found.items():
        form = exact.log_form(share)
        bounded[name] = all(form.coeff(log(count)) <= 0 for count in (N, M))
    return Evidence(
        route=Route.PROOF,
        num_effective=1,
        verdict=outcome(bounded["mean-square"]),
        detail="the derived sum with its own gradient passing M independent cross-attentions, which add as squares: "
        "coupling M (v_d w_d/alpha_d)^2: alpha_e is then larger and beta_e smaller than it takes. Beside it the "
        "readings once, as DeepNet counts, and own-gradient, with M^2 for M",
        numbers={name: {"share": str(simplify(share)), "bounded": bounded[name]} for name, share in found.items()},
    )


def _shares_by_rules(s: Values) -> dict[str, Expr]:
    from theory.rule_types import plainly
    from theory.symbols import init_gain

    def share(coupling: str) -> Expr:
        side = _side("encoder-decoder", "encoder", coupling)
        return plainly(side.update_sum.total).xreplace({alpha: s["alpha"], init_gain: s["beta"]})

    return {name: share(name) for name in ("once", "own-gradient", "mean-square")}


def _scales(s: Values, num_encoder: int, num_decoder: int) -> Scales:
    at = {N: num_encoder, M: num_decoder}
    encoder, decoder = (s["alpha"], s["beta"]), PRINTED["decoder of two"]
    return Scales(*[(float(a.subs(at)), float(b.subs(at))) for a, b in (encoder, decoder)])


def _share_by_closed_form(s: Values) -> Evidence:
    """One token: the encoder gets 1 - (1 + r^2)^(-M) of the squared gradient, r = v_d w_d / alpha_d."""
    lines = {f"M to 10^6, N = {n}": [(n, m) for m in direct.LENGTHS] for n in (1, 100)}
    lines |= {f"N to 10^6, M = {m}": [(n, m) for n in direct.LENGTHS] for m in (1, 100)}
    answers, numbers = [], {}
    for name, counts in lines.items():
        shares = [one_token(_scales(s, *pair), *pair)[0] for pair in counts]
        logs = [math.log(share) for share in shares]
        answers.append(exact.settles(logs) or exact.falls_away(logs))
        numbers[name] = [float(f"{share:.4g}") for share in shares]
    return Evidence(
        route=Route.MEANFIELD,
        num_effective=len(answers),
        verdict=outcome(all(answers)),
        detail="the encoder's share at infinite width, one token on either side, relu, in closed form at 10^2, 10^4, "
        "10^6: matrices of different layers are independent, so no two cross-attentions' contributions correlate",
        numbers=numbers,
    )


def _share_by_measuring(s: Values) -> Evidence:
    """Real encoder-decoders: how the encoder's share grows with M and with N."""
    at = {
        counts: [pair[0] for pair in measured(_scales(s, *counts), *counts, num_seeds=8)]
        for counts in ((1, 3), (1, 24), (8, 3))
    }
    by_decoder, by_encoder = (exponent(at[1, 3], at[other], 8) for other in ((1, 24), (8, 3)))
    readings = {"own-gradient": 1 / 4, "once": 0.0, "mean-square": -3 / 4}
    within = [name for name, power in readings.items() if by_decoder.low < power < by_decoder.high]
    answers = [is_below(by_decoder, BETWEEN), is_below(by_encoder, 1 / 2)]
    return Evidence(
        route=Route.MEASURED,
        num_effective=len(answers),
        verdict=outcome(all_of(answers)),
        detail="the encoder's sum of ||df/dW||^2 / d in real encoder-decoders, 4 tokens, d = 32, 8 seeds: its power of "
        "M from 3 to 24 at N = 1 (no growth is below 1/8), of N from 1 to 8 at M = 3 (below linear is below 1/2)",
        numbers={"power of M": by_decoder.text, "readings inside": within, "power of N": by_encoder.text},
    )


_DN_07 = Claim(
    id="DN-07",
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
            name="the encoder's share of the update is bounded, its own gradient passing the cross-attention too",
            statement=_EXACT,
            checks=(
                Check(route=Route.PROOF, run=_share_by_rules),
                Check(route=Route.MEANFIELD, run=_share_by_closed_form, is_direct=True),
                Check(route=Route.MEASURED, run=_share_by_measuring, is_direct=True),
            ),
            mutants=(
                Mutant(name="no alpha and beta", statement=Values.of(alpha=1, beta=1)),
                Mutant(name="beta grows", statement=_EXACT.with_(beta=_OF_TWO**SIXTEENTH)),
            ),
        ),
    ),
    cells=_cells("encoder-decoder", "encoder", ("0.81*(N**4*M)**(1/16)", "0.87*(N**4*M)**(-1/16)"), decimals=2),
)


# ---------------------------------------------------------------- DN-09: vanilla Post-LN

_THEOREM = Sum(sqrt(v**2 + w**2) / alpha * displacements[l], (l, 1, L))
"""Theorem 4.2 at one gain for every sublayer."""


def _is_number(expr: Expr) -> bool:
    return expr.is_number and bool(expr.is_finite) and expr != 0


def _ratio(first: Expr, second: Expr) -> bool | None:
    """Whether two sums differ by a number."""
    return _is_number((exact.normal_form(first) / exact.normal_form(second)).cancel())


def _theory_bound(s: Values) -> list[bool | None]:
    from theory.bounds import derive_bound
    from theory.symbols import gains_in, gains_out

    found = derive_bound("post-ln").displacement
    if found is None:
        raise ArithmeticError("the post-norm bound has no displacement form")
    plain = found.replace(lambda e: getattr(e, "base", None) in (gains_in, gains_out), lambda _: S.One)
    return [_ratio(plain.subs(alpha, 1), s["bound"])]


_VANILLA = Values.of(bound=Sum(displacements[l], (l, 1, L)))
_POST_RELU = Growth(scheme="post-ln", order=L, is_upper=True)
_DN_09 = Claim(
    id="DN-09",
    source="deepnet",
    locator=f"{SECTION}, after Theorem 4.2",
    quote="vanilla Post-LN: alpha = v = w = 1, so O(sum_i ||theta_i^* - theta_i||)",
    summary="vanilla Post-LN is alpha = v = w = 1, its update O(sum of the displacements)",
    parts=(
        Part(
            name="the bound at alpha = v = w = 1",
            statement=_VANILLA,
            checks=(
                check(Route.PROOF, "the derived post-norm bound, over the printed one, is a number", _theory_bound),
                check(
                    Route.ARITHMETIC,
                    "Theorem 4.2 at alpha = v = w = 1 is sqrt(2) times it. There the slopes that refute it (DN-02) "
                    "do no harm: alpha (alpha - vw) = 0, so to first order the scalar model moves with no weight",
                    lambda s: [_ratio(_THEOREM.subs({alpha: 1, v: 1, w: 1}), s["bound"])],
                    is_direct=True,
                ),
            ),
            mutants=(
                Mutant(name="a square", statement=Values.of(bound=Sum(displacements[l] ** 2, (l, 1, L)))),
                Mutant(name="a weight l", statement=Values.of(bound=Sum(l * displacements[l], (l, 1, L)))),
            ),
        ),
        Part(
            name="the true update under SGD, relu",
            statement=_POST_RELU,
            checks=GROWTH,
            mutants=(
                Mutant(name="O(log L)", statement=_POST_RELU.with_(order=log(L))),
                Mutant(name="O(L^(1/2))", statement=_POST_RELU.with_(order=L**HALF)),
            ),
        ),
    ),
    cells=(
        Cell(
            table="bounds",
            where=(("scheme", "post-ln"),),
            column="bound",
            printed="eta*Sum((v[l]**2 + w[l]**2)/alpha**2, (l, 1, L))",
            note="Theorem 4.2 after one SGD step, before alpha = v = w = 1",
        ),
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
    _DN_09,
)
