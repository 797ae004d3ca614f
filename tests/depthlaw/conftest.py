"""Theory is asked each question once in a run of the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Any

import pytest

from depthlaw.system.kept import keeping


@pytest.fixture(autouse=True)
def kept_in_this_run() -> Iterator[None]:
    """What the kernel rung predicts of a network is predicted once, in however many words and forms it is asked."""
    with keeping():
        yield


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


_THEORY = (
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
        question = repr((asked, named))
        if question not in known:
            known[question] = function(*asked, **named)
        return known[question]

    return remembered
