"""The graph of claims: which leans on which, from left to right; its template draws it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from textwrap import wrap

import networkx as nx

from depthlaw.paper_checks.notation.signs import signs
from depthlaw.paper_checks.report.model import Claim

NODE = (224, 44)
"""Width and height: two lines of words."""
_COLUMN, _ROW = 254, 54
_MARGIN = 6
_LINE = 26
"""Characters in a line of a node."""
_SWEEPS = 12

Place = tuple[float, float]


def neighbours(claims: Sequence[Claim]) -> dict[str, tuple[list[str], list[str]]]:
    """By id, those of these claims that it leans on and those that lean on it, in their order."""
    used_by: dict[str, list[str]] = {claim.id: [] for claim in claims}
    uses = {claim.id: [id_ for id_ in claim.uses if id_ in used_by] for claim in claims}
    for id_, several in uses.items():
        for used in several:
            used_by[used].append(id_)
    return {id_: (uses[id_], used_by[id_]) for id_ in uses}


@dataclass(frozen=True)
class Box:
    """A claim, where its left upper corner is, and its two lines of words."""

    claim: Claim
    corner: tuple[int, int]
    lines: tuple[str, str]


@dataclass(frozen=True)
class Graph:
    """One set of claims that hang together. edges: from, to, the line, and where its head is."""

    ids: Sequence[str]
    wide: int
    high: int
    edges: Sequence[tuple[str, str, str, Place]]
    boxes: Sequence[Box]


def graphs(claims: Sequence[Claim]) -> list[Graph]:
    """Of each set of claims that hang together, the largest first; no claim that stands alone."""
    by_id = {claim.id: claim for claim in claims}
    whole = nx.DiGraph((used, id_) for id_, (uses, _) in neighbours(claims).items() for used in uses)
    linked = sorted(nx.weakly_connected_components(whole), key=lambda ids: (-len(ids), min(ids)))
    return [_graph(whole.subgraph(ids), by_id) for ids in linked]


# ---------------------------------------------------------------- layout


def places(linked: nx.DiGraph) -> dict[Hashable, Place]:
    """The left upper corner of each claim, right of all that it leans on and next to what leans on it.

    An edge over several columns passes between the claims there: its place in each is under (from, to, column).
    """
    column: dict[Hashable, int] = {
        node: place for place, nodes in enumerate(nx.topological_generations(linked)) for node in nodes
    }
    for node in linked:
        if not linked.in_degree(node):
            column[node] = min(column[after] for after in linked.successors(node)) - 1
    column |= {point: point[2] for edge in linked.edges for point in _between(edge, column)}
    links = nx.Graph(pair for edge in linked.edges for pair in pairwise(_path(edge, column)))
    return {node: (column[node] * _COLUMN, row * _ROW) for node, row in _rows(column, links).items()}


def _between(edge: tuple[str, str], column: Mapping[Hashable, int]) -> list[tuple[str, str, int]]:
    return [(*edge, place) for place in range(column[edge[0]] + 1, column[edge[1]])]


def _path(edge: tuple[str, str], column: Mapping[Hashable, int]) -> list[Hashable]:
    return [edge[0], *_between(edge, column), edge[1]]


def _rows(column: Mapping[Hashable, int], links: nx.Graph) -> dict[Hashable, float]:
    """Each column about the middle, in the order of what its claims are linked to, first on one side, then on the
    other, again and again.
    """
    rows: dict[Hashable, float] = dict.fromkeys(column, 0.0)
    for sweep in range(_SWEEPS):
        step = 1 if sweep % 2 == 0 else -1
        for place in sorted(set(column.values()))[::step]:
            nodes = [node for node in column if column[node] == place]
            sides = {node: [rows[other] for other in links[node] if column[other] == place - step] for node in nodes}
            means = {node: sum(side) / len(side) if side else rows[node] for node, side in sides.items()}
            nodes.sort(key=lambda node, means=means: (means[node], str(node)))
            rows |= {node: i - (len(nodes) - 1) / 2 for i, node in enumerate(nodes)}
    least = min(rows.values())
    return {node: row - least for node, row in rows.items()}


# ---------------------------------------------------------------- drawing


def _graph(linked: nx.DiGraph, by_id: Mapping[str, Claim]) -> Graph:
    at = {node: (int(x) + _MARGIN, int(y) + _MARGIN) for node, (x, y) in places(linked).items()}
    column = {node: (x - _MARGIN) // _COLUMN for node, (x, _) in at.items()}
    wide, high = (max(place[i] for place in at.values()) + NODE[i] + _MARGIN for i in (0, 1))
    edges = [_edge(edge, [at[node] for node in _path(edge, column)]) for edge in sorted(linked.edges)]
    boxes = [Box(by_id[node], at[node], _lines(by_id[node])) for node in sorted(linked, key=lambda node: at[node])]
    return Graph(sorted(linked), wide, high, edges, boxes)


def _edge(edge: tuple[str, str], corners: Sequence[Place]) -> tuple[str, str, str, Place]:
    """From the right side of a claim, through the middles of the places between, to the left side of the other."""
    middles = [(x, y + NODE[1] / 2) for x, y in corners]
    path = ""
    for (x, y), (to_x, to_y) in pairwise(middles):
        start, bend = x + NODE[0], (to_x - x - NODE[0]) / 2
        path += f"{'L' if path else 'M'}{start:g} {y:g}"
        path += f"C{start + bend:g} {y:g} {to_x - bend:g} {to_y:g} {to_x:g} {to_y:g}"
    return *edge, path, middles[-1]


def _lines(claim: Claim) -> tuple[str, str]:
    words = f"{claim.id} {signs(claim.statement)}"
    first, *rest = wrap(words, _LINE, max_lines=2, placeholder=" …", break_on_hyphens=False)
    return first.removeprefix(claim.id), " ".join(rest)
