"""Quotes are words of their source. Its text is not part of the repository: with the files of ``sources.toml`` in a
folder, ``DEPTHLAW_SOURCES=that folder`` also looks each quote up.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest

from depthlaw.paper_checks.claims.sources import sources
from depthlaw.paper_checks.papers.registry import claims

FOLDER = os.environ.get("DEPTHLAW_SOURCES")
PINNED = [key for key, source in sources().items() if source.file is not None]


def test_quotes_are_words_and_no_copies() -> None:
    for claim in claims().values():
        assert re.search(r"\w", claim.quote) and claim.quote == claim.quote.strip(), claim.id
        assert len(claim.quote) <= 1000, claim.id


if FOLDER is not None:  # nothing to collect without the files: an absent test is counted as such, a skip is not

    @pytest.mark.parametrize("key", PINNED)
    def test_every_quote_stands_in_its_source(key: str) -> None:
        """Character by character, in the copy whose bytes sources.toml pins."""
        content = (Path(str(FOLDER)) / str(sources()[key].file)).read_bytes()
        assert hashlib.sha256(content).hexdigest() == sources()[key].sha256
        text = content.decode()
        assert [one.id for one in claims().values() if one.source == key and one.quote not in text] == []
