"""The magnitude argument: probes, degree counting, and the sum over sublayers that must not grow with depth.

Each matrix of a branch is a magnitude lambda_i times a near-orthogonal frame, so the branch has magnitude
b prod_i lambda_i / alpha (LN(alpha x + b F) = LN(x + (b/alpha) F), alpha > 0) and d/d lambda_i probes the gradient of
matrix i, wherever the gradient that arrives from above is O(1). That last clause is the assumption of this rung; it is
checked afterwards (``Member.accumulated_branch``) and on the other rungs. An optimizer whose step has degree p in the
gradient and t in the parameter changes the loss by |g|^(p+1) |theta|^t per matrix.

All quantities here are monomials in alpha, b, lambda and rho (a multiplier of the learning rate), so "equals 1" is
linear in their logarithms, and a choice of alpha and lambda is the solution of a linear system.
Source: S1-22..S1-41, DN-04..DN-07, LI-05.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from math import gcd, lcm
from operator import mul
from typing import Final, Protocol

from sympy import (
    Expr,
    Integer,
    Matrix,
    Mul,
    Pow,
    Rational,
    S,
    Symbol,
    diff,
    expand_power_base,
    factorrat,
)

from depthlaw.theory.stack import Side, SublayerKind
from depthlaw.theory.symbols import branch_weight, init_gain, residual_weight, scratch

lr_multiplier: Final = scratch("rho", positive=True)
"""A multiplier of the learning rate."""
UNKNOWNS: Final = (residual_weight, init_gain, branch_weight, lr_multiplier)


class Degrees(Protocol):
    """What the argument needs to know of an optimizer."""

    @property
    def name(self) -> str: ...
    @property
    def gradient_degree(self) -> Rational: ...
    @property
    def parameter_degree(self) -> Rational: ...


class NoMemberError(ValueError):
    """No member of the family satisfies what was asked."""


# ---------------------------------------------------------------- one branch


@dataclass(frozen=True, kw_only=True)
class Branch:
    """A branch of ``num_matrices`` matrices on its value path.

    inner_norm: a norm before the last matrix (Sub-LN). zero_last: the last matrix starts at 0 (Fixup).
    """

    num_matrices: int = 2
    inner_norm: bool = False
    zero_last: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.num_matrices, int) or isinstance(self.num_matrices, bool) or self.num_matrices < 1:
            raise ValueError(f"a branch has one or more matrices, not {self.num_matrices!r}")
        if self.zero_last and self.inner_norm:
            raise ValueError("a last matrix of 0 and a norm before it were not derived together")

    @cached_property
    def probes(self) -> tuple[Symbol, ...]:
        """lambda_1 .. lambda_m, in the order in which the matrices act."""
        return tuple(scratch(f"lambda_{i + 1}", positive=True) for i in range(self.num_matrices))

    @cached_property
    def magnitude(self) -> Expr:
        """The magnitude of the branch in units of the stream x, before any matrix is set to 0."""
        acting = self.probes[-1:] if self.inner_norm else self.probes
        return branch_weight * reduce(mul, acting) / residual_weight

    @cached_property
    def gradients(self) -> tuple[Expr, ...]:
        """Magnitude of the gradient of each matrix, per unit of what arrives from above.

        d magnitude / d lambda_i; behind an inner norm the branch has degree 0 in the earlier matrices, the probe sees
        nothing, and the gradient, of degree -1, has magnitude / lambda_i (orthogonal to the matrix).
        """
        gradients = [diff(self.magnitude, probe) for probe in self.probes]
        if self.inner_norm:
            gradients[:-1] = [self.magnitude / probe for probe in self.probes[:-1]]
        return tuple(expr.xreplace(self._start) for expr in gradients)

    @cached_property
    def _start(self) -> dict[Symbol, Expr]:
        return {self.probes[-1]: S.Zero} if self.zero_last else {}

    @cached_property
    def sizes(self) -> tuple[Expr, ...]:
        """The magnitude of each matrix at initialisation."""
        return tuple(probe.xreplace(self._start) for probe in self.probes)

    def uniform(self, expr: Expr) -> Expr:
        """``expr`` with one gain for all matrices."""
        return expr.xreplace(dict.fromkeys(self.probes, init_gain))


# ---------------------------------------------------------------- one stack


@dataclass(frozen=True, kw_only=True)
class StackUpdate:
    """The loss change of one step, summed over the matrices of one stack, as powers of alpha, lambda, b, rho.

    coupling: what the update is multiplied by on its way to the output (1 for the stack that ends in the output).
    passes_gradient: whether this side's own gradients carry the coupling too (then it enters to the power p + 1).
    counts_matrices: whether each matrix counts (DeepNet), or a sublayer counts once, its K matrices a constant (Su).
    """

    side: Side
    branch: Branch
    optimizer: Degrees
    coupling: Expr = S.One
    passes_gradient: bool = False
    counts_matrices: bool = False

    def under(self, optimizer: Degrees) -> StackUpdate:
        """The same stack under another optimizer."""
        return replace(self, optimizer=optimizer)

    @cached_property
    def _incoming(self) -> Expr:
        return self.coupling if self.passes_gradient else S.One

    @cached_property
    def by_matrix(self) -> tuple[Expr, ...]:
        """|g|^(p+1) |theta|^t of each matrix of one sublayer, in the probes; those with no gradient left out."""
        p, t = self.optimizer.gradient_degree, self.optimizer.parameter_degree
        outside = S.One if self.passes_gradient else self.coupling
        terms = (
            outside * lr_multiplier * (self._incoming * g) ** (p + 1) * size**t
            for g, size in zip(self.branch.gradients, self.branch.sizes, strict=True)
        )
        changes = tuple(term for term in terms if term != 0)
        if not changes:
            raise NoMemberError(
                f"the last matrix starts at 0, and {self.optimizer.name} moves it in proportion to that"
            )
        return changes

    @cached_property
    def total(self) -> Expr:
        """The sum at one gain, counted as ``counts_matrices`` says."""
        whole = self.branch.uniform(self.side.num_sublayers * sum(self.by_matrix, S.Zero))
        return whole if self.counts_matrices else whole / len(self.by_matrix)

    @cached_property
    def gradient(self) -> Expr:
        """Magnitude of the gradient of one matrix at one gain."""
        return self._incoming * self.branch.uniform(next(g for g in self.branch.gradients if g != 0))

    @cached_property
    def relative(self) -> Expr:
        """|Delta theta| / |theta| of one matrix, over the learning rate."""
        p, t = self.optimizer.gradient_degree, self.optimizer.parameter_degree
        return lr_multiplier * self.gradient**p * init_gain ** (t - 1)

    @cached_property
    def branch_at_init(self) -> Expr:
        return S.Zero if self.branch.zero_last else self.branch.uniform(self.branch.magnitude)

    @cached_property
    def accumulated(self) -> Expr:
        """The sum of the squared branches. While it is O(1), so are the stream and what arrives from above."""
        return self.side.num_sublayers * self.branch.uniform(self.branch.magnitude) ** 2


def gate_rate(branch: Branch, optimizer: Degrees) -> Expr:
    """What the learning rate of a gated FFN's third matrix is multiplied by beside the others', so that it changes the
    loss as each of these does, where it keeps gain 1 and they have the gain lambda.

    W2 (phi(W1 u) * W3 u) has degree 1 in each of its three matrices, as a product of three has.

    >>> from depthlaw.theory.optimizers import optimizer
    >>> from depthlaw.theory.rules.magnitude import Branch, gate_rate
    >>> [gate_rate(Branch(), optimizer(name)) for name in ("sgd", "adam", "lamb")]
    [lambda**(-2), 1/lambda, 1]
    """
    p, t = optimizer.gradient_degree, optimizer.parameter_degree
    three = replace(branch, num_matrices=3)
    first, third, _ = (g ** (p + 1) * size**t for g, size in zip(three.gradients, three.sizes, strict=True))
    gains = dict(zip(three.probes, (init_gain, S.One, init_gain), strict=True))
    if tidy(three.magnitude.xreplace(gains) / branch.uniform(branch.magnitude)) != 1:
        raise ArithmeticError("a third matrix at gain 1 changed the magnitude of its branch")
    return tidy((first / third).xreplace(gains))


def coupling_of(reader: Side, branch: Expr, *, is_coherent: bool = True) -> Expr:
    """Slope of the output in the encoder's: the branches of the reader's cross-attentions, added up.

    Coherently, or as independent contributions (root of the sum of squares).
    """
    count = reader.num_layers * len(reader.positions(SublayerKind.CROSS))
    return tidy(count * branch if is_coherent else count ** Rational(1, 2) * branch)


# ---------------------------------------------------------------- monomials


def tidy(expr: Expr) -> Expr:
    """Powers of products split and roots of numbers gathered by prime, so that equal factors meet.

    All bases are positive: counts, gains, logs of counts.
    """
    others, primes = [], {}
    for factor in Mul.make_args(expand_power_base(expr, force=True)):
        base, power = factor.as_base_exp()
        if base.is_Rational and base.is_positive and power.is_Rational:
            for prime, times in factorrat(base).items():
                primes[prime] = primes.get(prime, S.Zero) + times * power
        else:
            others.append(factor)
    return Mul(*(Integer(prime) ** power for prime, power in sorted(primes.items())), *others)


def exponents(expr: Expr, unknowns: Sequence[Symbol] = UNKNOWNS) -> tuple[Expr, tuple[Expr, ...]]:
    """(coefficient, powers) of a monomial in the unknowns; ArithmeticError if it is none."""
    coefficient, rest = tidy(expr).as_independent(*unknowns, as_Add=False)
    powers = rest.as_powers_dict()
    degrees = tuple(powers.pop(unknown, S.Zero) for unknown in unknowns)
    if any(base != 1 for base in powers) or any(not power.is_Rational for power in degrees):
        raise ArithmeticError(f"{expr} is not a monomial in {', '.join(map(str, unknowns))}")
    return coefficient, degrees


def solve_monomials(equations: Sequence[Expr], unknowns: Sequence[Symbol] = UNKNOWNS) -> dict[Symbol, Expr]:
    """The positive values at which every monomial equals 1; NoMemberError where they do not determine them."""
    rows = [exponents(equation, unknowns) for equation in equations]
    matrix = Matrix([powers for _, powers in rows])
    if matrix.rows != matrix.cols or matrix.det() == 0:
        raise NoMemberError("these conditions do not single out one member of the family")
    inverse = matrix.inv()
    return {
        unknown: tidy(Mul(*(rows[j][0] ** (-inverse[i, j]) for j in range(len(rows)))))
        for i, unknown in enumerate(unknowns)
    }


def compact(expr: Expr) -> str:
    """A monomial as one power, (2*N)**(1/4) rather than 2**(1/4)*N**(1/4); other expressions as sympy writes them.

    >>> from sympy import Rational
    >>> from depthlaw.theory.rules.magnitude import compact
    >>> from depthlaw.theory.symbols import N
    >>> expr = (8 * N) ** Rational(-1, 4)
    >>> str(expr), compact(expr)
    ('2**(1/4)/(2*N**(1/4))', '(8*N)**(-1/4)')
    """
    return str(gathered(expr))


def gathered(expr: Expr) -> Expr:
    """What ``compact`` writes, as an unevaluated expression."""
    powers: dict[Expr, Rational] = {}
    for factor in Mul.make_args(tidy(expr)):
        base, exponent = factor.as_base_exp()
        if not exponent.is_Rational:
            return expr
        parts = {base: 1}
        if base.is_Rational:
            if base <= 0:
                return expr
            parts = {Integer(prime): n for prime, n in factorrat(base).items()}
        for part, n in parts.items():
            powers[part] = powers.get(part, S.Zero) + n * exponent
    whole = Mul(*(base**power for base, power in powers.items() if power.is_Integer and base.is_Symbol))
    powers = {base: power for base, power in powers.items() if power != 0}
    if all(power.is_Integer for power in powers.values()):
        return Mul(*(base**power for base, power in powers.items()))
    if whole != 1:  # sqrt(2)*N rather than sqrt(2*N**2)
        rest = {base: power for base, power in powers.items() if base not in whole.free_symbols}
        return Mul(whole, _one_power(rest), evaluate=False)
    return _one_power(powers)


def _one_power(powers: Mapping[Expr, Rational]) -> Expr:
    """prod base^power as (one monomial)^(one exponent), unevaluated."""
    root = lcm(*(int(power.q) for power in powers.values()))
    common = gcd(*(int(power * root) for power in powers.values()))
    inside = Mul(*(base ** (power * root / common) for base, power in powers.items()))
    outer = Rational(common, root)
    if inside.as_numer_denom()[0] == 1:
        inside, outer = 1 / inside, -outer
    return Pow(inside, outer, evaluate=False)
