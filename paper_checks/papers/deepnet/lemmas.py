"""DeepNet's Lemma 4.1 on averages of tokens, DN-01, and the gradient of a LayerNorm that it quotes, DN-15."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from sympy import Rational, S, lambdify, limit, oo, sqrt, symbols

from paper_checks.claims.broken import broken
from paper_checks.claims.claim import Amendment, Claim, Finding, Kind, Mutant, Part, Route, Verdict
from paper_checks.claims.statements import Values
from paper_checks.routes import algebra, averages, one_liners
from paper_checks.routes.averages import Average
from paper_checks.routes.checks import Answers, check, derived
from paper_checks.routes.search import search
from theory.symbols import d, scratch

# ---------------------------------------------------------------- DN-01

_UPPER, _THETA = Average(low=S.Zero), Average()
_BOUNDED = Average(min_cosine=S.Zero, max_tokens=16, low=Rational(1, 16))
_NORM = Values.of(norm=d)


@check(Route.ARITHMETIC, "tokens of entries 1 and -1, widths 2 to 512", is_direct=True)
def _norms_at_widths(s: Values) -> list[bool | None]:
    return [
        algebra.equal(s["norm"].subs(d, width), sqrt(sum((-1) ** (2 * place) for place in range(width))))
        for width in (2, 4, 64, 512)
    ]


_DN_01 = Claim(
    id="DN-01",
    kind=Kind.STEP,
    locator="Section 4.1, Lemma 4.1 and its gloss of =Theta=, and Appendix A, whose proof gives the upper bound alone",
    quote="X = (x_1, ..., x_n), var(x_i) = 1, mean(x_i) = 0, q_i real: softmax(q_1, ..., q_n) X =Theta= x_i; =Theta=: "
    "an equal bound of magnitude",
    summary="a softmax average of normalised tokens has the magnitude of one of them",
    parts=(
        Part(
            name="read as an upper bound, which is what the proof gives",
            statement=_UPPER,
            checks=(
                *averages.average_checks("DN-01"),
                check(
                    Route.MEASURED, "attention over 8, 48, 304 orthogonal tokens", averages.by_softmax, is_direct=True
                ),
            ),
            mutants=(
                Mutant(name="at most a half", statement=_UPPER.with_(high=S.Half)),
                Mutant(name="at least half", statement=_UPPER.with_(low=S.Half)),
            ),
        ),
        Part(
            name="read as Theta, a magnitude from below too: this reading fails",
            statement=_THETA,
            checks=averages.average_checks("DN-01", one_liners.OPPOSITE_TOKENS),
            mutants=(Mutant(name="a half at most", statement=_BOUNDED.with_(high=S.Half)),),
            expected=Verdict.REFUTED,
            condition="cosines bounded below by a number over 0, or cosines of at least 0 and an effective number of "
            "tokens 1/sum p_j^2 that is bounded: |average|^2/|x_i|^2 = p^T C p >= rho + (1 - rho) sum p_j^2, "
            "which is sum p_j^2 of orthogonal (independent) tokens, 1/n with equal weights",
            instead=Amendment(
                statement=_BOUNDED,
                text="at least 1/n of |x_i|^2 for cosines of at least 0 and 1/sum p_j^2 of at most n (here "
                f"{_BOUNDED.max_tokens}); 0 of two opposite tokens",
            ),
        ),
        Part(
            name="the proof's length of a token",
            statement=_NORM,
            checks=(
                derived(
                    "sum of squares = d (var + mean^2), at variance 1 and mean 0",
                    lambda: {"norm": sqrt(d * (S.One + S.Zero**2))},
                    is_direct=True,
                ),
                _norms_at_widths,
            ),
            mutants=broken(_NORM.with_(norm=sqrt(d))),
            misprint=Amendment(
                statement=_NORM.with_(norm=sqrt(d)),
                text="||x_i|| = sqrt(d); it is ||x_i||^2 that is d. Nothing else of the proof changes",
                grounds="the lemma's own var(x_i) = 1 and mean(x_i) = 0; Section 3 has LayerNorm inputs of sqrt(d)",
            ),
            expected=Verdict.MISPRINT,
        ),
    ),
    finding=Finding(
        "DeepNet's Lemma 4.1: a softmax average has at most the magnitude of one token, but not that "
        "magnitude: it is 0 for two opposite tokens. The proof's ||x|| = d is sqrt(d)",
        rank=140,
    ),
)


# ---------------------------------------------------------------- DN-15: the gradient of a LayerNorm

_LENGTH, _CENTRED = scratch("||x||", positive=True), scratch("||x - mean(x)||", positive=True)
_GRADIENT = Values.of("||dLN(x)/dx|| = O({bound}) for every x", bound=sqrt(d) / _LENGTH)


def _bound(s: Values) -> Any:
    """The printed bound as a function of ||x||, ||x - mean(x)|| and d."""
    return lambdify((_LENGTH, _CENTRED, d), s["bound"], modules="math")


@cache
def _is_projector(size: int) -> bool:
    """J = (sqrt(d)/|y|) P, y = x - mean(x), P = I - 11^T/d - y y^T/|y|^2, P^2 = P of rank d - 2, as polynomials of x.

    With s = |y|^2 the Jacobian of y s^(-1/2) is s^(-3/2) (s dy/dx - y (ds/dx)/2).
    """
    import numpy as np
    from sympy import QQ
    from sympy.polys.rings import ring

    _, *letters = ring([f"x{i}" for i in range(size)], QQ)
    x = np.array(letters, dtype=object)
    y = x - x.sum() * QQ(1, size)
    square = y @ y
    jacobian = np.array([[square * a.diff(b) - a * square.diff(b) * QQ(1, 2) for b in letters] for a in y])
    projector = (np.eye(size, dtype=int) - np.full((size, size), QQ(1, size))) * square - np.outer(y, y)  # times |y|^2
    is_idempotent = (projector @ projector == projector * square).all()
    return bool((jacobian == projector).all() and is_idempotent and projector.trace() == (size - 2) * square)


@check(
    Route.PROOF,
    "the Jacobian is sqrt(d)/||y|| times a projector, y = x - mean(x); then along x = c 1 + t e",
    is_direct=True,
    steps=lambda: (
        "J = (sqrt(d)/||y||)(I - 11^T/d - y y^T/||y||^2), y = x - mean(x): a projector of rank d - 2",
        "so ||J|| = sqrt(d)/||y|| exactly for d >= 3, and 0 for d = 2",
        "over sqrt(d)/||x|| it is ||x||/||y|| = sqrt(1 + d mean(x)^2/||y||^2), without bound",
    ),
)
def _exactly(s: Values) -> list[bool | None]:
    c, t = symbols("c t", positive=True)
    width = 4
    centred, length = t * sqrt(width), sqrt(width * (t**2 + c**2))
    ratio = sqrt(width) / centred / s["bound"].subs({_LENGTH: length, _CENTRED: centred, d: width})
    ends = (limit(ratio, c, oo), limit(ratio, t, oo), limit(ratio, t, 0))
    return [_is_projector(3), _is_projector(4), *(end.is_finite is True for end in ends)]


_SHAPES = ((0.0, 1.0), (1.0, 1.0), (10.0, 1.0), (100.0, 1.0), (1000.0, 1.0), (0.0, 1e-3), (0.0, 1e3))


@cache
def _measured() -> list[list[tuple[float, float, float, int]]]:
    """By width and shape: (spectral norm, |x|, |x - mean|, d) at x = c + t times a normal vector."""
    import torch
    from torch.nn.functional import layer_norm

    def row(x: torch.Tensor) -> tuple[float, float, float, int]:
        jacobian: Any = torch.autograd.functional.jacobian(lambda z: layer_norm(z, z.shape, eps=0.0), x)
        return float(torch.linalg.matrix_norm(jacobian, 2)), float(x.norm()), float((x - x.mean()).norm()), len(x)

    generator = torch.Generator().manual_seed(0)
    draws = [torch.randn(width, generator=generator, dtype=torch.float64) for width in (8, 32, 128)]
    return [[row(shift + scale * draw) for shift, scale in _SHAPES] for draw in draws]


@check(Route.MEASURED, "torch's layer_norm by autograd, its norm over what is printed; d = 8 shown", is_direct=True)
def _by_autograd(s: Values) -> Answers:
    """Bounded: never more than a few times the ratio at the standard normal vector."""
    bound = _bound(s)
    ratios = [[norm / bound(*at) for norm, *at in row] for row in _measured()]
    answers = [max(row) < 10 * row[0] for row in ratios]
    rows = {f"x = {c:g} + {t:g} z": f"{ratio:.4g}" for (c, t), ratio in zip(_SHAPES, ratios[0], strict=True)}
    example = {
        "printed": "O(sqrt(d)/||x||)",
        "found": f"{rows['x = 1000 + 1 z']} sqrt(d)/||x|| at x = 1000 + z, z normal, d = 8",
        "command": one_liners.NORM_GRADIENT,
        "ratios": rows,
    }
    shown = None if all(answers) else example
    return Answers(holds=answers, num_effective=sum(map(len, ratios)), numbers=rows, counterexample=shown)


@check(Route.PROPERTY, "vectors of three to six integers: at most 20 times what is printed", is_direct=True)
def _by_search(s: Values) -> Answers:
    from hypothesis import strategies as st

    bound = _bound(s)

    def holds(case: tuple[int, list[int]]) -> bool | None:
        entries = [case[0] + entry for entry in case[1]]
        size, total, squares = len(entries), sum(entries), sum(entry**2 for entry in entries)
        if size * squares == total**2:
            return None  # a constant vector has no gradient
        centred = math.sqrt(squares - total**2 / size)
        return math.sqrt(size) / centred <= 20 * bound(math.sqrt(squares), centred, size)

    vectors = st.lists(st.integers(-30, 30), min_size=3, max_size=6)
    result = search(st.tuples(st.integers(0, 500), vectors), holds, max_examples=100)
    numbers = {"x": [result.found[0] + entry for entry in result.found[1]]} if result.found else {}
    return Answers(holds=[result.found is None], num_effective=result.num_effective, numbers=numbers)


_DN_15 = Claim(
    id="DN-15",
    kind=Kind.STEP,
    locator="Section 3, after Lemma 3 of Xiong et al.",
    quote="||dLN(x)/dx|| = O(sqrt(d)/||x||)",
    summary="the gradient of a LayerNorm is O(sqrt(d)/||x||)",
    parts=(
        Part(
            name="as printed",
            statement=_GRADIENT,
            checks=(_exactly, _by_search, _by_autograd),
            mutants=(Mutant(name="sqrt(d)/||x - mean||^2", statement=_GRADIENT.with_(bound=sqrt(d) / _CENTRED**2)),),
            expected=Verdict.REFUTED,
            condition="a mean of the entries that is at most of the order of their standard deviation, as at "
            "initialisation; or RMSNorm, which subtracts no mean and has norm sqrt(d)/||x|| exactly",
            instead=Amendment(
                statement=_GRADIENT.with_(bound=sqrt(d) / _CENTRED),
                text="sqrt(d)/||x - mean(x)||, with equality for d >= 3",
            ),
        ),
    ),
    finding=Finding(
        "The gradient of a LayerNorm is of order sqrt(d) over the length of the centred x: printed with "
        "||x||, it fails at a large mean, and holds for RMSNorm",
        rank=150,
    ),
)

CLAIMS: tuple[Claim, ...] = (_DN_01, _DN_15)
