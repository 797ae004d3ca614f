"""DeepNet's Theorem 4.3, a bound on the update of an encoder-decoder: DN-03.

N encoder layers have 2 sublayers each, M decoder layers have 3: self-attention, cross-attention, FFN.
"""

from __future__ import annotations

from sympy import Rational

from paper_checks.claims.broken import broken
from paper_checks.claims.claim import Amendment, Cell, Claim, Kind, Mutant, Part, Route, Verdict
from paper_checks.claims.statements import Values
from paper_checks.papers.deepnet.parts import VANILLA, Scales, deepnet_scales, measured, one_token
from paper_checks.papers.deepnet.scalar_model import BOUND, CHAINED, MUTANTS, scalar_checks
from paper_checks.routes import algebra
from paper_checks.routes.checks import Answers, check
from paper_checks.routes.intervals import OF_FEW, Interval, interval
from theory.symbols import M, N, scratch, side_symbols

_j = scratch("j", integer=True, positive=True)
_INDEX = Values.of(cross=3 * _j - 1)
_E, _D = side_symbols("encoder"), side_symbols("decoder")
_COUPLING = M * _D.init_gain**2 / _D.residual_weight
_SIDES = Values.of(
    encoder=_COUPLING**2 * 2 * N * 2 * _E.init_gain**2 / _E.residual_weight**2,
    decoder=3 * M * 2 * _D.init_gain**2 / _D.residual_weight**2,
)
"""Squares of the theorem's factors, summed over the sublayers of a side, at one gain: the most of ||df/dW||^2 / d."""


@check(Route.PROOF, "its place in a layer of (self, cross, ffn)")
def _index_of_theory(s: Values) -> list[bool | None]:
    from theory.bounds.update import cross_sublayers, reading_sides
    from theory.stack import ARCHITECTURES

    _, reader = reading_sides(ARCHITECTURES["encoder-decoder"])
    return [algebra.equal(s["cross"], cross_sublayers(reader, _j))]


@check(Route.PROPERTY, "the sublayers of a real decoder of 8 layers", is_direct=True)
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


@check(
    Route.MEANFIELD,
    "one token on either side, infinite width, relu: either side's sum of ||df/dW||^2 / d over the "
    "bound's. The encoder's falls as 1/M below it: M independent cross-attentions add as squares, so "
    "that encoder/M is the true bound, and the stronger one",
    is_direct=True,
)
def _sides_by_closed_form(s: Values) -> Answers:
    over = {}
    for counts in ((1, 1), (1, 100), (100, 1), (100, 100)):
        for family, scales in _families(counts).items():
            pairs = zip(one_token(scales, *counts), _bounds_at(s, scales, *counts), strict=True)
            over["{}, N, M = {}, {}".format(family, *counts)] = [share / bound for share, bound in pairs]
    return Answers(
        holds=[ratio <= 1 for ratios in over.values() for ratio in ratios],
        numbers={name: [float(f"{ratio:.3g}") for ratio in ratios] for name, ratios in over.items()},
    )


@check(
    Route.MEASURED,
    "real encoder-decoders, d = 32, by autograd: the same, interval of the mean of seeds; 2 tokens "
    "and 5 seeds, but for alpha = 4, beta = 1/4: one token, 40 seeds",
    is_direct=True,
)
def _sides_by_measuring(s: Values) -> Answers:
    cases = [("small branches", _SMALL, (12, 1), 40, 1)]
    for counts in ((1, 2), (2, 8), (4, 2)):
        cases += [(family, scales, counts, 5, 2) for family, scales in _families(counts).items()]
    over: dict[str, list[Interval]] = {}
    for family, scales, counts, num_seeds, num_tokens in cases:
        by_seed = measured(scales, *counts, num_seeds=num_seeds, num_tokens=num_tokens)
        bounds = _bounds_at(s, scales, *counts)
        sides = [interval([sides[k] / bounds[k] for sides in by_seed], OF_FEW) for k in (0, 1)]
        over["{}, N, M = {}, {}".format(family, *counts)] = sides
    return Answers(
        holds=[side.is_below(1) for pair in over.values() for side in pair],
        numbers={name: [side.text for side in pair] for name, pair in over.items()},
    )


_QUOTE = (
    "||dF_ed|| <= sum_{j=1}^{M} v_{d,3j-1} w_{d,3j-1}/alpha_d sum_{i=1}^{2N} sqrt(v_ei^2 + w_ei^2)/alpha_e "
    "||dtheta_ei|| + sum_{j=1}^{3M} sqrt(v_dj^2 + w_dj^2)/alpha_d ||dtheta_dj||"
)
_AFTER_A_STEP = (
    "eta*(Sum(v_d[3*j - 1]*w_d[3*j - 1]/alpha_d, (j, 1, M))*Sum((v_e[l]**2 + w_e[l]**2)/alpha_e**2, (l, 1, 2*N)) + "
    "Sum((v_d[l]**2 + w_d[l]**2)/alpha_d**2, (l, 1, 3*M)))"
)
"""The theorem with each displacement eta times its gradient, as its section's goal counts it."""
_DN_03 = Claim(
    id="DN-03",
    kind=Kind.RESULT,
    locator="Section 4, Theorem 4.3",
    quote=_QUOTE,
    summary="the update of an encoder-decoder: the encoder's bound times sum_j v w / alpha_d of the cross-attentions, "
    "3j - 1, and the decoder's",
    uses=("DN-02", "DN-08"),
    parts=(
        Part(
            name="the cross-attention of layer j is sublayer 3j - 1",
            statement=_INDEX,
            checks=(
                _index_of_theory,
                _index_of_network,
            ),
            mutants=(
                *broken(_INDEX),
                Mutant(name="l % 3 = 1, as Magneto has it", statement=_INDEX.with_(cross=3 * _j - 2)),
                Mutant(name="3j", statement=_INDEX.with_(cross=3 * _j)),
            ),
        ),
        Part(
            name="in the model that it is proved in: d = 1, 0 < v, w < 1 < alpha",
            statement=BOUND,
            checks=scalar_checks("DN-03", _QUOTE, of_two=True),
            mutants=MUTANTS,
            instead=Amendment(
                statement=CHAINED,
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
                _sides_by_closed_form,
                _sides_by_measuring,
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
)

CLAIMS: tuple[Claim, ...] = (_DN_03,)
