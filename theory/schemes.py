"""Named schemes as frozen values: where the norms stand, and a, b, c, w, v as exact functions of the sublayer count.

L sublayers, N = L/2 layers. A constant in here is transcribed from its source; each is itself a claim that
``paper_checks`` holds against what ``rules`` derives.
"""

from __future__ import annotations

import ast
import difflib
import operator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from sympy import Expr, Rational, S, ceiling, log, sqrt

from depthlaw.theory.stack import NO_NORM, PERI, PLACEMENTS, POST, PRE, SUB, Placement, Stack
from depthlaw.theory.symbols import L, l

if TYPE_CHECKING:
    from depthlaw.theory.optimizers import Optimizer

_N = L / 2


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """A way to build and initialise a deep stack.

    stack: where the norms stand, and residual weight, branch weight, input scale and gains as expressions in L.
    lr_multiplier: what the scheme multiplies the learning rate by where the length of the gradient does not matter to
    the step (``lr_multiplier_under``); it is part of the scheme, so it stands inside the predicted update.
    eps_multiplier: what it multiplies Adam's epsilon by in the branches, where its source or a later one says that.
    min_sublayers: the least L for which the scheme is defined. has_base: whether its branch weight is relative to that
    of a tuned base model, which may have any depth; here it is of one block.

    >>> from sympy import Rational
    >>> from depthlaw.theory.meanfield.update import predict
    >>> from depthlaw.theory.schemes import Scheme
    >>> from depthlaw.theory.stack import PRE, Stack
    >>> from depthlaw.theory.symbols import L
    >>> mine = Scheme(name="my-norm", source="me", stack=Stack(placement=PRE, branch_weight=L ** -Rational(1, 2)))
    >>> [round(predict(mine, "sgd", count).update, 4) for count in (8, 800)]
    [0.7905, 0.8107]
    """

    name: str
    source: str
    stack: Stack
    lr_multiplier: Expr = S.One
    eps_multiplier: Expr = S.One
    min_sublayers: int = 1
    has_base: bool = False

    def lr_multiplier_under(self, optimizer: Optimizer) -> Expr:
        """Depth-muP divides the step, not the gradient, by sqrt(L): SGD's has b = 1/sqrt(L) in it already, while a step
        that forgets the gradient's length (Adam's, Muon's, LAMB's: of degree 0) needs the factor in its rate.

        >>> from depthlaw.theory.optimizers import optimizer
        >>> from depthlaw.theory.schemes import scheme
        >>> [scheme("depth-mup").lr_multiplier_under(optimizer(name)) for name in ("sgd", "adam", "muon")]
        [1, 1/sqrt(L), 1/sqrt(L)]
        """
        return S.One if self.lr_multiplier == 1 or optimizer.gradient_degree != 0 else self.lr_multiplier


def _post(name: str, source: str, alpha: Expr, lam: Expr) -> Scheme:
    return Scheme(
        name=name, source=source, stack=Stack(placement=POST, residual_weight=alpha, gain_in=lam, gain_out=lam)
    )


def _pre(name: str, source: str, lam: Expr) -> Scheme:
    return Scheme(name=name, source=source, stack=Stack(placement=PRE, gain_in=lam, gain_out=lam))


_SU = "Su Jianlin 2022, kexue.fm/archives/8978"
_MAGNETO = "Wang et al. 2022, arXiv 2210.06423"
_FOURTH, _HALF = Rational(1, 4), Rational(1, 2)
_HYBRID = Placement(heads=True, post=True, final=True)

_ALL = (
    _post("post-ln", "Vaswani et al. 2017, arXiv 1706.03762", S.One, S.One),
    _pre("pre-ln", "Xiong et al. 2020, arXiv 2002.04745", S.One),
    Scheme(name="sub-ln", source=_MAGNETO, stack=Stack(placement=SUB)),
    Scheme(name="peri-ln", source="Kim et al. 2025, arXiv 2502.02732", stack=Stack(placement=PERI)),
    Scheme(name="normformer", source="Shleifer et al. 2021, arXiv 2110.09456", stack=Stack(placement=SUB)),
    _post("deepnorm", "Wang et al. 2022, arXiv 2203.00555", (2 * _N) ** _FOURTH, (8 * _N) ** -_FOURTH),
    _post("su-sgd", _SU, (2 * _N) ** _FOURTH, (2 * _N) ** -_FOURTH),
    _post("su-adam", _SU, (2 * _N) ** _HALF, (2 * _N) ** -_HALF),
    _post("su-lamb", _SU, S.One, (2 * _N) ** -_HALF),
    _pre("su-pre-sgd", _SU, (2 * _N) ** -_HALF),
    _pre("su-pre-adam", _SU, 1 / (2 * _N)),
    _pre("su-pre-lamb", _SU, (2 * _N) ** -_HALF),
    Scheme(
        name="sub-ln-gamma",
        source=_MAGNETO,
        stack=Stack(placement=SUB, gain_in=sqrt(log(L)), gain_out=sqrt(log(L))),
        min_sublayers=2,  # log 1 = 0 would start every branch at zero
    ),
    Scheme(name="admin", source="Liu et al. 2020, arXiv 2004.08249", stack=Stack(placement=POST, residual_weight=None)),
    Scheme(name="gpt2", source="Radford et al. 2019", stack=Stack(placement=PRE, gain_out=L**-_HALF)),
    Scheme(
        name="fixup",
        source="Zhang et al. 2019, arXiv 1901.09321",
        stack=Stack(placement=NO_NORM, gain_in=L**-_HALF, gain_out=S.Zero, trains_branch_weight=True),
    ),
    Scheme(
        name="t-fixup",
        source="Huang et al. 2020, ICML; github.com/layer6ai-labs/T-Fixup",
        stack=Stack(
            placement=NO_NORM,
            gain_in=Rational(67, 100) * _N**-_FOURTH,
            gain_out=Rational(67, 100) * _N**-_FOURTH,
            embedding_scale=(9 * _N) ** -_FOURTH,
        ),
    ),
    Scheme(
        name="rezero",
        source="Bachlechner et al. 2021, arXiv 2003.04887",
        stack=Stack(placement=NO_NORM, branch_weight=S.Zero, trains_branch_weight=True),
    ),
    Scheme(
        name="skipinit",
        source="De & Smith 2020, arXiv 2002.10444",
        stack=Stack(placement=NO_NORM, branch_weight=S.Zero, trains_branch_weight=True),
    ),
    Scheme(
        name="depth-mup",
        source="Yang et al. 2023, arXiv 2310.02244",
        stack=Stack(placement=PRE, branch_weight=L**-_HALF),
        lr_multiplier=L**-_HALF,
        eps_multiplier=L**-_HALF,  # arXiv 2505.01618, Table 1, at alpha = 1/2
    ),
    Scheme(
        name="completep",
        source="Dey et al. 2025, arXiv 2505.01618",
        stack=Stack(placement=PRE, branch_weight=1 / _N),
        eps_multiplier=1 / _N,
        has_base=True,
    ),
    Scheme(
        name="ln-scaling",
        source="Sun et al. 2025, arXiv 2502.05795",
        stack=Stack(placement=PRE, input_scale=1 / sqrt(ceiling(l / 2))),
    ),
    Scheme(
        name="branch-ln",
        source="OLMo 2, arXiv 2501.00656",
        stack=Stack(placement=Placement(branch=True, final=True)),
    ),
    Scheme(
        name="keel",
        source="Chen & Wei 2026, arXiv 2601.19895",
        stack=Stack(placement=Placement(pre=True, post=True), residual_weight=L),
    ),
    Scheme(
        name="mix-ln",
        source="Li et al. 2024, arXiv 2412.13795",
        stack=Stack(placement=PRE, early=POST, early_share=_FOURTH),
    ),
    Scheme(
        name="hybrid-norm", source="Zhuo et al. 2025, arXiv 2503.04598", stack=Stack(placement=_HYBRID, even=NO_NORM)
    ),
    Scheme(
        name="mitchell",
        source="OLMo 1, arXiv 2402.00838",
        stack=Stack(placement=PRE, gain_out=1 / sqrt(2 * ceiling(l / 2))),
    ),
    Scheme(name="dyt", source="Zhu et al. 2025, arXiv 2503.10622", stack=Stack(placement=PRE, norm_function="dyt")),
    Scheme(name="derf", source="Chen et al. 2025, arXiv 2512.10938", stack=Stack(placement=PRE, norm_function="derf")),
    Scheme(
        name="residual",
        source="Xie et al. 2023, arXiv 2304.14802",
        stack=Stack(placement=POST, has_second_stream=True),
    ),
)

SCHEMES: dict[str, Scheme] = {entry.name: entry for entry in _ALL}


def nearest(name: str, allowed: list[str], what: str) -> str:
    """The one-line refusal of an unknown name: what was given, and what is near it; else what is allowed."""
    if close := difflib.get_close_matches(name.lower(), allowed, n=3):
        return f"unknown {what} {name!r}; did you mean {' or '.join(close)}?"
    return f"unknown {what} {name!r} (allowed: {', '.join(allowed)})"


def scheme(name: str) -> Scheme:
    """The scheme of that name; ValueError with the nearest names otherwise.

    >>> from depthlaw.theory.schemes import SCHEMES, scheme
    >>> len(SCHEMES)
    30
    >>> deepnorm = scheme("deepnorm")
    >>> deepnorm.stack.residual_weight, deepnorm.stack.gain_in, deepnorm.source
    (L**(1/4), sqrt(2)/(2*L**(1/4)), 'Wang et al. 2022, arXiv 2203.00555')
    >>> scheme("sub ln")
    Traceback (most recent call last):
        ...
    ValueError: unknown scheme 'sub ln'; did you mean sub-ln...
    """
    if name not in SCHEMES:
        raise ValueError(nearest(name, list(SCHEMES), "scheme"))
    return SCHEMES[name]


OWN = "user"
"""The source of a scheme of one's own."""
PowerLaw = tuple[Fraction, Fraction]
"""(C, P), meaning C L^P."""
LETTERS = {"L": L, "N": _N, "l": l, "n": ceiling(l / 2)}
"""What a formula is written in: L sublayers, N = L/2 layers, sublayer l from 1 to L, its layer n from 1 to N."""
_FUNCTIONS = {"sqrt": sqrt, "log": log}
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_LONGEST, _SAMPLE, _MOST = 120, {"L": 64.6, "N": 32.3, "l": 31.4, "n": 15.7}, 1e30


def formula(text: str) -> Expr:
    """A law as text: numbers, the letters of ``LETTERS``, + - * / ^, parentheses, sqrt and log. Numbers are read
    exactly. ValueError, in one line, for anything else, and for powers and numbers that are too large.

    >>> from depthlaw.theory.schemes import formula
    >>> formula("sqrt(1 - 2/N)"), formula("1.15 - 0.10*n/N")
    (sqrt(1 - 4/L), 23/20 - ceiling(l/2)/(5*L))
    >>> formula("2 L^(1/4)")
    Traceback (most recent call last):
        ...
    ValueError: '2 L^(1/4)' is no formula: write it with + - * / ^, sqrt(), log(), numbers and L, N, l, n
    """
    try:
        if len(text) > _LONGEST:
            raise ValueError(text)
        return _formula(ast.parse(text.strip().replace("^", "**"), mode="eval").body)[0]
    except (SyntaxError, ValueError, TypeError, ZeroDivisionError, RecursionError, MemoryError) as error:
        letters = ", ".join(LETTERS)
        raise ValueError(
            f"{_short(text)!r} is no formula: write it with + - * / ^, sqrt(), log(), numbers and {letters}"
        ) from error
    except OverflowError as error:
        raise ValueError(f"{_short(text)!r} has {error}") from error


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _formula(node: ast.expr) -> tuple[Expr, float]:
    """The expression, and its value at one place, which keeps what is written from growing without end."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            exact, size = Rational(str(number)), float(number)
        case ast.Name(id=name) if name in LETTERS:
            exact, size = LETTERS[name], _SAMPLE[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            exact, size = (-part for part in _formula(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            (a, size_a), (b, size_b) = _formula(left), _formula(right)
            if isinstance(op, ast.Pow) and not (b.is_Rational and abs(size_b) <= 100):
                raise OverflowError("a power that is no number from -100 to 100")
            size = _OPERATORS[type(op)](size_a, size_b)
            exact = _OPERATORS[type(op)](a, b)
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _FUNCTIONS:
            inner, size = _formula(argument)
            exact, size = _FUNCTIONS[name](inner), abs(size)
        case _:
            raise ValueError(type(node).__name__)
    if isinstance(size, complex) or not abs(size) <= _MOST or (size and abs(size) < 1 / _MOST):
        raise OverflowError(f"a number beyond {_MOST:g}, or below its inverse, at 64 sublayers")
    return exact, size


def custom_scheme(
    norm: str,
    *,
    residual_weight: PowerLaw | Expr = (Fraction(1), Fraction(0)),
    branch_weight: PowerLaw | Expr = (Fraction(1), Fraction(0)),
    gain: PowerLaw | Expr = (Fraction(1), Fraction(0)),
) -> Scheme:
    """A scheme that nobody published: its norm placement (post, pre, sub or peri), its weights and its gains.

    residual_weight, branch_weight, gain: each a pair (C, P) of fractions, C positive, which stands for C L^P in L
    sublayers, or an expression in ``symbols.L`` and ``symbols.l``, such as ``formula`` makes of text. ValueError for
    another placement or constant.

    >>> from fractions import Fraction
    >>> from depthlaw.theory.meanfield.update import predict
    >>> from depthlaw.theory.schemes import custom_scheme
    >>> weight, gain = (Fraction(1), Fraction(1, 4)), (Fraction(7, 10), Fraction(-1, 4))
    >>> found = custom_scheme("post", residual_weight=weight, gain=gain)
    >>> found.name, found.stack.residual_weight
    ('custom-post', L**(1/4))
    >>> [round(predict(found, "sgd", count).update, 4) for count in (8, 800)]
    [0.4874, 0.49]
    """
    if norm not in PLACEMENTS:
        raise ValueError(nearest(norm, list(PLACEMENTS), "norm placement"))
    laws = {"residual_weight": residual_weight, "branch_weight": branch_weight, "gain": gain}
    for name, law in laws.items():
        if isinstance(law, tuple) and law[0] <= 0:
            raise ValueError(f"{name} must be a positive multiple of a power of L, not {law[0]}")
    a, b, g = (
        law
        if isinstance(law, Expr)
        else Rational(*law[0].as_integer_ratio()) * L ** Rational(*law[1].as_integer_ratio())
        for law in laws.values()
    )
    stack = Stack(placement=PLACEMENTS[norm], residual_weight=a, branch_weight=b, gain_in=g, gain_out=g)
    return Scheme(name=f"custom-{norm}", source=OWN, stack=stack)
