"""Optimizers as data: an optimizer *is* its published update map, and everything else about it is computed.

The map takes the gradient G and the parameter Theta of one matrix to Delta Theta, the first step from zero state with
eps 0 and no weight decay. A degree is shown by pulling c out of the expression tree, node by node (``pull_out``). What
functional the loss change is, by reducing <G, Delta Theta> / (-eta F) to a constant, case by case over the signs of
what stands under |.| and sign(.), on two shapes, so that no number of entries can hide in the constant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from functools import cache, cached_property
from itertools import product
from types import MappingProxyType
from typing import Final

import sympy as sp
from sympy import Abs, Expr, Matrix, Max, Min, Pow, Rational, S, Symbol, sign, sqrt

from depthlaw.theory.symbols import eta, scratch, scratch_matrix

beta1: Final = scratch("beta1", positive=True)
beta2: Final = scratch("beta2", positive=True)
momentum: Final = scratch("mu", positive=True)
_RATE: Final = {b: scratch(f"rate_{b.name}", positive=True) for b in (beta1, beta2)}
"""1 - beta, positive: how a proof learns that a decay rate lies below 1, which no assumption of sympy can say."""
_NO_DECAY: Final = S.Zero
_SHAPES: Final = ((2, 2), (1, 3))

ScalarMap = Callable[[Matrix, Matrix], Expr]
UpdateMap = Callable[[Matrix, Matrix], Matrix]


class NotHomogeneousError(ValueError):
    """The update map has no degree; the message says whether that was disproved or only not shown."""


class UndecidedError(RuntimeError):
    """Exact values agree with an identity that the rewrites here could not prove."""


def entrywise(function: Callable[..., Expr], first: Matrix, *others: Matrix) -> Matrix:
    """``function`` of the corresponding entries."""
    return Matrix(*first.shape, lambda i, j: function(first[i, j], *(other[i, j] for other in others)))


def inner(a: Matrix, b: Matrix) -> Expr:
    """<a, b>, the sum of products of entries."""
    return sp.Add(*(x * y for x, y in zip(a, b, strict=True)))


def frobenius(a: Matrix) -> Expr:
    """||a||_F."""
    return sqrt(inner(a, a))


def root_mean_square(a: Matrix) -> Expr:
    """||a||_F / sqrt(n), n the number of entries."""
    return sqrt(inner(a, a) / len(a))


def nuclear(a: Matrix) -> Expr:
    """||a||_*: (s1 + s2)^2 = s1^2 + s2^2 + 2 s1 s2 = ||a||_F^2 + 2 |det a|; of one row or column, ||a||_F."""
    if a.shape != (2, 2) and 1 not in a.shape:
        raise ValueError(f"closed forms exist for 2x2 matrices, rows and columns, not for {a.rows}x{a.cols}")
    return sqrt(inner(a, a) + 2 * Abs(a.det() if a.shape == (2, 2) else 0))


def polar(a: Matrix) -> Matrix:
    """U V^T of the compact singular value decomposition a = U S V^T.

    The cofactor matrix of a 2x2 matrix is det(U) det(V) U diag(s2, s1) V^T, so a + sign(det a) cof(a) is
    (s1 + s2) U V^T. At det a = 0 the second term drops out and a / ||a||_F is left, as it should be.
    """
    return (a if 1 in a.shape else a + sign(a.det()) * a.cofactor_matrix()) / nuclear(a)


def _symbols(shape: tuple[int, int], rank_one: bool = False) -> tuple[Matrix, Matrix]:
    """A gradient (general, or delta x^T, which is what one input gives) and a parameter, real and nonzero."""
    rows, cols = shape
    g = scratch_matrix("g", rows, cols, real=True, nonzero=True)
    if rank_one:
        delta = scratch_matrix("delta", rows, 1, real=True, nonzero=True)
        g = delta * scratch_matrix("x", 1, cols, real=True, nonzero=True)
    return g, scratch_matrix("theta", rows, cols, real=True, nonzero=True)


def _average(decay: Expr, new: Matrix) -> Matrix:
    """Exponential moving average after one step from zero."""
    return decay * sp.zeros(*new.shape) + (1 - decay) * new


def _adam_direction(g: Matrix) -> Matrix:
    """The direction of Adam's first step, Algorithm 1: the bias-corrected m_hat / sqrt(v_hat)."""
    m_hat = _average(beta1, g) / (1 - beta1)
    v_hat = _average(beta2, g.multiply_elementwise(g)) / (1 - beta2)
    return entrywise(lambda m, v: m / sqrt(v), m_hat, v_hat)


def _rmsprop(g: Matrix, theta: Matrix) -> Matrix:
    """Not centred. No bias correction: beta2, the smoothing constant, stays in the length of the first step."""
    return -eta * entrywise(lambda x, v: x / sqrt(v), g, _average(beta2, g.multiply_elementwise(g)))


def _adafactor(g: Matrix, theta: Matrix) -> Matrix:
    """Factored second moment (beta2 is 0 at step 1), clipped at RMS 1, step relative to RMS(theta)."""
    decay, threshold, squares = S.Zero, S.One, g.multiply_elementwise(g)
    rows = _average(decay, Matrix(g.rows, 1, lambda i, _: sp.Add(*squares.row(i)) / g.cols))
    cols = _average(decay, Matrix(1, g.cols, lambda _, j: sp.Add(*squares.col(j)) / g.rows))
    second_moment = rows * cols / (sp.Add(*rows) / g.rows)
    direction = entrywise(lambda x, v: x / sqrt(v), g, second_moment)
    return -eta * root_mean_square(theta) * direction / Max(1, root_mean_square(direction) / threshold)


def _lars(g: Matrix, theta: Matrix) -> Matrix:
    """Algorithm 1 of 1904.00962 with phi the identity; the trust coefficient of 1708.03888 is part of eta."""
    m = _average(beta1, g + _NO_DECAY * theta)
    return -eta * frobenius(theta) / frobenius(m) * m


def _lamb(g: Matrix, theta: Matrix) -> Matrix:
    """Algorithm 2 with phi the identity."""
    direction = _adam_direction(g) + _NO_DECAY * theta
    return -eta * frobenius(theta) / frobenius(direction) * direction


def _muon(g: Matrix, theta: Matrix) -> Matrix:
    """Nesterov momentum, then the exact polar factor that Newton-Schulz approximates; no factor for the shape."""
    return -eta * polar(g + momentum * (momentum * sp.zeros(*g.shape) + g))


def _sophia(g: Matrix, theta: Matrix) -> Matrix:
    """The regime in which each entry of m / h is clipped to +-1: h = |m| / (1 + excess), with any excess > 0."""
    m, excess = _average(beta1, g), scratch_matrix("excess", *g.shape, positive=True)
    return -eta * entrywise(lambda x, e: Max(-1, Min(1, x / (Abs(x) / (1 + e)))), m, excess)


def pull_out(expr: Expr, c: Symbol) -> tuple[Expr, Expr]:
    """(p, rest) with expr = c^p rest for every c > 0, and rest free of c. Raises NotHomogeneousError if not shown."""
    if not expr.has(c):
        return S.Zero, expr
    if expr == c:
        return S.One, S.One
    if isinstance(expr, Pow) and not expr.exp.has(c):
        power, rest = pull_out(expr.base, c)
        return power * expr.exp, rest**expr.exp
    if isinstance(expr, sp.Mul | sp.Add | Max | Min | sp.Function):
        parts = [pull_out(arg, c) for arg in expr.args]
        powers, rests = [p for p, _ in parts], [rest for _, rest in parts]
        if isinstance(expr, sp.Mul):
            return sp.Add(*powers), sp.Mul(*rests)
        if isinstance(expr, sign):
            return S.Zero, sign(rests[0])
        common = {p for p, rest in parts if rest != 0}  # 0 = c^p 0 for every p: max(0, c x) = c max(0, x)
        if len(common) == 1 and isinstance(expr, sp.Add | Abs | Max | Min):
            return common.pop(), expr.func(*rests)
        if not any(powers):
            return S.Zero, expr.func(*rests)
    raise NotHomogeneousError(f"no power of {c} can be pulled out of {expr}")


def _number(expr: Expr) -> Expr:
    """40 digits of ``expr`` at eta = 1 and fixed values in (0, 1) of whatever other symbols an update map brings."""
    rest = {s: Rational(1 + sum(s.name.encode()) % 95, 97) for s in expr.free_symbols - {eta}}
    return expr.subs({eta: 1} | rest).evalf(40)


def _agree(values: list[Expr]) -> bool:
    size = Rational(1, 10**25) * abs(values[0])
    return all(v.is_number and v.is_finite and abs(v - values[0]) <= size for v in values)


def _point(shape: tuple[int, int], rank_one: bool, index: int) -> tuple[Matrix, Matrix]:
    """``_symbols`` at the exact point number ``index``."""
    matrices = _symbols(shape, rank_one)
    entries = sorted(matrices[0].free_symbols | matrices[1].free_symbols, key=str)
    signs = (1, -1, -1, 1, 1)
    at = {s: signs[(i + index) % 5] * Rational(3 * i + 2 + index, 7 + i * index) for i, s in enumerate(entries)}
    return matrices[0].subs(at), matrices[1].subs(at)


@cache
def _canonical(expr: Expr) -> Expr:
    """expr with what stands under a root, |.| or sign(.) factored, so that known signs and squares leave it."""
    if expr.is_Atom:
        return expr
    args = [_canonical(arg) for arg in expr.args]
    if isinstance(expr, Pow) and not expr.exp.is_Integer:
        return sp.expand_power_base(Pow(sp.factor(args[0]), args[1]))
    if isinstance(expr, Abs | sign):
        return expr.func(sp.factor(args[0]))
    return expr.func(*args)


def _cases(ratio: Expr, positive: dict[Symbol, Symbol]) -> set[Expr]:
    """What ``ratio`` reduces to in each case of the signs of what stands in it under |.| and sign(.).

    ``positive``: for each entry of the matrices, the symbol that stands for its absolute value.
    """
    ratio = _canonical(ratio.subs({b: 1 - rate for b, rate in _RATE.items()}))
    signed = [s for s in positive if ratio.has(Abs(s), sign(s))]
    ratios = set()
    for signs in product((1, -1), repeat=len(signed)):
        case = _canonical(ratio.xreplace({s: o * positive[s] for s, o in zip(signed, signs, strict=True)}))
        unknown = sorted({atom.args[0] for atom in case.atoms(Abs, sign)}, key=str)
        for more in product((1, -1), repeat=len(unknown)):
            rules = {f(x): o * y for x, o in zip(unknown, more, strict=True) for f, y in ((Abs, x), (sign, S.One))}
            ratios.add(sp.factor(sp.cancel(_canonical(case.xreplace(rules)))))
    return {value.subs({rate: 1 - b for b, rate in _RATE.items()}) for value in ratios}


def _constant_ratio(top: UpdateMap, bottom: UpdateMap, rank_one: bool) -> Expr | None:
    """The one constant that top / bottom is in each entry, for each shape and every G and Theta; None if not proved."""
    ratios = set()
    for g, theta in (_symbols(shape, rank_one) for shape in _SHAPES):
        positive = {s: scratch(f"|{s.name}|", positive=True) for s in g.free_symbols | theta.free_symbols}
        for x, y in zip(top(g, theta), bottom(g, theta), strict=True):
            ratios |= _cases(x / y, positive)
            if len(ratios) != 1 or any(value.has(*positive, *positive.values()) for value in ratios):
                return None
    return ratios.pop()


class Functional(Enum):
    """What a first-order loss change can be, up to -eta and a constant. g and theta are one matrix with n entries."""

    FROBENIUS_SQUARED = "||g||^2"
    L1 = "||g||_1"
    RMS_L1 = "||theta||*||g||_1/sqrt(n)"
    FROBENIUS_PRODUCT = "||theta||*||g||"
    NUCLEAR = "||g||_*"

    def of(self, g: Matrix, theta: Matrix) -> Expr:
        """The value of the functional at two matrices."""
        return _FORMS[self][0](g, theta)


_FORMS: Final[dict[Functional, tuple[ScalarMap, str, UpdateMap]]] = {
    Functional.FROBENIUS_SQUARED: (lambda g, _: inner(g, g), "g", lambda g, _: g),
    Functional.L1: (lambda g, _: sp.Add(*map(Abs, g)), "sign(g)", lambda g, _: g.applyfunc(sign)),
    Functional.RMS_L1: (
        *(lambda g, theta: root_mean_square(theta) * sp.Add(*map(Abs, g)), "||theta||/sqrt(n)*sign(g)"),
        lambda g, theta: root_mean_square(theta) * g.applyfunc(sign),
    ),
    Functional.FROBENIUS_PRODUCT: (
        *(lambda g, theta: frobenius(theta) * frobenius(g), "||theta||*g/||g||"),
        lambda g, theta: frobenius(theta) * g / frobenius(g),
    ),
    Functional.NUCLEAR: (lambda g, _: nuclear(g), "polar(g)", lambda g, _: polar(g)),
}
"""Each functional, and the update whose inner product with g it is, in words and as a map."""


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """An optimizer: its update map, and what follows from it. A map of one's own needs no entry anywhere.

    ``update(G, Theta)`` is the step Delta Theta of the first step from zero state (eps 0, no weight decay), in ``eta``.
    It must take 2x2 and 1x3 matrices of real numbers or symbols; exponents are exact. Its docstring tells its regime.
    NotHomogeneousError where a degree is asked for that the map does not have.

    >>> from depthlaw.theory.optimizers import Optimizer, frobenius
    >>> from depthlaw.theory.rules.solve import solve_rule
    >>> from depthlaw.theory.symbols import eta
    >>> normalised = Optimizer(name="normalised", update=lambda g, theta: -eta * g / frobenius(g))
    >>> normalised.gradient_degree, normalised.parameter_degree, normalised.assumes_rank_one
    (0, 0, True)
    >>> normalised.loss_change_text
    '-eta*||g||_*'
    >>> solve_rule("post", normalised).sides[0].formula["residual_weight"]
    'sqrt(2*N)'
    """

    name: str
    update: UpdateMap
    sources: tuple[str, ...] = ()
    others: Optimizer | None = None
    """What moves all that is no matrix of a branch (embedding, head, biases, norms), where another optimizer does."""

    @cached_property
    def gradient_degree(self) -> Rational:
        """p: the update of c G is c^p times the update of G. Shown for a general 2x2 gradient."""
        return self._degree(lambda c, g, theta: self.update(c * g, theta))

    @cached_property
    def parameter_degree(self) -> Rational:
        """t: the update at c Theta is c^t times the update at Theta."""
        return self._degree(lambda c, g, theta: self.update(g, c * theta))

    def _degree(self, scaled: Callable[[Expr, Matrix, Matrix], Matrix]) -> Rational:
        c = scratch("c", positive=True)
        steps = [step for step in scaled(c, *_symbols(_SHAPES[0])) if step != 0]
        try:
            powers = {pull_out(step, c)[0] for step in steps}
        except NotHomogeneousError as error:
            at_1, at_2, at_4 = (_number(scaled(S(k), *_point(_SHAPES[0], False, 0))[0]) for k in (1, 2, 4))
            shown = "not shown to be homogeneous" if _agree([at_2**2, at_1 * at_4]) else "not homogeneous"
            raise NotHomogeneousError(f"{self.name}: update {shown}: {error}") from None
        if len(powers) != 1:
            raise NotHomogeneousError(f"{self.name}: {len(powers)} degrees among the entries of the update: {powers}")
        if not isinstance(power := powers.pop(), Rational):
            raise NotHomogeneousError(f"{self.name}: degree {power} is not exact; write exponents as Rational(p, q)")
        return power

    @cached_property
    def _identified(self) -> tuple[Functional | None, Expr, bool]:
        """(functional, factor, whether that takes a gradient of rank one)."""
        for rank_one in (False, True):
            points = [_point(shape, rank_one, index) for shape in _SHAPES for index in (0, 1)]
            changes = [_number(inner(g, self.update(g, theta))) for g, theta in points]
            for functional in Functional:
                values = [x / functional.of(*at).evalf(40) for x, at in zip(changes, points, strict=True)]
                if _agree(values):
                    factor = _constant_ratio(
                        lambda g, theta: Matrix([inner(g, self.update(g, theta))]),
                        lambda g, theta, of=functional.of: Matrix([-eta * of(g, theta)]),
                        rank_one,
                    )
                    if factor is None:
                        raise UndecidedError(f"{self.name}: values agree with {functional.name}, no proof was found")
                    return functional, factor, rank_one
        return None, S.NaN, False

    @property
    def functional(self) -> Functional | None:
        """What the first-order loss change is, up to -eta and ``factor``; None where it is none of the known."""
        return self._identified[0]

    @property
    def factor(self) -> Expr:
        """The constant in loss change = -eta * factor * functional; NaN where there is no functional."""
        return self._identified[1]

    @property
    def assumes_rank_one(self) -> bool:
        """Whether the functional holds only for G = delta x^T, the gradient that one input gives."""
        return self._identified[2]

    @property
    def is_sign_type(self) -> bool:
        """Whether the loss change is the 1-norm of the gradient."""
        return self.functional is Functional.L1

    @property
    def loss_change(self) -> Expr:
        """<G, Delta Theta> on a 2x2 matrix of symbols, G = delta x^T if ``assumes_rank_one``."""
        g, theta = _symbols(_SHAPES[0], self.assumes_rank_one)
        return inner(g, self.update(g, theta))

    @cached_property
    def update_text(self) -> str:
        """Delta Theta for a table: in words where each entry is proved to follow the functional's direction."""
        if self.functional:
            _, text, direction = _FORMS[self.functional]
            along = _constant_ratio(self.update, lambda g, theta: -eta * direction(g, theta), self.assumes_rank_one)
            if along == self.factor:
                return f"{-eta * self.factor}*{text}"
        return "update(g, theta)"

    @property
    def loss_change_text(self) -> str:
        """The first-order loss change for a table."""
        return f"{-eta * self.factor}*{self.functional.value}" if self.functional else "<g, update(g, theta)>"


_PUBLISHED: Final = {
    "sgd": (lambda g, theta: -eta * g, "doi:10.1214/aoms/1177729586"),
    "momentum": (lambda g, theta: -eta * (momentum * sp.zeros(*g.shape) + g), "doi:10.1016/0041-5553(64)90137-5"),
    "adam": (lambda g, theta: -eta * _adam_direction(g), "arXiv:1412.6980"),
    "adamw": (lambda g, theta: -eta * (_adam_direction(g) + _NO_DECAY * theta), "arXiv:1711.05101"),
    "rmsprop": (_rmsprop, "Tieleman and Hinton 2012, Coursera lecture 6.5", "arXiv:1308.0850"),
    "signsgd": (lambda g, theta: -eta * g.applyfunc(sign), "arXiv:1802.04434"),
    "lion": (lambda g, theta: -eta * (_average(beta1, g).applyfunc(sign) + _NO_DECAY * theta), "arXiv:2302.06675"),
    "adafactor": (_adafactor, "arXiv:1804.04235"),
    "lars": (_lars, "arXiv:1708.03888", "arXiv:1904.00962"),
    "lamb": (_lamb, "arXiv:1904.00962"),
    "muon": (_muon, "https://kellerjordan.github.io/posts/muon/", "arXiv:2502.16982"),
    "sophia": (_sophia, "arXiv:2305.14342"),
}
OPTIMIZERS: Final = MappingProxyType(
    {name: Optimizer(name=name, update=map_, sources=tuple(rest)) for name, (map_, *rest) in _PUBLISHED.items()}
)
MATCHED: Final = Rational(1, 5)
"""Moonlight (arXiv:2502.16982, section 2.2) and torch.optim.Muon with adjust_lr_fn="match_rms_adamw" multiply Muon's
step of a matrix by MATCHED sqrt(max(rows, columns)): its entries are then as large as AdamW's usually are."""
MIXED: Final = MappingProxyType(
    {
        "muon+adamw": Optimizer(
            name="muon+adamw",
            update=_muon,
            sources=("https://kellerjordan.github.io/posts/muon/", "arXiv:2502.16982"),
            others=OPTIMIZERS["adamw"],
        )
    }
)
"""Two optimizers in one run, under one learning rate. ``update`` is that of a branch's matrices, in units of MATCHED
sqrt(d): of a square matrix, or up to a constant of any other."""


def optimizer(name: str) -> Optimizer:
    """The optimizer of that name. Raises ValueError with the nearest names and the allowed ones.

    >>> from depthlaw.theory.optimizers import OPTIMIZERS, optimizer
    >>> len(OPTIMIZERS)
    12
    >>> adam = optimizer("adam")
    >>> adam.gradient_degree, adam.parameter_degree, adam.loss_change_text
    (0, 0, '-eta*||g||_1')
    >>> optimizer("lamb").loss_change_text
    '-eta*||theta||*||g||_1/sqrt(n)'
    >>> mixed = optimizer("muon+adamw")
    >>> mixed.loss_change_text, mixed.others.loss_change_text
    ('-eta*||g||_*', '-eta*||g||_1')
    """
    known = {**OPTIMIZERS, **MIXED}
    if name in known:
        return known[name]
    near = get_close_matches(name.lower(), known, n=3)
    hint = f" (did you mean {' or '.join(near)}?)" if near else ""
    raise ValueError(f"unknown optimizer {name!r}{hint}; allowed: {', '.join(known)}")
