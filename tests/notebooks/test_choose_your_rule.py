"""Notebook 8 with other models in its settings: what it then prints is what theory says of them."""

import ast
import math
import re
from itertools import combinations
from typing import Any, NamedTuple

import pytest
from matplotlib.figure import Figure

from paper_checks.lowering.networks import Network
from paper_checks.lowering.predicted_rows import exponents, predicted_row
from paper_checks.lowering.rule_document import NORMS
from paper_checks.pages.transformers.growth import FLAT
from tests.notebooks.here import code, shown
from theory.moments import ACTIVATIONS
from theory.optimizers import OPTIMIZERS
from theory.rules.check import rule_scheme
from theory.rules.solve import Rule, evaluate, solve_rule

NAME = "08_choose_your_rule"
MATRICES = ("q", "k", "v", "out", "fc1", "fc2")
D_MODEL, NUM_HEADS = 64, 4
TOKENS = 4
"""Of the notebook's fast mode."""


class Case(NamedTuple):
    """What is asked of the notebook."""

    placement: str
    optimizer: str
    arch: str
    activation: str = "relu"
    norm_kind: str = "layernorm"
    shallow: int = 2
    num_layers: int = 4

    @property
    def rule(self) -> Rule:
        return solve_rule(self.placement, self.optimizer, self.arch)

    @property
    def settings(self) -> dict[str, Any]:
        names = ("PLACEMENT", "OPTIMIZER", "ARCHITECTURE", "ACTIVATION", "NORM_KIND", "SHALLOW", "NUM_LAYERS")
        return dict(zip(names, self, strict=True), D_MODEL=D_MODEL, NUM_HEADS=NUM_HEADS)


FEW = (
    Case("pre", "sgd", "encoder", shallow=6, num_layers=13),
    Case("sub", "lars", "decoder", "silu", "rmsnorm"),
)
"""Each of the architectures and of the kinds of norm; with a gain that helps and with none that does; an activation
that scales and one that does not; a depth between the two that are asked for. The others are slow."""
CHOICES = [*OPTIMIZERS]
ARCHITECTURES, NORM_KINDS = ("encoder", "decoder"), ("layernorm", "rmsnorm")
CASES = [
    *FEW,
    *(
        Case(NORMS[i % 3], name, ARCHITECTURES[i % 2], [*ACTIVATIONS][(i + i // 6) % 6], NORM_KINDS[i // 2 % 2])
        for i, name in enumerate(CHOICES)
    ),
]
"""Every value that a setting may have is in some case; not every combination, of which there are some eight hundred."""


def settings_cell() -> str:
    [found] = [cell for cell in code(NAME) if cell.startswith("PLACEMENT")]
    return found


def test_comments_of_the_settings_list_every_value() -> None:
    words = set(re.findall(r"\w+", settings_cell()))
    assert {*NORMS, *CHOICES, *ARCHITECTURES, *ACTIVATIONS, *NORM_KINDS} <= words
    assert [set(column) for column in zip(*(case[:5] for case in CASES), strict=True)] == [
        {*NORMS},
        {*CHOICES},
        {*ARCHITECTURES},
        {*ACTIVATIONS},
        {*NORM_KINDS},
    ]


def colliding(figure: Figure) -> list[tuple[str, str]]:
    """Texts of a drawn figure that stand on one another, or over the edge."""
    texts = [text for axes in figure.axes for text in (*axes.texts, axes.title) if text.get_text()]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    pairs = [(one, two) for (one, here), (two, there) in combinations(boxes, 2) if here.overlaps(there)]
    edge = [(name, "edge") for name, box in boxes if box.x0 < 0 or box.x1 > figure.bbox.x1]
    return pairs + edge


def with_settings(settings: dict[str, Any]) -> list[str]:
    """The notebook's cells."""
    changed = settings_cell()
    for name, value in settings.items():
        changed, count = re.subn(rf"^{name} = \S+", f"{name} = {value!r}", changed, flags=re.MULTILINE)
        assert count == 1, name
    return [changed if cell == settings_cell() else cell for cell in code(NAME)]


def rows_of(said: str, header: str) -> dict[str, list[str]]:
    """The cells of the table whose header starts so, by the first of each row."""
    lines = said[said.index(f"| {header} |") :].split("\n\n", maxsplit=1)[0].splitlines()[2:]
    cells = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {first: rest for first, *rest in cells}


def predicted(case: Case, num_layers: int) -> dict[str, Any]:
    """Of the rule at one learning rate for all."""
    network = Network(
        scheme=rule_scheme(case.rule, case.rule.sides[0]),
        arch=case.arch,
        is_causal=case.arch == "decoder",
        num_sublayers=2 * num_layers,
        d_model=D_MODEL,
        num_heads=NUM_HEADS,
        activation=case.activation,
        norm_kind=case.norm_kind,
        num_tokens=TOKENS,
    )
    return {"num_sublayers": 2 * num_layers, **predicted_row(network.theory(case.optimizer))}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case in FEW else pytest.mark.slow, id="-".join(map(str, case))) for case in CASES],
)
def test_numbers_and_snippet_are_of_the_model_that_was_asked_for(case: Case) -> None:
    collisions: list[tuple[str, str]] = []
    found = shown(with_settings(case.settings), NAME, look=lambda figure: collisions.extend(colliding(figure)))
    assert not collisions
    said = "\n\n".join(one["text/markdown"] for one in found if "text/markdown" in one)
    letter = {"encoder": "N", "decoder": "M"}[case.arch]
    rule = evaluate(case.rule, **{letter: case.num_layers})[case.arch]
    gains = rule.init_gain or dict.fromkeys(MATRICES, 1.0)
    # What no gain can do, a learning rate over the order of the update does.
    own_rate = 1.0
    if rule.init_gain is None:
        own_rate = evaluate(case.rule, **{letter: case.shallow})[case.arch].update_order / rule.update_order

    chosen = rows_of(said, "what")
    assert float(chosen["residual weight"][0]) == pytest.approx(rule.residual_weight, rel=1e-3)
    every = {role: float(cells[0]) for what, cells in chosen.items() if "gain" in what for role in what[8:].split(", ")}
    assert every == pytest.approx(gains, rel=1e-3)

    depths = [case.shallow, *(n for n in (12, 24) if case.shallow < n < case.num_layers), case.num_layers]
    rows = [predicted(case, n) for n in depths]
    shallow, deep = rows[0]["roles"], rows[-1]["roles"]
    at_depth = {role: own_rate if role in MATRICES else 1.0 for role in deep}
    printed = {role: [float(cell) for cell in cells[1:3]] for role, cells in rows_of(said, "role").items()}
    assert printed.keys() == deep.keys()
    for role, (first, last) in printed.items():
        assert first == pytest.approx(shallow[role], rel=1e-3)
        assert last == pytest.approx(deep[role] * at_depth[role], rel=1e-3)
    updates = rows[0]["update"], rows[-1]["update"] * own_rate
    words = re.search(r"From (\d+) to (\d+) layers the matrices' update goes from ([\d.]+) to ([\d.]+)\s", said)
    assert words is not None
    assert [int(found) for found in words.groups()[:2]] == [case.shallow, case.num_layers]
    assert [float(found) for found in words.groups()[2:]] == pytest.approx(updates, rel=1e-2)

    snippet = said[said.index("```python") :].split("```")[1]
    assert float(re.findall(r"^ALPHA = (.+)$", snippet, re.MULTILINE)[0]) == pytest.approx(
        rule.residual_weight, rel=1e-5
    )
    assert ast.literal_eval(re.findall(r"^GAIN = (.+)$", snippet, re.MULTILINE)[0]) == pytest.approx(gains, rel=1e-5)
    rates = {role: float(rate) for role, rate in re.findall(r"#   (\w+): learning rate \* (\S+)", snippet)}
    wanted = {role: rate for role, rate in at_depth.items() if rate != 1}
    for role, power in exponents(rows).items():
        # at the rule's own learning rate, a power of the depth between the first and the last
        here = math.log(at_depth.get(role, 1.0)) / math.log(case.num_layers / case.shallow)
        if role != "update" and power is not None and power + here > FLAT:
            wanted[role] = shallow[role] / deep[role]
    assert wanted or case not in FEW
    assert rates == pytest.approx(wanted, rel=1e-2)


REFUSED = {
    "SHALLOW is 6 and NUM_LAYERS 6; needed: 1 <= SHALLOW < NUM_LAYERS": "NUM_LAYERS = 6",
    "D_MODEL is 1000, and has to be a multiple of NUM_HEADS, 16": "D_MODEL = 1000",
    "PLACEMENT is 'peri', and has to be one of: post, pre, sub": "PLACEMENT = 'peri'",
    "ARCHITECTURE is 'both', and has to be one of: decoder, encoder": "ARCHITECTURE = 'both'",
    "OPTIMIZER is 'adafacto', and has to be one of: sgd, momentum, adam, adamw, rmsprop, signsgd, lion, adafactor, "
    "lars, lamb, muon, sophia": "OPTIMIZER = 'adafacto'",
}


@pytest.mark.parametrize(("message", "changed"), REFUSED.items())
def test_settings_that_it_cannot_serve_are_refused_in_one_line(message: str, changed: str) -> None:
    imports, settings, check = code(NAME)[:3]
    with pytest.raises(ValueError) as refused:
        shown([imports, f"{settings}\n{changed}", check])
    assert str(refused.value) == message
