"""Quotes are words of their source. Its text is not part of the repository: with the files of ``sources.toml`` in a
folder, ``DEPTHLAW_SOURCES=that folder`` also looks each quote up.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from paper_checks.claims.claim import Claim
from paper_checks.claims.sources import sources
from paper_checks.papers.registry import claims

FOLDER = os.environ.get("DEPTHLAW_SOURCES")
PINNED = [key for key, source in sources().items() if source.file is not None]


def absent(listed: Iterable[Claim], texts: Mapping[str, str]) -> list[str]:
    """Claims whose quote does not stand, character by character, in the text of their source."""
    return [claim.id for claim in listed if claim.source in texts and claim.quote not in texts[claim.source]]


def read_pinned(key: str, folder: Path) -> str:
    """A source's file; ValueError if it is not the copy that was pinned."""
    source = sources()[key]
    assert source.file is not None
    content = (folder / source.file).read_bytes()
    if hashlib.sha256(content).hexdigest() != source.sha256:
        raise ValueError(f"{source.file} is not the copy that sources.toml pins")
    return content.decode()


def test_three_sources_are_pinned_by_their_bytes() -> None:
    assert PINNED == ["su", "magneto", "slides"]
    for key in PINNED:
        assert re.fullmatch(r"[0-9a-f]{64}", sources()[key].sha256 or ""), key


@pytest.mark.parametrize("id_", list(claims()))
def test_a_quote_is_words(id_: str) -> None:
    quote = claims()[id_].quote
    assert re.search(r"\w", quote)
    assert quote == quote.strip()
    assert len(quote) <= 1000, "a quote, not a copy"


def test_the_search_finds_a_mutant() -> None:
    first = next(claim for claim in claims().values() if claim.source in PINNED)
    texts = {first.source: f"... {first.quote} ..."}
    assert absent([first], texts) == []
    assert absent([replace(first, quote=f"{first.quote}?")], texts) == [first.id]


def test_a_file_that_was_changed_is_refused(tmp_path: Path) -> None:
    (tmp_path / str(sources()["su"].file)).write_text("another text", encoding="utf-8")
    with pytest.raises(ValueError, match="is not the copy"):
        read_pinned("su", tmp_path)


if FOLDER is not None:  # nothing to collect without the files: an absent test is counted as such, a skip is not

    @pytest.mark.parametrize("key", PINNED)
    def test_every_quote_stands_in_its_source(key: str) -> None:
        assert absent(claims().values(), {key: read_pinned(key, Path(str(FOLDER)))}) == []
