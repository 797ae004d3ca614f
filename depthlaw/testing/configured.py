"""``[tool.depthlaw]`` of the user's pyproject.toml: what ``depthlaw audit`` does without arguments."""

from __future__ import annotations

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
            raise ValueError(f"{missing[0]} has no reason")
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
        own = tool.get("depthlaw") if isinstance(tool, dict) else None
        if own is not None:
            return place, _audits(path, own)
    return None


def _content(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_all(path).decode())
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def _audits(path: Path, own: Any) -> list[Asked]:
    found = own.get("audit") if isinstance(own, dict) else None
    several = found if isinstance(found, list) else [found]
    if not all(isinstance(one, dict) for one in several) or own.keys() != {"audit"}:
        raise ValueError(f"{path}: [tool.depthlaw] has [tool.depthlaw.audit], or several as [[tool.depthlaw.audit]]")
    audits = []
    for one in several:
        try:
            audits.append(Asked.model_validate(one))
        except ValidationError as error:
            what = error.errors()[0]
            where = ".".join(map(str, what["loc"]))
            allowed = f" (allowed: {', '.join(Asked.model_fields)})" if what["type"] == "extra_forbidden" else ""
            raise ValueError(f"{path}, [tool.depthlaw.audit] {where}: {what['msg']}{allowed}") from None
    return audits
