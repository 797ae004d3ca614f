"""figures/why.svg draws the kept laws and the records, and its words say what they show."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from paper_checks.experiments.kernel_laws import law
from paper_checks.pages import why_figure
from paper_checks.pages.transformers.figures import Curves, is_current
from paper_checks.pages.why_figure import LABELS, OPTIMIZERS, PATH, alt_text, curves, goes, svg, titles


@cache
def found() -> Curves:
    return curves()


def moved() -> Curves:
    """One number of one line is another."""
    (n, _, mean, low, high), *others = found()["sgd"]["deepnorm"]
    return {**found(), "sgd": {**found()["sgd"], "deepnorm": [(n, 7.0, mean, low, high), *others]}}


@cache
def drawn() -> str:
    return svg(found())


# ---------------------------------------------------------------- what a picture shows, whoever drew it

SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True)
class Shape:
    """A line, a bar or a mark. places: of its corners, in shares of its panel."""

    panel: str
    colour: str
    look: str
    places: np.ndarray


def shown(text: str) -> tuple[list[str], list[Shape]]:
    """Words, and shapes in the colours of schemes.

    Where letters stand and how they are shaped is left to the version of matplotlib and of its fonts, and so is the
    size of a panel.
    """
    root = ElementTree.fromstring(text)
    marks = {one.get("id"): "".join(re.findall("[A-Za-z]", one.get("d", ""))) for one in root.iter(f"{SVG}path")}
    shapes = []
    for axes in root.iter(f"{SVG}g"):
        panel = axes.get("id", "")
        if not panel.startswith("axes_"):
            continue
        groups = [one for one in axes if one.get("id", "").startswith(("patch", "line2d", "LineCollection"))]
        frame = corners(next(groups[0].iter(f"{SVG}path")))
        low, size = frame.min(axis=0), np.ptp(frame, axis=0)
        for one in (found for group in groups for found in group.iter()):
            style = one.get("style", "")
            colour = re.search("|".join(why_figure._COLOURS.values()), style, re.IGNORECASE)
            if colour is None or one.get("id"):  # what has an id is the shape of a mark, before it has a place
                continue
            look = marks.get(one.get("{http://www.w3.org/1999/xlink}href", "").lstrip("#"), "line")
            look += " dashed" if "stroke-dasharray" in style else ""
            shapes.append(Shape(panel, colour[0].lower(), look, (corners(one) - low) / size))
    return re.findall("<!-- (.*?) -->", text), shapes


def corners(one: ElementTree.Element) -> np.ndarray:
    numbers = re.findall(r"-?[\d.]+", one.get("d") or f"{one.get('x')} {one.get('y')}")
    return np.array(numbers, dtype=float).reshape(-1, 2)


def is_alike(one: str, other: str) -> bool:
    """To a thousandth of a panel: rounding differs by processor."""
    (words, shapes), (other_words, others) = shown(one), shown(other)

    def plain(found: list[Shape]) -> list[Any]:
        return [(shape.panel, shape.colour, shape.look, shape.places.shape) for shape in found]

    return (words, plain(shapes)) == (other_words, plain(others)) and all(
        np.allclose(a.places, b.places, rtol=0, atol=1e-3) for a, b in zip(shapes, others, strict=True)
    )


def test_the_file_is_what_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its numbers, and every line and point in its place and colour."""
    text = PATH.read_text(encoding="utf-8")
    assert is_current(found(), PATH)
    assert not is_current(moved(), PATH)
    words, shapes = shown(text)
    assert set(titles().values()) <= {re.sub(r"\$N\^\{(.*?)\}\$", r"N^\1", one) for one in words}
    assert len(shapes) > 2 * len(LABELS) * 2
    assert is_alike(text, drawn())

    one, other = (why_figure._COLOURS[name].lower() for name in ("post-ln", "deepnorm"))
    line = re.search(rf'd="(M [^"]*)" clip-path[^>]*{one}', text)
    assert line is not None
    x, y = re.findall(r"[\d.]+", line[1])[-2:]
    for what, edited in {
        "colours are swapped": text.replace(one, "#x").replace(other, one).replace("#x", other),
        "a point is moved": text.replace(f"{x} {y}", f"{x} {float(y) + 2}"),
        "words are others": text.replace("is flat -->", "falls -->"),
    }.items():
        assert edited != text
        assert not is_alike(edited, drawn()), what
    colours = why_figure._COLOURS
    monkeypatch.setattr(
        why_figure, "_COLOURS", colours | {"post-ln": colours["deepnorm"], "deepnorm": colours["post-ln"]}
    )
    assert not is_alike(text, svg(found()))


def test_the_same_numbers_give_the_same_bytes() -> None:
    assert svg(found()) == drawn()


def test_it_is_readable_on_a_dark_page() -> None:
    """A white ground of its own, and letters that need no font."""
    text = PATH.read_text(encoding="utf-8")
    assert 'style="fill: #ffffff"' in text
    assert "<text" not in text


def test_lines_run_through_the_points() -> None:
    for by_scheme in found().values():
        assert set(by_scheme) == set(LABELS)
        for points in by_scheme.values():
            assert [n for n, *_ in points][-1] == 1000
            measured = [(y, mean, low, high) for _, y, mean, low, high in points if mean and low and high]
            assert len(measured) == 5
            assert all(abs(mean / y - 1) < 0.03 and low < mean < high for y, mean, low, high in measured)


def test_titles_say_what_the_lines_do() -> None:
    """From the first layer to the thousandth: flat is within a tenth, and N^0.49 is by a factor of 30."""
    assert titles() == {"sgd": "Under SGD, DeepNorm is flat", "adam": "Under Adam, DeepNorm grows as N^0.49"}
    ratios = {one: law("deepnorm", one).updates[1000] / law("deepnorm", one).updates[1] for one in OPTIMIZERS}
    assert abs(ratios["sgd"] - 1) < 0.1
    assert 0.8 < ratios["adam"] / 1000**0.49 < 1.25


@pytest.mark.parametrize(
    ("power", "words"),
    [(0.0, "is flat"), (0.3, "grows as N^0.3"), (1.0, "grows as N"), (-1.0, "falls as 1/N"), (-0.5, "falls as N^-0.5")],
)
def test_a_flat_line_that_grows_is_called_so(power: float, words: str) -> None:
    flat = law("deepnorm", "sgd")
    assert goes(replace(flat, updates={n: 2.0 * n**power for n in flat.updates})) == words


def test_an_update_of_0_goes_as_nothing() -> None:
    with pytest.raises(ValueError, match="no power"):
        goes(law("rezero", "sgd"))


def test_titles_follow_the_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why_figure, "law", lambda _, optimizer: law("post-ln", optimizer))
    assert titles()["sgd"] == "Under SGD, DeepNorm grows as N"


def test_the_text_instead_has_the_numbers() -> None:
    text = alt_text()
    for scheme in LABELS:
        assert LABELS[scheme] in text
    assert "Under SGD vanilla Post-LN grows as N, from 1.6 at 1 layer to 2,200" in text
    assert '"' not in text
    assert "]" not in text
