"""What the kernel rung refuses, each in one line that names what was wrong."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from theory.kernel.duals import dual
from theory.kernel.predict import Inputs, Sublayer, Transformer, predict_kernel, unit_power
from theory.kernel.update import functional_of
from theory.stack import SublayerKind

ONE = (Sublayer(kind=SublayerKind.FFN),)

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "placement": (lambda: Transformer(encoder=ONE, placement="middle"), "placement .* not 'middle'"),
    "norm_kind": (lambda: Transformer(encoder=ONE, norm_kind="batchnorm"), "norm_kind .* not 'batchnorm'"),
    "no sublayer": (lambda: Transformer(encoder=()), "at least one sublayer"),
    "cross": (lambda: Transformer(encoder=(Sublayer(kind=SublayerKind.CROSS),)), "cross stands in the decoder"),
    "num_tokens": (lambda: Inputs(num_tokens=0), "num_tokens is at least 1, not 0"),
    "batch_size": (lambda: Inputs(batch_size=-2), "batch_size is at least 1, not -2"),
    "too many": (lambda: Inputs(num_tokens=129, batch_size=2), "at most 256 tokens in all, not 2 x 129"),
    "correlation below": (lambda: Inputs(correlation=-0.1), "between 0 and 1, not at -0.1"),
    "correlation above": (lambda: Inputs(correlation=1.5), "between 0 and 1, not at 1.5"),
    "readout": (lambda: Inputs(readout="first"), "readout .* not 'first'"),
    "loss": (lambda: Inputs(loss="mse"), "loss .* not 'mse'"),
    "num_classes": (lambda: Inputs(loss="ce", num_classes=1), "at least 2 classes, not 1"),
    "activation": (lambda: dual("swiglu"), "swiglu"),
    "activation of a network": (
        lambda: predict_kernel(Transformer(encoder=ONE, activation="swiglu"), Inputs(), ("sgd",)),
        "swiglu",
    ),
    "rank one": (lambda: functional_of("adafactor"), "adafactor: .* rank one"),
    "unknown optimizer": (lambda: functional_of("adamm"), "adamm"),
    "rank one, asked": (lambda: predict_kernel(Transformer(encoder=ONE), Inputs(), ("sgd", "adafactor")), "adafactor"),
    "unit of an unknown": (lambda: unit_power("adamm", "q"), "adamm"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_is_named_in_one_line(what: str) -> None:
    make, message = REFUSED[what]
    with pytest.raises(ValueError) as caught:
        make()
    text = str(caught.value)
    assert "\n" not in text
    assert re.search(message, text), text


ALLOWED: tuple[Callable[[], object], ...] = (
    lambda: Transformer(encoder=ONE, placement="normformer", norm_kind="rmsnorm"),
    lambda: Transformer(encoder=ONE, decoder=(Sublayer(kind=SublayerKind.CROSS),)),
    lambda: Inputs(num_tokens=1, batch_size=1, correlation=0.0, readout="sum", loss="ce", num_classes=2),
    lambda: Inputs(correlation=1.0, num_classes=1),
    lambda: Inputs(num_tokens=128, batch_size=2),
    lambda: functional_of("lars"),
)


@pytest.mark.parametrize("make", ALLOWED)
def test_what_is_at_the_edge_is_not_refused(make: Callable[[], object]) -> None:
    make()


def test_every_refusal_of_a_setting_has_a_line_here() -> None:
    """As many as the sources raise, so that a new one gets a line."""
    import inspect

    import theory.kernel.setting as kernel_setting
    import theory.kernel.update as kernel_update

    count = sum(inspect.getsource(module).count("raise ValueError") for module in (kernel_setting, kernel_update))
    assert count == 11
