"""Texts that say the same but for rounding, which is another on another machine."""

from __future__ import annotations

import re

import pytest

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def is_near(first: str, second: str, *, rel: float = 0.0, absolute: float = 0.0) -> bool:
    """Whether two texts have the same words, and numbers that are as near as this."""
    numbers, others = ([float(number) for number in NUMBER.findall(text)] for text in (first, second))
    is_same = NUMBER.sub("#", first) == NUMBER.sub("#", second)
    return is_same and others == pytest.approx(numbers, rel=rel, abs=absolute)


def is_same_picture(first: str, second: str) -> bool:
    """Whether two SVG files have the same words, and the same shapes where positions may round to the next tenth of a
    pixel."""
    words, others = (re.split(r"<[^>]*>", text) for text in (first, second))
    shapes, other_shapes = ("\n".join(re.findall(r"<[^>]*>", text)) for text in (first, second))
    return words == others and is_near(shapes, other_shapes, absolute=0.11)
