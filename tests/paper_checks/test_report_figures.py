"""The report's figures show the numbers that they are of, in the page's colours."""

from __future__ import annotations

import math
import re
from functools import cache
from xml.etree import ElementTree

import pytest
from sympy import Expr, Rational

from paper_checks.claims.claim import Verdict
from paper_checks.claims.statements import Growth
from paper_checks.experiments.sweeps import OPTIMIZERS
from paper_checks.pages import scheme_figures
from paper_checks.pages.scheme_figures import SchemeFigures
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
    for each in training().values():
        check_colours(each.svg)
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
