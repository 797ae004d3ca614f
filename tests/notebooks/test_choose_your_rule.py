"""Notebook 8 with other models in its settings: what it then prints is what ``advise`` says of them."""

import re
from typing import Any

import pytest

from depthlaw.advice.advice import advise
from tests.notebooks.here import code, shown
from tests.often import often

NAME = "08_choose_your_rule"
BLOCK = {"NUM_LAYERS": 4, "FROM_LAYERS": 2, "D_MODEL": 64, "NUM_HEADS": 4}
TOKENS = 4
"""Of the notebook's fast mode."""
CASES = [
    {"RECIPE": None, "SCHEME": "pre-ln", "OPTIMIZER": "sgd", "ARCHITECTURE": "encoder", "ACTIVATION": "relu"},
    {"RECIPE": None, "SCHEME": "sub-ln", "OPTIMIZER": "lars", "ACTIVATION": "silu", "NORM_KIND": "rmsnorm"},
    {"RECIPE": None, "SCHEME": "gpt2", "OPTIMIZER": "lamb", "ACTIVATION": "swiglu"},
    {"RECIPE": "llama-3", "OPTIMIZER": "muon+adamw"},
]


def with_settings(settings: dict[str, Any]) -> list[str]:
    """The notebook's cells."""
    [settings_cell] = [cell for cell in code(NAME) if cell.startswith("SCHEME")]
    changed = settings_cell
    for name, value in settings.items():
        changed, count = re.subn(rf"^{name} = \S+", f"{name} = {value!r}", changed, flags=re.MULTILINE)
        assert count == 1, name
    return [changed if cell == settings_cell else cell for cell in code(NAME)]


def rows_of(said: str, header: str) -> dict[str, list[str]]:
    """The cells of the table whose header starts so, by the first of each row."""
    lines = said[said.index(f"| {header} |") :].split("\n\n", maxsplit=1)[0].splitlines()[2:]
    cells = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {first: rest for first, *rest in cells}


@pytest.mark.parametrize("case", often(CASES, len(CASES)))
def test_what_it_prints_is_what_advise_says_of_the_model_that_was_asked_for(case: dict[str, Any]) -> None:
    outputs = shown(with_settings(BLOCK | case), NAME)
    said = "\n\n".join(output["text/markdown"] for output in outputs if "text/markdown" in output)
    block: dict[str, Any] = {"recipe": case["RECIPE"]}
    if case["RECIPE"] is None:
        names = {"scheme": "SCHEME", "arch": "ARCHITECTURE", "activation": "ACTIVATION", "norm_kind": "NORM_KIND"}
        defaults = {"ARCHITECTURE": "decoder", "ACTIVATION": "gelu", "NORM_KIND": "layernorm"}
        block = {name: (defaults | case)[setting] for name, setting in names.items()} | {"num_heads": 4}
        block["is_causal"] = block["arch"] == "decoder"
    advice = advise(optimizer=case["OPTIMIZER"], from_layers=2, layers=4, d_model=64, num_tokens=TOKENS, **block)
    factors = {role: float(cells[0]) for role, cells in rows_of(said, "role").items()}
    assert factors == pytest.approx(dict(advice.factors), rel=1e-3)
    assert [*rows_of(said, "remedy")] == [remedy.name for remedy in advice.remedies]
    snippet = said[said.index("```python") :].split("```")[1].partition("\n")[2]
    assert snippet.strip() == "\n".join(advice.code(advice.remedies[0])).strip()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"FROM_LAYERS": 48}, "equal depths"),
        ({"RECIPE": None, "SCHEME": "pre-ln", "D_MODEL": 1000}, "not a multiple of num_heads 16"),
        ({"RECIPE": None, "SCHEME": "preln"}, "did you mean pre-ln"),
        ({"OPTIMIZER": "adafacto"}, "did you mean adafactor"),
    ],
)
def test_settings_that_it_cannot_serve_are_refused_in_one_line(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says) as refused:
        shown(with_settings(settings)[:3], NAME)
    assert "\n" not in str(refused.value)
