"""Texts that say the same but for rounding, which is another on another machine."""

from __future__ import annotations

import re

import pytest

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def is_near(one: str, other: str, *, rel: float = 0.0, absolute: float = 0.0) -> bool:
    """Whether two texts have the same words, and numbers that are as near as this."""
    numbers, others = ([float(number) for number in NUMBER.findall(text)] for text in (one, other))
    is_same = NUMBER.sub("#", one) == NUMBER.sub("#", other)
    return is_same and others == pytest.approx(numbers, rel=rel, abs=absolute)


def is_same_picture(one: str, other: str) -> bool:
    """Whether two SVG files have the same words, and the same shapes where positions may round to the next tenth of a
    pixel."""
    words, others = (re.split(r"<[^>]*>", text) for text in (one, other))
    shapes, other_shapes = ("\n".join(re.findall(r"<[^>]*>", text)) for text in (one, other))
    return words == others and is_near(shapes, other_shapes, absolute=0.11)
