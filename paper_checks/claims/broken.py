"""Mutants that are made from the printed expression: what a copyist, or a careless derivation, would get wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sympy import Add, Expr, Indexed, Pow, Rational, Sum, expand

from depthlaw.paper_checks.claims.statements import Growth, Statement, Values
from depthlaw.theory.symbols import L, M, N, gain_in, gain_out


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A statement broken on purpose: at least one check must go red on it."""

    name: str
    statement: Statement


def broken(statement: Any, *names: str) -> tuple[Mutant, ...]:
    """The statement with one thing wrong in one of its expressions, in every way that its form allows.

    statement: a ``Growth``, whose order is off by a power of L (a smaller one where it is an upper bound), or one with
    a method ``with_``. names: the expressions to break; left out, all of a ``Values``. Of an expression: a factor 2 too
    much, half of a count or one and a half times it, an exponent twice as large, a term dropped, a sum that begins one
    later, gains of the two matrices swapped. ValueError where nothing can be broken.

    >>> from sympy import Rational
    >>> from depthlaw.paper_checks.claims.broken import broken
    >>> from depthlaw.paper_checks.claims.statements import Values
    >>> from depthlaw.theory.symbols import N
    >>> for mutant in broken(Values.of(alpha=(2 * N) ** Rational(1, 4))):
    ...     print(mutant.name, "|", mutant.statement.text)
    alpha: a factor 2 | alpha = 2*2**(1/4)*N**(1/4)
    alpha: half of N | alpha = N**(1/4)
    alpha: 3/2 of N | alpha = 3**(1/4)*N**(1/4)
    alpha: an exponent doubled | alpha = 2**(1/4)*sqrt(N)
    """
    if isinstance(statement, Growth):
        powers = (-1,) if statement.is_upper else (-1, 1)
        orders = {f"times L^({power}/4)": statement.order * L ** Rational(power, 4) for power in powers}
        return tuple(Mutant(name=name, statement=statement.with_(order=order)) for name, order in orders.items())
    if isinstance(statement, Values):
        entries = {name: value for name, value in statement if name in names or not names}
    else:
        entries = {name: getattr(statement, name) for name in names}
    mutants = tuple(
        Mutant(name=f"{name}: {word}", statement=statement.with_(**{name: other}))
        for name, value in entries.items()
        if isinstance(value, Expr)
        for word, other in _wrong(value)
        if expand(other - value) != 0
    )
    if not mutants:
        raise ValueError(f"nothing to break in {statement.text}")
    return mutants


def changed(statement: Any, **values: Any) -> tuple[Mutant, ...]:
    """The statement with one value changed: a mutant for each, several of one name as a list.

    >>> from depthlaw.paper_checks.claims.broken import changed
    >>> from depthlaw.paper_checks.claims.statements import Values
    >>> [mutant.name for mutant in changed(Values.of(alpha=1, beta=2), alpha=[3, 4], beta=0)]
    ['alpha = 3', 'alpha = 4', 'beta = 0']
    """
    return tuple(
        Mutant(name=f"{name} = {value}", statement=statement.with_(**{name: value}))
        for name, several in values.items()
        for value in (several if isinstance(several, list) else [several])
    )


def _wrong(expr: Expr) -> Iterator[tuple[str, Expr]]:
    yield "a factor 2", 2 * expr
    for count in (N, M, L):
        if expr.has(count):
            yield f"half of {count}", expr.subs(count, count / 2)
            yield f"3/2 of {count}", expr.subs(count, 3 * count / 2)
    powers = sorted((x for x in expr.atoms(Pow) if x.base.free_symbols and x.exp.is_Rational), key=str)
    if powers:
        yield "an exponent doubled", expr.xreplace({powers[0]: powers[0].base ** (2 * powers[0].exp)})
    sums = sorted((x for x in expr.atoms(Add) if x.free_symbols), key=str)
    if sums:
        yield "a term dropped", expr.xreplace({sums[0]: Add(*sums[0].args[1:])})
    added = sorted(expr.atoms(Sum), key=str)
    if added:
        index, low, high = added[0].limits[0]
        yield "a sum from one later", expr.xreplace({added[0]: Sum(added[0].function, (index, low + 1, high))})
    swapped = expr.subs({gain_in: gain_out, gain_out: gain_in}, simultaneous=True)
    bases = sorted({x.base for x in expr.atoms(Indexed)}, key=str)
    if len(bases) == 2:
        swapped = swapped.xreplace({x: bases[1 - bases.index(x.base)][x.indices] for x in swapped.atoms(Indexed)})
    if swapped != expr:
        yield "the two gains swapped", swapped
