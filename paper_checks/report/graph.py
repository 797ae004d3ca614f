"""The graph of claims: which leans on which, as inline SVG, from left to right."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from textwrap import wrap

import networkx as nx
from markupsafe import Markup

from paper_checks.notation.signs import signs
from paper_checks.report.model import Claim

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


def graph(claims: Sequence[Claim]) -> Markup:
    """A drawing of each set of claims that hang together, the largest first; no claim that stands alone."""
    by_id = {claim.id: claim for claim in claims}
    whole = nx.DiGraph((used, id_) for id_, (uses, _) in neighbours(claims).items() for used in uses)
    linked = sorted(nx.weakly_connected_components(whole), key=lambda ids: (-len(ids), min(ids)))
    return _style(whole) + Markup("\n").join(_drawing(whole.subgraph(ids), by_id) for ids in linked)


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


def _drawing(linked: nx.DiGraph, by_id: Mapping[str, Claim]) -> Markup:
    at = {node: (x + _MARGIN, y + _MARGIN) for node, (x, y) in places(linked).items()}
    column = {node: round((x - _MARGIN) / _COLUMN) for node, (x, _) in at.items()}
    edges = [_edge(edge, [at[node] for node in _path(edge, column)]) for edge in sorted(linked.edges)]
    nodes = [_node(by_id[node], at[node]) for node in sorted(linked, key=lambda node: at[node])]
    wide, high = (max(place[i] for place in at.values()) + NODE[i] + _MARGIN for i in (0, 1))
    svg = (
        '<div class="scroll graph-box" role="region" aria-label="{0}" tabindex="0"><svg role="group" width="{1:.0f}" '
        'height="{2:.0f}" viewBox="0 0 {1:.0f} {2:.0f}"><title>{0}</title>{3}</svg></div>'
    )
    name = f"{len(linked)} claims that lean on one another, {min(linked)} among them"
    return Markup(svg).format(name, wide, high, Markup("").join([*edges, *nodes]))


def _edge(edge: tuple[str, str], corners: Sequence[Place]) -> Markup:
    """From the right side of a claim, through the middles of the places between, to the left side of the other."""
    middles = [(x, y + NODE[1] / 2) for x, y in corners]
    path = ""
    for (x, y), (to_x, to_y) in pairwise(middles):
        start, bend = x + NODE[0], (to_x - x - NODE[0]) / 2
        path += f"{'L' if path else 'M'}{start:g} {y:.1f}"
        path += f"C{start + bend:g} {y:.1f} {to_x - bend:g} {to_y:.1f} {to_x:g} {to_y:.1f}"
    x, y = middles[-1]
    text = '<g class="edge {0} {1}" data-from="{0}" data-to="{1}"><path class="line" d="{2}"/><path d="{3}"/></g>'
    return Markup(text).format(*edge, path, f"M{x:g} {y:.1f}l-9 -4.5v9z")


def _node(claim: Claim, at: Place) -> Markup:
    (x, y), (wide, high) = at, NODE
    statement = signs(claim.statement)
    lines = wrap(f"{claim.id} {statement}", _LINE, max_lines=2, placeholder=" …", break_on_hyphens=False)
    return Markup(
        '<a href="source-{source}.html#{id}" class="node {colour}" data-id="{id}" aria-label="{name}"><title>{name}'
        '</title><rect x="{x:g}" y="{y:.1f}" width="{wide}" height="{high}" rx="5"/><path class="mark" '
        'd="M{x:g} {top:.1f}h22v{tall}h-22z"/><text class="sign" x="{mark_x:g}" y="{base:.1f}">{mark}</text>'
        '<text x="{text_x:g}" y="{upper:.1f}"><tspan class="id">{id}</tspan>{first}</text>'
        '<text x="{text_x:g}" y="{lower:.1f}">{second}</text></a>'
    ).format(
        source=claim.source,
        id=claim.id,
        colour=claim.verdict.value.lower(),
        name=f"{claim.id}, {claim.verdict.value}: {statement}",
        first=lines[0].removeprefix(claim.id),
        second=" ".join(lines[1:]),
        mark=claim.verdict.symbol,
        **{"x": x, "y": y, "wide": wide, "high": high, "top": y + 1, "tall": high - 2, "base": y + high / 2 + 4.5},
        **{"mark_x": x + 11, "text_x": x + 29, "upper": y + high / 2 - 4, "lower": y + high / 2 + 13},
    )


def _style(whole: nx.DiGraph) -> Markup:
    """What stands out while a claim is pointed at or has the focus: its arrows, by a rule of its own."""
    on = ":is(:hover,:focus-visible)"
    own = [f'.graph:has([data-id="{id_}"]{on}) .{id_}' for id_ in sorted(whole)]
    if not own:
        return Markup()
    lines = ",".join(f"{one} .line" for one in own)
    return Markup(
        f"<style>.graph:has(.node{on}) .edge{{opacity:.12}}{','.join(own)}{{opacity:1;fill:var(--ink)}}"
        f"{lines}{{stroke:var(--ink);stroke-width:2.4}}</style>"
    )
