"""What the report's figures draw is what theory predicts, what is kept and what is recorded, of their own network."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest
from sympy import Rational

from paper_checks.claims.claim import Claim
from paper_checks.claims.statements import Growth
from paper_checks.experiments.kernel_kept import read
from paper_checks.experiments.kernel_laws import LAWS, LENGTHS, measured, network_of
from paper_checks.experiments.sweeps import LENGTHS as STACK_LENGTHS
from paper_checks.experiments.sweeps import OPTIMIZERS, SWEEPS
from paper_checks.lowering.networks import Network
from paper_checks.pages import scheme_figures
from paper_checks.pages.drawing import Interval, Panel
from paper_checks.pages.transformers.text import LAYERS, WIDE
from paper_checks.papers.registry import claims
from paper_checks.report import claim_figures
from paper_checks.routes.kernel import InTransformer
from paper_checks.system.places import RECORDS
from tests.paper_checks.report_pages import DRAWN, ORDERED, fast, figures_of
from theory.meanfield.setting import Setting
from theory.meanfield.update import predict
from theory.schemes import SCHEMES, scheme
from theory.symbols import L

UPDATE = "update"
FILES = {True: RECORDS / "transformers.jsonl", False: RECORDS / "ffn-stacks.jsonl"}
"""Of real Transformers, and of stacks."""


# ---------------------------------------------------------------- numbers that no figure has touched


@cache
def records(*, is_real: bool) -> Mapping[tuple[str, str, int], Mapping[str, Sequence[float | None]]]:
    """The values of all seeds at d = WIDE, by scheme, optimizer and sublayers."""
    found: dict[tuple[str, str, int], dict[str, list[float | None]]] = {}
    for line in FILES[is_real].read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        config = run["config"]
        assert (config["activation"], config["norm_kind"]) == ("relu", "layernorm")
        if config["d_model"] == WIDE:
            there = found.setdefault((config["scheme"], config["optimizer"], config["num_sublayers"]), {})
            for role, values in run["values"].items():
                there.setdefault(role, []).extend(values)
    return found


@cache
def means(name: str, optimizer: str, role: str, *, is_real: bool) -> dict[int, float]:
    """By sublayers, the mean over seeds of what is recorded, in the unit of the prediction."""
    arch = "encoder" if is_real else "ffn"
    found = {}
    for (other, by, length), values in records(is_real=is_real).items():
        there = values.get(role, [None])
        if (other, by) == (name, optimizer) and None not in there:
            network = Network(scheme=scheme(name), num_sublayers=length, d_model=WIDE, arch=arch)
            unit = 1.0 if role == UPDATE else WIDE ** network.role_power(optimizer, role)
            found[length] = unit * fmean(value for value in there if value is not None)
    return found


@cache
def kept_laws() -> Any:
    return read(LAWS)


@cache
def kept_measured() -> Any:
    return measured()


def exact_line(statement: Growth) -> dict[int, float]:
    """By sublayers, from where the figure begins."""
    activation, norm_kind, by = statement.activation, statement.norm_kind, statement.optimizer
    if isinstance(statement, InTransformer):
        networks = {2 * n: network_of(statement.scheme, n, activation=activation, norm_kind=norm_kind) for n in LENGTHS}
        found = {n: kept_laws().find(one, by).by_optimizer[by][statement.role].value for n, one in networks.items()}
        return {n: value for n, value in found.items() if n >= claim_figures.FROM}
    found = {
        n: predict(statement.scheme, by, n, activation=activation, norm_kind=norm_kind).update
        for n in claim_figures.DEPTHS
    }
    return {n: value for n, value in found.items() if 0 < value < claim_figures.MOST}


# ---------------------------------------------------------------- by claim


def printed(found: Claim) -> list[Growth]:
    """Its printed orders as its figures have them: each once, those of real Transformers last."""
    every = {part.statement.text: part.statement for part in found.parts if isinstance(part.statement, Growth)}
    return sorted(every.values(), key=lambda one: isinstance(one, InTransformer))


PRINTED = {id_: some for id_, one in claims().items() if (some := printed(one))}


def panels_of(id_: str, monkeypatch: pytest.MonkeyPatch) -> list[Panel]:
    """What ``for_claim`` gives to be drawn of its printed orders."""
    found: list[Panel] = []
    with monkeypatch.context() as patch:
        patch.setattr(claim_figures, "inline", lambda drawing: found.extend(drawing.panels) or "")
        patch.setattr(claim_figures, "_bounds", lambda _: ())
        patch.setattr(claim_figures, "training_names", lambda _: [])
        claim_figures.for_claim(id_)
    return found


def wrong(statement: Growth, panel: Panel) -> list[str]:
    """What a panel draws that is not its statement's."""
    exact, order = panel.curves
    wanted = exact_line(statement)
    role = statement.role if isinstance(statement, InTransformer) else UPDATE
    found = []
    if any(word not in panel.title for word in (statement.scheme, statement.activation, statement.optimizer)):
        found.append("title")
    if not is_near(dict(exact.line), wanted):
        found.append("predicted")
    start = min(wanted)
    at = {n: float(statement.order.subs(L, n).evalf(17)) for n in wanted}
    if not is_near(dict(order.line), {n: wanted[start] * value / at[start] for n, value in at.items()}):
        found.append("printed")
    recorded = {}
    if (statement.activation, statement.norm_kind) == ("relu", "layernorm") and statement.optimizer in OPTIMIZERS:
        is_real = isinstance(statement, InTransformer)
        recorded = means(statement.scheme, statement.optimizer, role, is_real=is_real)
        recorded = {n: value for n, value in recorded.items() if n >= claim_figures.FROM}
    if not is_near({x: y for x, y, *_ in exact.points}, recorded):
        found.append("recorded")
    if any(low is None or high is None or not low < y < high for _, y, low, high in exact.points):
        found.append("interval")
    return found


def is_near(found: Mapping[float, float], wanted: Mapping[int, float]) -> bool:
    return found.keys() == wanted.keys() and all(math.isclose(found[n], wanted[n], rel_tol=1e-9) for n in wanted)


def faults(id_: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    pairs = zip(PRINTED[id_], panels_of(id_, monkeypatch), strict=True)
    return [f"{statement.text}: {one}" for statement, panel in pairs for one in wrong(statement, panel)]


@pytest.mark.parametrize("id_", fast(PRINTED, ORDERED))
def test_figures_of_claims_are_of_their_statements(id_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults(id_, monkeypatch) == []


def test_many_have_points_and_many_are_of_other_networks() -> None:
    every = [one for some in PRINTED.values() for one in some]
    assert {one.optimizer for one in every} == set(OPTIMIZERS)
    assert {one.norm_kind for one in every} == {"layernorm", "rmsnorm"}
    assert {"relu", "gelu"} < {one.activation for one in every}
    assert {one.role for one in every if isinstance(one, InTransformer)} == {UPDATE, "norm_gain"}


_real_law, _real_through = claim_figures.law, claim_figures.order_through
MUTANTS: dict[str, tuple[str, str, str, Any]] = {
    "sgd for all": (
        "S1-49",
        "predicted",
        "Setting",
        SimpleNamespace(of=lambda name, _, *rest: Setting.of(name, "sgd", *rest)),
    ),
    "the update for every role": (
        "S3-12",
        "predicted",
        "law",
        lambda statement: SimpleNamespace(of=lambda _: _real_law(statement).of()),
    ),
    "records of SGD for all": (
        "S1-41",
        "recorded",
        "stacks",
        lambda name, _: scheme_figures.stacks(name, "sgd"),
    ),
    "an order with another power": (
        "S2-12",
        "printed",
        "order_through",
        lambda order, *rest: _real_through(order * L ** Rational(1, 50), *rest),
    ),
}
"""One of what is predicted, of a role, of what is recorded and of what is printed."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_figure_of_another_network_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    id_, said, replaced, mutant = MUTANTS[name]
    monkeypatch.setattr(claim_figures, replaced, mutant)
    assert any(line.endswith(said) for line in faults(id_, monkeypatch))


# ---------------------------------------------------------------- by scheme


@cache
def drawn(name: str) -> scheme_figures.SchemeFigures:
    return figures_of(name)[0]


@cache
def predicted(name: str, optimizer: str, depth: int, *, is_real: bool) -> Mapping[str, float]:
    """By role: of a stack of L sublayers, or of a Transformer of N layers as it is measured."""
    if is_real:
        network = next(one for one in _networks() if (one.scheme.name, one.num_sublayers) == (name, 2 * depth))
        kept = kept_measured().find(network, optimizer).by_optimizer[optimizer]
        return {role: one.value for role, one in kept.items()}
    found = predict(name, optimizer, depth)
    return {UPDATE: found.update, **found.roles}


@cache
def _networks() -> list[Network]:
    return [one for one in SWEEPS["transformers"].networks if one.d_model == WIDE]


def ends(name: str, optimizer: str, role: str, *, is_real: bool) -> str:
    """What a drawing says of a line: its first and its last point, with infinitely large heads where it goes deeper."""
    if is_real:
        beyond = ((n, kept_laws().find(network_of(name, n), optimizer).by_optimizer[optimizer]) for n in LENGTHS)
        points = [(n, one[role].value) for n, one in beyond]
        points += [(n, predicted(name, optimizer, n, is_real=True)[role]) for n in LAYERS]
    else:
        depths = (*STACK_LENGTHS, *scheme_figures.DEEPER)
        points = [(n, predicted(name, optimizer, n, is_real=False)[role]) for n in depths]
    (x, low), (deep, high) = min(points), max(points)
    return f"{role}: predicted {low:.3g} at {x}, {high:.3g} at {deep:,}"


def wrong_rows(name: str, optimizer: str, found: scheme_figures.Figure, *, is_real: bool) -> list[str]:
    """Cells of a figure's table, and ends of its drawn lines, that are not what is predicted or recorded."""
    depths = LAYERS if is_real else STACK_LENGTHS
    letter, step = ("N", 2) if is_real else ("L", 1)
    values = {n: predicted(name, optimizer, n, is_real=is_real) for n in depths}
    bad = []
    roles = [row["role"] for row in found.rows]
    if set(roles) != set(values[depths[0]]):
        bad.append(f"roles {roles}")
    for row in found.rows:
        role = row["role"]
        recorded = means(name, optimizer, role, is_real=is_real)
        for n in (depths[0], depths[-1]):
            if row[f"U({n}) predicted"] != f"{values[n][role]:.4g}":
                bad.append(f"{role} at {n}")
        for n in depths:
            cell, mean, theory = row[f"ratio, {letter} = {n}"], recorded.get(step * n), values[n][role]
            wanted = "0, as predicted" if theory == 0 else "-" if mean is None else f"{mean / theory:.3f}"
            if cell.partition(" [")[0] != wanted:
                bad.append(f"{role}, ratio at {n}: {cell}, {wanted}")
        is_drawn = any(one[role] for one in values.values())
        if is_drawn and ends(name, optimizer, role, is_real=is_real) not in found.svg:
            bad.append(f"{role}, drawn")
    return bad


def wrong_scheme(name: str, *, is_real: bool) -> list[str]:
    of = drawn(name)
    figures = of.transformers if is_real else of.stacks
    return [f"{by}: {one}" for by in OPTIMIZERS for one in wrong_rows(name, by, figures[by], is_real=is_real)]


@pytest.mark.parametrize("is_real", [False, True], ids=["stacks", "transformers"])
@pytest.mark.parametrize("name", fast(SCHEMES, DRAWN))
def test_figures_of_schemes_are_predicted_and_recorded(name: str, is_real: bool) -> None:
    """Rows, lines and points."""
    assert wrong_scheme(name, is_real=is_real) == []
    of = scheme_figures.transformers if is_real else scheme_figures.stacks
    assert [fault for by in OPTIMIZERS for fault in wrong_lines(name, by, of(name, by), is_real=is_real)] == []


def wrong_lines(name: str, by: str, found: scheme_figures.Beside, *, is_real: bool) -> list[str]:
    step, bad = 2 if is_real else 1, []
    for role, line in found.lines.items():
        if any(y != predicted(name, by, int(n), is_real=is_real)[role] for n, y in line):
            bad.append(f"{role}, line")
        recorded = means(name, by, role, is_real=is_real)
        points: Sequence[Interval] = found.points(role)
        if not all(math.isclose(y, recorded[step * int(n)], rel_tol=1e-6) for n, y, *_ in points):
            bad.append(f"{role}, points")
    return bad


@pytest.mark.parametrize("is_real", [False, True], ids=["stacks", "transformers"])
@pytest.mark.parametrize(
    ("name", "by", "other"),
    [("pre-ln", "adam", ("post-ln", "adam")), ("deepnorm", "sgd", ("deepnorm", "adam"))],
    ids=["another scheme", "another optimizer"],
)
def test_a_figure_of_another_scheme_or_optimizer_is_seen(
    name: str, by: str, other: tuple[str, str], is_real: bool
) -> None:
    of = drawn(other[0])
    figure = (of.transformers if is_real else of.stacks)[other[1]]
    assert wrong_rows(name, by, figure, is_real=is_real)
    beside = (scheme_figures.transformers if is_real else scheme_figures.stacks)(*other)
    assert wrong_lines(name, by, beside, is_real=is_real)
