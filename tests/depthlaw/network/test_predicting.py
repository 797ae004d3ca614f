"""``depthlaw.predict`` answers what the command does, of stacks, of Transformers and of published models."""

from collections.abc import Callable
from typing import Any

import pytest

from depthlaw import advise, audit, predict
from tests.command import document, options

CASES: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"scheme": "sub-ln", "optimizer": "sgd", "num_sublayers": 6},
        options(scheme="sub-ln", sublayers=6, optimizer="sgd"),
    ),
    (
        {"scheme": "pre-ln", "optimizer": "adam", "layers": 2, "num_tokens": 4, "width": 64, "num_heads": 4},
        [*options(scheme="pre-ln", optimizer="adam", layers=2, tokens=4, width=64, heads=4), "--attention"],
    ),
    (
        {"scheme": "deepnorm", "optimizer": "sgd", "layers": (2, 3), "num_tokens": 3},
        [
            *options(scheme="deepnorm", optimizer="sgd", layers=2, decoder_layers=3, tokens=3, arch="encoder-decoder"),
            "--attention",
        ],
    ),
    (
        {"recipe": "gpt2", "optimizer": "adamw", "layers": 2, "width": 64},
        options(recipe="gpt2", optimizer="adamw", layers=2, width=64),
    ),
]


@pytest.mark.parametrize(("question", "command"), CASES)
def test_python_and_the_command_give_one_number(question: dict[str, Any], command: list[str]) -> None:
    (row,) = document("predict", *command)["rows"]
    found = predict(**question)
    assert found.update == pytest.approx(row["update"], rel=1e-12)
    assert found.roles == pytest.approx(row["roles"], rel=1e-12)
    assert "\n" not in repr(found) and len(repr(found)) < 80


@pytest.mark.parametrize(
    ("question", "says"),
    [
        ({"scheme": "pre-ln", "num_sublayers": 4}, "optimizer is wanted"),
        ({"optimizer": "sgd", "num_sublayers": 4}, "give one of scheme and recipe"),
        ({"scheme": "pre-ln", "optimizer": "sgd"}, "give one of layers and num_sublayers"),
        ({"scheme": "pre-ln", "optimizer": "sgd", "num_sublayers": 4, "width": 8}, "width is of a Transformer"),
        (
            {"scheme": "gpt2", "optimizer": "sgd", "num_sublayers": 4, "width": 8},
            "recipe=.gpt2. is the published model",
        ),
        ({"recipe": "gpt2", "optimizer": "adamw"}, "layers is wanted"),
        ({"recipe": "gpt2", "optimizer": "adamw", "layers": 2, "activation": "silu"}, "activation does not go with"),
        ({"recipe": "gpt2", "optimizer": "adamw", "layers": 2, "arch": "encoder"}, "is of decoder kind"),
    ],
)
def test_what_has_no_answer_is_refused_in_one_line(question: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says) as refused:
        predict(**question)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: predict("pre-ln", "adam", layers=2, d_model=64), "predict takes no d_model: .* it is width here"),
        (
            lambda: advise(scheme="pre-ln", from_layers=2, layers=4, d_model=64),
            "advise takes no d_model: .* it is width",
        ),
        (lambda: audit(hf="gpt2", num_seeds=1), "audit takes no num_seeds: .* it is seeds here"),
        (lambda: advise(scheme="pre-ln", from_layers=2, layers=4, width=64, num_layers=4), "it is layers here"),
    ],
)
def test_python_has_the_words_of_the_command_line(ask: Callable[[], Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        ask()
