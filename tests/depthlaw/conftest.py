"""Commands that ask theory each question once: quick ``rule`` and ``predict``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import pytest


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """``depthlaw rule`` without what is most of its time, where neither the number of tokens nor gelu that nobody asked
    for is looked at; and its text asks theory nothing that its document has asked."""
    from depthlaw.advice import rule as rule_document
    from depthlaw.advice import rule_roles

    monkeypatch.setattr(rule_roles, "MORE_TOKENS", rule_roles.TOKENS)
    monkeypatch.setattr(rule_document, "CHECKED_ACTIVATIONS", ("relu",))
    for module, name in _THEORY:
        monkeypatch.setattr(f"depthlaw.theory.{module}.{name}", _remembering(module, name))


@pytest.fixture
def kernel_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel rung predicts each network once, in however many words and forms the commands are asked about it."""
    once = _remembering("kernel.predict", "predict_kernel")
    monkeypatch.setattr("depthlaw.theory.kernel.predict.predict_kernel", once)


_THEORY = (
    ("kernel.predict", "predict_kernel"),
    ("meanfield.growth", "update_order"),
    ("meanfield.update", "predict_setting"),
    ("rules.check", "rule_order"),
    ("rules.check", "flat_gain"),
    ("rules.solve", "solve_rule"),
)


@cache
def _remembering(module: str, name: str) -> Callable[..., Any]:
    function, known = getattr(import_module(f"depthlaw.theory.{module}"), name), dict[str, Any]()

    def remembered(*asked: Any, **named: Any) -> Any:
        """advance: of a bar, told nothing of what is known."""
        question = repr((asked, {option: value for option, value in named.items() if option != "advance"}))
        if question not in known:
            known[question] = function(*asked, **named)
        return known[question]

    return remembered
