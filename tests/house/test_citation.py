"""CITATION.cff says what the project is: its version, licence and keywords, and the sources as they are pinned."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import yaml

from paper_checks.claims.sources import sources

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
KINDS = {"article", "blog", "slides"}
"""Of cff 1.2.0, those used here."""
CITED = ("su", "magneto", "slides", "deepnet")


def people(entry: dict[str, Any]) -> bool:
    """Whether it has authors, each a person or an entity."""
    authors = entry.get("authors")
    return bool(authors) and all(isinstance(one, dict) and {"name", "family-names"} & set(one) for one in authors)


def surnames(pinned: str) -> list[str]:
    """Of the authors of a source as sources.toml has them: surnames, or one person's full name, surname first."""
    return pinned.split(", ") if "," in pinned else [pinned.split(maxsplit=1)[0]]


def test_citation() -> None:
    """It breaks no rule of cff 1.2.0, and agrees with the project's own files."""
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    wanted = {
        "cff-version": "1.2.0",
        "type": "software",
        "version": PROJECT["version"],
        "license": PROJECT["license"],
        "keywords": PROJECT["keywords"],
    }
    wrong = [key for key, value in wanted.items() if found.get(key) != value]
    wrong += [key for key in ("message", "title", "abstract") if not isinstance(found.get(key), str)]
    wrong += [] if people(found) else ["authors"]
    listed = {one.get("url"): one for one in found.get("references", [])}
    for source in (sources()[key] for key in CITED):
        one = listed.pop(source.url, None)
        if one is None or one.get("type") not in KINDS or not people(one):
            wrong.append(f"reference {source.key}")
        elif one["title"] != source.title or [person["family-names"] for person in one["authors"]] != surnames(
            source.authors
        ):
            wrong.append(f"reference {source.key} is not as pinned")
    assert wrong + [f"reference {url}" for url in listed] == []
