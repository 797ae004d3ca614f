"""figures/why.svg draws the kept laws and the records, and its words say what they show."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from paper_checks import why_figure
from paper_checks.kernel_laws import law
from paper_checks.transformers_figures import Curves, is_current
from paper_checks.why_figure import LABELS, OPTIMIZERS, PATH, alt_text, curves, goes, svg, titles


@cache
def found() -> Curves:
    return curves()


def moved() -> Curves:
    """One number of one line is another."""
    (n, _, mean, low, high), *others = found()["sgd"]["deepnorm"]
    return {**found(), "sgd": {**found()["sgd"], "deepnorm": [(n, 7.0, mean, low, high), *others]}}


def test_the_picture_is_in_step() -> None:
    assert is_current(found(), PATH)
    assert not is_current(moved(), PATH)


def test_the_file_is_what_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte for byte; its metadata would not say that two colours, or two lines, are swapped."""
    assert PATH.read_text(encoding="utf-8") == svg(found())
    colours = why_figure._COLOURS
    swapped = colours | {"post-ln": colours["deepnorm"], "deepnorm": colours["post-ln"]}
    monkeypatch.setattr(why_figure, "_COLOURS", swapped)
    assert PATH.read_text(encoding="utf-8") != svg(found())


def test_a_file_that_was_edited_is_seen() -> None:
    text = PATH.read_text(encoding="utf-8")
    one, other = (why_figure._COLOURS[name].lower() for name in ("post-ln", "deepnorm"))
    edited = text.replace(one, "#x").replace(other, one).replace("#x", other)
    assert edited != text
    assert edited != svg(found())


def test_the_same_numbers_give_the_same_bytes() -> None:
    first = svg(found())
    assert svg(found()) == first
    assert svg(moved()) != first


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
