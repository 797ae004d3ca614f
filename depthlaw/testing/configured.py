"""``[tool.depthlaw]`` of the user's pyproject.toml: what ``depthlaw audit`` does without arguments."""

from __future__ import annotations

import reprlib
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from depthlaw.system.files import read_all

NAME = "pyproject.toml"


class Asked(BaseModel):
    """One audit, in the words of the command's options. ``input`` is the function that answers the model's input."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    factory: str | None = None
    hf: str | None = None
    width: int | None = Field(default=None, ge=1, le=16384)
    layers: list[Annotated[int, Field(ge=1, le=4096)]] | None = Field(default=None, min_length=1)
    visits: list[Annotated[int, Field(ge=1, le=4096)]] | None = Field(default=None, min_length=1)
    scheme: str | None = None
    recipe: str | None = None
    optimizer: str | None = None
    input: str | None = None
    groups: str | None = None
    seeds: int | None = Field(default=None, ge=1, le=1000)
    seed: int | None = Field(default=None, ge=0, le=2**31)
    baseline: str | None = None
    ignore: dict[str, str] = {}

    @field_validator("ignore")
    @classmethod
    def _has_reasons(cls, given: dict[str, str]) -> dict[str, str]:
        if missing := [kind for kind, reason in given.items() if not reason.strip()]:
            raise ValueError(missing[0])
        return given


def read(folder: Path) -> tuple[Path, Sequence[Asked]] | None:
    """The folder of the nearest pyproject.toml, here or above, that has audits, and these; None where there is none.
    ValueError, in one line, for one that cannot be read."""
    for place in (folder, *folder.parents):
        path = place / NAME
        if not path.is_file():
            continue
        content = _content(path)
        tool = content.get("tool", {})
        table = tool.get("depthlaw") if isinstance(tool, dict) else None
        if table is not None:
            return place, _audits(path, table)
    return None


def _content(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_all(path).decode())
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def _audits(path: Path, section: Any) -> list[Asked]:
    entries = section.get("audit") if isinstance(section, dict) else None
    several: list[Any] = entries if isinstance(entries, list) else [entries]
    if not all(isinstance(entry, dict) for entry in several) or section.keys() != {"audit"}:
        raise ValueError(f"{path}: [tool.depthlaw] has [tool.depthlaw.audit], or several as [[tool.depthlaw.audit]]")
    audits = []
    for number, entry in enumerate(several, 1):
        try:
            audits.append(Asked.model_validate(entry))
        except ValidationError as error:
            raise ValueError(f"{path}, {table(number, len(several))}: {_wrong(entry, error.errors()[0])}") from None
    return audits


def table(number: int, of: int) -> str:
    """The table of an audit, of so many."""
    return "[tool.depthlaw.audit]" if of == 1 else f"[[tool.depthlaw.audit]] {number} of {of}"


def _wrong(table: dict[str, Any], error: Any) -> str:
    """The key, what is there, and what is allowed."""
    name = error["loc"][0]
    if error["type"] == "extra_forbidden":
        return f"there is no key {name} (allowed: {', '.join(Asked.model_fields)})"
    return (
        f"{name} is {reprlib.repr(table[name])}; allowed is {_allowed(Asked.model_json_schema()['properties'][name])}"
    )


def _allowed(schema: Any) -> str:
    """In words, of a field's JSON schema."""
    kinds = [kind for kind in schema.get("anyOf", [schema]) if kind["type"] != "null"]
    match kinds[0]:
        case {"type": "integer", "minimum": least, "maximum": most}:
            return f"a whole number from {least:,} to {most:,}"
        case {"type": "array", "items": items}:
            return f"a list, such as [2, 4], of which each is {_allowed(items)}"
        case {"type": "object"}:
            return 'a reason for each kind of fault, such as {norms = "the head has its own"}'
        case _:
            return "a text in quotes"
