"""What is written: one JSON document, and files atomically."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from depthlaw.system.stopping import shielded

SCHEMA_VERSION = 1


def document(**content: Any) -> dict[str, Any]:
    """A JSON document with the version of its schema first."""
    return {"schema_version": SCHEMA_VERSION, **content}


def as_text(document: dict[str, Any]) -> str:
    """Strict JSON: NaN and infinities, which it cannot hold, are an error here and not at the reader's."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_all(path: Path, most: int = 100_000_000) -> bytes:
    """Of a file of the user's, which may be a device that never ends. OSError, and ValueError in one line."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{path} has more than {most:,} bytes")
    return content


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write beside the target and rename, so that a reader sees the old file or the new one, never half. OSError that
    names the target."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with shielded():
            _write_beside(path, content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _write_beside(path: Path, content: str | bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
