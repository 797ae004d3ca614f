"""Another order of the tests, for the machines of tests/portable: pytest -p tests.portable.plugin"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

import pytest

from tests.portable.machines import SEED


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if SEED in os.environ:
        order = {id_: place for place, id_ in enumerate(shuffled([item.nodeid for item in items], os.environ[SEED]))}
        items.sort(key=lambda item: order[item.nodeid])


def shuffled(ids: Sequence[str], seed: str) -> list[str]:
    """The modules in another order, and in each its tests: all mixed, the fixtures of a module would be made again."""
    draw = random.Random(seed)
    modules: dict[str, list[str]] = {}
    for id_ in ids:
        modules.setdefault(id_.split("::")[0], []).append(id_)
    names = draw.sample(list(modules), len(modules))
    return [id_ for name in names for id_ in draw.sample(modules[name], len(modules[name]))]
