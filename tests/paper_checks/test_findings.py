"""Every number of a finding stands, rounded to the digits that the finding prints, in the place that is named here: a
field of one part of a claim, or a number of one route of its evidence.

Exempt: claim ids, names such as Theorem 3.2, whole exponents and powers as 1/4, and integers of one digit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import pytest
from sympy import Expr, Rational, limit, oo

from paper_checks.pages.findings import FINDINGS
from tests.once import claim
from theory.schemes import scheme
from theory.symbols import L

_EXEMPT = re.compile(r"\b[A-Z][A-Z0-9]-\d\d\b|\b(?:Theorem|Lemma) [\d.]*\d")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?")

Place = tuple[str, str, str]
"""A claim, how the name of its part begins, and the place in it: a field of a counterexample, another field of the
part, or a number of the evidence of a route."""
_SUB = "the true update, Sub, relu, LayerNorm"
_GAINS = "in a real Transformer: the gains of the norms"
_BY_ROLE = "kernel: power of L by role, N = 250 to 1000"

PLACES: dict[tuple[str, str], Place] = {
    ("S3-10", "0.47"): ("S3-10", _SUB, "meanfield: power_value"),
    ("S3-10", "0.07"): ("S3-10", "the true update, Pre, gelu", "meanfield: power_value"),
    ("S3-14", "1,000"): ("S3-12", "in a real Transformer, softmax attention", "counterexample: found"),
    ("S3-14", "0.31"): ("S3-12", _GAINS, "kernel: power of L"),
    ("S3-14", "0.25"): ("S3-12", _GAINS, f"{_BY_ROLE}: norm_gain"),
    ("DN-10", "1,000"): ("DN-10", "all parameters", "kernel"),
    ("S2-08", "27"): ("S2-08", "uneven gains", "counterexample: v: 3"),
    ("S2-08", "0.91"): ("S2-08", "uneven gains", "counterexample: update"),
    ("S2-08", "0.74"): ("S2-08", "uneven gains", "counterexample: bound"),
    ("S2-13", "11"): ("S2-13", "equal gains, relu, LayerNorm", "counterexample: num_sublayers"),
    ("S2-11", "0.021"): ("S2-11", "Post-LN, gelu", "counterexample: found"),
    ("DN-07", "4.56"): ("DN-07", "the encoder's share of the update is bounded in the model", "condition"),
    ("DN-07", "433"): ("DN-07", "the encoder's share of the update is bounded in the model", "counterexample: found"),
    ("DN-11", "30"): ("DN-11", "(3) alpha above 1: the encoder of two", "correction"),
    ("S1-08", "0.71"): ("S1-08", "as printed", "counterexample: distances: d x d"),
    ("S3-43", "64.7"): ("S3-43", "GPT, every block's average, against all", "arithmetic: best: 48L four-shot Avg."),
    ("S3-43", "64.5"): ("S3-43", "GPT, every block's average, against Pre-LN", "arithmetic: best: 48L four-shot Avg."),
    ("S3-43", "48"): ("S3-43", "GPT, every block's average, against all", "condition"),
    ("S1-12", "0.17"): ("S1-12", "gelu", "condition"),
    ("S1-12", "0.28"): ("S1-12", "swish", "condition"),
}


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


def part_of(id_: str, name: str) -> Any:
    """The one part of a claim whose name begins so, as the document has it."""
    (part,) = (part for part in claim(id_)["parts"] if part["name"].startswith(name))
    return part


def texts_at(place: Place) -> list[str]:
    """What stands at a place; of a route, in each piece of its evidence on what is printed."""
    id_, name, where = place
    part = part_of(id_, name)
    first, *keys = where.split(": ")
    if first in part:
        return [str(at(part[first], keys))]
    items = [item for item in part["evidence"] if item["route"] == first and item["of"] == "printed"]
    return [str(at(item["numbers"], keys)) if keys else item["detail"] for item in items]


def at(found: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        found = found[int(key)] if isinstance(found, list) else found[key]
    return found


def values_at(place: Place) -> list[float]:
    return [float(one.replace(",", "")) for text in texts_at(place) for one in _NUMBER.findall(text)]


def is_rounded(value: float, text: str) -> bool:
    digits = len(text.partition(".")[2])
    wanted = float(text.replace(",", ""))
    return value == wanted if digits == 0 else abs(value - wanted) <= 0.5 * 10**-digits * (1 + 1e-9)


def missing(ids: Sequence[str], text: str, wanted: Sequence[str] | None = None) -> list[str]:
    """Numbers of a finding that do not stand where its numbers, or the wanted ones in their order, are said to."""
    found = numbers(text)
    left = []
    for one, right in zip(found, found if wanted is None else wanted, strict=True):
        made = COMPUTED.get((ids[0], right))
        values = [float(made())] if made is not None else values_at(PLACES[ids[0], right])
        if not any(is_rounded(value, one) for value in values):
            left.append(one)
    return left


def test_every_number_has_one_place() -> None:
    wanted = {(ids[0], one) for ids, text in FINDINGS for one in numbers(text)}
    assert wanted == PLACES.keys() | COMPUTED.keys()
    assert not PLACES.keys() & COMPUTED.keys()
    assert all(place[0] in ids for ids, _ in FINDINGS for (first, _), place in PLACES.items() if first == ids[0])


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
    assert missing(ids, text.replace(right, other), numbers(text)) == [other.strip()]


def test_a_number_of_another_part_is_seen() -> None:
    """Each of these stands somewhere in the evidence of its claim, and not in the place that is named."""
    for id_, right, other in (("S3-10", "0.47", "0.32"), ("S2-13", "11 ", "20 "), ("S3-43", "64.7", "75.4")):
        ids, text = next(one for one in FINDINGS if one[0][0] == id_)
        whole = _NUMBER.findall(str(claim(id_)["parts"]))
        assert any(is_rounded(float(one.replace(",", "")), other.strip()) for one in whole)
        assert missing(ids, text.replace(right, other), numbers(text)) == [other.strip()]


def test_what_is_exempt_is_little() -> None:
    assert numbers("S3-10: Theorem 3.2 has L^(1/4) and L^0.47 from 11 on, 1,000 at 3") == ["0.47", "11", "1,000"]
    assert is_rounded(0.737618, "0.74")
    assert not is_rounded(0.7476, "0.74")
    assert not is_rounded(47.5, "48")
    assert math.isclose(float(power_of_deepnet()), 2**-0.75)
