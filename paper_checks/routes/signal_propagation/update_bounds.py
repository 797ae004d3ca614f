"""A printed bound on the model update as an inequality, judged against the exact update at gains of every kind.

Four routes: the update in fractions over a list of gains, as far as 10^4 sublayers at gains 1, and what hypothesis
finds; the same list through ``theory.meanfield.update``; rational functions of one letter t, by their limit as t goes
to infinity; and real networks, where a failure shows at a depth that can be measured.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from sympy import Expr, Indexed, Poly, S, Sum, cancel, fraction, harmonic, lambdify, oo, together

from depthlaw.paper_checks.claims.claim import Amendment, Mutant, Part, Route, Sentence, Verdict
from depthlaw.paper_checks.claims.statements import Changeable
from depthlaw.paper_checks.routes import algebra, second_meanfield
from depthlaw.paper_checks.routes.checks import Answers, check
from depthlaw.paper_checks.routes.intervals import Interval, interval
from depthlaw.paper_checks.routes.search import search
from depthlaw.theory.symbols import L, gains_in, gains_out, l, scratch

LETTERS = (gains_out, gains_in, L)
"""v, w and L: what a bound of the sources is written in."""
v, w = gains_out, gains_in
n = scratch("n", integer=True, positive=True)
Gains = tuple[tuple[Fraction, ...], tuple[Fraction, ...]]
"""v_1..v_L and w_1..w_L."""
ONE = Fraction(1)
LISTED, LONG = 8, (100, 1000, 10_000)
"""The most sublayers that are tried in fractions; lengths that are tried in floats, at gains 1."""
_t = scratch("t", positive=True)


@dataclass(frozen=True, kw_only=True)
class Inequality(Changeable):
    """The update of ``scheme`` is at most eta d times ``bound``. ``is_equal``: one v and one w for all sublayers.

    has_head: the output projection is trained, too. Its gradient is x^e, and |x^e|^2 = d: it adds eta d exactly.
    """

    scheme: str
    bound: Expr
    is_equal: bool
    activation: str = "relu"
    norm_kind: str = "layernorm"
    has_head: bool = False

    @property
    def text(self) -> str:
        gains = "equal gains" if self.is_equal else "any gains v_l, w_l"
        trained = "the branch matrices" + (" and W_vocab" if self.has_head else "")
        network = f"{self.scheme}, {self.activation}, {self.norm_kind}"
        return f"update of {network}, over {trained}, <= eta*d*({self.bound}) at {gains}"

    def update(self, v: Sequence[Any], w: Sequence[Any]) -> Any:
        of_branches = second_meanfield.update(self.scheme, v, w, activation=self.activation, norm_kind=self.norm_kind)
        return of_branches + 1 if self.has_head else of_branches


@cache
def _at_ones(bound: Expr) -> Any:
    """The bound at gains 1 as a function of L: what is left of its sums is added up in floats."""
    ones = bound.replace(lambda e: isinstance(e, Indexed), lambda _: S.One)
    return lambdify(L, algebra.normal_form(ones), modules="math")


@cache
def _bound_at(bound: Expr, gains: Gains) -> Fraction:
    return algebra.value_at(bound, LETTERS, (list(gains[0]), list(gains[1]), len(gains[0])))


def _update_and_bound(statement: Inequality, gains: Gains) -> tuple[Any, Any]:
    """In fractions; in floats at gains 1 of more than LISTED sublayers: so deep, fractions are long."""
    length = len(gains[0])
    if _is_long(gains):
        return statement.update([1.0] * length, [1.0] * length), _at_ones(statement.bound)(length)
    return statement.update(*gains), _bound_at(statement.bound, gains)


# ---------------------------------------------------------------- the gains that are tried, L = 2N of them


def _ones(length: int) -> Gains:
    return (ONE,) * length, (ONE,) * length


def _is_long(gains: Gains) -> bool:
    return len(gains[0]) > LISTED and gains == _ones(len(gains[0]))


def _powers(base: Fraction, length: int) -> Gains:
    powers = tuple(base**i for i in range(length))
    return powers, powers


def tried(is_equal: bool) -> Iterator[Gains]:
    """Gains that grow and shrink by powers, and one sublayer unlike the others; equal gains."""
    for length in () if is_equal else (4, 2, 6):

        def alone(index: int, value: Fraction, others: Fraction = ONE, length: int = length) -> tuple[Fraction, ...]:
            return tuple(value if i == index else others for i in range(length))

        yield from (_powers(base, length) for base in (Fraction(3), Fraction(2), Fraction(3, 2), Fraction(1, 2)))
        for index in (0, length - 1):
            for value in (Fraction(1, 32), Fraction(32)):
                yield (Fraction(4),) * length, alone(index, value, Fraction(4))
                yield alone(index, value), alone(index, 1 / value)
                yield alone(index, value), (ONE,) * length
    sizes = [Fraction(2), Fraction(1, 8), ONE, Fraction(32)]
    for length in (2, LISTED):
        for of_v in sizes:
            for of_w in sizes if is_equal else (of_v,):
                yield (of_v,) * length, (of_w,) * length


def _first_too_long(statement: Inequality) -> int | None:
    """A length at which, at gains 1, the bound is exceeded, and one sublayer before it is not; None up to 10^4."""

    def is_exceeded(length: int) -> bool:
        try:
            update, bound = _update_and_bound(statement, _ones(length))
        except OverflowError:
            return True
        return float(update) / float(bound) > 1 + 1e-9

    bad = next((length for length in LONG if is_exceeded(length)), None)
    lengths = range(LISTED + 1, bad or 0)
    return bad and lengths.start + bisect_left(lengths, True, key=is_exceeded)


def _strategy(is_equal: bool) -> Any:
    from hypothesis import strategies as st

    gain = st.sampled_from([ONE, *(Fraction(a, b) for a in (1, 2, 3, 5, 8) for b in (1, 3, 8) if a != b)])
    if is_equal:
        return st.builds(lambda number, a, b: ((a,) * (2 * number), (b,) * (2 * number)), st.integers(1, 5), gain, gain)
    gains = st.integers(1, 3).flatmap(lambda number: st.lists(gain, min_size=4 * number, max_size=4 * number))
    return gains.map(lambda values: (tuple(values[::2]), tuple(values[1::2])))


def _text(gains: Gains) -> str:
    """v and w in few characters: one number where they are all equal."""
    shown = [str(values[0]) if len(set(values)) == 1 else "(" + ", ".join(map(str, values)) + ")" for values in gains]
    return f"v_l = w_l = {shown[0]}" if shown[0] == shown[1] else f"v = {shown[0]}, w = {shown[1]}"


def counterexample(statement: Inequality, gains: Gains) -> dict[str, Any]:
    """What is shown of a failure; ``command`` shows the update of the branches, which W_vocab's does not depend on."""
    length = len(gains[0])
    command = f"depthlaw predict --scheme {statement.scheme} --optimizer sgd --sublayers {length} "
    command += f"--activation {statement.activation} --norm-kind {statement.norm_kind}"
    update, bound = map(float, _update_and_bound(statement, gains))
    listed: dict[str, Any] = {}
    if not _is_long(gains):
        for name, of_sublayers in zip("vw", gains, strict=True):
            listed[name] = [str(gain) for gain in of_sublayers]
            command += f" --{name} {','.join(f'{float(gain):.17g}' for gain in of_sublayers)}"
    # Four digits, or as many as tell one number from the other.
    digits = next((digits for digits in (4, 5, 6) if f"{update:.{digits}g}" != f"{bound:.{digits}g}"), 7)
    shown = f"{update:.{digits}g}" if not statement.has_head else f"1 (of W_vocab) + {update - 1:.{digits}g}"
    return {
        "printed": f"at most {bound:.{digits}g} eta d",
        "found": f"{shown} eta d at {length} sublayers, {_text(gains)}",
        "num_sublayers": length,
        **listed,
        "update": float(f"{update:.6g}"),
        "bound": float(f"{bound:.6g}"),
        "command": command,
    }


# ---------------------------------------------------------------- three routes


@check(
    Route.PROPERTY,
    "the exact update against the bound, sublayer by sublayer, at rational gains, and at gains 1 up to 10^4 sublayers",
)
def _in_fractions(statement: Inequality) -> Answers:
    def holds(gains: Gains) -> bool:
        update, bound = _update_and_bound(statement, gains)
        return bool(update <= bound) if isinstance(update, Fraction) else float(update) <= float(bound) * (1 + 1e-12)

    def listed() -> Gains | None:
        return next((gains for gains in tried(statement.is_equal) if not holds(gains)), None)

    def at_ones() -> Gains | None:
        length = _first_too_long(statement)
        return None if length is None else _ones(length)

    number = len(list(tried(statement.is_equal))) + len(LONG)
    # The plainest first: gains 1 where gains are equal, at any depth, but few sublayers where they may be anything.
    failing = (at_ones() or listed()) if statement.is_equal and not statement.has_head else (listed() or at_ones())
    if failing is None:
        searched = search(_strategy(statement.is_equal), holds, max_examples=25)
        failing, number = searched.found, number + searched.num_effective
    shown = None if failing is None else counterexample(statement, failing)
    return Answers(
        holds=[failing is None],
        num_effective=number,
        numbers={} if shown is None else {"update": shown["update"], "bound": shown["bound"]},
        counterexample=shown,
    )


@check(Route.MEANFIELD, "the mean field at the same gains: the largest update / bound, or the first above 1")
def _in_mean_field(statement: Inequality) -> Answers:
    from depthlaw.theory.meanfield.update import predict

    def ratios() -> Iterator[float]:
        options: dict[str, Any] = {"activation": statement.activation, "norm_kind": statement.norm_kind}
        for gains in tried(statement.is_equal):
            v, w = ([float(gain) for gain in of_sublayers] for of_sublayers in gains)
            update = predict(statement.scheme, "sgd", len(v), v=v, w=w, **options).update
            yield (update + statement.has_head) / float(_bound_at(statement.bound, gains))
        for length in LONG:  # the gains of these schemes are 1 unless others are given
            update = predict(statement.scheme, "sgd", length, **options).update
            yield (update + statement.has_head) / float(_at_ones(statement.bound)(length))

    worst, number = 0.0, 0
    for ratio in ratios():
        worst, number = max(worst, ratio), number + 1
        if worst > 1 + 1e-12:
            break
    numbers = {"update_over_bound": float(f"{worst:.5g}")}
    return Answers(holds=[worst <= 1 + 1e-12], num_effective=number, numbers=numbers)


def families(is_equal: bool) -> Iterator[tuple[str, list[Expr], list[Expr]]]:
    """Gains as powers of t, t to infinity, N = 2 and 1."""
    one = S.One
    pairs = {
        "v = w = t": (_t, _t),
        "v = t, w = 1": (_t, one),
        "v = 1, w = t": (one, _t),
        "v = w = 1/t": (1 / _t, 1 / _t),
    }
    for length in (4, 2):
        if not is_equal:
            for name, a in (("t^(l-1)", _t), ("t^(1-l)", 1 / _t)):
                gains = [a**i for i in range(length)]
                yield f"L = {length}, v_l = w_l = {name}", gains, gains
            for i in range(length):
                alone = [_t if i == j else one for j in range(length)]
                yield f"L = {length}, w_{i + 1} = t, other gains 1", [one] * length, alone
        for name, (a, b) in pairs.items():
            yield f"L = {length}, {name}", [a] * length, [b] * length


def limit_at_infinity(expr: Expr) -> Expr:
    """The limit of a rational function of t with positive leading coefficients, by its degrees."""
    above, below = (Poly(part, _t) for part in fraction(cancel(together(expr))))
    if above.degree() != below.degree():
        return oo if above.degree() > below.degree() else S.Zero
    return cancel(above.LC() / below.LC())


@check(Route.PROOF, "for every L and all gains of that kind, by the signs of coefficients")
def _by_limits(statement: Inequality) -> Answers:
    """The inequality for all gains where it can be had; else update / bound as t goes to infinity."""
    proven, steps = _proofs(statement)
    if proven:
        return Answers(holds=[True] * len(steps), steps=steps)
    bound = lambdify(LETTERS, statement.bound, modules="math")
    detail = "limits of update / bound along gains that are powers of t"
    for number, (name, a, b) in enumerate(families(statement.is_equal), start=1):
        limit = limit_at_infinity(statement.update(a, b) / bound([S.Zero, *a], [S.Zero, *b], len(a)))
        if limit is oo or limit > 1:
            size = "infinity: no constant saves it" if limit is oo else f"{float(limit):.4g}"
            step = f"{name}, t to infinity: update / bound -> {size}"
            return Answers(holds=[False], num_effective=number, detail=detail, steps=[step])
    return Answers(holds=[None], detail=detail)


def _proofs(statement: Inequality) -> tuple[bool, list[str]]:
    if statement.has_head:
        return _proofs(statement.with_(has_head=False, bound=statement.bound - 1))
    if second_meanfield.kappa(statement.activation, statement.norm_kind) != 1 and statement.scheme == "sub-ln":
        return False, []
    if statement.is_equal:
        return _by_induction(statement), [
            "L = 1: bound - update has only positive coefficients over one denominator",
            "L to L + 1: so has (rise of the bound) - (rise of the update), in v^2, w^2 and L - 1",
        ]
    return _term_by_term(statement), ["each sublayer's term of bound - update has only positive coefficients"]


def _is_positive(expr: Expr, *letters: Any) -> bool:
    """Only positive coefficients over one denominator with only positive coefficients, letters positive."""
    parts = fraction(cancel(together(expr)))
    return all(all(c > 0 for c in Poly(part, *letters).coeffs()) for part in parts)


_a, _b, _s, _below = (scratch(name, positive=True) for name in ("a", "b", "s", "S_below"))


def _by_induction(statement: Inequality) -> bool:
    """kappa = 1, so the gradient at sublayer l is 1/q_l, and one sublayer more adds its own term only."""
    bound = statement.bound.replace(lambda e: isinstance(e, Indexed), lambda e: _a if e.base == v else _b)
    closed = algebra.normal_form(bound)
    for total in closed.atoms(Sum):
        index, low, high = total.limits[0]
        share = cancel(total.function * (index - 1))
        if share.has(index):
            return False
        closed = closed.subs(total, share * (harmonic(high - 1) - harmonic(low - 2)))
    closed = closed.expand()
    rise = (closed.subs(L, L + 1) - closed).expand().subs(harmonic(L), harmonic(L - 1) + 1 / L)
    x = scratch("x", nonnegative=True)
    term = _own_term(statement, _a, _b, L)
    for length in (1, 2, 3):
        update = statement.update([_a] * length, [_b] * length)
        if cancel(sum(term.subs(L, i + 1) for i in range(length)) - update) != 0:
            return False
    step = cancel(rise - term.subs(L, L + 1)).subs(L, x + 1)
    first = closed.subs(L, 1).doit() - term.subs(L, 1)
    return not step.has(harmonic) and _is_positive(step, x, _a, _b) and _is_positive(first, _a, _b)


def _own_term(statement: Inequality, a: Expr, b: Expr, below: Expr) -> Expr:
    """A sublayer's squared gradients over q_l; ``below``: how many sublayers of those gains there are so far."""
    if statement.scheme == "pre-ln":
        half = S.Half if statement.activation == "relu" else S.One
        return half * (a**2 + b**2) / (1 + half * below * a**2 * b**2)
    return (1 + a**2 / b**2) / (1 + below * a**2)


def _term_by_term(statement: Inequality) -> bool:
    """A bound that is one sum over l of weight_l / S_l: each term against the update's own."""
    bound = statement.bound
    if not isinstance(bound, Sum) or bound.limits != ((l, 1, L),):
        return False
    if statement.scheme == "post-ln":
        term = statement.update([_a], [_b])  # with ReLU the gradient passes each sublayer unchanged
        above = bound.function.subs({v[l]: _a, w[l]: _b})
        is_passed = cancel(statement.update([_a, _b], [_b, _s]) - term - term.subs({_a: _b, _b: _s}, simultaneous=True))
        return is_passed == 0 and _is_positive(above - term, _a, _b)
    inner = bound.function.atoms(Sum)
    branch = v[n] ** 2 * w[n] ** 2 if statement.scheme == "pre-ln" else v[n] ** 2
    if inner != {Sum(branch, (n, 1, l))}:
        return False
    above = bound.function.subs(next(iter(inner)), _below + _s).subs({v[l]: _a, w[l]: _b})
    half = S.Half if (statement.scheme, statement.activation) == ("pre-ln", "relu") else S.One
    weight = half * (_a**2 + _b**2) if statement.scheme == "pre-ln" else 1 + _a**2 / _b**2
    return _is_positive(above - weight / (1 + half * (_below + _s)), _a, _b, _s, _below)


# ---------------------------------------------------------------- real networks

WIDTH, NUM_SEEDS = 64, 192
"""Of the networks. At a width d an update is larger than at infinite width by a share of the order of L/d."""


@cache
def _measured_update(
    scheme: str,
    v: tuple[float, ...],
    w: tuple[float, ...],
    activation: str = "relu",
    norm_kind: str = "layernorm",
    *,
    has_head: bool = False,
    num_networks: int = NUM_SEEDS,
) -> Interval:
    """Where the mean update of square FFN sublayers lies, in units of eta d. has_head: the readout trains, too."""
    from depthlaw.sims.measure import Question, run
    from depthlaw.sims.model import ModelConfig, SublayerConfig

    encoder = tuple(SublayerConfig(kind="ffn", gains={"fc1": b, "fc2": a}) for a, b in zip(v, w, strict=True))
    placement = second_meanfield.coefficients(scheme, 1).placement
    shape = {"d_model": WIDTH, "ffn_ratio": 1, "activation": activation, "norm_kind": norm_kind}
    question = Question(config=ModelConfig(encoder=encoder, placement=placement, **shape))
    roles = ("update", "head") if has_head else ("update",)
    columns = [[result.values[f"sgd/{role}"] for role in roles] for result in run(question, range(num_networks))]
    return interval([sum(values) for column in columns for values in zip(*column, strict=True)])


def _measured_at(statement: Inequality) -> Iterator[Gains]:
    """Gains that tell a failure from what a width of 64 and few networks blur."""
    if statement.has_head:
        yield (Fraction(2),) * 2, (Fraction(2),) * 2
        return
    if statement.scheme == "post-ln":
        yield (Fraction(1, 4),) * 4, (Fraction(2),) * 4
    elif not statement.is_equal:
        yield _powers(Fraction(3), 4)
    if statement.is_equal or statement.scheme == "post-ln":
        is_past = (statement.scheme, statement.norm_kind) == ("sub-ln", "layernorm")
        yield _ones((24 if statement.activation == "gelu" else 16) if is_past else 8)


@check(Route.MEASURED, f"real networks of width {WIDTH}, gradients by autograd: the interval of their mean update")
def _in_real_networks(statement: Inequality) -> Answers:
    holds, numbers = [], {}
    for gains in _measured_at(statement):
        v, w = (tuple(map(float, of_sublayers)) for of_sublayers in gains)
        network = (statement.scheme, v, w, statement.activation, statement.norm_kind)
        number = 512 if statement.scheme == "pre-ln" and len(v) == 4 else NUM_SEEDS
        measured = _measured_update(*network, has_head=statement.has_head, num_networks=number)
        most = float(_bound_at(statement.bound, gains))
        holds.append(measured.is_below(most))
        numbers[f"L = {len(v)}, {_text(gains)}"] = f"{measured.text} against {most:.3g}"
    return Answers(holds=holds, numbers=numbers)


# ---------------------------------------------------------------- parts


def inequality(
    name: str,
    statement: Inequality,
    *,
    expected: Verdict = Verdict.CONFIRMED,
    condition: str | Sentence | None = None,
    instead: tuple[Expr, str] | None = None,
    is_measured: bool = True,
    more: Callable[[Inequality], tuple[Mutant, ...]] | None = None,
) -> Part:
    """A part: the printed bound under one activation and norm.

    instead: the bound that holds, and why. is_measured: whether what it claims shows, or fails, at a depth that can be
    measured.
    """
    checks = [_in_fractions, _in_mean_field]
    checks += [_by_limits] * (statement.activation != "gelu") + [_in_real_networks] * is_measured
    return Part(
        name=name,
        statement=statement,
        checks=tuple(checks),
        mutants=(
            Mutant(name="a third of it", statement=statement.with_(bound=statement.bound / 3)),
            *(more(statement) if more else ()),
        ),
        expected=expected,
        instead=instead
        and Amendment(statement=statement.with_(bound=instead[0]), text=f"eta*d*({instead[0]}): {instead[1]}"),
        condition=condition,
    )
