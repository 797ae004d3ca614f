"""The signal of one exploding sublayer, w_l >> w_i; and what the slides say of Sub-LN at once."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

from sympy import Poly, Rational, S, cancel, fraction, log, sqrt

from paper_checks.claims.claim import Claim, Kind, Mutant, Part, Route, Verdict
from paper_checks.claims.statements import Values
from paper_checks.papers.magneto.explosion import LATER, NONE, NOT_FIRST, compared, comparison
from paper_checks.papers.magneto.theorems import bracket_value
from paper_checks.routes import algebra, second_meanfield
from paper_checks.routes.checks import check, order_key, order_of
from theory.symbols import L, scratch

# ---------------------------------------------------------------- the signal: S3-11, S3-03

_POWERS = Values.of(pre=2, post=0, sub=0)
"""Of w_l in the second moment of the stream behind sublayer l, as w_l goes to infinity: 2 explodes, 0 does not."""
_SCHEMES = {"pre": "pre-ln", "post": "post-ln", "sub": "sub-ln"}


def _power_by_theory(s: Values) -> list[bool | None]:
    from theory.stack import PLACEMENTS, BranchMoments, NormKind, transfer
    from theory.symbols import gain_in, gain_out

    out: list[bool | None] = []
    for name, printed in s:
        placement, q = PLACEMENTS[name], scratch("q", positive=True)
        second = gain_in**2 / 2 * (1 if placement.pre else q)
        moments = BranchMoments(second, second, S.Zero, S.Zero, Rational(1, 2), S.Zero)
        found = transfer(
            placement,
            NormKind.RMSNORM,
            moments,
            stream=q,
            residual_weight=S.One,
            branch_weight=S.One,
            input_scale=S.One,
            gain_in=gain_in,
            gain_out=gain_out,
            sqrt=sqrt,
        )
        above, below = (Poly(part, gain_in).degree() for part in fraction(cancel(S(found.stream))))
        out.append(above - below == printed)
    return out


def _power_by_sums(s: Values) -> list[bool | None]:
    """Sublayer 3 of 6, gains 1 elsewhere: the stream's second moment at w_3 = 10^6 over that at 10^3."""
    out: list[bool | None] = []
    for name, printed in s:
        found = []
        for size in (Fraction(10**3), Fraction(10**6)):
            gains = [size if i == 2 else Fraction(1) for i in range(6)]
            found.append(
                float(second_meanfield.streams(_SCHEMES[name], [Fraction(1)] * 6, gains, norm_kind="rmsnorm")[3])
            )
        out.append(round(math.log10(found[1] / found[0]) / 3, 3) == int(printed))
    return out


def _other_ways() -> tuple[str, ...]:
    """What the slide's case, a w_l that grows, leaves out."""
    ones, degrees, at_one = [Fraction(1)] * 6, [], []
    for name in ("pre-ln", "sub-ln"):
        found = []
        for size in (Fraction(10**3), Fraction(10**6)):
            gains = [size if i == 2 else Fraction(1) for i in range(6)]
            found.append(second_meanfield.streams(name, gains, ones, norm_kind="rmsnorm")[3])
        degrees.append(round(math.log10(found[1] / found[0]) / 3))
        at_one.append(second_meanfield.streams(name, ones, ones, norm_kind="rmsnorm")[6])
    return (
        f"v_l -> c v_l instead: the stream's second moment is of degree {degrees[1]} in c with Sub-LN, and "
        f"{degrees[0]} with Pre-LN",
        f"at gains 1 Sub-LN's is 1 + L, Pre-LN's 1 + L/2: {at_one[1]} and {at_one[0]} at L = 6",
    )


@cache
def _measured_powers() -> dict[str, tuple[float, ...]]:
    """Eight networks of width 64: w_3 grows from 10^3 to 10^6, every other number staying as it is drawn."""
    import torch

    def norm(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, x.shape[-1:])

    powers: dict[str, tuple[float, ...]] = {}
    for name in _SCHEMES:
        found = []
        for seed in range(8):
            sizes = []
            for size in (1e3, 1e6):
                generator = torch.Generator().manual_seed(seed)
                x = torch.randn(64, generator=generator, dtype=torch.float64)
                for i in range(3):
                    first, second = torch.randn(2, 64, 64, generator=generator, dtype=torch.float64) / 8
                    inside = torch.relu((size if i == 2 else 1.0) * first @ (x if name == "post" else norm(x)))
                    x = x + second @ (norm(inside) if name == "sub" else inside)
                    x = norm(x) if name == "post" else x
                sizes.append(float(x.square().mean()))
            found.append(math.log10(sizes[1] / sizes[0]) / 3)
        powers[name] = tuple(found)
    return powers


def _power_measured(s: Values) -> list[bool | None]:
    measured = _measured_powers()
    return [round(power, 1) == int(printed) for name, printed in s for power in measured[name]]


def _explosion(name: str, s: Values) -> Part:
    return Part(
        name=name,
        statement=s,
        checks=(
            check(
                Route.MEANFIELD,
                "degree in w_l of the stream's second moment, from the form of a sublayer",
                _power_by_theory,
            ),
            check(
                Route.NUMERIC,
                "sublayer 3 of 6, w_3 from 10^3 to 10^6, exactly; w_l alone grows",
                _power_by_sums,
                is_direct=True,
                steps=_other_ways,
            ),
            check(Route.MEASURED, "eight networks with ReLU and LayerNorm, width 64", _power_measured, is_direct=True),
        ),
        mutants=(
            Mutant(name="Sub explodes", statement=s.with_(sub=2)),
            *(() if "post" not in dict(s.entries) else (Mutant(name="Post explodes", statement=s.with_(post=2)),)),
            *(() if "pre" not in dict(s.entries) else (Mutant(name="Pre does not", statement=s.with_(pre=0)),)),
        ),
    )


_S3_11 = Claim(
    id="S3-11",
    kind=Kind.RESULT,
    source="slides",
    locator="Magneto: Initialization, table of normalizations",
    quote="Normalization\tThe bound of model update\tActivation explosion\nPost-LayerNorm\t$\\Theta(N)$\t×\n"
    "Pre-LayerNorm\t$\\Theta(\\log N)$\t✓",
    summary="activation explosion: Pre-LN yes, Post-LN no, Sub-LN no",
    parts=(_explosion("the stream behind sublayer l where w_l grows (the slide's own case, w_l >> w_i)", _POWERS),),
)

_LOWER = Values.of(ratio=log(L) / L)


def _lower_by_theory(s: Values) -> list[bool | None]:
    from theory.bounds.update import derive_bound

    of_sub, of_post = (order_key(derive_bound(name).order) for name in ("sub-ln", "post-ln"))
    printed = order_key(order_of(s["ratio"]))
    return [all(a - b == c for a, b, c in zip(of_sub, of_post, printed, strict=True))]


def _lower_summed(s: Values) -> list[bool | None]:
    ratios = []
    for length in second_meanfield.LENGTHS:
        ratio = float(bracket_value(length, S.One)) / (2 * length)
        ratios.append(math.log(ratio / float(s["ratio"].subs(L, length))))
    return [algebra.settles(ratios)]


_S3_03 = Claim(
    id="S3-03",
    kind=Kind.RESULT,
    source="slides",
    locator="Magneto: Sub-LayerNorm",
    quote="Sub-LN has a lower bound of model update and does not suffer from activation explosion.",
    summary="Sub-LN's (upper) bound of model update is lower than that of the others; no activation explosion",
    uses=(
        "S3-06",
        "S3-09",
        "S3-11",
    ),
    parts=(
        Part(
            name="the bound is lower than Post-LN's, gains 1",
            statement=_LOWER,
            checks=(
                check(Route.PROOF, "orders of the derived bounds", _lower_by_theory),
                check(Route.NUMERIC, "2 + 2 H_{L-1} over 2L, at 10^2, 10^4, 10^6", _lower_summed, is_direct=True),
            ),
            mutants=(
                Mutant(name="as large", statement=_LOWER.with_(ratio=1)),
                Mutant(name="1/L", statement=_LOWER.with_(ratio=1 / L)),
            ),
        ),
        comparison(
            "S3-03",
            "the bound is lower than Pre-LN's, equal gains",
            compared("bound", NONE),
            "never at equal gains, where the two are one and the same, (1/v^2 + 1/w^2)(1 + H_(L-1)), whatever v and w; "
            f"lower where w_l >> w_i and {NOT_FIRST}, and log L times as low at Magneto's own gain sqrt(log L), L > 2, "
            "beside Pre-LN at gain 1",
            (compared("bound", LATER), "lower where any sublayer but the first explodes"),
        ),
        _explosion("no activation explosion where w_l grows (the slide's own case, w_l >> w_i)", Values.of(sub=0)),
    ),
    expected=Verdict.REFUTED,
)

CLAIMS: tuple[Claim, ...] = (_S3_03, _S3_11)
