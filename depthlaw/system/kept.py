"""Answers that take seconds, kept on the user's disk: asked for again, they are read instead of computed.

They lie in ``$DEPTHLAW_CACHE``, or in ``depthlaw`` of the user's cache folder; ``DEPTHLAW_CACHE=`` (empty) keeps none.
An answer belongs to the code that computed it: another version of that code never finds it. ``MOST_BYTES`` bounds them
all, and those that were not used for longest go first. ``depthlaw --clear-cache`` removes them. Nothing that goes wrong
with the disk is an error: the answer is computed then.

Commands that people wait for keep answers, and what they print; nothing else does: what verifies derives anew.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from enum import Enum
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from depthlaw.system.files import write_atomically
from depthlaw.system.places import ROOT

MOST_BYTES = 50_000_000
_keeps: ContextVar[bool] = ContextVar("keeps", default=False)


def folder() -> Path | None:
    """Where answers are kept; None where the user wants none."""
    named = os.environ.get("DEPTHLAW_CACHE")
    if named is not None:
        return Path(named) if named else None
    of_user = os.environ.get("XDG_CACHE_HOME")
    with suppress(RuntimeError):  # where nobody has a home
        return (Path(of_user) if of_user else Path.home() / ".cache") / "depthlaw"
    return None


@contextmanager
def keeping(is_on: bool = True) -> Iterator[None]:
    """Within it ``kept`` reads and writes."""
    token = _keeps.set(is_on)
    try:
        yield
    finally:
        _keeps.reset(token)


def kept(asked: Mapping[str, Any], make: Callable[[], Any]) -> Any:
    """What ``make`` returns, which JSON can hold, or what it returned when the same was asked before.

    asked: all that the answer depends on beside the code of ``theory``.
    """
    place = folder() if _keeps.get() else None
    if place is None:
        return make()
    text = json.dumps(asked, default=_in_json, sort_keys=True)
    path = place / f"{sha256(f'{_code()} {text}'.encode()).hexdigest()}.json"
    with suppress(OSError, ValueError):
        answer = json.loads(path.read_text(encoding="utf-8"))
        os.utime(path)
        return answer
    answer = make()
    with suppress(OSError):
        write_atomically(path, json.dumps(answer))
        _prune(place)
    return answer


def clear() -> tuple[int, int]:
    """Remove all answers. How many there were, and their bytes. OSError where they cannot be removed."""
    files = [] if (place := folder()) is None else list(_files(place))
    for _, _, path in files:
        path.unlink(missing_ok=True)
    return len(files), sum(size for _, size, _ in files)


def _in_json(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return sorted(value) if isinstance(value, frozenset) else value.tolist()  # an array, or a number of numpy's


def _files(place: Path) -> Iterator[tuple[float, int, Path]]:
    """When each answer was last used, its bytes, and where it is. A folder that a user named may hold other things."""
    for path in place.glob(f"{'[0-9a-f]' * 64}.json"):
        with suppress(FileNotFoundError):
            status = path.stat()
            yield status.st_mtime, status.st_size, path


def _prune(place: Path) -> None:
    left = MOST_BYTES
    for _, size, path in sorted(_files(place), reverse=True):
        left -= size
        if left < 0:
            path.unlink(missing_ok=True)


@cache
def _code() -> str:
    """What the answers of ``theory`` depend on: its files, and the libraries that it computes with."""
    return json.dumps([_of_files(ROOT / "theory", ".py"), version("numpy"), version("scipy")])


def stamps() -> list[Any]:
    """What a printed answer depends on: all code, its data, and the libraries that compute and print."""
    places = [Path(__file__).parents[1], ROOT / "theory", ROOT / "sims", ROOT / "paper_checks"]
    files = [_of_files(place, ".py", ".json", ".j2", ".md", ".toml") for place in places]
    return [files, [version(name) for name in ("numpy", "scipy", "sympy", "torch", "rich", "typer")], sys.version]


def _of_files(place: Path, *suffixes: str) -> list[tuple[str, int, int]]:
    """Path, size and time of each."""
    files = sorted(path for path in place.rglob("*") if path.suffix in suffixes)
    return [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
