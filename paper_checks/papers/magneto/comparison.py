"""One sublayer explodes, w_l >> w_i: what the sources conclude from (13) of Magneto of the whole update.

ReLU, in the limit w_l -> infinity, every gain its own. A gradient that reaches sublayer i is

    of Pre-LN   1/P_i,   P_i = 1 + sum_(j <= i) v_j^2 w_j^2/2,
    of Magneto  D_i = prod_(j > i) (1 + kappa v_j^2/Q_(j-1)) / Q_L,   Q_i = 1 + sum_(j <= i) v_j^2,

kappa = pi/(pi - 1) behind LayerNorm, and 1 behind RMSNorm, where D_i = 1/Q_i. Pre-LN loses the terms i > l, and the
exploding one is 1/v_l^2; Magneto keeps all, the exploding one being D_l.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

from sympy import Expr, Indexed, Poly, S, Sum, cancel, expand, fraction, harmonic, lambdify, limit, together

from paper_checks.claims.claim import (
    Amendment,
    Check,
    Claim,
    Evidence,
    Finding,
    Kind,
    Mutant,
    Part,
    Route,
    Sentence,
    Verdict,
    told,
)
from paper_checks.papers.magneto.parts import (
    LETTERS,
    PRE_BOUND,
    PRE_FACTORISED,
    SUB_BOUND,
    SUB_FACTORISED,
    below,
    measured_update,
)
from paper_checks.routes import algebra, one_liners, second_meanfield
from paper_checks.routes.checks import all_of, check, outcome
from paper_checks.routes.intervals import Interval, quotient
from theory.symbols import L, k, scratch

_REFUTED = Verdict.REFUTED
_t, _l, _L = (scratch(name, positive=True) for name in ("t", "l", "L"))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Magneto's bound or update is smaller than Pre-LN's as w_l goes to infinity, at the other gains 1.

    exploding: which l is meant, "any", "any but the first", "the last", or "none" (all gains 1).
    """

    of: str
    exploding: str = "any"
    norm_kind: str = "layernorm"
    activation: str = "relu"
    is_smaller: bool = True

    @property
    def text(self) -> str:
        word = "smaller" if self.is_smaller else "larger"
        network = "" if self.of == "bound" else f", {self.activation}, {self.norm_kind}"
        where = "all gains 1" if self.exploding == "none" else f"w_l -> oo, l = {self.exploding}, at the other gains 1"
        return f"the {self.of} of Magneto{network} is {word} than that of Pre-LN; {where}"

    @property
    def is_number(self) -> bool:
        """Whether pi or a quadrature stands in the update, so that it is no rational function of w_l."""
        return (self.of, self.norm_kind) == ("update", "layernorm")

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
            of_sub = second_meanfield.update(
                "sub-ln", ones, gains, activation=self.activation, norm_kind=self.norm_kind
            )
            return of_sub, second_meanfield.update("pre-ln", ones, gains, activation=self.activation)
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
    for length in (2, 4):
        for place in s.places(length):
            if s.is_number:  # at 10^4 the limit is met to 10^-4, far within the margin
                of_sub, of_pre = map(float, s.values(length, place, Fraction(10**4)))
                sign = 1 if of_pre > of_sub * 1.01 else -1 if of_sub > of_pre * 1.01 else 0
            else:
                of_sub, of_pre = s.values(length, place, _t)
                sign = _sign_at_infinity(of_pre - of_sub)
            rows.append((length, place, sign))
    return tuple(rows)


def _by_limit(id_: str, route: Route) -> Check:
    def run(s: Comparison) -> Evidence:
        wanted = 1 if s.is_smaller else -1
        rows = _signs(s)
        failing = [(length, place) for length, place, sign in rows if sign != wanted]
        return Evidence(
            route=Route.NUMERIC if s.is_number else Route.PROOF,
            num_effective=len(rows),
            verdict=outcome(not failing),
            detail="sign of the difference at w_l = 10^4, N = 1 and 2, every l"
            if s.is_number
            else "sign of the difference as w_l -> infinity, a rational function of it, N = 1 and 2, every l",
            steps=tuple(_said(s, length, place, sign) for length, place, sign in rows),
            counterexample=_shown(id_, s, *failing[0]) if failing else None,
        )

    return Check(route=route, run=run, is_direct=True)


def _said(s: Comparison, length: int, place: int, sign: int) -> str:
    word = {1: "smaller", 0: "equal", -1: "larger"}[sign]
    where = "gains 1" if place == length else f"w_{place + 1} -> infinity"
    return f"L = {length}, {where}: Magneto's {s.of} is {word}"


_SIZE = Fraction(100)


def _shown(id_: str, s: Comparison, length: int, place: int) -> dict[str, Any]:
    of_sub, of_pre = (float(value) for value in s.values(length, place, _SIZE))
    gains = ["100" if i == place else "1" for i in range(length)]
    commands = {"command": one_liners.printed_bounds(["1"] * length, gains)}
    if s.of == "update":
        options = (
            f"--optimizer sgd --activation {s.activation} --sublayers {length} --norm-kind {s.norm_kind} "
            f"--w {','.join(gains)}"
        )
        commands = {
            "beside it": f"depthlaw predict --scheme pre-ln {options}",
            "command": f"depthlaw predict --scheme sub-ln {options}",
        }
    where = "all gains 1" if place == length else f"w_{place + 1} = 100, all other gains 1"
    return {
        "printed": f"{'smaller' if s.is_smaller else 'larger'} than Pre-LN's {of_pre:.4g} eta d",
        "found": f"{of_sub:.4g} eta d at {length} sublayers, {where}",
        "num_sublayers": length,
        "v": ["1"] * length,
        "w": gains,
        f"{s.of}_of_magneto": float(f"{of_sub:.6g}"),
        f"{s.of}_of_pre_ln": float(f"{of_pre:.6g}"),
        **commands,
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
        from theory.meanfield.update import predict

        return predict(name, "sgd", len(v), v=v, w=w, norm_kind=s.norm_kind, activation=s.activation).update
    from theory.bounds.update import derive_bound

    return float(_compiled(derive_bound(name).factorised)([0.0, *v], [0.0, *w], len(v)))


@cache
def _compiled(expr: Expr) -> Any:
    return lambdify(LETTERS, expr, modules="math")


# ---------------------------------------------------------------- every N, and every gain


def in_the_limit(norm_kind: str, v: Sequence[Any], w: Sequence[Any], place: int) -> tuple[Any, Any]:
    """(Magneto's update, Pre-LN's) with ReLU as the w of one place, counted from 0, goes to infinity."""
    kappa = second_meanfield.kappa("relu", norm_kind)
    kappa = kappa if isinstance(kappa, int) else float(kappa)
    length = len(v)
    of_pre, stream = 1 / v[place] ** 2, Fraction(1)
    for i in range(place):
        stream += v[i] ** 2 * w[i] ** 2 / 2
        of_pre += (v[i] ** 2 + w[i] ** 2) / (2 * stream)
    below = [1 + sum((x**2 for x in v[:i]), Fraction(0)) for i in range(length + 1)]
    of_sub, gradient = Fraction(0), 1 / below[length]
    for i in range(length - 1, -1, -1):
        of_sub += gradient * (1 if i == place else 1 + kappa * v[i] ** 2 / w[i] ** 2)
        gradient *= 1 + kappa * v[i] ** 2 / below[i]
    return of_sub, of_pre


def _for_every_length(s: Comparison) -> Evidence:
    """At the other gains 1 the sign depends on whether l is the last (of an update) or the first (of a bound) alone."""
    rows = list(_update_signs(s) if s.of == "update" else _bound_signs())
    groups = {
        "any": ("first", "below the last", "the last"),
        "any but the first": ("below the last", "the last"),
        "the last": ("the last",),
        "none": ("none",),
    }[s.exploding]
    wanted = 1 if s.is_smaller else -1
    shown = [(said, sign == wanted if isinstance(sign, int) else None) for group, said, sign in rows if group in groups]
    numbers = {}
    if s.of == "update" and s.exploding != "none":
        for place in (1, 3):
            gains = [Fraction(10)] * 4
            of_sub, of_pre = in_the_limit(s.norm_kind, [Fraction(1)] * 4, gains, place)
            numbers[f"at the other w_i = 10, v = 1, L = 4, l = {place + 1}"] = (
                f"Magneto's {float(of_sub):.4g}, Pre-LN's {float(of_pre):.4g}: "
                + ("smaller" if of_sub < of_pre else "larger")
            )
    return Evidence(
        route=Route.PROOF,
        num_effective=len(shown),
        verdict=outcome(all_of([answer for _, answer in shown])),
        detail=f"every L = 2N, N >= 1, w_l -> infinity, other gains 1: the sign of Pre-LN's {s.of} less Magneto's",
        numbers=numbers,
        steps=tuple(dict.fromkeys(said for said, _ in shown)),
    )


def _update_signs(s: Comparison) -> Iterable[tuple[str, str, int | None]]:
    """(which l, the argument, the sign of Pre-LN's less Magneto's or None)."""
    kappa = S(second_meanfield.kappa("relu", s.norm_kind))
    excess = float(kappa - 1)
    one_term = 2 / (_l + 2) - 1 / (_l + 1)
    is_larger = cancel(one_term - _l / ((_l + 1) * (_l + 2))) == 0
    said = (
        "l < L: Pre-LN's is sum_(i <= l) 2/(i + 1), Magneto's with kappa >= 1 at least sum_(i <= L) 2/(i + 1) - "
        "1/(l + 1), and what it has more, at least 2/(l + 2) - 1/(l + 1) = l/((l + 1)(l + 2)), is positive"
    )
    yield "first", said, -1 if is_larger and excess >= 0 else None
    yield "below the last", said, -1 if is_larger and excess >= 0 else None
    if excess == 0:
        difference = (harmonic(_L + 1) - 1) * 2 - (2 * (harmonic(_L + 1) - 1) - 1 / (_L + 1))
        yield (
            "the last",
            "l = L: the same sums, and Magneto's lacks 1/(L + 1)",
            1 if cancel(difference) == 1 / (_L + 1) else None,
        )
    else:
        at_two = in_the_limit(s.norm_kind, [1.0] * 2, [1.0] * 2, 1)
        at_four = excess * float(harmonic(4) - 1) - 1 / 5
        yield (
            "the last",
            f"l = L = 2: {at_two[0]:.4g} against {at_two[1]:.4g}; l = L >= 4: Magneto's has at least "
            f"(kappa - 1)(H_L - 1) - 1/(L + 1) more, {at_four:.3g} at L = 4, and rising",
            -1 if at_two[0] > at_two[1] and at_four > 0 else None,
        )
    yield (
        "none",
        "all gains 1: Magneto's with kappa >= 1 has at least 2 H_(L+1) - 2 - (2 H_(L+2) - 3) = 1 - 2/(L + 2) more",
        -1 if cancel(1 - 2 / (_L + 2) - _L / (_L + 2)) == 0 and excess >= 0 else None,
    )


def _bound_signs() -> Iterable[tuple[str, str, int | None]]:
    """The same of (10) less (12); v, below and rest are positive: v_l^2, S_(l-1) or S_L without s_l, other squares."""
    v, below, rest = (scratch(name, positive=True) for name in ("v", "below", "rest"))
    s_l = v * _t**2
    weights = (rest + v + _t**2) / (below + s_l)
    of_first, of_later = (limit(expr, _t, S.Infinity) for expr in (weights, weights * (1 + s_l / below)))
    of_sub = (2 - 1 / _L) * (1 + harmonic(_L - 1))  # rises with L
    is_above = of_first.subs(v, 1) == 1 and of_sub.subs(_L, 2) > 1
    yield "first", "l = 1: (10) goes to 1/v_1^2 = 1, (12) to (2 - 1/L)(1 + H_(L-1)) > 1", -1 if is_above else None
    later = "l > 1: (10) goes to infinity with v_l^2 w_l^2/S_(l-1), whatever the other gains; (12) does not"
    for group in ("below the last", "the last"):
        yield group, later, 1 if of_later == S.Infinity else None
    printed = (PRE_FACTORISED, SUB_FACTORISED)
    at_one = [algebra.normal_form(bound.xreplace({of: S.One for of in bound.atoms(Indexed)})) for bound in printed]
    yield "none", "all gains 1: both are 2 + 2 H_(L-1)", 0 if at_one[0] == at_one[1] else None
    yield "none", EQUAL_GAINS, 0 if all(map(is_of_equal_gains, printed)) else None


EQUAL_GAINS = "one v and one w in all sublayers: both are (1/v^2 + 1/w^2)(1 + H_(L-1))"


def is_of_equal_gains(bound: Expr) -> bool:
    """Whether a printed bound is that, where its gains do not differ from sublayer to sublayer; H as its sum."""
    v, w = (scratch(name, positive=True) for name in "vw")
    gains = {"v": v, "w": w}
    found = bound.xreplace({of: gains[str(of.base)] for of in bound.atoms(Indexed)}).doit()
    return expand(found - (1 / v**2 + 1 / w**2) * (1 + Sum(1 / (k - 1), (k, 2, L)))) == 0


# ---------------------------------------------------------------- real networks


def _ratios(s: Comparison) -> Iterable[tuple[str, Interval, float]]:
    """One update over the other, to be at most 1; L = 4, w_l = 100, the first and the last l that are meant."""
    places = s.places(4)
    for place in sorted({places[0], places[-1]}):
        w = tuple(100.0 if i == place else 1.0 for i in range(4))
        of_sub, of_pre = (
            measured_update(name, (1.0,) * 4, w, s.activation, s.norm_kind) for name in ("sub-ln", "pre-ln")
        )
        where = "all gains 1" if place == 4 else f"w_{place + 1} = 100"
        if s.is_smaller:
            yield f"Magneto's over Pre-LN's, {where}", quotient(of_sub, of_pre), 1.0
        else:
            yield f"Pre-LN's over Magneto's, {where}", quotient(of_pre, of_sub), 1.0


_MEASURED = below("real networks of 4 sublayers, the other gains 1", _ratios)


# ---------------------------------------------------------------- the claims


def comparison(id_: str, name: str, s: Comparison, condition: str, instead: tuple[Comparison, str | Sentence]) -> Part:
    """A part that says that Magneto's is smaller, which fails, and at which l it holds or is the other way round."""
    return Part(
        name=name,
        statement=s,
        checks=(
            _by_limit(id_, Route.NUMERIC if s.is_number else Route.PROOF),
            check(Route.MEANFIELD, "the same by theory/, at w_l = 10^4, N = 1, 3 and 6", _by_theory),
            *(() if s.activation == "gelu" else (Check(route=Route.PROOF, run=_for_every_length, is_direct=True),)),
            *((_MEASURED,) if (s.of, s.norm_kind) == ("update", "layernorm") else ()),
        ),
        mutants=(
            Mutant(name="the other way, any l", statement=replace(s, exploding="any", is_smaller=_flip(s))),
            Mutant(name="others", statement=replace(s, exploding="any" if s.exploding == "none" else "none")),
        ),
        expected=_REFUTED,
        condition=condition,
        instead=Amendment(statement=instead[0], text=instead[1]),
    )


def _flip(s: Comparison) -> bool:
    """Magneto's update behind LayerNorm is larger for every l; everything else is smaller for some."""
    return (s.of, s.norm_kind) == ("update", "layernorm")


BOUND = Comparison(of="bound")
_RMS = Comparison(of="update", norm_kind="rmsnorm")
_REAL = Comparison(of="update")
_GELU = Comparison(of="update", activation="gelu")
NOT_FIRST = (
    "the exploding sublayer is not the first: as w_1 -> infinity (10) goes to 1/v_1^2, while (12) keeps every term of "
    "the other sublayers"
)
_EXACTLY = (
    "as w_l -> infinity exactly where sum_(i != l) (1 + kappa v_i^2/w_i^2) D_i + D_l < 1/v_l^2 + sum_(i < l) "
    "(v_i^2 + w_i^2)/(2 P_i), with P_i = 1 + sum_(j <= i) v_j^2 w_j^2/2, Q_i = 1 + sum_(j <= i) v_j^2 and "
    "D_i = prod_(j > i) (1 + kappa v_j^2/Q_(j-1)) / Q_L"
)
_REVERSED = "large w_i/v_i of the other sublayers bring it about, as w_i = 10, v = 1, L = 4 do for l = 2 to 4"


def _where_each_explodes(scheme: str) -> str:
    """The update of four sublayers with GELU where w of the first, the second ... is 10^6 and all other gains are 1."""
    ones = [1.0] * 4
    exploding = ([1e6 if i == place else 1.0 for i in range(4)] for place in range(4))
    updates = (second_meanfield.update(scheme, ones, w, activation="gelu") for w in exploding)
    return ", ".join(f"{float(update):.2f}" for update in updates)


def conclusions(id_: str) -> tuple[Part, ...]:
    return (
        comparison(
            id_,
            "the printed bounds, (12) against (10)",
            BOUND,
            NOT_FIRST,
            (
                replace(BOUND, exploding="any but the first"),
                "smaller where any sublayer but the first explodes, at any other gains; (13) is one term of the sum, "
                "and what follows it in the bracket, 1 + sum_k s_k/S_(k-1), tends to 1 in (10) if the first one does",
            ),
        ),
        comparison(
            id_,
            "the true update, relu, LayerNorm (the paper's sublayer)",
            _REAL,
            f"{_EXACTLY}; kappa = pi/(pi - 1). At the other gains 1 for no l; {_REVERSED}",
            (
                replace(_REAL, is_smaller=False),
                "larger, whichever sublayer explodes, at the other gains 1, for every N >= 1",
            ),
        ),
        comparison(
            id_,
            "the true update, gelu, LayerNorm",
            _GELU,
            "other sublayers of large w_i/v_i, as with relu, which GELU becomes at a large w",
            (
                replace(_GELU, is_smaller=False),
                told(
                    "larger, whichever sublayer explodes, at the other gains 1, N = 1, 2, 3 and 6: {of_sub} against "
                    "{of_pre} for l = 1 to 4 of L = 4",
                    of_sub=lambda: _where_each_explodes("sub-ln"),
                    of_pre=lambda: _where_each_explodes("pre-ln"),
                ),
            ),
        ),
        comparison(
            id_,
            "the true update, relu, RMSNorm",
            _RMS,
            f"{_EXACTLY}; kappa = 1, D_i = 1/Q_i. At the other gains 1 for l = L alone; {_REVERSED}",
            (
                replace(_RMS, exploding="the last"),
                "at the other gains 1 smaller where the last sublayer explodes, by 1/(L + 1), and larger for every "
                "other, for every N >= 1: the gradients of all that lie above an exploding sublayer of Pre-LN vanish",
            ),
        ),
    )


_S2_17 = Claim(
    id="S2-17",
    kind=Kind.STEP,
    source="magneto",
    locator="Section 3.2, before (13)",
    quote="When the activation of the\nl\n-th sub-layer explodes, it leads to\nwlwi, i 6=l\n. Equation (13) proves\n"
    "that the model update of MAGNETO is smaller than that of vanilla Pre-LN in this case.",
    summary="where sublayer l explodes, the update of Magneto is smaller than that of Pre-LN",
    uses=("S2-16",),
    parts=conclusions("S2-17"),
    expected=_REFUTED,
    finding=Finding(
        "Magneto's paper says that its update is smaller than Pre-LN's when a sublayer explodes. One term "
        "of its bound is. The whole bound is not, if it is the first sublayer that explodes. The true "
        "update is larger whichever explodes, with ReLU, LayerNorm and all other gains 1. With equal gains "
        "in all sublayers the two printed bounds are the same",
        rank=90,
        shared_with=("S3-09", "S3-03"),
    ),
)
CLAIMS: tuple[Claim, ...] = (_S2_17,)
