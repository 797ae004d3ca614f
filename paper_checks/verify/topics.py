"""What there is on a topic: the claims, sections of generated pages, schemes and recipes in which its words stand.

>>> from depthlaw.paper_checks.verify.topics import words_of
>>> words_of("Which residual weights?")
['residual', 'weight']
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from depthlaw.paper_checks.verify.answers import all_kept
from depthlaw.system.places import RESULTS

PAGES = ("TRAINING.md", "TRANSFORMERS.md", "MEASURED.md", "RECIPES.md")
MOST = 12
"""Of claims that are shown, and of sections."""
_OF_NO_TOPIC = frozenset(
    word
    for words in ("a an and are be by do does for how i in is it my of on or", "should the to use what which why with")
    for word in words.split()
)


def words_of(topic: str) -> list[str]:
    """The words that are looked for: without those that stand everywhere, hyphens and a plural's s."""
    words = re.findall(r"[^\W_]+", re.sub(r"(?<=\w)-(?=\w)", "", topic.lower()))
    return [re.sub(r"(?<=\w{3})s$", "", word) for word in words if word not in _OF_NO_TOPIC]


def share(words: Sequence[str], text: str) -> float:
    """Which part of the words the text has, each at the beginning of a word or of two that stand side by side."""
    there = re.findall(r"[^\W_]+", text.lower())
    starts = {*there, *(first + second for first, second in pairwise(there))}
    return sum(any(start.startswith(word) for start in starts) for word in words) / max(len(words), 1)


def sections() -> Iterator[tuple[str, str, str]]:
    """(page, heading, text) of every section of the generated pages."""
    for page in PAGES:
        parts = re.split(r"^#+ (.*)$", (RESULTS / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
        for heading, text in zip(parts[1::2], parts[2::2], strict=True):
            yield page, heading, re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)  # numbers speak of no topic


def topic(asked: str) -> dict[str, list[dict[str, Any]]]:
    """claims: id, verdict and what each says; pages: page and heading; names: of schemes and recipes, and what each is.
    Those that have most of the words, and of these those first that have them in their title."""
    from depthlaw.recipes.catalogue import RECIPES
    from depthlaw.theory.schemes import SCHEMES

    words = words_of(asked)
    claims = [
        (entry["statement"], " ".join([entry["quote"], (answer["finding"] or {}).get("text", "")]), entry)
        for answer in all_kept().values()
        for entry in [answer["claim"]]
    ]
    pages = [(heading, text, {"page": page, "section": heading}) for page, heading, text in sections()]
    known = {scheme.name: scheme.source for scheme in SCHEMES.values()}
    known |= {recipe.name: recipe.says for recipe in RECIPES.values()}
    names = [(name, says, {"name": name, "says": says}) for name, says in known.items()]
    return {
        "claims": [{name: entry[name] for name in ("id", "verdict", "statement")} for entry in _best(words, claims)],
        "pages": _best(words, pages),
        "names": _best(words, names),
    }


def _best(words: Sequence[str], among: Sequence[tuple[str, str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Of (title, text, what it is)."""
    scored = [(share(words, f"{title} {text}"), share(words, title), what) for title, text, what in among]
    most = max((score for score, *_ in scored), default=0.0)
    best = [(title, what) for score, title, what in scored if score == most > 0.5 or score == 1.0]
    return [what for _, what in sorted(best, key=lambda pair: -pair[0])][:MOST]
