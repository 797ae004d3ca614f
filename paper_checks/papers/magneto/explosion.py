"""Magneto, (13): one term of its bound beside Pre-LN's where sublayer l explodes, w_l >> w_i; and what is concluded.

ReLU, in the limit w_l -> infinity, every gain its own. A gradient that reaches sublayer i is

    of Pre-LN   1/P_i,   P_i = 1 + sum_(j <= i) v_j^2 w_j^2/2,
    of Magneto  D_i = prod_(j > i) (1 + kappa v_j^2/Q_(j-1)) / Q_L,   Q_i = 1 + sum_(j <= i) v_j^2,

kappa = pi/(pi - 1) behind LayerNorm, and 1 behind RMSNorm, where D_i = 1/Q_i. Pre-LN loses the terms i > l, and the
exploding one is 1/v_l^2; Magneto keeps all, the exploding one being D_l.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cache, partial
from typing import Any

from sympy import Expr, Indexed, Poly, S, Sum, cancel, expand, fraction, harmonic, lambdify, limit, together

from paper_checks.claims.broken import broken
from paper_checks.claims.claim import Amendment, Claim, Finding, Kind, Mutant, Part, Route, Sentence, Verdict, told
from paper_checks.claims.statements import Values
from paper_checks.papers.magneto.theorems import PRE_BOUND, PRE_FACTORISED, SUB_BOUND, SUB_FACTORISED
from paper_checks.routes import algebra, one_liners, second_meanfield
from paper_checks.routes.checks import Answers, check
from paper_checks.routes.intervals import Interval, quotient
from paper_checks.routes.search import prove
from paper_checks.routes.update_bounds import LETTERS, below, measured_update, n, v, w
from theory.symbols import L, k, l, scratch

# ---------------------------------------------------------------- S2-16: one term

_V = Sum(v[n] ** 2, (n, 1, L))
_S = Sum(v[n] ** 2 * w[n] ** 2, (n, 1, L))
_WEIGHT = v[l] ** 2 + w[l] ** 2
_AT = (v, w, L, l)


_EQUALITY = Values.of(left=(1 + v[l] ** 2 / w[l] ** 2) / _V, right=_WEIGHT / (w[l] ** 2 * _V))


def _same_term(s: Values) -> list[bool | None]:
    """One over the other cancels to 1, each sum over n a letter of its own."""
    ratio = s["left"] / s["right"]
    letters = {total: scratch(f"total_{i}", positive=True) for i, total in enumerate(sorted(ratio.atoms(Sum), key=str))}
    return [bool(cancel(together(ratio.xreplace(letters))) == 1)]


def _same_term_exactly(s: Values) -> list[bool | None]:
    out: list[bool | None] = []
    for length in (1, 2, 4, 6):
        for index in range(1, length + 1):
            values = (*algebra.rational_gains(length, index), length, index)
            out.append(algebra.value_at(s["left"], _AT, values) == algebra.value_at(s["right"], _AT, values))
    return out


_INEQUALITY = Values.of(
    "{smaller} <= {larger} where {dominant}_l >= {dominant}_i for all i",
    smaller=_WEIGHT / (w[l] ** 2 * _V),
    larger=_WEIGHT / _S,
    dominant="w",
)


def _in_summands(s: Values) -> list[bool | None]:
    """For every L: denominator less denominator, summand by summand, w_l^2 being w_n^2 and something more."""
    summands = []
    for expr in (s["smaller"], s["larger"]):
        (total,) = expr.atoms(Sum)
        letter = scratch("total", positive=True)
        factor = cancel(_WEIGHT / expr.xreplace({total: letter}) / letter)
        summands.append(factor * total.function)
    x = scratch("x", nonnegative=True)
    letters = {"w": {w[l] ** 2: w[n] ** 2 + x}, "v": {v[l] ** 2: v[n] ** 2 + x}, "": {}}[s["dominant"]]
    difference = (summands[0] - summands[1]).subs(letters).expand()
    return [True if difference == 0 or all(c > 0 for c in Poly(difference).coeffs()) else None]


class _Square:
    """A letter of z3 that stands for the square of what is written."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __pow__(self, power: int) -> Any:
        return {2: self.value, -2: 1 / self.value}[power]


def _by_z3(s: Values) -> Answers:
    """L = 2 and 3, l = 1 and L, over all positive reals; and that the hypothesis is needed."""
    import z3

    sides = [lambdify(_AT, expr, modules="math") for expr in (s["smaller"], s["larger"])]
    answers: list[bool | None] = []
    values: dict[str, str] = {}
    for length in (2, 3):
        squares = {name: [z3.Real(f"{name}{i}_squared") for i in range(1, length + 1)] for name in "vw"}
        lists = [[None, *map(_Square, squares[name])] for name in "vw"]
        positive = [x > 0 for of_one in squares.values() for x in of_one]
        for index in (1, length):
            order = sides[0](*lists, length, index) <= sides[1](*lists, length, index)
            of_one = squares.get(s["dominant"], [])
            hypothesis = [of_one[index - 1] >= x for x in of_one]
            found = prove(z3.Implies(z3.And(*positive, *hypothesis), order))
            answers.append(found.is_valid)
            values = values or dict(found.values)
    return Answers(
        holds=answers,
        steps=("exactly where sum_n v_n^2 (w_n^2 - w_l^2) <= 0", "so w_l >= w_i for all i is enough, >> is not needed"),
        counterexample=None
        if False not in answers
        else {"printed": "<=", "found": "a larger left side", "command": "depthlaw explain S2-16", **values},
    )


def term_step(id_: str, source: str, locator: str, quote: str) -> Claim:
    return Claim(
        id=id_,
        kind=Kind.STEP,
        source=source,
        locator=locator,
        quote=quote,
        summary="(13): (1 + v_l^2/w_l^2)/V_L = (v_l^2 + w_l^2)/(w_l^2 V_L) <= (v_l^2 + w_l^2)/S_L, w_l >> w_i",
        parts=(
            Part(
                name="the equality",
                statement=_EQUALITY,
                checks=(
                    check(Route.PROOF, "the ratio cancels to 1", _same_term, is_direct=True),
                    check(Route.PROPERTY, "exactly at rational gains, L to 6", _same_term_exactly, is_direct=True),
                ),
                mutants=(
                    Mutant(name="w_l for w_l^2", statement=_EQUALITY.with_(right=_WEIGHT / (w[l] * _V))),
                    *broken(_EQUALITY, "right"),
                ),
            ),
            Part(
                name="the inequality",
                statement=_INEQUALITY,
                checks=(
                    check(Route.PROOF, "z3, L = 2 and 3, l = 1 and L, over all positive reals", _by_z3, is_direct=True),
                    check(
                        Route.PROPERTY,
                        "for every L, summand by summand; then at rational gains",
                        lambda s: [*_in_summands(s), *_order_exactly(s)],
                        is_direct=True,
                    ),
                ),
                mutants=(
                    Mutant(name="no hypothesis", statement=_INEQUALITY.with_(dominant="")),
                    Mutant(name="v_l the largest", statement=_INEQUALITY.with_(dominant="v")),
                    Mutant(
                        name="the sides swapped",
                        statement=_INEQUALITY.with_(smaller=_INEQUALITY["larger"], larger=_INEQUALITY["smaller"]),
                    ),
                ),
            ),
        ),
    )


def _order_exactly(s: Values) -> Iterator[bool | None]:
    """At rational gains that meet the hypothesis."""
    for length in (2, 4, 6):
        for case in range(6):
            gains = dict(zip("vw", algebra.rational_gains(length, case), strict=True))
            for index in range(1, length + 1):
                of_one = gains.get(s["dominant"], [])
                if of_one and of_one[index - 1] < max(of_one):
                    continue
                values = (gains["v"], gains["w"], length, index)
                yield algebra.value_at(s["smaller"], _AT, values) <= algebra.value_at(s["larger"], _AT, values)


_S2_16 = term_step(
    "S2-16",
    "magneto",
    "Section 3.2, (13)",
    "1 + v2\nl\nw2\nl\nPL\nn=1 v2\nn\n=v2\nl+w2\nl\nw2\nlPL\nn=1 v2\nnv2\nl+w2\nl\nPL\nn=1 v2\nnw2\nn\n, "
    "wlwi, i 6=l(13)",
)


# ---------------------------------------------------------------- S2-17: the whole update

_REFUTED = Verdict.REFUTED
_t, _l, _L = (scratch(name, positive=True) for name in ("t", "l", "L"))


ANY, LATER, LAST = (
    f"as w_l -> oo, l = {which}, at the other gains 1" for which in ("any", "any but the first", "the last")
)
NONE = "at all gains 1"
_PLACES = {ANY: slice(None), LATER: slice(1, None), LAST: slice(-1, None)}
"""The sublayers, from 0, that explode."""


def compared(of: str, where: str = ANY, activation: str = "relu", norm_kind: str = "layernorm") -> Values:
    """That Magneto's bound or update is smaller than Pre-LN's."""
    network = "" if of == "bound" else ", {activation}, {norm_kind},"
    words = f"the {{of}} of Magneto{network} is {{word}} than that of Pre-LN {{where}}"
    return Values.of(words, of=of, word="smaller", where=where, activation=activation, norm_kind=norm_kind)


def _places(s: Values, length: int) -> range:
    """Places, from 0, at which a sublayer explodes; that of none is ``length``."""
    return range(length)[_PLACES[s["where"]]] if s["where"] in _PLACES else range(length, length + 1)


def _is_number(s: Values) -> bool:
    """Whether pi or a quadrature stands in the update, so that it is no rational function of w_l."""
    return (s["of"], s["norm_kind"]) == ("update", "layernorm")


def _values(s: Values, length: int, place: int, size: Any) -> tuple[Any, Any]:
    """(Magneto's, Pre-LN's), by the plain sums."""
    one = Fraction(1) if isinstance(size, Fraction) else S.One
    ones, gains = [one] * length, [size if i == place else one for i in range(length)]
    if s["of"] == "update":
        options = {"activation": s["activation"], "norm_kind": s["norm_kind"]}
        of_sub = second_meanfield.update("sub-ln", ones, gains, **options)
        return of_sub, second_meanfield.update("pre-ln", ones, gains, activation=s["activation"])
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
def _signs(s: Values) -> tuple[tuple[int, int, int], ...]:
    """(L, place, sign of Pre-LN's less Magneto's) for large w_l."""
    rows = []
    for length in (2, 4):
        for place in _places(s, length):
            if _is_number(s):  # at 10^4 the limit is met to 10^-4, far within the margin
                of_sub, of_pre = map(float, _values(s, length, place, Fraction(10**4)))
                sign = 1 if of_pre > of_sub * 1.01 else -1 if of_sub > of_pre * 1.01 else 0
            else:
                of_sub, of_pre = _values(s, length, place, _t)
                sign = _sign_at_infinity(of_pre - of_sub)
            rows.append((length, place, sign))
    return tuple(rows)


def _by_limit(id_: str, s: Values) -> Answers:
    wanted = 1 if s["word"] == "smaller" else -1
    rows = _signs(s)
    failing = [(length, place) for length, place, sign in rows if sign != wanted]
    steps = []
    for length, place, sign in rows:
        explodes = "gains 1" if place == length else f"w_{place + 1} -> infinity"
        word = {1: "smaller", 0: "equal", -1: "larger"}[sign]
        steps.append(f"L = {length}, {explodes}: Magneto's {s['of']} is {word}")
    return Answers(
        holds=[sign == wanted for *_, sign in rows],
        steps=steps,
        counterexample=_shown(id_, s, *failing[0]) if failing else None,
    )


_SIZE = Fraction(100)


def _shown(id_: str, s: Values, length: int, place: int) -> dict[str, Any]:
    of_sub, of_pre = (float(value) for value in _values(s, length, place, _SIZE))
    gains = ["100" if i == place else "1" for i in range(length)]
    commands = {"command": one_liners.printed_bounds(["1"] * length, gains)}
    if s["of"] == "update":
        options = (
            f"--optimizer sgd --activation {s['activation']} --sublayers {length} --norm-kind {s['norm_kind']} "
            f"--w {','.join(gains)}"
        )
        commands = {
            "beside it": f"depthlaw predict --scheme pre-ln {options}",
            "command": f"depthlaw predict --scheme sub-ln {options}",
        }
    where = "all gains 1" if place == length else f"w_{place + 1} = 100, all other gains 1"
    return {
        "printed": f"{s['word']} than Pre-LN's {of_pre:.4g} eta d",
        "found": f"{of_sub:.4g} eta d at {length} sublayers, {where}",
        "num_sublayers": length,
        "v": ["1"] * length,
        "w": gains,
        f"{s['of']}_of_magneto": float(f"{of_sub:.6g}"),
        f"{s['of']}_of_pre_ln": float(f"{of_pre:.6g}"),
        **commands,
    }


def _by_theory(s: Values) -> list[bool | None]:
    """N = 1, 3, 6 and w_l = 10^4."""
    out: list[bool | None] = []
    for length in (2, 6, 12):
        ones = [1.0] * length
        for place in _places(s, length):
            gains = [1e4 if i == place else 1.0 for i in range(length)]
            of_sub, of_pre = (_value(s, name, ones, gains) for name in ("sub-ln", "pre-ln"))
            margin = 1e-9 * of_pre
            out.append(of_sub < of_pre - margin if s["word"] == "smaller" else of_sub > of_pre + margin)
    return out


def _value(s: Values, name: str, v: list[float], w: list[float]) -> float:
    if s["of"] == "update":
        from theory.meanfield.update import predict

        return predict(name, "sgd", len(v), v=v, w=w, norm_kind=s["norm_kind"], activation=s["activation"]).update
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


def _for_every_length(s: Values) -> Answers:
    """At the other gains 1 the sign depends on whether l is the last (of an update) or the first (of a bound) alone."""
    rows = list(_update_signs(s) if s["of"] == "update" else _bound_signs())
    later = ("below the last", "the last")
    groups = {ANY: ("first", *later), LATER: later, LAST: later[1:], NONE: ("none",)}[s["where"]]
    wanted = 1 if s["word"] == "smaller" else -1
    shown = [(said, sign == wanted if isinstance(sign, int) else None) for group, said, sign in rows if group in groups]
    numbers = {}
    if s["of"] == "update" and s["where"] != NONE:
        for place in (1, 3):
            gains = [Fraction(10)] * 4
            of_sub, of_pre = in_the_limit(s["norm_kind"], [Fraction(1)] * 4, gains, place)
            numbers[f"at the other w_i = 10, v = 1, L = 4, l = {place + 1}"] = (
                f"Magneto's {float(of_sub):.4g}, Pre-LN's {float(of_pre):.4g}: "
                + ("smaller" if of_sub < of_pre else "larger")
            )
    holds = [answer for _, answer in shown]
    return Answers(holds=holds, numbers=numbers, steps=tuple(dict.fromkeys(said for said, _ in shown)))


def _update_signs(s: Values) -> Iterable[tuple[str, str, int | None]]:
    """(which l, the argument, the sign of Pre-LN's less Magneto's or None)."""
    kappa = S(second_meanfield.kappa("relu", s["norm_kind"]))
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
        at_two = in_the_limit(s["norm_kind"], [1.0] * 2, [1.0] * 2, 1)
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


def _ratios(s: Values) -> Iterable[tuple[str, Interval, float]]:
    """One update over the other, to be at most 1; L = 4, w_l = 100, the first and the last l that are meant."""
    places = _places(s, 4)
    for place in sorted({places[0], places[-1]}):
        w = tuple(100.0 if i == place else 1.0 for i in range(4))
        of_sub, of_pre = (
            measured_update(name, (1.0,) * 4, w, s["activation"], s["norm_kind"]) for name in ("sub-ln", "pre-ln")
        )
        where = "all gains 1" if place == 4 else f"w_{place + 1} = 100"
        if s["word"] == "smaller":
            yield f"Magneto's over Pre-LN's, {where}", quotient(of_sub, of_pre), 1.0
        else:
            yield f"Pre-LN's over Magneto's, {where}", quotient(of_pre, of_sub), 1.0


_MEASURED = below("real networks of 4 sublayers, the other gains 1", _ratios)


# ---------------------------------------------------------------- the claims


def comparison(id_: str, name: str, s: Values, condition: str, instead: tuple[Values, str | Sentence]) -> Part:
    """A part that says that Magneto's is smaller, which fails, and at which l it holds or is the other way round."""
    is_number = _is_number(s)
    how = "at w_l = 10^4" if is_number else "as w_l -> infinity, a rational function of it"
    checks = [
        check(
            Route.NUMERIC if is_number else Route.PROOF,
            f"sign of the difference {how}, N = 1 and 2, every l",
            partial(_by_limit, id_),
            is_direct=True,
        ),
        check(Route.MEANFIELD, "the same by theory/, at w_l = 10^4, N = 1, 3 and 6", _by_theory),
    ]
    if s["activation"] != "gelu":
        detail = f"every L = 2N, N >= 1, w_l -> infinity, other gains 1: the sign of Pre-LN's {s['of']} less Magneto's"
        checks.append(check(Route.PROOF, detail, _for_every_length, is_direct=True))
    if is_number:
        checks.append(_MEASURED)
    return Part(
        name=name,
        statement=s,
        checks=tuple(checks),
        mutants=(
            # Magneto's update behind LayerNorm is larger for every l; everything else is smaller for some.
            Mutant(name="the last alone", statement=s.with_(where=LAST))
            if is_number
            else Mutant(name="the other way, any l", statement=s.with_(where=ANY, word="larger")),
            Mutant(name="others", statement=s.with_(where=ANY if s["where"] == NONE else NONE)),
        ),
        expected=_REFUTED,
        condition=condition,
        instead=Amendment(statement=instead[0], text=instead[1]),
    )


_BOUND, _REAL = compared("bound"), compared("update")
_RMS, _GELU = _REAL.with_(norm_kind="rmsnorm"), _REAL.with_(activation="gelu")
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
            _BOUND,
            NOT_FIRST,
            (
                _BOUND.with_(where=LATER),
                "smaller where any sublayer but the first explodes, at any other gains; (13) is one term of the sum, "
                "and what follows it in the bracket, 1 + sum_k s_k/S_(k-1), tends to 1 in (10) if the first one does",
            ),
        ),
        comparison(
            id_,
            "the true update, relu, LayerNorm (the paper's sublayer)",
            _REAL,
            f"{_EXACTLY}; kappa = pi/(pi - 1). At the other gains 1 for no l; {_REVERSED}",
            (_REAL.with_(word="larger"), "larger, whichever sublayer explodes, at the other gains 1, for every N >= 1"),
        ),
        comparison(
            id_,
            "the true update, gelu, LayerNorm",
            _GELU,
            "other sublayers of large w_i/v_i, as with relu, which GELU becomes at a large w",
            (
                _GELU.with_(word="larger"),
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
                _RMS.with_(where=LAST),
                "at the other gains 1 smaller where the last sublayer explodes, by 1/(L + 1), and larger for every "
                "other, for every N >= 1: the gradients of all that lie above an exploding sublayer of Pre-LN vanish",
            ),
        ),
    )


_S2_17 = Claim(
    id="S2-17",
    kind=Kind.STEP,
    locator="Section 3.2, before (13)",
    quote="When the activation of the\nl\n-th sub-layer explodes, it leads to\nwlwi, i 6=l\n. Equation (13) proves\n"
    "that the model update of MAGNETO is smaller than that of vanilla Pre-LN in this case.",
    summary="where sublayer l explodes, the update of Magneto is smaller than that of Pre-LN",
    uses=("S2-16",),
    parts=conclusions("S2-17"),
    finding=Finding(
        "Magneto's paper says that its update is smaller than Pre-LN's when a sublayer explodes. One term "
        "of its bound is. The whole bound is not, if it is the first sublayer that explodes. The true "
        "update is larger whichever explodes, with ReLU, LayerNorm and all other gains 1. With equal gains "
        "in all sublayers the two printed bounds are the same",
        rank=90,
        shared_with=("S3-09", "S3-03"),
    ),
)
CLAIMS: tuple[Claim, ...] = (_S2_16, _S2_17)
