"""What pytest does on the machines of tests/portable: pytest -p tests.portable.plugin"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.portable.machines import RESULT, SEED


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if SEED in os.environ:
        order = {item: place for place, item in enumerate(shuffled([item.nodeid for item in items], os.environ[SEED]))}
        items.sort(key=lambda item: order[item.nodeid])


def shuffled(ids: Sequence[str], seed: str) -> list[str]:
    """The modules in another order, and in each its tests: all mixed, the fixtures of a module would be made again."""
    draw = random.Random(seed)
    modules: dict[str, list[str]] = {}
    for id_ in ids:
        modules.setdefault(id_.split("::")[0], []).append(id_)
    names = list(modules)
    draw.shuffle(names)
    return [id_ for name in names for id_ in draw.sample(modules[name], len(modules[name]))]


_passed: dict[str, None] = {}
_failed: dict[str, None] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed[report.nodeid] = None
    elif report.when == "call" and report.passed:
        _passed[report.nodeid] = None


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _failed[report.nodeid] = None


def pytest_sessionfinish(session: pytest.Session) -> None:
    if RESULT in os.environ and not hasattr(session.config, "workerinput"):
        Path(os.environ[RESULT]).write_text(
            json.dumps({"passed": len(_passed), "failed": list(_failed)}), encoding="utf-8"
        )
