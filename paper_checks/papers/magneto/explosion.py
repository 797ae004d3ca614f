"""Magneto, (13): one term of its bound beside Pre-LN's where sublayer l explodes, w_l >> w_i; and what is concluded.

ReLU, in the limit w_l -> infinity, every gain its own. A gradient that reaches sublayer i is

    of Pre-LN   1/P_i,   P_i = 1 + sum_(j <= i) v_j^2 w_j^2/2,
    of Magneto  D_i = prod_(j > i) (1 + kappa v_j^2/Q_(j-1)) / Q_L,   Q_i = 1 + sum_(j <= i) v_j^2,

kappa = pi/(pi - 1) behind LayerNorm, and 1 behind RMSNorm, where D_i = 1/Q_i. Pre-LN loses the terms i > l, and the
exploding one is 1/v_l^2; Magneto keeps all, the exploding one being D_l.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

from sympy import Expr, Indexed, Poly, S, Sum, cancel, expand, fraction, harmonic, lambdify, limit, sqrt, together

from depthlaw.paper_checks.claims.broken import broken, changed
from depthlaw.paper_checks.claims.claim import (
    Amendment,
    Claim,
    Finding,
    Kind,
    Mutant,
    Part,
    Route,
    Sentence,
    Verdict,
    sentence,
)
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.papers.magneto.theorems import PRE_BOUND, PRE_FACTORISED, SUB_BOUND, SUB_FACTORISED
from depthlaw.paper_checks.routes import algebra, second_meanfield
from depthlaw.paper_checks.routes.checks import Answers, check, python_command
from depthlaw.paper_checks.routes.search import prove
from depthlaw.paper_checks.routes.signal_propagation.update_bounds import LETTERS, n, v, w
from depthlaw.theory.symbols import L, k, l, scratch

# ---------------------------------------------------------------- S2-16: one term

_V = Sum(v[n] ** 2, (n, 1, L))
_S = Sum(v[n] ** 2 * w[n] ** 2, (n, 1, L))
_WEIGHT = v[l] ** 2 + w[l] ** 2
_AT = (v, w, L, l)

_EQUALITY = Values.of(left=(1 + v[l] ** 2 / w[l] ** 2) / _V, right=_WEIGHT / (w[l] ** 2 * _V))


@check(Route.PROOF, "the ratio cancels to 1")
def _same_term(s: Values) -> list[bool | None]:
    ratio = s["left"] / s["right"]
    letters = {total: scratch(f"total_{i}", positive=True) for i, total in enumerate(sorted(ratio.atoms(Sum), key=str))}
    return [bool(cancel(together(ratio.xreplace(letters))) == 1)]


@check(Route.PROPERTY, "exactly at rational gains, L to 6")
def _same_term_exactly(s: Values) -> list[bool | None]:
    places = [(length, index) for length in (1, 2, 4, 6) for index in range(1, length + 1)]
    gains = [(*algebra.rational_gains(length, index), length, index) for length, index in places]
    return [algebra.value_at(s["left"], _AT, at) == algebra.value_at(s["right"], _AT, at) for at in gains]


_INEQUALITY = Values.of(
    "{smaller} <= {larger} where {dominant}_l >= {dominant}_i for all i",
    smaller=_WEIGHT / (w[l] ** 2 * _V),
    larger=_WEIGHT / _S,
    dominant="w",
)


@check(Route.PROOF, "z3, L = 2 and 3, l = 1 and L, over all positive reals")
def _by_z3(s: Values) -> Answers:
    import z3

    answers: list[bool | None] = []
    values: dict[str, str] = {}
    for length in (2, 3):
        squares = {name: [scratch(f"{name}{i}_squared", positive=True) for i in range(1, length + 1)] for name in "vw"}
        roots = {gain[i]: sqrt(squares[str(gain)][i - 1]) for gain in (v, w) for i in range(1, length + 1)}
        letters = [*squares["v"], *squares["w"]]
        reals = dict(zip(letters, z3.Reals(list(map(str, letters))), strict=True))
        for index in (1, length):
            smaller, larger = (
                lambdify(letters, s[side].subs({L: length, l: index}).doit().subs(roots))(*reals.values())
                for side in ("smaller", "larger")
            )
            largest = [reals[square] for square in squares.get(s["dominant"], [])]
            hypotheses = [*(real > 0 for real in reals.values()), *(largest[index - 1] >= real for real in largest)]
            solved = prove(z3.Implies(z3.And(hypotheses), smaller <= larger))
            answers.append(solved.is_valid)
            values = values or dict(solved.values)
    failure = {"printed": "<=", "found": "a larger left side", "command": "depthlaw explain S2-16", **values}
    return Answers(
        holds=answers,
        steps=("exactly where sum_n v_n^2 (w_n^2 - w_l^2) <= 0", "so w_l >= w_i for all i is enough, >> is not needed"),
        counterexample=failure if False in answers else None,
    )


@check(Route.PROPERTY, "for every L, summand by summand; then at rational gains")
def _by_summands(s: Values) -> list[bool | None]:
    """The denominators' summands compared, w_l^2 being w_n^2 and something more; gains that meet the hypothesis."""
    summands = []
    for expr in (s["smaller"], s["larger"]):
        (total,) = expr.atoms(Sum)
        summands.append(cancel(_WEIGHT / expr * total.function / total))
    x = scratch("x", nonnegative=True)
    more = {"w": {w[l] ** 2: w[n] ** 2 + x}, "v": {v[l] ** 2: v[n] ** 2 + x}, "": {}}[s["dominant"]]
    difference = (summands[0] - summands[1]).subs(more).expand()
    out: list[bool | None] = [difference == 0 or all(c > 0 for c in Poly(difference).coeffs()) or None]
    for length in (2, 4, 6):
        for case in range(6):
            gains = dict(zip("vw", algebra.rational_gains(length, case), strict=True))
            dominant = gains.get(s["dominant"], [1] * length)
            for index in (i for i in range(1, length + 1) if dominant[i - 1] == max(dominant)):
                at = (gains["v"], gains["w"], length, index)
                out.append(algebra.value_at(s["smaller"], _AT, at) <= algebra.value_at(s["larger"], _AT, at))
    return out


S2_16 = Claim(
    id="S2-16",
    kind=Kind.STEP,
    locator="Section 3.2, (13)",
    quote="1 + v2\nl\nw2\nl\nPL\nn=1 v2\nn\n=v2\nl+w2\nl\nw2\nlPL\nn=1 v2\nnv2\nl+w2\nl\nPL\nn=1 v2\nnw2\nn\n, "
    "wlwi, i 6=l(13)",
    summary="(13): (1 + v_l^2/w_l^2)/V_L = (v_l^2 + w_l^2)/(w_l^2 V_L) <= (v_l^2 + w_l^2)/S_L, w_l >> w_i",
    parts=(
        Part(
            name="the equality",
            statement=_EQUALITY,
            checks=(_same_term, _same_term_exactly),
            mutants=broken(_EQUALITY, "right"),
        ),
        Part(
            name="the inequality",
            statement=_INEQUALITY,
            checks=(_by_z3, _by_summands),
            mutants=changed(_INEQUALITY, dominant=["", "v"]),
        ),
    ),
)

# ---------------------------------------------------------------- S2-17: the whole update

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
    of_sub, of_pre = (_compiled(bound)(*lists, length) for bound in (SUB_BOUND, PRE_BOUND))
    return of_sub, of_pre


def _sign(s: Values, length: int, place: int) -> int:
    """Of Pre-LN's less Magneto's for large w_l."""
    if _is_number(s):  # at 10^4 the limit is met to 10^-4, far within the margin
        of_sub, of_pre = map(float, _values(s, length, place, Fraction(10**4)))
        return 1 if of_pre > of_sub * 1.01 else -1 if of_sub > of_pre * 1.01 else 0
    of_sub, of_pre = _values(s, length, place, _t)
    above, below = fraction(cancel(together(of_pre - of_sub)))
    leading = Poly(above, _t).LC() * Poly(below, _t).LC()
    return 0 if above == 0 else 1 if leading > 0 else -1


def _by_limit(s: Values) -> Answers:
    wanted = 1 if s["word"] == "smaller" else -1
    signs = {(length, place): _sign(s, length, place) for length in (2, 4) for place in _places(s, length)}
    failing = [at for at, sign in signs.items() if sign != wanted]
    steps = []
    for (length, place), sign in signs.items():
        explodes = "gains 1" if place == length else f"w_{place + 1} -> infinity"
        steps.append(f"L = {length}, {explodes}: Magneto's {s['of']} is {('equal', 'smaller', 'larger')[sign]}")
    return Answers(
        holds=[sign == wanted for sign in signs.values()],
        steps=steps,
        counterexample=_shown(s, *failing[0]) if failing else None,
    )


def _both_bounds(v: Sequence[str], w: Sequence[str]) -> str:
    """A command that shows bound (10) of Pre-LN beside (12) of Magneto, without eta d, at these gains."""
    return python_command(
        f"v, w = [{', '.join(v)}], [{', '.join(w)}]; "
        "c = lambda a: (1 + sum(a[k] / sum(a[:k]) for k in range(1, len(a)))) / sum(a); z = list(zip(v, w));"
        " print('Pre-LN', sum(x * x + y * y for x, y in z) * c([(x * y) ** 2 for x, y in z]),"
        " 'Magneto', sum(1 + (x / y) ** 2 for x, y in z) * c([x * x for x in v]))"
    )


def _shown(s: Values, length: int, place: int) -> dict[str, Any]:
    of_sub, of_pre = (float(value) for value in _values(s, length, place, Fraction(100)))
    gains = ["100" if i == place else "1" for i in range(length)]
    if s["of"] == "bound":
        commands = {"command": _both_bounds(["1"] * length, gains)}
    else:
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


@check(Route.MEANFIELD, "the same by theory/, at w_l = 10^4, N = 1, 3 and 6")
def _by_theory(s: Values) -> list[bool | None]:
    from depthlaw.theory.bounds.update import derive_bound
    from depthlaw.theory.meanfield.update import predict

    def value(scheme: str, v: list[float], w: list[float]) -> float:
        if s["of"] == "bound":
            return float(_compiled(derive_bound(scheme).factorised)([0.0, *v], [0.0, *w], len(v)))
        options = {"norm_kind": s["norm_kind"], "activation": s["activation"]}
        return predict(scheme, "sgd", len(v), v=v, w=w, **options).update

    out: list[bool | None] = []
    for length in (2, 6, 12):
        for place in _places(s, length):
            gains = [1e4 if i == place else 1.0 for i in range(length)]
            of_sub, of_pre = (value(scheme, [1.0] * length, gains) for scheme in ("sub-ln", "pre-ln"))
            difference = of_sub - of_pre if s["word"] == "larger" else of_pre - of_sub
            out.append(difference > 1e-9 * of_pre)
    return out


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
    later = ("below the last", "the last")
    groups = {ANY: ("first", *later), LATER: later, LAST: later[1:], NONE: ("none",)}[s["where"]]
    wanted = 1 if s["word"] == "smaller" else -1
    rows = _update_signs(s["norm_kind"]) if s["of"] == "update" else _bound_signs()
    answers = [(text, sign == wanted if is_shown else None) for group, text, sign, is_shown in rows if group in groups]
    numbers = {}
    if s["of"] == "update" and s["where"] != NONE:
        for place in (1, 3):
            of_sub, of_pre = in_the_limit(s["norm_kind"], [Fraction(1)] * 4, [Fraction(10)] * 4, place)
            numbers[f"at the other w_i = 10, v = 1, L = 4, l = {place + 1}"] = (
                f"Magneto's {float(of_sub):.4g}, Pre-LN's {float(of_pre):.4g}: "
                + ("smaller" if of_sub < of_pre else "larger")
            )
    steps = tuple(dict.fromkeys(text for text, _ in answers))
    return Answers(holds=[answer for _, answer in answers], numbers=numbers, steps=steps)


def _update_signs(norm_kind: str) -> Iterable[tuple[str, str, int, bool]]:
    """(which l, the argument, the sign of Pre-LN's less Magneto's, whether it is shown)."""
    excess = float(S(second_meanfield.kappa("relu", norm_kind)) - 1)
    is_larger = cancel(2 / (_l + 2) - 1 / (_l + 1) - _l / ((_l + 1) * (_l + 2))) == 0 and excess >= 0
    for group in ("first", "below the last"):
        yield (
            group,
            "l < L: Pre-LN's is sum_(i <= l) 2/(i + 1), Magneto's with kappa >= 1 at least sum_(i <= L) 2/(i + 1) - "
            "1/(l + 1), and what it has more, at least 2/(l + 2) - 1/(l + 1) = l/((l + 1)(l + 2)), is positive",
            -1,
            is_larger,
        )
    if excess == 0:
        difference = (harmonic(_L + 1) - 1) * 2 - (2 * (harmonic(_L + 1) - 1) - 1 / (_L + 1))
        yield ("the last", "l = L: the same sums, and Magneto's lacks 1/(L + 1)", 1, cancel(difference) == 1 / (_L + 1))
    else:
        of_sub, of_pre = in_the_limit(norm_kind, [1.0] * 2, [1.0] * 2, 1)
        at_four = excess * float(harmonic(4) - 1) - 1 / 5
        yield (
            "the last",
            f"l = L = 2: {of_sub:.4g} against {of_pre:.4g}; l = L >= 4: Magneto's has at least "
            f"(kappa - 1)(H_L - 1) - 1/(L + 1) more, {at_four:.3g} at L = 4, and rising",
            -1,
            of_sub > of_pre and at_four > 0,
        )
    yield (
        "none",
        "all gains 1: Magneto's with kappa >= 1 has at least 2 H_(L+1) - 2 - (2 H_(L+2) - 3) = 1 - 2/(L + 2) more",
        -1,
        cancel(1 - 2 / (_L + 2) - _L / (_L + 2)) == 0 and excess >= 0,
    )


def _bound_signs() -> Iterable[tuple[str, str, int, bool]]:
    """The same of (10) less (12); v, below and rest are positive: v_l^2, S_(l-1) or S_L without s_l, other squares."""
    v, w, below, rest = (scratch(name, positive=True) for name in ("v", "w", "below", "rest"))
    s_l = v * _t**2
    weights = (rest + v + _t**2) / (below + s_l)
    of_first, of_later = (limit(expr, _t, S.Infinity) for expr in (weights, weights * (1 + s_l / below)))
    of_sub = (2 - 1 / _L) * (1 + harmonic(_L - 1))  # rises with L
    is_above = of_first.subs(v, 1) == 1 and of_sub.subs(_L, 2) > 1
    yield "first", "l = 1: (10) goes to 1/v_1^2 = 1, (12) to (2 - 1/L)(1 + H_(L-1)) > 1", -1, is_above
    later = "l > 1: (10) goes to infinity with v_l^2 w_l^2/S_(l-1), whatever the other gains; (12) does not"
    for group in ("below the last", "the last"):
        yield group, later, 1, of_later == S.Infinity
    equal = [
        bound.xreplace({of: {"v": v, "w": w}[str(of.base)] for of in bound.atoms(Indexed)})
        for bound in (PRE_FACTORISED, SUB_FACTORISED)
    ]
    at_one = [algebra.normal_form(bound.xreplace({v: S.One, w: S.One})) for bound in equal]
    yield "none", "all gains 1: both are 2 + 2 H_(L-1)", 0, at_one[0] == at_one[1]
    closed = (1 / v**2 + 1 / w**2) * (1 + Sum(1 / (k - 1), (k, 2, L)))
    yield (
        "none",
        "one v and one w in all sublayers: both are (1/v^2 + 1/w^2)(1 + H_(L-1))",
        0,
        all(expand(bound.doit() - closed) == 0 for bound in equal),
    )


# ---------------------------------------------------------------- the claims


def comparison(name: str, s: Values, condition: str, holds: Values, text: str | Sentence) -> Part:
    """A part that says that Magneto's is smaller, which fails; ``holds`` and ``text`` say what is true."""
    is_number = _is_number(s)
    how = "at w_l = 10^4" if is_number else "as w_l -> infinity, a rational function of it"
    route, detail = Route.NUMERIC if is_number else Route.PROOF, f"sign of the difference {how}, N = 1 and 2, every l"
    checks = [check(route, detail, _by_limit), _by_theory]
    if s["activation"] != "gelu":
        detail = f"every L = 2N, N >= 1, w_l -> infinity, other gains 1: the sign of Pre-LN's {s['of']} less Magneto's"
        checks.append(check(Route.PROOF, detail, _for_every_length))
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
        expected=Verdict.REFUTED,
        condition=condition,
        instead=Amendment(statement=holds, text=text),
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
    exploding = ([1e6 if i == place else 1.0 for i in range(4)] for place in range(4))
    return ", ".join(
        f"{float(second_meanfield.update(scheme, [1.0] * 4, w, activation='gelu')):.2f}" for w in exploding
    )


S2_17 = Claim(
    id="S2-17",
    kind=Kind.STEP,
    locator="Section 3.2, before (13)",
    quote="When the activation of the\nl\n-th sub-layer explodes, it leads to\nwlwi, i 6=l\n. Equation (13) proves\n"
    "that the model update of MAGNETO is smaller than that of vanilla Pre-LN in this case.",
    summary="where sublayer l explodes, the update of Magneto is smaller than that of Pre-LN",
    uses=("S2-16",),
    parts=(
        comparison(
            "the printed bounds, (12) against (10)",
            _BOUND,
            NOT_FIRST,
            _BOUND.with_(where=LATER),
            "smaller where any sublayer but the first explodes, at any other gains; (13) is one term of the sum, "
            "and what follows it in the bracket, 1 + sum_k s_k/S_(k-1), tends to 1 in (10) if the first one does",
        ),
        comparison(
            "the true update, relu, LayerNorm (the paper's sublayer)",
            _REAL,
            f"{_EXACTLY}; kappa = pi/(pi - 1). At the other gains 1 for no l; {_REVERSED}",
            _REAL.with_(word="larger"),
            "larger, whichever sublayer explodes, at the other gains 1, for every N >= 1",
        ),
        comparison(
            "the true update, gelu, LayerNorm",
            _GELU,
            "other sublayers of large w_i/v_i, as with relu, which GELU becomes at a large w",
            _GELU.with_(word="larger"),
            sentence(
                "larger, whichever sublayer explodes, at the other gains 1, N = 1, 2, 3 and 6: {of_sub} against "
                "{of_pre} for l = 1 to 4 of L = 4",
                of_sub=lambda: _where_each_explodes("sub-ln"),
                of_pre=lambda: _where_each_explodes("pre-ln"),
            ),
        ),
        comparison(
            "the true update, relu, RMSNorm",
            _RMS,
            f"{_EXACTLY}; kappa = 1, D_i = 1/Q_i. At the other gains 1 for l = L alone; {_REVERSED}",
            _RMS.with_(where=LAST),
            "at the other gains 1 smaller where the last sublayer explodes, by 1/(L + 1), and larger for every "
            "other, for every N >= 1: the gradients of all that lie above an exploding sublayer of Pre-LN vanish",
        ),
    ),
    finding=Finding(
        "Magneto's paper says that its update is smaller than Pre-LN's when a sublayer explodes. One term "
        "of its bound is. The whole bound is not, if it is the first sublayer that explodes. The true "
        "update is larger whichever explodes, with ReLU, LayerNorm and all other gains 1. With equal gains "
        "in all sublayers the two printed bounds are the same",
        rank=90,
        shared_with=("S3-09", "S3-03"),
    ),
)
CLAIMS: tuple[Claim, ...] = (S2_16, S2_17)
