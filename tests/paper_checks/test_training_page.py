"""TRAINING.md is what the records of training say; what is not in them is said to be missing."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import pytest

from depthlaw.advice.records import GAINS
from depthlaw.network.trials import Trial
from depthlaw.paper_checks.experiments.stable_rates import GRID, LAYERS
from depthlaw.paper_checks.pages.drawing import svg
from depthlaw.paper_checks.pages.training import page as training
from depthlaw.paper_checks.pages.training.figures import drawings
from depthlaw.paper_checks.pages.training.page import stable_rates, summary
from depthlaw.paper_checks.pages.training.runs import Record, records
from depthlaw.system import places
from depthlaw.system.places import FIGURES
from tests import made_runs
from tests.made_runs import UPDATES, update
from tests.near import is_same_picture


@cache
def made() -> dict[str, Record]:
    """Three seeds of everything, the smaller the update the larger the rate."""
    return dict(made_runs.records())


def summary_with(**other: Record) -> str:
    names = {"rates": "stable-rates", "warm": "warmup", "best": "best-rates"}
    return summary(made() | {names[name]: record for name, record in other.items()})


def reverse(trial: Trial) -> float:
    """The smaller the update, the smaller the rate."""
    return 2.0 ** (-9.2 + math.log2(UPDATES.get(trial.scheme, 10.0)))


def line_of(text: str, start: str) -> list[str]:
    [line] = [line for line in text.splitlines() if line.startswith(f"| {start} |")]
    return line.strip("| ").split(" | ")


@pytest.fixture
def tables_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sections without their answers to the claims, which are most of their work, for tests of what stands below."""
    monkeypatch.setattr(training, "opening", lambda _: "")


KEPT = training.PAGE.read_text(encoding="utf-8")
LARGE_MODELS = KEPT[KEPT.index("## Large models, on paper") :].partition("## What is open, and what would decide it")[0]


@pytest.fixture
def without_large_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """That section plans the memory of models of a thousand layers, which is most of the page's work."""
    monkeypatch.setattr(training, "large_models", lambda: LARGE_MODELS)


@pytest.mark.slow
def test_the_section_on_large_models_is_in_step() -> None:
    assert training.large_models() == LARGE_MODELS


@pytest.mark.wide
@pytest.mark.usefixtures("without_large_models")
def test_page_and_figures_are_in_step() -> None:
    assert training.page(records()) == KEPT
    assert GAINS.read_text(encoding="utf-8") == training.gains_text(records())
    drawn = {name: svg(one) for name, one in drawings(records()).items() if not one.is_empty}
    kept = {path.stem: path.read_text(encoding="utf-8") for path in FIGURES.glob("training-*.svg")}
    assert drawn.keys() == kept.keys()
    assert [name for name, text in drawn.items() if not is_same_picture(text, kept[name])] == []


# ---------------------------------------------------------------- numbers, by hand


@pytest.mark.usefixtures("tables_alone")
def test_largest_rates_are_of_the_searches() -> None:
    cells = line_of(stable_rates(made()["stable-rates"], ""), "gpt deepnorm | 24")
    edge = max(rate for rate in GRID if rate < made_runs.as_claimed(Trial(scheme="deepnorm")))
    assert cells[4] == f"2^{math.log2(edge):.2f}"
    values = [update(Trial(scheme="deepnorm", seed=seed)) for seed in range(3)]
    assert cells[6] == f"{sum(values) / 3:.3g} ({min(values):.3g} to {max(values):.3g})"


@pytest.mark.usefixtures("tables_alone")
def test_an_edge_that_is_not_on_the_grid_is_said() -> None:
    low, high = (made_runs.record("stable-rates", 1, lambda trial, rate=rate: rate) for rate in (2.0**-20, 2.0**5))
    name = "gpt deepnorm | 24"
    assert line_of(stable_rates(low, ""), name)[4] == f"below 2^{math.log2(GRID[0]):g}"
    assert line_of(stable_rates(high, ""), name)[4] == "2^0.00 (1 of 1 not below 2^0)"
    ends = [drawings({**made(), "stable-rates": one})["training-rates"].panels[0].curves[0].ends for one in (low, high)]
    assert ends == [[-1] * len(LAYERS), [1] * len(LAYERS)]


@pytest.mark.wide
@pytest.mark.usefixtures("tables_alone")
def test_whether_the_update_predicts_the_rate() -> None:
    """Where the rates are as the updates say, where they are the other way round, and the pairs that say so."""
    along, against = made()["stable-rates"], made_runs.record("stable-rates", edge=reverse)
    for cases in training.cases_by_depth(along.book, "trains").values():
        ranks = training.correlation(cases)
        assert ranks is not None
        assert max(ranks[0].value, ranks[1].mean) < -0.9
        assert training.correlation(cases[:1]) is None
    assert not any(pair.agrees is False for pair in training.judged_pairs(along.book, "trains"))
    assert "mean a larger stable rate?\n\nOpen: of 63 pairs" in summary_with()
    assert "mean a larger stable rate?\n\nNo: of 63 pairs" in summary_with(rates=against)
    rows = stable_rates(against, "").partition("| smaller update (U)")[2].partition("\n\n")[0].splitlines()[2:]
    assert rows[0].split(" | ")[1:3] == ["su-adam (1.01)", "normformer (40.4)"]


# ---------------------------------------------------------------- what is missing


@pytest.mark.usefixtures("without_large_models")
def test_no_record_makes_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = {name: made_runs.nothing_of(one.experiment.name, one.scale) for name, one in made_runs.records().items()}
    text = training.page(nothing)
    assert "figures/" not in text
    assert text.count("in the record yet.)") == len(drawings(nothing))
    assert "From 0 training runs" in text
    monkeypatch.setattr(places, "TRAINING_RECORDS", tmp_path)
    assert Record.read("warmup").missing()
