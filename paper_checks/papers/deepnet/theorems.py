"""DeepNet's theorems 4.2 and 4.3: bounds on the update, in the scalar model they are proved in and in wide networks.

theta_i are the weights v_i and w_i of sublayer i; N encoder layers of 2 sublayers, M decoder layers of 3.
"""

from __future__ import annotations

from sympy import Rational, simplify

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
from paper_checks.claims.statements import Values
from paper_checks.papers.deepnet.own import BOTH_SIDES, DERIVED, DERIVED_OF_TWO, ENCODERS, stepped
from paper_checks.papers.deepnet.parts import VANILLA, Scales, deepnet_scales, measured, one_token
from paper_checks.papers.deepnet.scalar import EACH, ScalarBound, searched
from paper_checks.papers.deepnet.tables import PRINTED
from paper_checks.papers.deepnet.wide import WIDE_PARTS
from paper_checks.routes import algebra
from paper_checks.routes.checks import all_of, check, outcome
from paper_checks.routes.intervals import OF_FEW, Interval, interval
from theory.symbols import M, N, scratch, side_symbols
from theory.symbols import residual_weight as alpha

# ---------------------------------------------------------------- DN-02: Theorem 4.2

_PRINTED_BOUND = ScalarBound(EACH)
_DN_02_QUOTE = "||dF|| <= sum_{i=1}^{2N} sqrt(v_i^2 + w_i^2)/alpha ||theta_i^* - theta_i||"
_DN_03_QUOTE = (
    "||dF_ed|| <= sum_{j=1}^{M} v_{d,3j-1} w_{d,3j-1}/alpha_d sum_{i=1}^{2N} sqrt(v_ei^2 + w_ei^2)/alpha_e "
    "||dtheta_ei|| + sum_{j=1}^{3M} sqrt(v_dj^2 + w_dj^2)/alpha_d ||dtheta_dj||"
)


_POWER = simplify(2 * N * PRINTED["encoder"][1] ** 2 / PRINTED["encoder"][0] / N ** Rational(1, 4))
"""What the slopes v w / alpha of the 2N sublayers add up to at DeepNet's alpha and beta, over N^(1/4)."""


_DN_02 = Claim(
    id="DN-02",
    kind=Kind.RESULT,
    source="deepnet",
    locator="Section 4, Theorem 4.2",
    quote=_DN_02_QUOTE,
    summary="the update of an N-layer DeepNet is at most sum_i sqrt(v_i^2 + w_i^2)/alpha ||dtheta_i||",
    uses=(
        "DN-01",
        "DN-08",
        "DN-11",
    ),
    parts=(
        Part(
            name="in the model that it is proved in: d = 1, 0 < v, w < 1 < alpha",
            statement=_PRINTED_BOUND,
            checks=(
                searched("rational weights inside the hypotheses, 2 to 6 sublayers, exactly", is_decoder=False),
                stepped("DN-02", _DN_02_QUOTE, ENCODERS[:3]),
                DERIVED,
            ),
            mutants=(
                Mutant(name="1/alpha^2", statement=ScalarBound(EACH / alpha)),
                Mutant(name="half", statement=ScalarBound(EACH / 2, has_chain=True)),
            ),
            instead=Amendment(
                statement=ScalarBound(EACH, has_chain=True),
                text="times the product over the other sublayers of (alpha + vw)/sqrt(alpha^2 + v^2 w^2) > 1, which "
                "the proof takes for 1: exp(2^(-3/4) N^(1/4)) at the printed alpha and beta (DN-08)",
            ),
            condition="for <= itself no more than two equal sublayers (three with r = v w / alpha have 1 + r times it, "
            "to first order in r); as <= (1 + o(1)), that the sum over i of v_i w_i / alpha goes to 0 (at the printed "
            "alpha and beta it grows as N^(1/4)); or a wide network, where the slopes above multiply to 1 in mean "
            "square",
            expected=Verdict.REFUTED,
        ),
        *WIDE_PARTS,
    ),
    expected=Verdict.REFUTED,
    finding=Finding(
        "DeepNet's theorems fail in the scalar model that they are proved in, DeepNet's own alpha and beta "
        "included: factors that are each about 1 multiply to exp({power:.2g} N^(1/4)) over the layers. In "
        "wide random networks with ReLU they hold, since contributions add as squares",
        rank=40,
        shared_with=("DN-03", "DN-08", "DN-09"),
        numbers={"power": _POWER},
    ),
)


# ---------------------------------------------------------------- DN-03: Theorem 4.3

_j = scratch("j", integer=True, positive=True)
_INDEX = Values.of(cross=3 * _j - 1)
_E, _D = side_symbols("encoder"), side_symbols("decoder")
_COUPLING = M * _D.init_gain**2 / _D.residual_weight
_SIDES = Values.of(
    encoder=_COUPLING**2 * 2 * N * 2 * _E.init_gain**2 / _E.residual_weight**2,
    decoder=3 * M * 2 * _D.init_gain**2 / _D.residual_weight**2,
)
"""Squares of the theorem's factors, summed over the sublayers of a side, at one gain: the most of ||df/dW||^2 / d."""


def _index_of_theory(s: Values) -> list[bool | None]:
    from theory.bounds.update import cross_sublayers, reading_sides
    from theory.stack import ARCHITECTURES

    _, reader = reading_sides(ARCHITECTURES["encoder-decoder"])
    return [algebra.equal(s["cross"], cross_sublayers(reader, _j))]


def _index_of_network(s: Values) -> list[bool | None]:
    from sims.model import decoder_layers

    kinds = [sublayer.kind for sublayer in decoder_layers(8)]
    places = [index for index, kind in enumerate(kinds, start=1) if kind == "cross"]
    return [places == [int(s["cross"].subs(_j, layer)) for layer in range(1, 9)]]


_SMALL = Scales((4.0, 0.25), (4.0, 0.25))
"""Small branches: with M = 1 the true share comes to three quarters of the encoder's bound, and scatters little."""


def _families(counts: tuple[int, int]) -> dict[str, Scales]:
    return {"DeepNet": deepnet_scales(*counts), "vanilla": VANILLA}


def _bounds_at(s: Values, scales: Scales, num_encoder: int, num_decoder: int) -> tuple[float, float]:
    letters = {N: num_encoder, M: num_decoder}
    for side, (a, b) in zip((_E, _D), scales, strict=True):
        letters |= {side.residual_weight: a, side.init_gain: b}
    return float(s["encoder"].subs(letters)), float(s["decoder"].subs(letters))


def _sides_by_closed_form(s: Values) -> Evidence:
    found = {}
    for counts in ((1, 1), (1, 100), (100, 1), (100, 100)):
        for family, scales in _families(counts).items():
            pairs = zip(one_token(scales, *counts), _bounds_at(s, scales, *counts), strict=True)
            found["{}, N, M = {}, {}".format(family, *counts)] = [share / bound for share, bound in pairs]
    return Evidence(
        route=Route.MEANFIELD,
        num_effective=2 * len(found),
        verdict=outcome(all(ratio <= 1 for ratios in found.values() for ratio in ratios)),
        detail="one token on either side, infinite width, relu: either side's sum of ||df/dW||^2 / d over the bound's. "
        "The encoder's falls as 1/M below it: M independent cross-attentions add as squares, so that encoder/M is the "
        "true bound, and the stronger one",
        numbers={name: [float(f"{ratio:.3g}") for ratio in ratios] for name, ratios in found.items()},
    )


def _sides_by_measuring(s: Values) -> Evidence:
    cases = [("small branches", _SMALL, (12, 1), 40, 1)]
    for counts in ((1, 2), (2, 8), (4, 2)):
        cases += [(family, scales, counts, 5, 2) for family, scales in _families(counts).items()]
    found: dict[str, list[Interval]] = {}
    for family, scales, counts, num_seeds, num_tokens in cases:
        by_seed = measured(scales, *counts, num_seeds=num_seeds, num_tokens=num_tokens)
        bounds = _bounds_at(s, scales, *counts)
        sides = [interval([one[k] / bounds[k] for one in by_seed], OF_FEW) for k in (0, 1)]
        found["{}, N, M = {}, {}".format(family, *counts)] = sides
    answers = [over.is_below(1) for pair in found.values() for over in pair]
    return Evidence(
        route=Route.MEASURED,
        num_effective=len(answers),
        verdict=outcome(all_of(answers)),
        detail="real encoder-decoders, d = 32, by autograd: the same, interval of the mean of seeds; 2 tokens "
        "and 5 seeds, but for alpha = 4, beta = 1/4: one token, 40 seeds",
        numbers={name: [over.text for over in pair] for name, pair in found.items()},
    )


_AFTER_A_STEP = (
    "eta*(Sum(v_d[3*j - 1]*w_d[3*j - 1]/alpha_d, (j, 1, M))*Sum((v_e[l]**2 + w_e[l]**2)/alpha_e**2, (l, 1, 2*N)) + "
    "Sum((v_d[l]**2 + w_d[l]**2)/alpha_d**2, (l, 1, 3*M)))"
)
"""Theorem 4.3 with each displacement eta times its gradient, as its section's goal counts it."""
_DN_03 = Claim(
    id="DN-03",
    kind=Kind.RESULT,
    source="deepnet",
    locator="Section 4, Theorem 4.3",
    quote=_DN_03_QUOTE,
    summary="the update of an encoder-decoder: the encoder's bound times sum_j v w / alpha_d of the cross-attentions, "
    "3j - 1, and the decoder's",
    uses=("DN-02", "DN-08"),
    parts=(
        Part(
            name="the cross-attention of layer j is sublayer 3j - 1",
            statement=_INDEX,
            checks=(
                check(Route.PROOF, "its place in a layer of (self, cross, ffn)", _index_of_theory),
                check(Route.PROPERTY, "the sublayers of a real decoder of 8 layers", _index_of_network, is_direct=True),
            ),
            mutants=(
                Mutant(name="l % 3 = 1, as Magneto has it", statement=Values.of(cross=3 * _j - 2)),
                Mutant(name="3j", statement=Values.of(cross=3 * _j)),
            ),
        ),
        Part(
            name="in the model that it is proved in: d = 1, 0 < v, w < 1 < alpha",
            statement=_PRINTED_BOUND,
            checks=(
                searched(
                    "rational weights inside the hypotheses, 1 to 3 layers on either side, exactly", is_decoder=True
                ),
                stepped("DN-03", _DN_03_QUOTE, BOTH_SIDES),
                DERIVED_OF_TWO,
            ),
            mutants=(
                Mutant(name="1/alpha^2", statement=ScalarBound(EACH / alpha)),
                Mutant(name="half", statement=ScalarBound(EACH / 2, has_chain=True)),
            ),
            instead=Amendment(
                statement=ScalarBound(EACH, has_chain=True),
                text="times the slopes above (those of the decoder's self-attentions and FFNs above each "
                "cross-attention, for the encoder) and the size of what enters; the proof takes both for 1",
            ),
            condition="as <= (1 + o(1)), that the sum of v w / alpha over the sublayers of either side goes to 0 (no "
            "such condition saves <= itself, as DN-02); or a wide network",
            expected=Verdict.REFUTED,
        ),
        Part(
            name="in a wide network (L/d -> 0), relu: the encoder's and the decoder's share",
            statement=_SIDES,
            checks=(
                Check(route=Route.MEANFIELD, run=_sides_by_closed_form, is_direct=True),
                Check(route=Route.MEASURED, run=_sides_by_measuring, is_direct=True),
            ),
            mutants=(
                Mutant(name="N for 2N", statement=_SIDES.with_(encoder=_SIDES["encoder"] / 2)),
                Mutant(name="N^(3/4)", statement=_SIDES.with_(encoder=_SIDES["encoder"] / N ** Rational(1, 4))),
                Mutant(name="coupling without M", statement=_SIDES.with_(encoder=_SIDES["encoder"] / M**2)),
                Mutant(name="a sublayer a layer", statement=_SIDES.with_(decoder=_SIDES["decoder"] / 3)),
            ),
        ),
    ),
    cells=tuple(
        Cell(table="bounds", where=(("scheme", f"encoder-decoder-{name}"),), column=column, printed=text, note=note)
        for name, column, text, note in (
            ("post-ln", "order", "N**2", "O(M sum_{2N} + sum_{3M}) after one SGD step, M = N"),
            ("deepnorm", "order", "1", "what its alpha and beta are chosen for"),
            ("post-ln", "bound", _AFTER_A_STEP, "after one SGD step"),
            ("deepnorm", "bound", _AFTER_A_STEP, "after one SGD step"),
        )
    ),
    expected=Verdict.REFUTED,
)

CLAIMS: tuple[Claim, ...] = (_DN_02, _DN_03)
