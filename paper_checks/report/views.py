"""What stands in the templates beside the document itself: tables, schemes, findings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import normalize

from markupsafe import Markup, escape

from paper_checks.claims.claim import Verdict
from paper_checks.notation.signs import signs
from paper_checks.pages.claims import merged
from paper_checks.papers.registry import claims as registered
from paper_checks.report import typeset
from paper_checks.report.model import Claim, Document, Part, counts
from paper_checks.verify import tables_file
from paper_checks.verify.document import small_tables, why_unexpected
from theory.schemes import SCHEMES, Scheme
from theory.stack import Stack
from theory.tables import CROSS_ACTIVATIONS

SHORT = {"su": "Su", "magneto": "Magneto", "slides": "Magneto's slides", "deepnet": "DeepNet", "admin": "Admin"}
SHORT |= {"fixup": "Fixup", "xiong": "Xiong et al."}
KINDS = {"result": "Results that people use", "step": "Steps on the way to them", "remark": "Remarks"}
MARKS = {True: "✓ equal", False: "✗ differs", None: "? not decided"}
_DIGITS = 6
_FEW = 4
"""Characters of a line that is no line of a text."""
_WRAPPED = re.compile(r"(?<=[a-z])\n(?=[a-z])")


# ---------------------------------------------------------------- words


def said(value: Any) -> str:
    """Data for people: no braces, brackets or quotes of Python."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.{_DIGITS}g}"
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {said(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(said, value))
    return "none" if value is None else str(value)


def spaced(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows with the names of their columns as words."""
    return [{name.replace("_", " "): value for name, value in row.items()} for row in rows]


def page_of(claim: Claim) -> str:
    return f"source-{claim.source}.html"


def linked(found: str, claims: Mapping[str, Claim]) -> Markup:
    """Each id of a claim that stands in text, not in a tag or in a link, as a link to it."""
    depth = 0

    def replaced(match: re.Match[str]) -> str:
        nonlocal depth
        tag, id_ = match.groups()
        if tag is not None:
            depth += bool(re.match(r"<a[ >]", tag)) - (tag == "</a>")
            return tag
        if depth or id_ not in claims:
            return match.group()
        return f'<a href="{page_of(claims[id_])}#{id_}">{id_}</a>'

    return Markup(re.sub(r"(<[^>]*>)|\b([A-Z][A-Z0-9]-\d\d)\b", replaced, str(escape(found))))


def is_scattered(text: str) -> bool:
    """A formula as the text of a PDF has it: its letters one by one, each on a line."""
    return any(len(line) <= _FEW for line in text.split("\n"))


def quoted(text: str) -> Markup:
    """Words of a source, typeset: lines that only a PDF's layout ended go on, and rows of a table are rows."""
    if "\t" in text:
        return _rows(text)
    if is_scattered(text):
        return typeset.quote(" ".join(text.split()))  # no formula is left in it that could be read
    return _bold(_WRAPPED.sub(" ", text))


def _rows(text: str) -> Markup:
    cell, row = Markup("<td>{}</td>"), Markup("<tr>{}</tr>")
    lines = ([_bold(one) for one in line.split("\t")] for line in text.split("\n"))
    rows = (row.format(Markup().join(map(cell.format, cells))) for cells in lines)
    return Markup("<table><tbody>{}</tbody></table>").format(Markup().join(rows))


def _bold(text: str) -> Markup:
    """What the slides print bold is bold, in HTML or in Markdown."""
    pieces = re.split(r"<b>(.*?)</b>", re.sub(r"\*\*([^*\n]+)\*\*", r"<b>\1</b>", text), flags=re.DOTALL)
    bold = Markup("<b>{}</b>")
    return Markup().join(
        bold.format(typeset.prose(piece)) if i % 2 else typeset.prose(piece) for i, piece in enumerate(pieces)
    )


def contents_of(claim: Claim, figures: Sequence[Any]) -> str:
    """What is folded below the head of a claim.

    >>> from types import SimpleNamespace
    >>> from paper_checks.report.views import contents_of
    >>> claim = SimpleNamespace(parts=[SimpleNamespace(counterexample=None)], num_evidence=1)
    >>> contents_of(claim, ["a figure"])
    'What is printed; 1 piece of evidence; 1 figure'
    """
    num_examples = sum(part.counterexample is not None for part in claim.parts)
    counted = (
        (len(claim.parts) if len(claim.parts) > 1 else 0, "part", "parts"),
        (num_examples, "counterexample", "counterexamples"),
        (claim.num_evidence, "piece of evidence", "pieces of evidence"),
        (len(figures), "figure", "figures"),
    )
    said = [f"{number} {one if number == 1 else more}" for number, one, more in counted if number]
    return "; ".join(["What is printed", *said])


def searched(claim: Claim, told: Mapping[str, str]) -> str:
    """What the search box looks through, in small letters: each sign and its name, λ and lambda."""
    parts = (text for part in claim.parts for text in (part.name, part.statement))
    text = " ".join((claim.id, claim.statement, claim.locator, claim.quote, told.get(claim.id, ""), *parts))
    return " ".join(normalize("NFKC", f"{text} {signs(text)}").lower().split())


def held(several: Sequence[Claim]) -> str:
    """How many there are, and how many of them hold.

    >>> from types import SimpleNamespace
    >>> from paper_checks.claims.claim import Verdict
    >>> from paper_checks.report.views import held
    >>> held([SimpleNamespace(verdict=verdict) for verdict in Verdict])
    '5, of which 1 holds as printed and 1 under a condition'
    """
    number = counts(several)
    holds = number[Verdict.CONFIRMED]
    under = f" and {number[Verdict.CONDITIONAL]} under a condition" if number[Verdict.CONDITIONAL] else ""
    return f"{len(several)}, of which {holds} {'holds' if holds == 1 else 'hold'} as printed{under}"


def statement_of(claim: Claim, part: Part) -> Markup:
    """The printed statement typeset from its object; as text where the document says another than the registry."""
    known = registered().get(claim.id)
    for one in known.parts if known is not None else ():
        if one.name == part.name and one.statement.text == part.statement:
            return typeset.statement(one.statement)
    return typeset.prose(part.statement)


# ---------------------------------------------------------------- the overview


def unexpected(doc: Document) -> Iterator[str]:
    """What of the document is not as expected, a line each."""
    for claim in doc.claims:
        if claim.id in doc.summary.unexpected:
            yield from (f"{claim.id}, {line}" for line in why_unexpected(claim.model_dump(mode="json")))
    if doc.summary.mutants is not None:
        yield from (f"broken on purpose, and not seen: {name}" for name in doc.summary.mutants.survived)
    yield from (f"differs, though its claim is confirmed: {name}" for name in doc.summary.cells.faults)
    yield from (
        f"{one.topic}: expected to {'agree' if one.expected else 'differ'}"
        for one in doc.sources_beside
        if one.agree is not one.expected
    )
    if doc.summary.tables.generated_file != "in step":
        yield f"the generated file of tables is {doc.summary.tables.generated_file}"


def routed(doc: Document) -> str:
    """By how many routes the parts of the claims are checked: a sentence that the list of routes follows."""
    numbers = [len(part.routes) for claim in doc.claims for part in claim.parts]
    several = sum(number > 1 for number in numbers)
    if several == len(numbers):
        return "Each part is checked by two routes or more, which know nothing of one another:"
    fewer = len(numbers) - several
    return (
        f"Of {len(numbers)} parts, {several} are checked by two routes or more, which know nothing of one another; "
        f"{fewer} by fewer, which their articles say:"
    )


# ---------------------------------------------------------------- tables

_Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Tables:
    """small: tables as they are. crosses: title and matrix, scheme by optimizer."""

    small: Sequence[Mapping[str, Any]]
    crosses: Sequence[tuple[str, list[dict[str, str]]]]


def tables() -> Tables:
    """The derived tables; without the cross table where none is stored of these sources."""
    found = tables_file.stored() or small_tables()
    rows = next((table["rows"] for table in found if table["id"] == "cross"), [])
    small = [{**table, "rows": spaced(table["rows"])} for table in found if table["id"] != "cross"]
    return Tables(small=small, crosses=list(_crosses(rows)) if rows else [])


def _crosses(rows: Sequence[_Row]) -> Iterator[tuple[str, list[dict[str, str]]]]:
    for activation in CROSS_ACTIVATIONS:
        chosen = [row for row in rows if row["activation"] == activation]
        layernorm = matrix([row for row in chosen if row["norm_kind"] == "layernorm"])
        rmsnorm = matrix([row for row in chosen if row["norm_kind"] == "rmsnorm"])
        yield f"{activation}, LayerNorm", layernorm
        if others := [row for row in rmsnorm if row not in layernorm]:
            yield f"{activation}, RMSNorm", others


def matrix(rows: Sequence[_Row]) -> list[dict[str, str]]:
    """The orders of one activation and norm, scheme by optimizer; optimizers that are alike share a column."""
    cells = {(row["scheme"], row["optimizer"]): row["approximate"] or "not decided" for row in rows}
    schemes = list(dict.fromkeys(name for name, _ in cells))
    alike: dict[tuple[str, ...], list[str]] = {}
    for optimizer in dict.fromkeys(name for _, name in cells):
        alike.setdefault(tuple(cells[name, optimizer] for name in schemes), []).append(optimizer)
    columns = {", ".join(names): column for column, names in alike.items()}
    return [{"scheme": name, **{head: column[i] for head, column in columns.items()}} for i, name in enumerate(schemes)]


def beside_printed(doc: Document) -> list[dict[str, Any]]:
    return merged([row.model_dump(mode="json") for row in doc.tables])


# ---------------------------------------------------------------- schemes

SCHEME_COLUMNS = ("Scheme", "Norms", "a", "b", "c", "w", "v", "Rate, sign type", "Source")
_FORM = (
    r"$$ x_l = \mathrm{norm}_{\mathrm{post}}\left( a\, x_{l-1} + b\, \mathrm{norm}_{\mathrm{branch}}\left( W_2\, "
    r"\mathrm{norm}_{\mathrm{inner}}\left( \phi( W_1\, c\, \mathrm{norm}_{\mathrm{pre}}( x_{l-1} ) ) \right) \right) "
    r"\right) $$"
)


@dataclass(frozen=True, kw_only=True)
class SchemeRow:
    name: str
    norms: str
    laws: Sequence[Markup | str]
    source: str


def form() -> Markup:
    """The one form of a sublayer, as ``theory.stack`` has it."""
    return typeset.prose(_FORM)


def schemes() -> list[SchemeRow]:
    return [
        SchemeRow(name=one.name, norms=_norms(one.stack), laws=_laws(one), source=one.source)
        for one in SCHEMES.values()
    ]


def _norms(stack: Stack) -> str:
    text = ", ".join(stack.placement.names) or "none"
    if stack.norm_function:
        text = f"{stack.norm_function}: {text}"
    if stack.even is not None:
        text += f"; of FFNs {', '.join(stack.even.names) or 'none'}"
    if stack.early is not None:
        text += f"; of the first {stack.early_share} of the layers {', '.join(stack.early.names)}"
    return f"{text}; a second stream" if stack.has_second_stream else text


def _laws(one: Scheme) -> list[Markup | str]:
    """a, b, c, w, v and what multiplies the learning rate, empty where it is 1."""
    stack = one.stack
    trained = " (trained)" if stack.trains_branch_weight else ""
    residual = "Admin's rule" if stack.residual_weight is None else _law(stack.residual_weight)
    branch = f"{_law(stack.branch_weight) or '1'}{trained}" if trained else _law(stack.branch_weight)
    rest = (stack.input_scale, stack.gain_in, stack.gain_out, one.sign_lr_multiplier)
    return [residual, Markup(branch), *map(_law, rest)]


def _law(value: Any) -> Markup:
    return Markup() if value == 1 else typeset.expression(value)
