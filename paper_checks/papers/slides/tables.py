"""The tables of results on the slides of Magneto, as they print them, and a reader of them.

Each table stands below as its text, tab by tab, bold marks and empty cells included, so that it can be compared with
the source by eye and a claim can quote a row. Numbers stay the strings that were printed: their digits say how they
were rounded. Names are made one (Normformer, NormFormer), a cell for two models is cut in two, and so is ``86.7/86.7``
of MNLI (matched, mismatched). Empty cells at the end of a line are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import zip_longest

DIVERGED = "diverged"
AVERAGE = "Avg."
_NAMES = {"Normformer": "NormFormer", "MAGNETO": "Magneto"}
_MNLI = ("MNLI-m", "MNLI-mm")


@dataclass(frozen=True, kw_only=True)
class Score:
    """One printed number. ``printed`` is its text without the bold mark."""

    column: str
    printed: str
    is_bold: bool

    @property
    def value(self) -> Decimal:
        return Decimal(self.printed)


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is printed of one run. ``scores`` has the average last, and is empty where the run diverged.

    layers: "24L", that of the block; "" in a table of one depth. rate: the learning rate; "" where none is printed.
    line: the row as it is printed.
    """

    model: str
    layers: str
    rate: str
    is_rate_bold: bool
    scores: tuple[Score, ...]
    line: str

    @property
    def has_diverged(self) -> bool:
        return not self.scores

    def __getitem__(self, column: str) -> Score:
        return next(score for score in self.scores if score.column == column)

    @property
    def counted(self) -> tuple[Score, ...]:
        """The scores that an average can be of."""
        return tuple(score for score in self.scores if score.column != AVERAGE)


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of one block: model, printed number, whether it is bold. is_error: the smaller the better."""

    table: str
    block: str
    name: str
    entries: tuple[tuple[str, str, bool], ...]
    is_error: bool = False

    @property
    def place(self) -> str:
        return " ".join(word for word in (self.block, self.table, self.name) if word)

    def only(self, *models: str) -> Column:
        """The same column of these models alone."""
        kept = tuple(entry for entry in self.entries if entry[0] in models)
        return Column(table=self.table, block=self.block, name=self.name, entries=kept, is_error=self.is_error)

    def of(self, model: str) -> str:
        return next(printed for name, printed, _ in self.entries if name == model)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A printed table. ``locator``: where it stands on the slides."""

    name: str
    locator: str
    text: str
    rows: tuple[Row, ...]
    is_error: bool

    @property
    def blocks(self) -> tuple[str, ...]:
        """Depths in their order; one empty name where the table has none."""
        return tuple(dict.fromkeys(row.layers for row in self.rows))

    @property
    def trained(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if not row.has_diverged)

    def row(self, model: str, layers: str = "") -> Row:
        """The run of that model that did not diverge: there is one."""
        (found,) = (row for row in self.trained if (row.model, row.layers) == (model, layers))
        return found

    def columns(self) -> Iterator[Column]:
        """Every column of every block, the average last."""
        for block in self.blocks:
            rows = [row for row in self.trained if row.layers == block]
            for score in rows[0].scores:
                cells = [(row.model, row[score.column]) for row in rows]
                yield Column(
                    table=self.name,
                    block=block,
                    name=score.column,
                    entries=tuple((model, cell.printed, cell.is_bold) for model, cell in cells),
                    is_error=self.is_error,
                )

    def column(self, name: str, block: str = "") -> Column:
        return next(found for found in self.columns() if (found.name, found.block) == (name, block))


# ---------------------------------------------------------------- reading


def _words(cell: str, count: int) -> list[tuple[str, bool]]:
    """A cell's ``count`` words, with whether each is bold; empty where the cell is."""
    if not cell:
        return [("", False)] * count
    found = [(bold or plain, bool(bold)) for bold, plain in re.findall(r"<b>([^<]*)</b>|([^\s<]+)", cell)]
    if len(found) != count:
        raise ValueError(f"{cell!r} is not {count} words")
    return found


def _header(lines: Sequence[str]) -> tuple[list[str], int]:
    """Names of the columns, and how many lines they take: the second one, where it begins empty, is under the first."""
    top = [cell.replace(r"$\rightarrow$", "->") for cell in lines[0].split("\t")]
    if not lines[1].startswith("\t"):
        return top, 1
    names, group = [], ""
    for over, under in zip_longest(top, lines[1].split("\t"), fillvalue=""):
        group = over or group
        names.append(f"{group} {under}".strip())
    return names, 2


def _scores(column: str, printed: str, is_bold: bool) -> Iterator[Score]:
    names = _MNLI if column == "MNLI" else (column,)
    for name, number in zip(names, printed.split("/"), strict=True):
        yield Score(column=name, printed=str(Decimal(number)), is_bold=is_bold)


def read_table(name: str, locator: str, text: str, *, is_error: bool = False) -> Table:
    """A printed table from its text; ValueError where a row does not fit the header."""
    lines = text.strip("\n").split("\n")
    names, used = _header(lines)
    rows, layers = [], ""
    for line in lines[used:]:
        found = line.split("\t")
        cells = dict(zip(names, [*found, *[""] * (len(names) - len(found))], strict=True))
        layers = cells.pop("# Layers", "") or layers
        models: list[str] = [
            bold or plain for bold, plain in re.findall(r"<b>([^<]*)</b>|([^\s<]+)", cells.pop("Models"))
        ]
        ((rate, is_rate_bold),) = _words(cells.pop("LR", ""), 1)
        has_diverged = DIVERGED in cells.values()
        split = {column: _words(cell, len(models)) for column, cell in cells.items()}
        for i, model in enumerate(models):
            scores = () if has_diverged else (one for c, words in split.items() for one in _scores(c, *words[i]))
            rows.append(
                Row(
                    model=_NAMES.get(model, model),
                    layers=layers,
                    rate=rate,
                    is_rate_bold=is_rate_bold,
                    scores=tuple(scores),
                    line=line,
                )
            )
    return Table(name=name, locator=locator, text=text, rows=tuple(rows), is_error=is_error)


# ---------------------------------------------------------------- the tables

ZERO_SHOT = read_table(
    "zero-shot",
    "Experiments, causal language modeling, zero-shot table",
    """
Models	# Layers	LR	WGe	WG	SC	HS	Avg.
Pre-LN	24L	5e-4	<b>55.2</b>	65.3	70.8	44.8	59.0
Pre-LN		1e-3			diverged
Normformer		5e-4	54.3	68.1	72.0	45.9	60.1
Normformer		1e-3			diverged
<b>MAGNETO</b>		1e-3	54.3	<b>71.9</b>	<b>72.4</b>	<b>46.9</b>	<b>61.4</b>
Pre-LN	48L	5e-4	<b>57.3</b>	67.0	74.0	48.0	61.6
Normformer		5e-4	56.5	70.5	74.0	49.8	62.7
<b>MAGNETO</b>		1.2e-3	57.0	<b>73.3</b>	<b>74.7</b>	<b>51.2</b>	<b>64.1</b>
Pre-LN	72L	5e-4	<b>58.0</b>	70.9	75.7	51.7	64.1
Normformer		5e-4	57.4	<b>75.4</b>	75.2	53.6	65.4
<b>MAGNETO</b>		1.2e-3	57.9	73.7	<b>76.6</b>	<b>55.1</b>	<b>65.8</b>
""",
)

FOUR_SHOT = read_table(
    "four-shot",
    "Experiments, causal language modeling, four-shot table",
    """
Models	# Layers	LR	WGe	WG	SC	HS	Avg.
Pre-LN	24L	5e-4	54.0	67.7	69.8	44.6	59.0
Pre-LN		1e-3			diverged
Normformer		5e-4	54.3	70.2	71.4	45.9	60.5
Normformer		1e-3			diverged
<b>MAGNETO</b>		1e-3	<b>57.6</b>	<b>74.7</b>	<b>72.8</b>	<b>47.5</b>	<b>63.2</b>
Pre-LN	48L	5e-4	57.7	71.2	73.8	48.7	62.9
Normformer		5e-4	56.8	<b>75.4</b>	75.9	50.7	<b>64.7</b>
<b>MAGNETO</b>		1.2e-3	<b>57.9</b>	71.9	<b>76.4</b>	<b>51.9</b>	64.5
Pre-LN	72L	5e-4	57.5	73.3	76.1	52.4	64.8
Normformer		5e-4	57.7	<b>74.0</b>	77.0	54.9	65.9
<b>MAGNETO</b>		1.2e-3	<b>58.3</b>	<b>74.0</b>	<b>79.0</b>	<b>55.7</b>	<b>66.8</b>
""",
)

GLUE = read_table(
    "GLUE",
    "Experiments, masked language modeling, GLUE table",
    """
Models	LR	MNLI	QNLI	QQP	SST	CoLA	MRPC	STS	Avg.
Post-LN	5e-4	<b>86.7/86.7</b>	92.2	91.0	93.4	59.8	86.4	<b>89.4</b>	85.7
Post-LN	1e-3				diverged
Pre-LN	1e-3	85.6/85.4	92.2	91.1	93.4	55.6	85.1	88.4	84.6
Pre-LN	2e-3				diverged
<b>MAGNETO</b>	<b>3e-3</b>	<b>86.7/86.7</b>	<b>92.4</b>	<b>91.2</b>	<b>93.9</b>	<b>62.9</b>	<b>87.2</b>	89.2	<b>86.3</b>
""",  # noqa: E501 - a row of the slide stays one line, to be compared by eye
)

OPUS = read_table(
    "OPUS-100",
    "Experiments, machine translation, OPUS-100 table",
    r"""
Models	En $\rightarrow$ X	X $\rightarrow$ En	Avg.
Post-LN		diverged
Pre-LN	28.3	32.7	30.5
NormFormer	28.5	32.3	30.4
<b>MAGNETO</b>	<b>28.7</b>	<b>33.2</b>	<b>31.0</b>
""",
)

VISION = read_table(
    "vision",
    "Experiments, vision pre-training table",
    """
Models	# Layers	ImageNet	ImageNet Adversarial	ImageNet Rendition	ImageNet Sketch	ADE20k
Pre-LN <b>MAGNETO</b>	12L	84.5 <b>84.9</b>	45.9 <b>48.9</b>	55.6 <b>57.7</b>	42.2 <b>43.9</b>	51.4 <b>52.2</b>
Pre-LN <b>MAGNETO</b>	24L	86.2 <b>86.8</b>	60.1 <b>65.4</b>	63.2 <b>67.5</b>	48.5 <b>52.0</b>	54.2 <b>54.6</b>
""",  # noqa: E501 - a row of the slide stays one line, to be compared by eye
)

SPEECH = read_table(
    "speech",
    "Experiments, speech recognition table, LibriSpeech 960h",
    """
Models	# Layers	Dev-Clean	Dev-Other	Test-Clean	Test-Other
Pre-LN <b>MAGNETO</b>	18L	2.97 <b>2.68</b>	6.52 <b>6.04</b>	3.19 <b>2.99</b>	6.62 <b>6.16</b>
Pre-LN <b>MAGNETO</b>	36L	2.59 <b>2.43</b>	6.10 <b>5.34</b>	2.89 <b>2.72</b>	6.04 <b>5.56</b>
""",
    is_error=True,
)

VL = read_table(
    "vision-language",
    "Experiments, multi-modal pre-training table",
    """
Models	# Layers	VQA		NLVR2
		test-dev	test-std	dev	test-P
Pre-LN <b>MAGNETO</b>	24L	78.37 <b>79.00</b>	78.50 <b>79.01</b>	82.57 <b>83.35</b>	83.69 <b>84.23</b>
""",
)

TABLES = (ZERO_SHOT, FOUR_SHOT, GLUE, OPUS, VISION, SPEECH, VL)
