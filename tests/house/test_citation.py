"""CITATION.cff says what the project is: its version, licence and keywords, and the sources as they are pinned."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from paper_checks.claims.sources import sources

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
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


def faults(text: str) -> list[str]:
    """What breaks cff 1.2.0, or differs from the project's own files."""
    found = yaml.safe_load(text)
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
    return wrong + [f"reference {url}" for url in listed]


def test_citation() -> None:
    assert faults(TEXT) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (f"version: {PROJECT['version']}", "version: 9.9.9", "version"),
        ("cff-version: 1.2.0", "cff-version: 1.1.0", "cff-version"),
        ("license: Apache-2.0", "license: MIT", "license"),
        ('  - name: "The depthlaw developers"', "  - depthlaw", "authors"),
        ("abstract:", "abstracts:", "abstract"),
        ("  - sub-ln\n", "", "keywords"),
        ("Foundation Transformers", "Foundations", "reference magneto is not as pinned"),
        ("type: blog", "type: gossip", "reference su"),
    ],
)
def test_citation_finds_a_mutant(old: str, new: str, fault: str) -> None:
    mutant = TEXT.replace(old, new, 1)
    assert mutant != TEXT
    assert faults(mutant) == [fault]
