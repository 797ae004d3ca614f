"""Every number of a finding stands, rounded to the digits that the finding prints, in what its claims are held by.

Exempt: claim ids, names such as Theorem 3.2, whole exponents and powers as 1/4, and integers of one digit.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest
from sympy import Expr, Rational, limit, oo

from paper_checks import verify as engine
from paper_checks.claim import judge_quickly
from paper_checks.commands.output import as_text
from paper_checks.findings import FINDINGS
from paper_checks.registry import claims
from theory.schemes import scheme
from theory.symbols import L

_EXEMPT = re.compile(r"\b[A-Z][A-Z0-9]-\d\d\b|\b(?:Theorem|Lemma) [\d.]*\d")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?")
_KEPT = ("statement", "condition", "correction", "open", "grounds", "counterexample")
_EVIDENCE = ("detail", "numbers", "steps")


def power_of_deepnet() -> Expr:
    """What the slopes v w / alpha of L = 2N sublayers add up to, over N^(1/4): at DeepNet's own alpha and beta."""
    stack = scheme("deepnorm").stack
    assert stack.residual_weight is not None
    return limit(L * stack.gain_in * stack.gain_out / stack.residual_weight / (L / 2) ** Rational(1, 4), L, oo)


COMPUTED = {("DN-02", "0.59"): power_of_deepnet}
"""What no evidence prints as a decimal."""


def numbers(text: str) -> list[str]:
    """Those of a finding that are to be found."""
    found = _NUMBER.findall(_EXEMPT.sub(" ", text))
    return [one for one in found if "." in one or len(one) > 1]


@cache
def of_part(id_: str, place: int) -> tuple[float, ...]:
    """The numbers that a part of a claim is held by."""
    part = json.loads(as_text(engine._part(judge_quickly(claims()[id_].parts[place]))))
    kept = [part[name] for name in _KEPT] + [item[name] for item in part["evidence"] for name in _EVIDENCE]
    return tuple(float(one.replace(",", "")) for text in leaves(kept) for one in _NUMBER.findall(text))


def leaves(found: Any) -> Iterator[str]:
    if isinstance(found, dict):
        found = [*found, *found.values()]
    if isinstance(found, list):
        for one in found:
            yield from leaves(one)
    elif isinstance(found, str | int | float) and not isinstance(found, bool):
        yield str(found)


def is_rounded(value: float, text: str) -> bool:
    digits = len(text.partition(".")[2])
    wanted = float(text.replace(",", ""))
    return value == wanted if digits == 0 else abs(value - wanted) <= 0.5 * 10**-digits * (1 + 1e-9)


def missing(ids: Sequence[str], text: str) -> list[str]:
    """Numbers of a finding that nothing of its claims has; parts are looked at until all are found."""
    left = []
    for one in numbers(text):
        made = COMPUTED.get((ids[0], one))
        if made is None or not is_rounded(float(made()), one):
            left.append(one)
    for id_ in ids:
        for place in range(len(claims()[id_].parts)):
            if not left:
                return []
            there = of_part(id_, place)
            left = [one for one in left if not any(is_rounded(value, one) for value in there)]
    return left


@pytest.mark.parametrize(("ids", "text"), FINDINGS, ids=[ids[0] for ids, _ in FINDINGS])
def test_numbers_of_a_finding_are_those_of_its_claims(ids: tuple[str, ...], text: str) -> None:
    assert missing(ids, text) == []


@pytest.mark.parametrize(
    ("id_", "right", "other"),
    [
        ("S2-13", "11 ", "19 "),
        ("S2-08", "0.74", "0.47"),
        ("S2-08", "0.91", "0.19"),
        ("S3-43", "64.7", "67.4"),
        ("DN-07", "433", "343"),
        ("S1-08", "0.71", "0.17"),
        ("S1-12", "0.28", "0.82"),
        ("DN-02", "0.59", "0.95"),
    ],
)
def test_another_number_is_seen(id_: str, right: str, other: str) -> None:
    ids, text = next(one for one in FINDINGS if one[0][0] == id_)
    assert right in text
    assert missing(ids, text.replace(right, other)) == [other.strip()]


def test_what_is_exempt_is_little() -> None:
    assert numbers("S3-10: Theorem 3.2 has L^(1/4) and L^0.47 from 11 on, 1,000 at 3") == ["0.47", "11", "1,000"]
    assert is_rounded(0.737618, "0.74")
    assert not is_rounded(0.7476, "0.74")
    assert not is_rounded(47.5, "48")
    assert math.isclose(float(power_of_deepnet()), 2**-0.75)
