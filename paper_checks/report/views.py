"""What stands in the templates beside the document itself: words, tables, schemes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unicodedata import normalize

from markupsafe import Markup, escape

from depthlaw.paper_checks.claims.claim import Verdict
from depthlaw.paper_checks.notation.signs import signs
from depthlaw.paper_checks.papers.registry import claims as registered
from depthlaw.paper_checks.report import typeset
from depthlaw.paper_checks.report.model import Claim, Document, Part, counts
from depthlaw.paper_checks.verify import tables_file
from depthlaw.paper_checks.verify.document import small_tables, why_unexpected
from depthlaw.theory.schemes import SCHEMES, Scheme
from depthlaw.theory.stack import Stack
from depthlaw.theory.tables import CROSS_ACTIVATIONS

SHORT = {"su": "Su", "magneto": "Magneto", "slides": "Magneto's slides", "deepnet": "DeepNet", "admin": "Admin"}
SHORT |= {"fixup": "Fixup", "xiong": "Xiong et al."}
_DIGITS = 6
_FEW = 4
"""Characters of a line that is no line of a text."""
_WRAPPED = re.compile(r"(?<=[a-z])\n(?=[a-z])")
Row = Mapping[str, Any]


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
        return "; ".join(f"{name}: {said(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(said, value))
    return "none" if value is None else str(value)


def spaced(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows with the names of their columns as words."""
    return [{name.replace("_", " "): value for name, value in row.items()} for row in rows]


def page_of(claim: Claim) -> str:
    return f"source-{claim.source}.html"


def linked(text: str, claims: Mapping[str, Claim]) -> Markup:
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

    return Markup(re.sub(r"(<[^>]*>)|\b([A-Z][A-Z0-9]-\d\d)\b", replaced, str(escape(text))))


def is_scattered(text: str) -> bool:
    """A formula as the text of a PDF has it: its letters one by one, each on a line."""
    return any(len(line) <= _FEW for line in text.split("\n"))


def quoted(text: str) -> Markup:
    """Words of a source, typeset: lines that only a PDF's layout ended go on, and rows of a table are rows."""
    if "\t" in text:
        cell, row = Markup("<td>{}</td>"), Markup("<tr>{}</tr>")
        lines = ([_bold(cell) for cell in line.split("\t")] for line in text.split("\n"))
        rows = Markup().join(row.format(Markup().join(map(cell.format, cells))) for cells in lines)
        return Markup("<table><tbody>{}</tbody></table>").format(rows)
    if is_scattered(text):
        return typeset.quote(" ".join(text.split()))  # no formula is left in it that could be read
    return _bold(_WRAPPED.sub(" ", text))


def _bold(text: str) -> Markup:
    """What the slides print bold is bold, in HTML or in Markdown."""
    pieces = re.split(r"<b>(.*?)</b>", re.sub(r"\*\*([^*\n]+)\*\*", r"<b>\1</b>", text), flags=re.DOTALL)
    forms = Markup("{}"), Markup("<b>{}</b>")
    return Markup().join(forms[i % 2].format(typeset.prose(piece)) for i, piece in enumerate(pieces))


def searched(claim: Claim, texts: Mapping[str, str]) -> str:
    """What the search box looks through, in small letters: each sign and its name, λ and lambda."""
    parts = (text for part in claim.parts for text in (part.name, part.statement))
    text = " ".join((claim.id, claim.statement, claim.locator, claim.quote, texts.get(claim.id, ""), *parts))
    return " ".join(normalize("NFKC", f"{text} {signs(text)}").lower().split())


def held(several: Sequence[Claim]) -> str:
    """How many there are, and how many of them hold.

    >>> from types import SimpleNamespace
    >>> from depthlaw.paper_checks.claims.claim import Verdict
    >>> from depthlaw.paper_checks.report.views import held
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
    for candidate in known.parts if known is not None else ():
        if candidate.name == part.name and candidate.statement.text == part.statement:
            return typeset.statement(candidate.statement)
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
        f"{pair.topic}: expected to {'agree' if pair.expected else 'differ'}"
        for pair in doc.sources_beside
        if pair.agree is not pair.expected
    )
    if doc.summary.tables.generated_file != "in step":
        yield f"the generated file of tables is {doc.summary.tables.generated_file}"


def routed(doc: Document) -> str:
    """By how many routes the parts of the claims are checked: a sentence that the list of routes follows."""
    numbers = [len(part.routes) for claim in doc.claims for part in claim.parts]
    fewer = sum(number < 2 for number in numbers)
    by_two = "checked by two routes or more, which know nothing of one another"
    if not fewer:
        return f"Each part is {by_two}:"
    several = len(numbers) - fewer
    return f"Of {len(numbers)} parts, {several} are {by_two}; {fewer} by fewer, which their articles say:"


def rules() -> list[dict[str, str]]:
    """By optimizer: the weight of the skip and the gain of the tables derived, for Post-LN and for Pre-LN.

    >>> from depthlaw.paper_checks.report.views import rules
    >>> [list(row.values())[1:] for row in rules()][:1]
    [['(2*N)**(1/4)', '(2*N)**(-1/4)', '1/sqrt(2*N)']]
    """
    derived = {table["id"]: table["rows"] for table in small_tables()}
    post, pre = ({row["optimizer"] or "": row for row in derived[name]} for name in ("su-optimizers", "su-prenorm"))
    names = {"sgd": "SGD", "adam": "Adam, AdamW", "lamb": "LAMB"}
    return [
        {
            "Optimizer": names.get(optimizer, optimizer),
            "Post-LN: skip": row["alpha"] or "",
            "Post-LN: gain": row["lambda"] or "",
            "Pre-LN: gain": pre[optimizer]["lambda"] or "",
        }
        for optimizer, row in post.items()
    ]


# ---------------------------------------------------------------- tables


def tables() -> dict[str, Any]:
    """The derived tables; without the cross table where none is stored of these sources. small: tables as they are.
    crosses: title and matrix, scheme by optimizer."""
    derived = tables_file.stored() or small_tables()
    rows = next((table["rows"] for table in derived if table["id"] == "cross"), [])
    small = [{**table, "rows": spaced(table["rows"])} for table in derived if table["id"] != "cross"]
    return {"small": small, "crosses": list(_crosses(rows)) if rows else []}


def _crosses(rows: Sequence[Row]) -> Iterator[tuple[str, list[dict[str, str]]]]:
    for activation in CROSS_ACTIVATIONS:
        layernorm, rmsnorm = (
            matrix([row for row in rows if (row["activation"], row["norm_kind"]) == (activation, norm_kind)])
            for norm_kind in ("layernorm", "rmsnorm")
        )
        yield f"{activation}, LayerNorm", layernorm
        if others := [row for row in rmsnorm if row not in layernorm]:
            yield f"{activation}, RMSNorm", others


def matrix(rows: Sequence[Row]) -> list[dict[str, str]]:
    """The orders of one activation and norm, scheme by optimizer; optimizers that are alike share a column."""
    cells = {(row["scheme"], row["optimizer"]): row["approximate"] or "not decided" for row in rows}
    schemes = list(dict.fromkeys(name for name, _ in cells))
    alike: dict[tuple[str, ...], list[str]] = {}
    for optimizer in dict.fromkeys(name for _, name in cells):
        alike.setdefault(tuple(cells[name, optimizer] for name in schemes), []).append(optimizer)
    columns = {", ".join(names): column for column, names in alike.items()}
    return [{"scheme": name, **{head: column[i] for head, column in columns.items()}} for i, name in enumerate(schemes)]


# ---------------------------------------------------------------- schemes

_FORM = (
    r"$$ x_l = \mathrm{norm}_{\mathrm{post}}\left( a\, x_{l-1} + b\, \mathrm{norm}_{\mathrm{branch}}\left( W_2\, "
    r"\mathrm{norm}_{\mathrm{inner}}\left( \phi( W_1\, c\, \mathrm{norm}_{\mathrm{pre}}( x_{l-1} ) ) \right) \right) "
    r"\right) $$"
)


def form() -> Markup:
    """The one form of a sublayer, as ``theory.stack`` has it."""
    return typeset.prose(_FORM)


def schemes() -> list[dict[str, Any]]:
    """name, norms, laws and source of each."""
    return [
        {"name": scheme.name, "norms": _norms(scheme.stack), "laws": _laws(scheme), "source": scheme.source}
        for scheme in SCHEMES.values()
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


def _laws(scheme: Scheme) -> list[Markup | str]:
    """a, b, c, w, v and what multiplies the learning rate, empty where it is 1."""
    stack = scheme.stack
    residual = "Admin's rule" if stack.residual_weight is None else _law(stack.residual_weight)
    branch = _law(stack.branch_weight)
    if stack.trains_branch_weight:
        branch = Markup("{} (trained)").format(branch or "1")
    rest = (stack.input_scale, stack.gain_in, stack.gain_out, stack.embedding_scale, scheme.lr_multiplier)
    return [residual, branch, *map(_law, rest)]


def _law(value: Any) -> Markup:
    return Markup() if value == 1 else typeset.expression(value)
