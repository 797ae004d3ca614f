"""What many tests look at is made once in a run, by the worker that first asks for it, and read by all the others."""

from __future__ import annotations

import fcntl
import gc
import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FOLDER = "DEPTHLAW_TEST_RUN"
"""The variable with the folder of this run, which tests/conftest.py makes and removes."""


def once(name: str, make: Callable[[], Any]) -> Any:
    """What ``make()`` returns, as JSON keeps it; a fresh copy at each call, so that a test may change its own.

    The first worker to ask makes it, and one that asks meanwhile waits. An error is not kept: the next one tries again.
    """
    path = _place(name)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                part = path.with_suffix(".part")
                part.write_text(json.dumps(make()), encoding="utf-8")
                part.replace(path)
    return json.loads(_kept(path))


def _place(name: str) -> Path:
    return Path(os.environ[FOLDER]) / f"{name}.json"


@cache
def _kept(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def claim(id_: str) -> dict[str, Any]:
    """The entry of one claim in the document of ``verify``, every mutant tried."""
    return once(f"claims/{id_}", lambda: _judge(id_))["whole"]


def quick_claim(id_: str) -> dict[str, Any]:
    """The entry of one claim in the document of ``verify --quick``."""
    return once(f"claims/{id_}", lambda: _judge(id_))["quick"]


def judged_claim(id_: str) -> dict[str, Any]:
    """The entry of one claim in the document of ``verify``, whose mutants are tried only where somebody wanted them."""
    if _place(f"claims/{id_}").exists():
        return claim(id_)
    return once(f"judged/{id_}", lambda: _judge_alone(id_))


def _judge_alone(id_: str) -> dict[str, Any]:
    from depthlaw.paper_checks.verify.document import check_claim

    gc.freeze()  # as before each test: what the claims before it derived is not looked at again
    return check_claim(id_, False)


def _judge(id_: str) -> dict[str, Any]:
    """Both entries. What a check says of a statement is worked out once: the two judge by the same evidence."""
    import depthlaw.paper_checks.claims.claim
    from depthlaw.paper_checks.verify.document import check_claim

    gc.freeze()  # as before each test: what the claims before it derived is not looked at again
    perform, said = depthlaw.paper_checks.claims.claim.perform, {}

    def remembered(check: Any, statement: Any) -> Any:
        if (id(check), statement) not in said:
            said[id(check), statement] = check, perform(check, statement)  # the check is kept, and its id with it
        return said[id(check), statement][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(depthlaw.paper_checks.claims.claim, "perform", remembered)
        return {"whole": check_claim(id_, True), "quick": check_claim(id_, False, True)}


def whole() -> dict[str, Any]:
    """The document of all claims, with the tables that sources print; test_claims.py tries their mutants."""
    return once("verify", _document)


def _document() -> dict[str, Any]:
    from depthlaw.paper_checks.papers.registry import claims
    from depthlaw.paper_checks.routes.tables.derived import side_by_side
    from depthlaw.paper_checks.verify import document as engine
    from depthlaw.paper_checks.verify.concord import agreements

    entries = [judged_claim(id_) for id_ in claims()]
    rows = side_by_side(engine.small_tables(), claims().values())
    return engine.assemble(entries, rows, got=engine.STORED, file=engine.IN_STEP, beside=agreements())
