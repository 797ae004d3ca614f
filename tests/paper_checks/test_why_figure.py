"""figures/why.svg draws the kept laws and the records, and its words say what they show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from depthlaw.paper_checks.experiments.kernel_laws import law
from depthlaw.paper_checks.pages.drawing import svg
from depthlaw.paper_checks.pages.why_figure import OPTIMIZERS, PATH, goes, picture, titles
from tests.near import is_same_picture


def test_the_file_is_what_is_drawn() -> None:
    text = PATH.read_text(encoding="utf-8")
    assert is_same_picture(text, svg(picture()))
    assert "https:" not in text


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
