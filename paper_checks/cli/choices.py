"""Names that ``--help`` shows and that TAB completes, without importing theory or sims; a test holds them against what
theory and sims know. A name of one's own is added here too, where it stands as text."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable
from html import unescape

from paper_checks.system.places import RESULTS, ROOT

NORMS = "post, pre or sub"
PLACEMENTS = "post, pre, sub or peri"
ARCHITECTURES = "encoder, decoder or encoder-decoder"
SELECTIONS = "deepnet, symmetric, alpha-one, relative or lambda-one"
OPTIMIZERS = "sgd, momentum, adam, adamw, rmsprop, signsgd, lion, adafactor, lars, lamb, muon or sophia"
ACTIVATIONS = "relu, gelu, silu, tanh, identity or leaky_relu"
BUILT_ACTIVATIONS = f"{ACTIVATIONS.replace(' or ', ', ')} or swiglu"
NORM_KINDS = "layernorm or rmsnorm"
READOUTS = "last or sum"
LOSSES = "logit or ce"
DEVICES = "auto, cpu or cuda"
DTYPES = "float64 or float32"
PRECISIONS = "float32, float64 or bfloat16"
SHAPES = "gpt, bert, nmt, vit, vit-masked or speech"
SCHEDULES = "constant, linear, cosine or inverse-sqrt"
EXPERIMENTS = "stable-rates, warmup, thousand-layers or own-row"
SCALES = "small or large"
POST_LN_INIT = "post-ln-init"
"""A scheme of ``depthlaw train`` alone: DeepNet's control."""

_TABLES, _CLAIMS = RESULTS / "tables.json", RESULTS / "CLAIMS.md"
_SOURCES = ROOT / "paper_checks" / "claims" / "sources.toml"

Names = Callable[[], Iterable[str]]
Completion = Callable[[str], list[str]]
"""What typer asks with the word that TAB was pressed in; it drops what does not begin so."""


def names(text: str) -> list[str]:
    """Of one of the constants above: "a, b or c" is a, b, c."""
    return text.replace(" or ", ", ").split(", ")


def lowered(text: str | None) -> str | None:
    """Names as they are known: people write AdamW, ReLU and Post-LN.

    >>> from paper_checks.cli.choices import lowered
    >>> lowered("Post-LN")
    'post-ln'
    """
    return None if text is None else text.lower()


def one_of(text: str, *more: str) -> Completion:
    """Completes one name of a constant above."""

    def complete(incomplete: str) -> list[str]:
        return [*names(text), *more]

    return complete


def some_of(known: Names) -> Completion:
    """Completes the last of a comma-separated list; what stands there already is not offered again."""

    def complete(incomplete: str) -> list[str]:
        before, comma, _ = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in known() if name not in before.split(",")]

    return complete


# --- names that change with the project: read from what it generates. Nothing is offered where that cannot be read.


def _tables() -> list[dict]:
    try:
        return json.loads(_TABLES.read_text(encoding="utf-8"))["tables"]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def schemes() -> list[str]:
    """Of the generated table of all schemes: a new one is offered after `make tables`."""
    return list(dict.fromkeys(row["scheme"] for table in _tables() if table["id"] == "cross" for row in table["rows"]))


def one_scheme(incomplete: str) -> list[str]:
    return schemes()


def one_table(incomplete: str) -> list[str]:
    return [table["id"] for table in _tables()]


def one_source(incomplete: str) -> list[str]:
    try:
        return list(tomllib.loads(_SOURCES.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return []


def one_claim(incomplete: str) -> list[tuple[str, str]]:
    """(id, its verdict and statement in CLAIMS.md, which zsh and fish show beside it)."""
    try:
        page = _CLAIMS.read_text(encoding="utf-8")
    except OSError:
        return []
    row = r"^\| ([A-Z]+[0-9]*-[0-9]+) \| .*? \| (.*) \| \*\*([A-Z]+)\*\* \|$"
    found = re.findall(row, page, re.MULTILINE)
    plain = str.maketrans("[]", "()", "\\")  # rich reads brackets as its markup, and would break what is longer
    return [(id_, f"{verdict}: {unescape(text).translate(plain)}"[:60]) for id_, text, verdict in found]
