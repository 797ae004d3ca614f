"""One sublayer explodes, w_l >> w_i: what the sources conclude from (13) of Magneto, and the signal itself."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

from sympy import Expr, Poly, Rational, S, cancel, fraction, lambdify, log, sqrt, together

from paper_checks import direct, exact, uneven
from paper_checks.checks import check, order_key, order_of, outcome
from paper_checks.claim import Amendment, Check, Claim, Evidence, Mutant, Part, Route, Verdict
from paper_checks.papers.magneto_parts import LETTERS, PRE_BOUND, SUB_BOUND, bracket_value
from paper_checks.statements import Values
from theory.symbols import L, scratch

_REFUTED = Verdict.REFUTED
_t = scratch("t", positive=True)


# ---------------------------------------------------------------- Magneto beside Pre-LN: S2-17, S3-09, S3-03


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Magneto's bound or update is smaller than Pre-LN's as w_l goes to infinity, the other gains 1.

    exploding: which l is meant, "any", "any but the first", "the last", or "none" (all gains 1).
    """

    of: str
    exploding: str = "any"
    norm_kind: str = "layernorm"
    is_smaller: bool = True

    @property
    def text(self) -> str:
        word = "smaller" if self.is_smaller else "larger"
        network = "" if self.of == "bound" else f", relu, {self.norm_kind}"
        where = "all gains 1" if self.exploding == "none" else f"w_l -> oo, l = {self.exploding}, other gains 1"
        return f"the {self.of} of Magneto{network} is {word} than that of Pre-LN; {where}"

    def places(self, length: int) -> range:
        """Places from 0 at which a sublayer explodes; that of none is ``length``."""
        return {
            "any": range(length),
            "any but the first": range(1, length),
            "the last": range(length - 1, length),
            "none": range(length, length + 1),
        }[self.exploding]

    def values(self, length: int, place: int, size: Any) -> tuple[Any, Any]:
        """(Magneto's, Pre-LN's), by the plain sums."""
        one = Fraction(1) if isinstance(size, Fraction) else S.One
        ones, gains = [one] * length, [size if i == place else one for i in range(length)]
        if self.of == "update":
            of_sub = uneven.update("sub-ln", ones, gains, norm_kind=self.norm_kind)
            return of_sub, uneven.update("pre-ln", ones, gains)
        lists = [one * 0, *ones], [one * 0, *gains]
        of_sub, of_pre = (lambdify(LETTERS, bound, modules="math")(*lists, length) for bound in (SUB_BOUND, PRE_BOUND))
        return of_sub, of_pre


def _sign_at_infinity(expr: Expr) -> int:
    """The sign of a rational function of t for large t; 0 where it vanishes."""
    above, below = fraction(cancel(together(expr)))
    if above == 0:
        return 0
    leading = [Poly(part, _t).LC() for part in (above, below)]
    return 1 if float(leading[0]) * float(leading[1]) > 0 else -1


@cache
def _signs(s: Comparison) -> tuple[tuple[int, int, int], ...]:
    """(L, place, sign of Pre-LN's less Magneto's) for large w_l."""
    rows = []
    for length in (4, 2):
        for place in s.places(length):
            of_sub, of_pre = s.values(length, place, _t)
            rows.append((length, place, _sign_at_infinity(of_pre - of_sub)))
    return tuple(rows)


def _by_limit(id_: str) -> Check:
    def run(s: Comparison) -> Evidence:
        wanted = 1 if s.is_smaller else -1
        rows = _signs(s)
        failing = [(length, place) for length, place, sign in rows if sign != wanted]
        return Evidence(
            route=Route.PROOF,
            num_effective=len(rows),
            verdict=outcome(not failing),
            detail="sign of the difference as w_l -> infinity, a rational function of it, N = 2 and 1, every l",
            steps=tuple(_said(s, length, place, sign) for length, place, sign in rows),
            counterexample=_shown(id_, s, *failing[:2][-1]) if failing else None,
        )

    return Check(route=Route.PROOF, run=run, is_direct=True)


def _said(s: Comparison, length: int, place: int, sign: int) -> str:
    word = {1: "smaller", 0: "equal", -1: "larger"}[sign]
    where = "gains 1" if place == length else f"w_{place + 1} -> infinity"
    return f"L = {length}, {where}: Magneto's {s.of} is {word}"


_SIZE = Fraction(100)


def _shown(id_: str, s: Comparison, length: int, place: int) -> dict[str, Any]:
    of_sub, of_pre = (float(value) for value in s.values(length, place, _SIZE))
    gains = ["100" if i == place else "1" for i in range(length)]
    command = f"depthlaw explain {id_}"
    if s.of == "update":
        command = (
            f"depthlaw predict --scheme sub-ln --optimizer sgd --sublayers {length} --norm-kind {s.norm_kind} "
            f"--w {','.join(gains)}"
        )
    where = "all gains 1" if place == length else f"w_{place + 1} = 100, all other gains 1"
    return {
        "printed": f"{'smaller' if s.is_smaller else 'larger'} than Pre-LN's {of_pre:.4g} eta d",
        "found": f"{of_sub:.4g} eta d at {length} sublayers, {where}",
        "num_sublayers": length,
        "v": ["1"] * length,
        "w": gains,
        f"{s.of}_of_magneto": float(f"{of_sub:.6g}"),
        f"{s.of}_of_pre_ln": float(f"{of_pre:.6g}"),
        "command": command,
    }


def _by_theory(s: Comparison) -> list[bool | None]:
    """N = 1, 3, 6 and w_l = 10^4."""
    out: list[bool | None] = []
    for length in (2, 6, 12):
        ones = [1.0] * length
        for place in s.places(length):
            gains = [1e4 if i == place else 1.0 for i in range(length)]
            of_sub, of_pre = (_value(s, name, ones, gains) for name in ("sub-ln", "pre-ln"))
            margin = 1e-9 * of_pre
            out.append(of_sub < of_pre - margin if s.is_smaller else of_sub > of_pre + margin)
    return out


def _value(s: Comparison, name: str, v: list[float], w: list[float]) -> float:
    if s.of == "update":
        from theory.meanfield import predict

        return predict(name, "sgd", len(v), v=v, w=w, norm_kind=s.norm_kind).update
    from theory.bounds import derive_bound

    return float(_compiled(derive_bound(name).factorised)([0.0, *v], [0.0, *w], len(v)))


@cache
def _compiled(expr: Expr) -> Any:
    return lambdify(LETTERS, expr, modules="math")


def _comparison(id_: str, name: str, s: Comparison, condition: str, instead: tuple[Comparison, str]) -> Part:
    return Part(
        name=name,
        statement=s,
        checks=(
            _by_limit(id_),
            check(Route.MEANFIELD, "the same by theory/, at w_l = 10^4, N = 1, 3 and 6", _by_theory),
        ),
        mutants=(
            Mutant(name="the other way, l not the first", statement=replace(s, exploding="any", is_smaller=_flip(s))),
            Mutant(name="others", statement=replace(s, exploding="any" if s.exploding == "none" else "none")),
        ),
        expected=_REFUTED,
        condition=condition,
        instead=Amendment(statement=instead[0], text=instead[1]),
    )


def _flip(s: Comparison) -> bool:
    """Magneto's update behind LayerNorm is larger for every l; everything else is smaller for some."""
    return (s.of, s.norm_kind) == ("update", "layernorm")


_BOUND = Comparison(of="bound")
_RMS = Comparison(of="update", norm_kind="rmsnorm")
_REAL = Comparison(of="update")
_NOT_FIRST = (
    "the exploding sublayer is not the first: as w_1 -> infinity (10) goes to 1/v_1^2, while (12) keeps every term of "
    "the other sublayers"
)


def _conclusions(id_: str) -> tuple[Part, ...]:
    return (
        _comparison(
            id_,
            "the printed bounds, (12) against (10)",
            _BOUND,
            _NOT_FIRST,
            (
                replace(_BOUND, exploding="any but the first"),
                "smaller where any sublayer but the first explodes; (13) is one term of the sum, and what follows it "
                "in the bracket, 1 + sum_k s_k/S_(k-1), tends to 1 in (10) if the first one does",
            ),
        ),
        _comparison(
            id_,
            "the true update, relu, LayerNorm (the paper's sublayer)",
            _REAL,
            "none: for no l, N >= 1, at the other gains 1",
            (replace(_REAL, is_smaller=False), "larger, whichever sublayer explodes"),
        ),
        _comparison(
            id_,
            "the true update, relu, RMSNorm",
            _RMS,
            "the exploding sublayer is the last one",
            (
                replace(_RMS, exploding="the last"),
                "smaller where the last sublayer explodes, and larger for every other: the gradients of all that lie "
                "above an exploding sublayer of Pre-LN vanish",
            ),
        ),
    )


_S2_17 = Claim(
    id="S2-17",
    source="magneto",
    locator="Section 3.2, before (13)",
    quote="When the activation of the\nl\n-th sub-layer explodes, it leads to\nwlwi, i 6=l\n. Equation (13) proves\n"
    "that the model update of MAGNETO is smaller than that of vanilla Pre-LN in this case.",
    summary="where sublayer l explodes, the update of Magneto is smaller than that of Pre-LN",
    uses=("S2-16",),
    parts=_conclusions("S2-17"),
    expected=_REFUTED,
)
_S3_09 = Claim(
    id="S3-09",
    source="slides",
    locator="Magneto: Initialization, after the comparison of one term",
    quote="Therefore, Sub-LN has smaller model update than Pre-LN.",
    summary="the update of Sub-LN is smaller than that of Pre-LN",
    uses=("S3-08",),
    parts=_conclusions("S3-09"),
    expected=_REFUTED,
)


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
            found.append(float(uneven.streams(_SCHEMES[name], [Fraction(1)] * 6, gains, norm_kind="rmsnorm")[3]))
        out.append(round(math.log10(found[1] / found[0]) / 3, 3) == int(printed))
    return out


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
            check(Route.NUMERIC, "sublayer 3 of 6, w_3 from 10^3 to 10^6, exactly", _power_by_sums, is_direct=True),
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
    source="slides",
    locator="Magneto: Initialization, table of normalizations",
    quote="Normalization\tThe bound of model update\tActivation explosion\nPost-LayerNorm\t$\\Theta(N)$\t×\n"
    "Pre-LayerNorm\t$\\Theta(\\log N)$\t✓",
    summary="activation explosion: Pre-LN yes, Post-LN no, Sub-LN no",
    parts=(_explosion("the stream behind a sublayer whose w_l grows", _POWERS),),
)

_LOWER = Values.of(ratio=log(L) / L)


def _lower_by_theory(s: Values) -> list[bool | None]:
    from theory.bounds import derive_bound

    of_sub, of_post = (order_key(derive_bound(name).order) for name in ("sub-ln", "post-ln"))
    printed = order_key(order_of(s["ratio"]))
    return [all(a - b == c for a, b, c in zip(of_sub, of_post, printed, strict=True))]


def _lower_summed(s: Values) -> list[bool | None]:
    ratios = []
    for length in direct.LENGTHS:
        ratio = float(bracket_value(length, S.One)) / (2 * length)
        ratios.append(math.log(ratio / float(s["ratio"].subs(L, length))))
    return [exact.settles(ratios)]


_S3_03 = Claim(
    id="S3-03",
    source="slides",
    locator="Magneto: Sub-LayerNorm",
    quote="Sub-LN has a lower bound of model update and does not suffer from activation explosion.",
    summary="Sub-LN's (upper) bound of model update is lower than that of the others; no activation explosion",
    uses=("S3-11", "S3-06"),
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
        _comparison(
            "S3-03",
            "the bound is lower than Pre-LN's",
            replace(_BOUND, exploding="none"),
            f"at equal gains 1 the two are one and the same, 2 + 2 H_(L-1); lower where w_l >> w_i and {_NOT_FIRST}",
            (replace(_BOUND, exploding="any but the first"), "lower where any sublayer but the first explodes"),
        ),
        _explosion("no activation explosion", Values.of(sub=0)),
    ),
    expected=_REFUTED,
)

CLAIMS: tuple[Claim, ...] = (_S2_17, _S3_03, _S3_09, _S3_11)
