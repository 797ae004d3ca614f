"""The sources: who printed it, which version, when it was read, and the hash of the copy that was read."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, model_validator

FILE = Path(__file__).resolve().parent / "sources.toml"


class Source(BaseModel):
    """One source. prefix: what its claims' ids begin with. read: year and month. file and sha256 stand together: the
    copy that quotes are taken from; without one the version has to say that formulas are restated."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str = Field(pattern=r"^[a-z]+$")
    prefix: str = Field(pattern=r"^[A-Z]+[0-9]*$")
    title: str = Field(min_length=1)
    authors: str = Field(min_length=1)
    url: str = Field(pattern=r"^https://")
    version: str = Field(min_length=1)
    read: str = Field(pattern=r"^20[0-9]{2}-(0[1-9]|1[0-2])$")
    file: str | None = None
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")

    @property
    def pin(self) -> str:
        """What was read, and when, in one line."""
        where = f" in {self.file}, sha256 {self.sha256}" if self.file else ", no copy kept"
        return f"read {self.read}{where}"

    @model_validator(mode="after")
    def _is_pinned(self) -> Source:
        if (self.file is None) != (self.sha256 is None):
            raise ValueError(f"{self.key}: file and sha256 stand together")
        if self.file is None and not self.version.endswith("formulas restated"):
            raise ValueError(f"{self.key}: without file and sha256 its version ends in 'formulas restated'")
        return self


@cache
def sources() -> dict[str, Source]:
    """All sources by key, in the order of the file.

    >>> from depthlaw.paper_checks.claims.sources import sources
    >>> sources()["magneto"].url
    'https://arxiv.org/abs/2210.06423'
    """
    entries = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return {key: Source(key=key, **entry) for key, entry in entries.items()}


def source_of(id_: str) -> str:
    """The key of the source whose claims' ids begin as this one does. ValueError where there is none, or several."""
    prefix = id_.partition("-")[0]
    keys = [key for key, source in sources().items() if source.prefix == prefix]
    if len(keys) != 1:
        raise ValueError(f"{id_}: {prefix} is the prefix of {len(keys)} sources, so the claim has to name its own")
    return keys[0]
