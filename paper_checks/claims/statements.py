"""Printed statements as objects: what a check receives, and what a mutant replaces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from sympy import Expr, Integer


class Statement(Protocol):
    """Anything that can say itself in one line."""

    @property
    def text(self) -> str: ...


@dataclass(frozen=True)
class Changeable:
    """A printed statement of which ``with_`` makes a mutant."""

    def with_(self, **changes: Any) -> Self:
        return replace(self, **changes)


@dataclass(frozen=True)
class Values:
    """A printed statement with named values in it: expressions, whole numbers, words.

    ``Values.of(alpha=(2*N)**Rational(1, 4), ...)`` prints each value by its name; a sentence as the first argument
    prints the values where it names them.

    >>> from sympy import Rational
    >>> from depthlaw.paper_checks.claims.statements import Values
    >>> from depthlaw.theory.symbols import N
    >>> printed = Values.of(alpha=(2 * N) ** Rational(1, 4), beta=(8 * N) ** Rational(-1, 4))
    >>> printed.with_(beta=1).text
    'alpha = 2**(1/4)*N**(1/4); beta = 1'
    >>> printed.with_(gamma=1)
    Traceback (most recent call last):
        ...
    KeyError: 'no entry gamma; there are alpha, beta'
    >>> Values.of("the {kind} of 3M sublayers with l % 3 = {rest}", kind="cross-attentions", rest=1).text
    'the cross-attentions of 3M sublayers with l % 3 = 1'
    """

    entries: tuple[tuple[str, Any], ...]
    words: str = ""

    @staticmethod
    def of(words: str = "", /, **values: Any) -> Values:
        return Values(tuple((name, _exact(value)) for name, value in values.items()), words)

    def __getitem__(self, name: str) -> Any:
        return dict(self.entries)[name]

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self.entries)

    def with_(self, **values: Any) -> Values:
        """The same with other values under names that it has: the way to make a mutant."""
        known = dict(self.entries)
        if unknown := set(values) - set(known):
            raise KeyError(f"no entry {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        return replace(self, entries=tuple((name, _exact(values.get(name, value))) for name, value in self.entries))

    @property
    def text(self) -> str:
        return self.words.format(**dict(self)) if self.words else "; ".join(f"{name} = {value}" for name, value in self)


def _exact(value: Any) -> Any:
    """A whole number as an expression; all else as it is."""
    return Integer(value) if isinstance(value, int) and not isinstance(value, bool) else value


@dataclass(frozen=True, kw_only=True)
class Growth(Changeable):
    """The update of a network grows with its L sublayers as ``order``: Theta, or O (no faster than)."""

    scheme: str
    order: Expr
    optimizer: str = "sgd"
    activation: str = "relu"
    norm_kind: str = "layernorm"
    is_upper: bool = False

    @property
    def printed_order(self) -> str:
        return f"{'O' if self.is_upper else 'Theta'}({self.order})"

    @property
    def text(self) -> str:
        network = f"{self.scheme}, {self.activation}, {self.norm_kind}"
        return f"update of {network} under {self.optimizer} = {self.printed_order}"


class Decimals(Values):
    """Printed decimal constants, as printed: the digits tell how they were rounded."""


@dataclass(frozen=True)
class Sublayer:
    """A sublayer as it is printed: what a branch does to its input, in that order, and whether its input is added.

    kind: attention or ffn, where the source says which.
    """

    steps: tuple[str, ...]
    kind: str = ""
    has_residual: bool = True

    @property
    def text(self) -> str:
        branch = "".join(f"{step}(" for step in reversed(self.steps)) + "x" + ")" * len(self.steps)
        return f"{self.kind}{': ' if self.kind else ''}{'x + ' if self.has_residual else ''}{branch}"
