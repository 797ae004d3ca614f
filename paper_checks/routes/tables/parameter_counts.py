"""How many parameters a Transformer of given shape has."""

from __future__ import annotations

from dataclasses import dataclass

from depthlaw.paper_checks.claims.claim import Route
from depthlaw.paper_checks.claims.statements import Changeable
from depthlaw.paper_checks.routes.checks import Answers, check


@dataclass(frozen=True, kw_only=True)
class Count(Changeable):
    """So many parameters: from ``low`` up to, not including, ``high``.

    stacks: (layers, attentions in each): (N, 1) an encoder or a lone decoder, (M, 2) a decoder with cross-attention.
    rows: of all embedding tables together. ffn_ratio: hidden width over width. Biases and norms are not counted.
    """

    stacks: tuple[tuple[int, int], ...]
    width: int
    rows: int
    low: int
    high: int
    words: str
    ffn_ratio: int = 4

    @property
    def text(self) -> str:
        layers = " + ".join(f"{count} layers of {attentions} attention + FFN" for count, attentions in self.stacks)
        return f"{layers}, width {self.width}, {self.rows} embedding rows: {self.words}"


def to_rounding(printed: str, unit: int) -> tuple[int, int]:
    """The whole numbers that round half up to ``printed`` units: ("3.2", 10^9) is 3.15 to 3.25 billion."""
    digits = len(printed.partition(".")[2])
    half = unit // (2 * 10**digits)
    centre = int(printed.replace(".", "")) * unit // 10**digits
    return centre - half, centre + half


@check(Route.ARITHMETIC, "")
def counted(statement: Count) -> Answers:
    """(4 attentions + 2 ratio) d^2 a layer."""
    d, of_ffn = statement.width, 2 * statement.ffn_ratio
    per_square = sum(layers * (4 * attentions + of_ffn) for layers, attentions in statement.stacks)
    matrices, embeddings = per_square * d**2, statement.rows * d
    total = matrices + embeddings
    return Answers(
        holds=[statement.low <= total < statement.high],
        detail=f"4 d^2 an attention and {of_ffn} d^2 an FFN, and d for each embedding row: {total}",
        numbers={"matrices": matrices, "embeddings": embeddings, "total": total},
        steps=(
            f"matrices: {' + '.join(f'{n} * (4 * {a} + {of_ffn})' for n, a in statement.stacks)} "
            f"= {per_square}, times {d}^2 = {matrices}",
            f"embeddings: {statement.rows} * {d} = {embeddings}",
            f"together {total}, to lie from {statement.low} to {statement.high}",
        ),
    )
