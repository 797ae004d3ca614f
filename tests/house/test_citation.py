"""CITATION.cff says what the project is: its version, licence and keywords, and the sources as they are pinned."""

from __future__ import annotations

import tomllib
from pathlib import Path

import yaml

from depthlaw.paper_checks.claims.sources import sources

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
KINDS = {"article", "blog", "slides"}
"""Of cff 1.2.0, those used here."""
CITED = ("su", "magneto", "slides", "deepnet")


def test_citation() -> None:
    """It breaks no rule of cff 1.2.0, and agrees with the project's own files."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    own = {key: PROJECT[key] for key in ("version", "license", "keywords")}
    assert cited.items() >= ({"cff-version": "1.2.0", "type": "software"} | own).items()
    assert all(isinstance(cited.get(key), str) for key in ("message", "title", "abstract"))
    for entry in (cited, *cited["references"]):
        assert entry["authors"] and all({"name", "family-names"} & set(author) for author in entry["authors"])
    references = {entry["url"]: entry for entry in cited["references"]}
    assert len(references) == len(cited["references"]) == len(CITED)
    for source in (sources()[key] for key in CITED):
        entry = references[source.url]
        assert entry["type"] in KINDS and entry["title"] == source.title
        # as sources.toml has them: surnames, or one person's full name, surname first
        pinned = source.authors.split(", ") if "," in source.authors else source.authors.split(maxsplit=1)[:1]
        assert [author["family-names"] for author in entry["authors"]] == pinned
