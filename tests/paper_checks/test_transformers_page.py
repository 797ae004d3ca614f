"""TRANSFORMERS.md is what the records, the kept predictions and the kept laws say; a number that is off is named."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from depthlaw.network.network import Network
from depthlaw.paper_checks.experiments.compared import Compared, limit, width_fit
from depthlaw.paper_checks.experiments.kernel_kept import Number
from depthlaw.paper_checks.pages import transformers
from depthlaw.paper_checks.pages.drawing import svg
from depthlaw.paper_checks.pages.transformers import LAYERS, NARROW, WIDE, study
from depthlaw.sims.records import record
from depthlaw.sims.stats import holds
from depthlaw.system.places import FIGURES, RECORDS
from depthlaw.theory.kernel.predict import REPLICATES
from depthlaw.theory.schemes import scheme
from tests.near import is_same_picture


@pytest.mark.wide
def test_page_and_figures_are_in_step() -> None:
    assert transformers.PAGE.read_text(encoding="utf-8") == transformers.page(study())
    drawn = {name: svg(one) for name, one in transformers.drawings(study().cells).items()}
    kept = {path.stem: path.read_text(encoding="utf-8") for path in FIGURES.glob("transformers-*.svg")}
    assert drawn.keys() == kept.keys()
    assert [name for name, text in drawn.items() if not is_same_picture(text, kept[name])] == []


# ---------------------------------------------------------------- numbers, by hand


def values_of(network: Network, optimizer: str, quantity: str) -> list[float]:
    """Straight from the file."""
    config = record.plain(network.named(optimizer))
    lines = map(json.loads, (RECORDS / "transformers.jsonl").read_text(encoding="utf-8").splitlines())
    return [x for line in lines if line["config"] == config for x in line["values"][quantity]]


HAND = [
    ("deepnorm", "sgd", 4, "update", 0),
    ("gpt2", "adam", 2, "norm_gain", 1),
    ("t-fixup", "lamb", 8, "embedding", 0.5),
]


@pytest.mark.parametrize(("name", "optimizer", "layers", "role", "power"), HAND)
def test_ratios_are_of_the_record(name: str, optimizer: str, layers: int, role: str, power: float) -> None:
    network = Network(scheme=scheme(name), arch="encoder", num_sublayers=2 * layers, d_model=WIDE, num_heads=8)
    cell = study().cells[name, optimizer, layers, WIDE]
    values = np.array(values_of(network, optimizer, role)) * WIDE**power / cell.predicted[role].value
    shown = cell.estimates[role]
    assert shown.mean == pytest.approx(values.mean(), rel=1e-9)
    error = np.array([values.std(ddof=1) / math.sqrt(len(values)), shown.mean * cell.predicted[role].error])
    degrees = (error**2).sum() ** 2 / (error**4 / [len(values) - 1, REPLICATES - 1]).sum()
    half = scipy_stats.t.ppf(0.975, degrees) * np.hypot(*error)
    assert [shown.low, shown.high] == pytest.approx([values.mean() - half, values.mean() + half], rel=1e-9)


# ---------------------------------------------------------------- intervals, limits and terms on numbers that are known


def made(layers: int, width: int, *, slope: float, offset: float) -> Compared:
    """ratio = 1 + offset / d + slope 2N / d, with some scatter of mean 0."""
    network = Network(scheme=scheme("pre-ln"), arch="encoder", num_sublayers=2 * layers, d_model=width, num_heads=8)
    noise = np.random.default_rng(layers * width).normal(0, 1e-3, 8)
    values = 1 + (offset + slope * 2 * layers) / width + noise - noise.mean()
    ratios = {"update": dict(enumerate(values.tolist()))}
    return Compared(network=network, optimizer="sgd", predicted={"update": Number(2.0, 0.0)}, ratios=ratios)


def test_limits_and_terms() -> None:
    cells = [made(n, d, slope=0.5, offset=-2.0) for n in LAYERS for d in (WIDE, NARROW)]
    fit = width_fit(cells)
    assert [fit.slope.mean, fit.offset.mean] == pytest.approx([0.5, -2.0])
    assert holds(fit.slope, 0.5)
    assert not holds(fit.slope, 1.0)
    assert limit(cells[-2], cells[-1]).mean == pytest.approx(1)
    assert holds(limit(cells[-2], cells[-1]))
    assert not holds(cells[-2].estimates["update"])
    with pytest.raises(ValueError, match="two depths"):
        width_fit(cells[:2])
