"""The pinned sources: who printed it, which version, and the hash of the copy that was read."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, model_validator

FILE = Path(__file__).resolve().parent / "sources.toml"


class Source(BaseModel):
    """One source. file and sha256 stand together: the copy that quotes are taken from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str = Field(pattern=r"^[a-z]+$")
    title: str = Field(min_length=1)
    authors: str = Field(min_length=1)
    url: str = Field(pattern=r"^https://")
    version: str = Field(min_length=1)
    file: str | None = None
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")

    @property
    def pin(self) -> str:
        """The copy that was read, in one line."""
        return f"read in {self.file}, sha256 {self.sha256}" if self.file else "no copy kept"

    @model_validator(mode="after")
    def _is_pinned(self) -> Source:
        if (self.file is None) != (self.sha256 is None):
            raise ValueError(f"{self.key}: file and sha256 stand together")
        return self


@cache
def sources(path: Path = FILE) -> dict[str, Source]:
    """All sources by key, in the order of the file."""
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    return {key: Source(key=key, **entry) for key, entry in found.items()}
