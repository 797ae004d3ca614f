"""``depthlaw tables``: as JSON, Markdown, LaTeX, CSV, or for people."""

from __future__ import annotations

import csv
import functools
import io
from typing import Any

from depthlaw.cli.shared import options
from depthlaw.cli.shared.options import BadInputError, option
from depthlaw.cli.shared.output import print_json, progress, say
from depthlaw.system.files import document
from depthlaw.system.page import Page, grid
from depthlaw.system.stopping import telling

EXAMPLES = (
    "tables --only cross --activation gelu",
    "tables --only deepnet --markdown",
    "tables --only su-optimizers --latex",
    "tables --derive --json",
)
Table = dict[str, Any]
_NAMES = ("scheme", "optimizer", "architecture", "side")
"""Columns of names that people copy: never broken."""
SHOWN_OPTIMIZERS = ("sgd", "adam", "lamb", "lars", "muon")
"""One of each kind that differs; the others' rows equal one of these (but for depth-muP's multiplier)."""


def run(
    as_json: bool = options.JSON,
    is_markdown: bool = option("Print Markdown tables.", called="--markdown"),
    is_latex: bool = option("Print LaTeX tabulars, which need amsmath.", called="--latex"),
    is_csv: bool = option("Print comma-separated values.", called="--csv"),
    derive: bool = option("Derive the tables now, whatever was generated before."),
    write: bool = option("Derive the tables, and rewrite the generated file."),
    only: str | None = option("Print one table only.", metavar="ID", complete=options.one_table),
    activation: str = option("The activation that `cross` shows to people", "relu", known=options.ACTIVATIONS),
    norm_kind: str = option("The kind of norm that `cross` shows to people", "layernorm", known=options.NORM_KINDS),
) -> None:
    """Print the theory's tables: rules by optimizer and architecture, bounds, and every scheme under every optimizer.

    su-optimizers, su-prenorm, deepnet, magneto-gamma and bounds are the papers'
    own tables, derived anew. cross has the leading order in depth of the update
    of every scheme under every optimizer, activation and kind of norm.
    """
    from depthlaw.paper_checks.verify import tables_file

    if as_json + is_markdown + is_latex + is_csv > 1:
        raise BadInputError("give one of --json, --markdown, --latex, --csv, not several")
    tables = None if derive or write else tables_file.stored()
    if tables is None:
        if not (derive or write):
            say("theory has changed since the tables were generated; deriving them")
        with telling("nothing was written"), progress() as tell:
            tables = tables_file.derive(functools.partial(tell, "deriving the tables"))
    if write:
        tables_file.write(tables)
        say(f"wrote {tables_file.FILE.relative_to(tables_file.ROOT.parent)}")
    if only is not None:
        ids = [table["id"] for table in tables]
        if only not in ids:
            raise BadInputError(f"--only must be one of {', '.join(ids)}, not {only!r}")
        tables = [table for table in tables if table["id"] == only]
    if as_json:
        print_json(document(tables=tables))
    elif is_markdown:
        print(*map(markdown, tables), sep="\n", end="")
    elif is_latex:
        print(packages(tables), *map(latex, tables), sep="\n", end="")
    elif is_csv:
        print(*(comma_separated(table, with_id=only is None) for table in tables), sep="\n", end="")
    else:
        show(tables, activation, norm_kind)


def markdown(table: Table) -> str:
    from depthlaw.paper_checks.pages.markdown import code
    from depthlaw.paper_checks.pages.markdown import table as lines

    rows = [["" if cell is None else code(str(cell)) for cell in row.values()] for row in table["rows"]]
    return f"**{table['id']}**: {table['title']}\n\n{lines(list(table['rows'][0]), rows)}"


def comma_separated(table: Table, *, with_id: bool) -> str:
    out = io.StringIO()
    if with_id:
        out.write(f"# {table['id']}\n")
    writer = csv.DictWriter(out, fieldnames=list(table["rows"][0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table["rows"])
    return out.getvalue()


LATEX_LEAVES_OUT = {
    "bounds": ("bound",),  # sums over several lines: too wide for a cell
    "cross": ("rung", "coefficient", "power", "log_power", "loglog_power", "growth", "shown_by"),
}
"""Columns by table; of `cross`, those that `approximate` has in one, and sentences."""
_ROWS_OF_A_PAGE = 40
_ESCAPES = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        **{sign: f"\\{sign}" for sign in "_&%#${}"},
        **{sign: f"${sign}$" for sign in "<>|"},
        "^": r"\^{}",
        "~": r"\~{}",
    }
)


def packages(tables: list[Table]) -> str:
    """A comment that says what a document needs for these tables."""
    needed = ["amsmath", *(["longtable"] if any(_is_long(table) for table in tables) else [])]
    return f"% \\usepackage{{{','.join(needed)}}}\n"


def latex(table: Table) -> str:
    """A tabular, or a longtable where it needs pages: formulas typeset, text escaped."""
    left_out = LATEX_LEAVES_OUT.get(table["id"], ())
    columns = [name for name in table["rows"][0] if name not in left_out]
    head = " & ".join(_latex_cell(name.replace("_", " ")) for name in columns) + r" \\ \hline"
    letters = "@{}" + "l" * len(columns) + "@{}"
    begin, end = f"\\begin{{tabular}}{{{letters}}}", r"\end{tabular}"
    if _is_long(table):  # small enough for the width of an article
        begin = r"{\scriptsize\setlength{\tabcolsep}{3pt}" + f"\n\\begin{{longtable}}{{{letters}}}"
        head, end = head + "\n" + r"\endhead", "\\end{longtable}\n}"
    lines = [f"% {table['id']}: {table['title']}"]
    if left_out:
        lines.append(f"% left out, see --csv: {', '.join(left_out)}")
    lines += [begin, head]
    lines += [" & ".join(_latex_cell(row[name]) for name in columns) + r" \\" for row in table["rows"]]
    return "\n".join([*lines, end]) + "\n"


def _is_long(table: Table) -> bool:
    return len(table["rows"]) > _ROWS_OF_A_PAGE


@functools.cache  # a few hundred different cells in thousands of rows
def _latex_cell(text: str | None) -> str:
    from depthlaw.paper_checks.notation.signs import is_formula
    from depthlaw.paper_checks.notation.signs import latex as of_cell

    if text is None:
        return "--"
    formula = text.removeprefix("faster than any power, ")
    return f"${of_cell(formula)}$" if is_formula(formula) else text.translate(_ESCAPES)


def show(tables: list[Table], activation: str, norm_kind: str) -> None:
    """Tables for people; the long cross table as a matrix of one activation and norm kind."""
    from rich.box import SIMPLE_HEAD

    page = Page()
    for table in tables:
        rows, is_cross = table["rows"], table["id"] == "cross"
        # Six columns in 80: no room for lines between them.
        style: dict[str, Any] = {"box": SIMPLE_HEAD, "padding": 0, "pad_edge": False} if is_cross else {}
        if is_cross:
            rows = matrix(rows, activation, norm_kind)
        cells = (
            ["" if cell is None else _broken(str(cell).replace("[", r"\[")) for cell in row.values()] for row in rows
        )
        heads = list(rows[0])
        page.show(grid(heads, cells, heads, f"{table['id']}: {table['title']}", _NAMES, **style))
        if is_cross:
            page.say(
                f"{activation}, {norm_kind}; `1` is flat in N. adamw, rmsprop, signsgd, lion and sophia move as adam, "
                "momentum as sgd, adafactor as lamb; depth-mup scales its rate under all but sgd and momentum. "
                "--json has every activation, the coefficients' derivations and all twelve optimizers.",
                "dim",
            )


def _broken(cell: str) -> str:
    """Where an order has a power of a logarithm or an exponential too, on a second line: spaces inside of these are no
    place to break."""
    return cell.replace(" (log ", "\n(log ").replace(" exp(", "\nexp(")


def matrix(rows: list[dict[str, Any]], activation: str, norm_kind: str) -> list[dict[str, Any]]:
    """The approximate orders of one activation and norm kind, scheme by optimizer."""
    chosen = [row for row in rows if row["activation"] == activation and row["norm_kind"] == norm_kind]
    schemes = dict.fromkeys(row["scheme"] for row in chosen)
    cells = {(row["scheme"], row["optimizer"]): row["approximate"] or "not decided" for row in chosen}
    return [{"scheme": name, **{opt: cells[name, opt] for opt in SHOWN_OPTIMIZERS}} for name in schemes]
