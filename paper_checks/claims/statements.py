"""Printed statements as objects: what a check receives, and what a mutant replaces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from sympy import Expr, sympify


class Statement(Protocol):
    """Anything that can say itself in one line."""

    @property
    def text(self) -> str: ...


@dataclass(frozen=True)
class Values:
    """Named printed expressions: ``Values.of(alpha=(2*N)**Rational(1, 4), ...)``.

    >>> from sympy import Rational
    >>> from paper_checks.claims.statements import Values
    >>> from theory.symbols import N
    >>> printed = Values.of(alpha=(2 * N) ** Rational(1, 4), beta=(8 * N) ** Rational(-1, 4))
    >>> printed.with_(beta=1).text
    'alpha = 2**(1/4)*N**(1/4); beta = 1'
    >>> printed.with_(gamma=1)
    Traceback (most recent call last):
        ...
    KeyError: 'no entry gamma; there are alpha, beta'
    """

    entries: tuple[tuple[str, Expr], ...]

    @staticmethod
    def of(**values: Expr | int) -> Values:
        return Values(tuple((name, sympify(value)) for name, value in values.items()))

    def __getitem__(self, name: str) -> Expr:
        return dict(self.entries)[name]

    def __iter__(self) -> Iterator[tuple[str, Expr]]:
        return iter(self.entries)

    def with_(self, **values: Expr | int) -> Values:
        """The same with other expressions under names that it has: the way to make a mutant."""
        known = dict(self.entries)
        if unknown := set(values) - set(known):
            raise KeyError(f"no entry {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        return Values(tuple((name, sympify(values.get(name, value))) for name, value in self.entries))

    @property
    def text(self) -> str:
        return "; ".join(f"{name} = {value}" for name, value in self.entries)


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The update of a network grows with its L sublayers as ``order``: Theta, or O (no faster than).

    >>> from paper_checks.claims.statements import Growth
    >>> from theory.symbols import L
    >>> Growth(scheme="post-ln", order=L, is_upper=True).text
    'update of post-ln, relu, layernorm under sgd = O(L)'
    """

    scheme: str
    order: Expr
    optimizer: str = "sgd"
    activation: str = "relu"
    norm_kind: str = "layernorm"
    is_upper: bool = False

    def with_(self, **changes: Any) -> Growth:
        return replace(self, **changes)

    @property
    def text(self) -> str:
        sign = "O" if self.is_upper else "Theta"
        network = f"{self.scheme}, {self.activation}, {self.norm_kind}"
        return f"update of {network} under {self.optimizer} = {sign}({self.order})"


@dataclass(frozen=True)
class Decimals:
    """Printed decimal constants, as printed: the digits tell how they were rounded."""

    entries: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        return "; ".join(f"{name} = {value}" for name, value in self.entries)


@dataclass(frozen=True)
class Sublayer:
    """What a branch does to its input, in the order in which it does it."""

    steps: tuple[str, ...]

    @property
    def text(self) -> str:
        return "x + " + "".join(f"{step}(" for step in reversed(self.steps)) + "x" + ")" * len(self.steps)
