"""The report's figures show the numbers that they are of, in the page's colours, each id once."""

from __future__ import annotations

import math
import re
from functools import cache
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from markupsafe import Markup
from sympy import Expr, Rational

from paper_checks.claims.claim import Verdict
from paper_checks.claims.statements import Growth
from paper_checks.experiments.sweeps import OPTIMIZERS
from paper_checks.pages import scheme_figures
from paper_checks.pages.drawing import Curve, Panel, figure, spread, tick_label
from paper_checks.pages.scheme_figures import SchemeFigures, stacks, transformers
from paper_checks.pages.transformers.page import PAGE
from paper_checks.papers.magneto.inequality import Inequality
from paper_checks.papers.registry import claims
from paper_checks.report.claim_figures import (
    DEPTHS,
    OF_EXPERIMENT,
    against_bound,
    for_claim,
    order_through,
    training,
    training_names,
)
from paper_checks.report.themed import themed
from paper_checks.system.places import FIGURES
from tests.paper_checks.report_pages import DRAWN, ORDERED, fast, figures_of
from theory.meanfield.update import predict
from theory.schemes import SCHEMES
from theory.symbols import L

VARIABLES = {"--ink", "--muted", "--line", "--paper", "--panel", "--accent", *(f"--c{i}" for i in range(1, 9))}
MOST = 40_000


@cache
def found(name: str) -> SchemeFigures:
    return figures_of(name)[0]


def check_colours(svg: str) -> None:
    """None of its own, none that the page lacks."""
    assert not re.search(r"#[0-9a-fA-F]{6}\b", svg)
    assert set(re.findall(r"var\((--[a-z0-9]+)\)", svg)) <= VARIABLES


# ---------------------------------------------------------------- plots


def drawn(panel: Panel) -> ElementTree.Element:
    return ElementTree.fromstring(figure([panel]))


def heights(root: ElementTree.Element, colour: str) -> list[list[float]]:
    """Of the line's corners and of the marks, in pixels."""
    paths = [one.attrib["d"] for one in root.iter("path") if f"stroke:var({colour})" in one.attrib["style"]]
    return [[float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", path)] for path in paths]


def test_a_point_lies_where_its_number_is() -> None:
    line = [(1.0, 2.0), (10.0, 20.0), (100.0, 200.0)]
    points = [(x, y, y / 1.5, y * 1.5) for x, y in line]
    root = drawn(Panel(title="t", about="", curves=[Curve(label="U", line=line, points=points)]))
    of_line, of_bars, of_marks = heights(root, "--c1")
    assert of_marks == of_line
    steps = [one - other for one, other in pairwise(of_line)]
    assert steps[0] == pytest.approx(steps[1], abs=0.11)
    decade = steps[0]
    assert of_bars[0] - of_line[0] == pytest.approx(decade * math.log10(1.5), abs=0.11)
    off = [(x, 1.2 * y, None, None) for x, y in line]
    moved = drawn(Panel(title="t", about="", curves=[Curve(label="U", line=line, points=off)]))
    assert heights(moved, "--c1")[0] != heights(moved, "--c1")[-1]


def test_panels_are_of_one_size_and_one_scale() -> None:
    """Whatever their labels: else equal slopes would not look equal."""
    line = [(1.0, 2.0), (100.0, 200.0)]
    panels = [Panel(title="t", about="", curves=[Curve(label=one, line=line)]) for one in ("U", "norm_gain")]
    first, second = ElementTree.fromstring(figure(panels)).iter("svg")
    assert first.attrib["viewBox"] == second.attrib["viewBox"]
    assert heights(first, "--c1") == heights(second, "--c1")
    paths = [[one.attrib["d"] for one in root.iter("path")] for root in (first, second)]
    assert paths[0] == paths[1]
    alone = ElementTree.fromstring(figure(panels[:1]))
    assert [one.attrib["d"] for one in alone.iter("path")] != paths[0]


def test_an_interval_that_comes_near_0_runs_off_the_edge() -> None:
    root = drawn(Panel(title="t", about="", curves=[Curve(label="", points=[(1.0, 2.0, -1.0, 5.0)])]))
    assert all(0 <= y <= 190 for row in heights(root, "--c1") for y in row)


def test_a_panel_without_curves_says_why() -> None:
    assert "exactly 0" in figure([Panel(title="t", about="", curves=[], note="exactly 0")])


def test_words_are_escaped() -> None:
    text = figure([Panel(title="<b>", about="a & b", curves=[Curve(label="<i>", line=[(1.0, 1.0), (2.0, 2.0)])])])
    assert "<b>" not in text
    assert "<i>" not in text
    assert "a &amp; b" in text


def test_labels_do_not_meet() -> None:
    assert spread([10, 11, 12], 12, 100) == [10, 22, 34]
    assert spread([90, 95, 100], 12, 100) == [76, 88, 100]
    assert spread([1, 50], 12, 100) == [1, 50]
    assert spread([], 12, 100) == []


@pytest.mark.parametrize(
    ("value", "text"), [(0.01, "0.01"), (5.0, "5"), (1000.0, "1,000"), (1e6, "10⁶"), (2e-5, "2·10⁻⁵"), (1e9, "10⁹")]
)
def test_ticks_are_short(value: float, text: str) -> None:
    assert tick_label(value) == text


# ---------------------------------------------------------------- by scheme


def test_every_scheme_and_optimizer_has_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_of_transformers", "_of_stacks"):
        monkeypatch.setattr(scheme_figures, name, lambda *of: of)
    every = scheme_figures.by_scheme()
    assert [one.scheme for one in every] == list(SCHEMES)
    for one in every:
        assert one.transformers == one.stacks == {by: (one.scheme, by) for by in OPTIMIZERS}


@pytest.mark.parametrize("name", fast(SCHEMES, DRAWN))
def test_figures_of_a_scheme_are_small_named_and_of_one_table(name: str) -> None:
    for each in (*found(name).transformers.values(), *found(name).stacks.values()):
        assert len(each.svg) < MOST
        check_colours(each.svg)
        panels = list(ElementTree.fromstring(each.svg).iter("svg"))
        assert len(panels) >= 2
        assert all(panel.attrib["role"] == "img" and panel.findtext("title") for panel in panels)
        assert len({tuple(row) for row in each.rows}) == 1


@pytest.mark.parametrize("name", fast(SCHEMES, DRAWN))
def test_ratios_are_those_of_the_page(name: str) -> None:
    """TRANSFORMERS.md prints the update's, of every scheme and optimizer."""
    text = PAGE.read_text(encoding="utf-8").replace("**", "")
    for optimizer, each in found(name).transformers.items():
        row = next(row for row in each.rows if row["role"] == "update")
        ratios = [cell for head, cell in row.items() if head.startswith("ratio")]
        cells = ["-" if cell == "0, as predicted" else cell for cell in ratios]
        ends = [row["U(1) predicted"], row["U(16) predicted"]]
        line = " | ".join([name, optimizer, *ends, *cells])
        assert f"| {line} |" in text


def test_lines_are_predictions() -> None:
    for n, value in stacks("sub-ln", "adam").lines["update"]:
        assert value == predict("sub-ln", "adam", int(n)).update
    law = transformers("deepnorm", "adam").law
    assert law is not None
    assert law.updates[1000] > 25 * law.updates[1]


@pytest.mark.parametrize("name", fast(("rezero", "skipinit"), DRAWN))
def test_what_is_0_says_so(name: str) -> None:
    for each in (*found(name).transformers.values(), *found(name).stacks.values()):
        assert "exactly 0" in each.svg
        assert "exactly 0" in each.caption
        assert each.rows[0]["role"] == "update"
        assert all(cell in ("0", "0, as predicted") for cell in list(each.rows[0].values())[1:])
    assert "exactly 0" not in found("post-ln").transformers["sgd"].caption


# ---------------------------------------------------------------- by claim

PRINTED = [(id_, part) for id_, one in claims().items() for part in one.parts if isinstance(part.statement, Growth)]
BOUNDED = [part for one in claims().values() for part in one.parts if isinstance(part.statement, Inequality)]


def drift(statement: Growth, order: Expr) -> float:
    """By what power of L the exact update leaves the printed order, over the last decade that is drawn."""
    exact = [(float(n), predict(statement.scheme, statement.optimizer, n).update) for n in DEPTHS[-2:]]
    (x, y), (u, v) = order_through(order, exact[0], [n for n, _ in exact])
    return math.log((exact[1][1] / v) / (exact[0][1] / y)) / math.log(u / x)


def test_a_right_order_stays_parallel() -> None:
    shown = [
        part.statement
        for _, part in PRINTED
        if type(part.statement) is Growth
        and not part.statement.is_upper
        and part.expected is Verdict.CONFIRMED
        and (part.statement.activation, part.statement.norm_kind) == ("relu", "layernorm")
    ]
    assert len(shown) > 10
    for statement in shown:
        assert abs(drift(statement, statement.order)) < 0.01
        assert abs(drift(statement, statement.order * L ** Rational(1, 4))) > 0.2


@pytest.mark.parametrize("id_", fast(dict.fromkeys(id_ for id_, _ in PRINTED), ORDERED))
def test_printed_orders_have_a_figure(id_: str) -> None:
    figures = [one for one in for_claim(id_) if one.title.startswith("Printed order")]
    rows = [row for one in figures for row in one.rows]
    parts = {part.statement.text for other, part in PRINTED if other == id_}
    assert len(rows) == len(parts)
    for one in figures:
        check_colours(one.svg)
        assert len(one.svg) < MOST


def test_one_sees_that_sub_ln_leaves_the_logarithm() -> None:
    rows = {row["network"]: row for row in for_claim("S3-10")[0].rows}
    row = rows["sub-ln, relu, LayerNorm, sgd"]
    exact, printed = (float(row[name].split(" to ")[1]) for name in ("exact update", "printed order, from there"))
    assert exact > 100 * printed
    right = rows["sub-ln, relu, RMSNorm, sgd"]
    exact, printed = (float(right[name].split(" to ")[1]) for name in ("exact update", "printed order, from there"))
    assert exact < 1.2 * printed


def test_bounds_hold_or_fail_as_the_claims_say() -> None:
    """What is drawn shows it; half of a bound that holds is seen to fail."""
    assert len(BOUNDED) > 10
    for part in BOUNDED:
        assert isinstance(part.statement, Inequality)
        seen = against_bound(part.statement)
        assert (seen.first_above is not None) == (part.expected is Verdict.REFUTED), part.name
    holds = next(part.statement for part in BOUNDED if part.expected is Verdict.CONFIRMED)
    assert isinstance(holds, Inequality)
    assert against_bound(holds.with_(bound=holds.bound / 2)).first_above is not None


def test_the_bound_of_sub_ln_is_passed_at_11_sublayers() -> None:
    row = next(row for row in for_claim("S2-13")[1].rows if row["part"] == "equal gains, relu, LayerNorm")
    assert row["update above the bound"] == "from L = 11 here"


def test_claims_of_training_have_its_figures() -> None:
    names = {name for several in OF_EXPERIMENT.values() for name in several}
    assert names == set(training()) == {path.stem for path in FIGURES.glob("training-*.svg")}
    shown = {id_: training_names(one) for id_, one in claims().items()}
    assert shown["S3-49"] == ["training-predicts", "training-rates"]
    assert shown["S3-42"] == ["training-warmup"]
    assert shown["S1-50"] == ["training-thousand"]
    assert "training-own-row" in shown["S1-49"]
    assert not shown["S1-24"]
    for id_ in ("S3-49", "S1-50"):
        assert [one.title for one in for_claim(id_)] == [training()[name].title for name in shown[id_]]


def test_most_claims_have_no_figure() -> None:
    assert for_claim("S1-24") == []
    with pytest.raises(KeyError):
        for_claim("S9-99")


# ---------------------------------------------------------------- matplotlib's

SMALL = (
    '<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
    'width="72pt" height="36pt" viewBox="0 0 72 36"><defs><path id="m1" d="M 1.23456 2"/></defs>'
    '<g id="a" clip-path="url(#m1)"><use xlink:href="#m1" style="fill: #000000; stroke: #D55E00"/>{}</g></svg>'
)


def references(svg: Markup) -> tuple[set[str], set[str]]:
    """The ids that are there, and those that are meant."""
    return set(re.findall(r'\bid="([^"]+)"', svg)), set(re.findall(r'(?:href="|url\()#([^")]+)', svg))


def test_a_figure_becomes_part_of_the_page() -> None:
    svg = themed(SMALL.format(""), "one", title="a < b")
    assert "<title>a &lt; b</title>" in svg
    assert 'role="img"' in svg
    assert references(svg) == ({"one-m1", "one-a"}, {"one-m1"})
    assert "fill: var(--ink); stroke: var(--c1)" in svg
    assert "M 1.2 2" in svg
    assert "<?xml" not in svg


@pytest.mark.parametrize("name", sorted(path.stem for path in FIGURES.glob("training-*.svg")))
def test_figures_of_training_follow_the_theme(name: str) -> None:
    text = (FIGURES / f"{name}.svg").read_text(encoding="utf-8")
    svg, other = themed(text, "one"), themed(text, "two")
    check_colours(svg)
    assert len(svg) < len(text)
    ids, meant = references(svg)
    assert meant <= ids
    assert not ids & references(other)[0]
    assert "<style" not in svg
    assert ElementTree.fromstring(svg).tag == "svg"


@pytest.mark.parametrize("inside", ["<script/>", '<foreignObject width="1"/>', '<image href="x.png"/>'])
def test_what_no_figure_of_ours_has_is_refused(inside: str) -> None:
    with pytest.raises(ValueError, match="a figure has no"):
        themed(SMALL.format(inside), "one")


def test_a_colour_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="no colour"):
        themed(SMALL.format('<path d="M 0 0" style="fill: #123456"/>'), "one")
