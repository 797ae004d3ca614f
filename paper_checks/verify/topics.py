"""What there is on a topic: the claims, sections of generated pages, schemes and recipes in which its words stand.

>>> from depthlaw.paper_checks.verify.topics import words_of
>>> words_of("Which residual weights?")
['residual', 'weight']
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from depthlaw.paper_checks.verify.answers import all_kept
from depthlaw.system.places import RESULTS

PAGES = ("TRAINING.md", "TRANSFORMERS.md", "MEASURED.md", "RECIPES.md")
MOST = 12
"""Of claims that are shown, and of sections."""
QUESTIONS: Mapping[str, Sequence[str]] = {
    "Which branch weight and learning rate keep the update from growing with depth?": [
        *("S1-41", "TP-01", "TP-02", "TP-03", "TP-04", "CP-01", "CP-02", "CZ-01", "MC-01", "MG-01", "DS-01", "SP-01"),
        *("SP-02", "HP-01", "HP-02", "HB-01", "NF-01", "TF-01", "BN-01", "ES-01", "NG-01"),
    ],
    "Which residual weight does a post-norm want?": [
        *("S1-25", "S1-33", "S1-35", "DN-04", "DN-05", "DN-06", "DN-07", "KE-02", "KE-04", "EM-01", "LI-06"),
    ],
    "What do Keel's alpha = L and its second norm do?": ["KE-02", "KE-03", "KE-04", "KE-05"],
    "Which branch weight do looped layers want?": ["LT-01", "LO-02"],
    "Does the variance of Pre-LN's stream explode?": [
        *("CD-01", "CD-02", "CD-04", "CD-07", "PL-01", "AR-01", "GP-01", "GN-01", "SK-01", "S3-11"),
    ],
    "Where do gradients vanish or explode?": [
        *("LI-04", "CD-03", "MX-01", "DT-01", "DY-01", "KE-02", "PL-02", "RD-01", "BT-01", "RZ-01", "SN-01", "OL-01"),
    ],
    "Are deep layers useless?": ["DL-01", "CD-01", "SK-01", "MX-01", "TP-05"],
    "Are neighbouring layers alike?": ["TP-05", "CD-01", "MX-01"],
    "Do several streams keep the identity?": ["HC-01", "HC-02", "AR-01"],
    "Does a network begin as the identity?": ["RZ-01", "SK-01", "CT-01", "NG-01"],
    "Does sqrt(log L) keep Sub-LN's update from growing?": ["S2-03", "S2-08", "S2-13", "S2-20", "S3-12", "S3-14"],
    "Does DeepNorm's update stay constant?": ["DN-02", "DN-03", "DN-10", "DN-14"],
    "Does the second order of a step vanish beside the first as a network gets deeper?": ["CP-02", "TP-03", "NF-01"],
    "How do eps and weight decay go with depth?": ["CP-01", "CP-05"],
}
"""By what people ask: the claims that answer, whose source they are."""
_ASKING = ("are", "does", "do", "how", "is", "what", "where", "which", "why")
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
    Those that have most of the words, and of these those first that have them in their title; before all others the
    claims of a question of ``QUESTIONS``, where one is asked that has all the words."""
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
    is_question = bool(words) and asked.lower().split()[0] in _ASKING
    asks = [question for question in QUESTIONS if is_question and share(words, question) == 1]
    by_id = {entry["id"]: entry for _, _, entry in claims}
    first = {name: by_id[name] for question in asks for name in QUESTIONS[question]}
    found = [*first.values(), *(entry for entry in _best(words, claims) if entry["id"] not in first)]
    return {
        "claims": [{name: entry[name] for name in ("id", "verdict", "statement")} for entry in found],
        "pages": _best(words, pages),
        "names": _best(words, names),
    }


def _best(words: Sequence[str], among: Sequence[tuple[str, str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Of (title, text, what it is)."""
    scored = [(share(words, f"{title} {text}"), share(words, title), what) for title, text, what in among]
    most = max((score for score, *_ in scored), default=0.0)
    best = [(title, what) for score, title, what in scored if score == most > 0.5 or score == 1.0]
    return [what for _, what in sorted(best, key=lambda pair: -pair[0])][:MOST]
