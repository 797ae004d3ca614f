"""The graph of claims: which leans on which, as inline SVG, laid out left to right."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import networkx as nx
from markupsafe import Markup

from paper_checks.claims.claim import Verdict
from paper_checks.claims.sources import sources
from paper_checks.report.plain import plain

NODE = (82, 30)
"""Width and height: big enough for a finger."""
_COLUMN, _ROW = 138, 38
_WIDTH = 1240
_GAP, _MARGIN, _HEAD = 40, 16, 30
_SWEEPS = 12
_BY_GRID = 13

Entry = Mapping[str, Any]
"""A claim of the document: id, source, verdict, quote, uses."""
Place = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Block:
    """Claims that hang together. places: the left upper corner of each; waypoints: by edge, where it passes between."""

    places: Mapping[str, Place]
    waypoints: Mapping[tuple[str, str], Sequence[Place]]
    width: float
    height: float


def neighbours(entries: Sequence[Entry]) -> dict[str, tuple[list[str], list[str]]]:
    """By id, the claims that it leans on and those that lean on it, in the order of the entries."""
    used_by: dict[str, list[str]] = {str(entry["id"]): [] for entry in entries}
    for entry in entries:
        for used in entry["uses"]:
            used_by[used].append(entry["id"])
    return {entry["id"]: (list(entry["uses"]), used_by[entry["id"]]) for entry in entries}


def graph(entries: Sequence[Entry]) -> Markup:
    """In a box of its own that scrolls. KeyError where a claim leans on one that is not there."""
    by_id = {entry["id"]: entry for entry in entries}
    whole = nx.DiGraph()
    whole.add_nodes_from(by_id)
    whole.add_edges_from((used, id_) for id_, (uses, _) in neighbours(entries).items() for used in uses)
    linked = [block(whole.subgraph(one)) for one in nx.weakly_connected_components(whole) if len(one) > 1]
    order = list(sources())
    linked.sort(key=lambda one: (_source_place(one, by_id, order), -len(one.places)))
    placed, bottom = _packed(linked)
    parts = [_block(one, at, by_id) for one, at in placed]
    alone, height = _grid([by_id[id_] for id_ in by_id if not whole.degree(id_)], bottom, order)
    parts.append(alone)
    title = Markup("<title>Which claim leans on which</title><desc>{}</desc>").format(
        f"{len(by_id)} claims and {whole.number_of_edges()} arrows, each from a claim to one that leans on it. The "
        "list below has the same in words."
    )
    svg = Markup('<svg id="claim-graph" role="group" width="{}" height="{}" viewBox="0 0 {} {}" style="{}">{}{}</svg>')
    size = (_WIDTH, round(height))
    style = "font-size:13px;display:block"
    drawn = svg.format(*size, *size, style, title, Markup("").join([_style(whole), *parts]))
    box = (
        '<div class="graph-box" role="region" aria-label="Graph of claims" tabindex="0" '
        'style="overflow-x:auto;margin-block:1rem">{}</div>'
    )
    return _legend() + Markup(box).format(drawn)


# ---------------------------------------------------------------- layout


def block(found: nx.DiGraph) -> Block:
    """Left to right: each claim right of all that it leans on, as near to what leans on it as that allows.

    An edge over more than one column has a place of its own in each between, so that it runs around the claims there.
    """
    column = {node: place for place, nodes in enumerate(nx.topological_generations(found)) for node in nodes}
    for node in reversed(list(nx.topological_sort(found))):
        after = [column[other] for other in found.successors(node)]
        if not found.in_degree(node) and after:
            column[node] = min(after) - 1
    paths: dict[tuple[str, str], list[Hashable]] = {}
    for used, user in found.edges:
        between = [(used, user, place) for place in range(column[used] + 1, column[user])]
        paths[used, user] = [used, *between, user]
    column |= {node: node[2] for path in paths.values() for node in path[1:-1] if isinstance(node, tuple)}
    links = nx.Graph(pair for path in paths.values() for pair in pairwise(path))
    rows = _rows(column, links)
    height = max(rows.values()) * _ROW + NODE[1]
    corners = {node: (column[node] * _COLUMN, rows[node] * _ROW) for node in column}
    return Block(
        places={str(node): corners[node] for node in found},
        waypoints={edge: [corners[node] for node in path[1:-1]] for edge, path in paths.items()},
        width=max(column.values()) * _COLUMN + NODE[0],
        height=height,
    )


def _rows(column: Mapping[Hashable, int], links: nx.Graph) -> dict[Hashable, float]:
    """By the mean of what each is linked to, again and again, first from one side and then from the other."""
    columns: dict[int, list[Hashable]] = {}
    for node in sorted(column, key=str):
        columns.setdefault(column[node], []).append(node)
    rows = {node: float(place) for nodes in columns.values() for place, node in enumerate(nodes)}
    for sweep in range(_SWEEPS):
        step = 1 if sweep % 2 == 0 else -1
        for place in sorted(columns, reverse=step < 0):
            nodes = columns[place]
            wanted = {}
            for node in nodes:
                sides = [rows[other] for other in links[node] if column[other] == place - step]
                wanted[node] = sum(sides) / len(sides) if sides else rows[node]
            nodes.sort(key=lambda node, wanted=wanted: (wanted[node], str(node)))
            rows |= _apart([wanted[node] for node in nodes], nodes)
    least = min(rows.values())
    return {node: row - least for node, row in rows.items()}


def _apart(wanted: Sequence[float], nodes: Sequence[Hashable]) -> dict[Hashable, float]:
    """Rising rows a whole one apart, as near as that allows to what is wanted: runs that would meet share a middle."""
    runs: list[list[float]] = []
    for row in wanted:
        runs.append([row])
        while len(runs) > 1 and _start(runs[-1]) < _start(runs[-2]) + len(runs[-2]):
            runs[-2:] = [runs[-2] + [row - len(runs[-2]) for row in runs[-1]]]
    rows = [_start(run) + place for run in runs for place in range(len(run))]
    return dict(zip(nodes, rows, strict=True))


def _start(run: Sequence[float]) -> float:
    """Of a run whose rows are wanted so far above the start of their place in it."""
    return sum(run) / len(run)


def _source_place(found: Block, by_id: Mapping[str, Entry], order: Sequence[str]) -> int:
    """Of the source that most of its claims are of."""
    names = [by_id[id_]["source"] for id_ in found.places]
    return order.index(max(order, key=names.count))


def _packed(blocks: Sequence[Block]) -> tuple[list[tuple[Block, Place]], float]:
    """In two lanes, each block where there is room first; and where they end."""
    placed = []
    second = max((one.width for one in blocks), default=0.0) + 2 * _GAP + _MARGIN
    ends = {float(_MARGIN): float(_MARGIN), second: float(_MARGIN)}
    for one in blocks:
        fitting = [x for x in ends if x + one.width <= _WIDTH - _MARGIN] or [float(_MARGIN)]
        x = min(fitting, key=lambda lane: (ends[lane], lane))
        placed.append((one, (x, ends[x])))
        ends[x] += one.height + _GAP
    return placed, max(ends.values())


# ---------------------------------------------------------------- drawing


def _block(found: Block, at: Place, by_id: Mapping[str, Entry]) -> Markup:
    moved = {id_: (x + at[0], y + at[1]) for id_, (x, y) in found.places.items()}
    edges = [
        _edge(used, user, [moved[used], *((x + at[0], y + at[1]) for x, y in between), moved[user]])
        for (used, user), between in sorted(found.waypoints.items())
    ]
    ids = sorted(moved, key=lambda id_: moved[id_])
    return Markup("<g>{}{}</g>").format(
        Markup("").join(edges), Markup("").join(_node(by_id[id_], moved[id_]) for id_ in ids)
    )


def _edge(used: str, user: str, corners: Sequence[Place]) -> Markup:
    """From the right side of a claim, through the middles of its waypoints, to the left side of the other."""
    (wide, high), (first, *between, last) = NODE, corners
    tip = (last[0] - 7, last[1] + high / 2)
    ends = [(first[0] + wide, first[1] + high / 2)]
    for x, y in between:
        ends += [(x, y + high / 2), (x + wide, y + high / 2)]
    ends.append(tip)
    path = f"M{ends[0][0]:g} {ends[0][1]:.1f}"
    for (x, y), (to_x, to_y) in zip(ends[::2], ends[1::2], strict=True):
        bend = (to_x - x) / 2
        path += f"L{x:g} {y:.1f}C{x + bend:g} {y:.1f} {to_x - bend:g} {to_y:.1f} {to_x:g} {to_y:.1f}"
    head = f"M{tip[0] + 7:g} {tip[1]:.1f}l-9 -4.5v9z"
    text = '<g class="edge {0} {1}" data-from="{0}" data-to="{1}"><path class="line" d="{2}"/><path d="{3}"/></g>'
    return Markup(text).format(used, user, path, head)


def _node(entry: Entry, at: Place) -> Markup:
    verdict = Verdict(entry["verdict"])
    (x, y), (wide, high) = at, NODE
    name = f"{entry['id']}, {verdict.value}: {_short(plain(entry['quote']))}"
    colour = f"var(--{verdict.value.lower()})"
    return Markup(
        '<a href="source-{source}.html#{id}" class="node" data-id="{id}" data-verdict="{verdict}" aria-label="{name}">'
        '<title>{name}</title><rect x="{x:g}" y="{y:.1f}" width="{wide}" height="{high}" rx="5" '
        'style="fill:var(--panel);stroke:{colour}"/><path d="M{x:g} {top:.1f}h22v{tall}h-22z" style="fill:{colour}"/>'
        '<g text-anchor="middle"><text x="{mark_x:g}" y="{base:.1f}" style="fill:var(--paper);font-weight:700">{mark}'
        '</text><text x="{text_x:g}" y="{base:.1f}" style="fill:var(--ink)">{id}</text></g></a>'
    ).format(
        source=entry["source"],
        id=entry["id"],
        verdict=verdict.value,
        name=name,
        x=x,
        y=y,
        top=y + 1,
        wide=wide,
        high=high,
        tall=high - 2,
        colour=colour,
        mark_x=x + 11,
        text_x=x + 22 + (wide - 22) / 2,
        base=y + high / 2 + 4.5,
        mark=verdict.symbol,
    )


def _short(text: str, most: int = 120) -> str:
    words = " ".join(re.sub(r"</?b>|\*\*", "", text).split())
    return words if len(words) <= most else words[: most - 1].rsplit(" ", 1)[0] + "…"


def _grid(alone: Sequence[Entry], top: float, order: Sequence[str]) -> tuple[Markup, float]:
    """Claims without a link, by source, and where they end."""
    parts, y = [], top
    for source in order:
        here = [entry for entry in alone if entry["source"] == source]
        if not here:
            continue
        text = Markup('<text x="{}" y="{:.1f}" style="fill:var(--muted)">{}</text>')
        parts.append(text.format(_MARGIN, y + 14, f"{sources()[source].title}: linked to no other claim"))
        y += _HEAD
        step = (_WIDTH - 2 * _MARGIN) / _BY_GRID
        for place, entry in enumerate(here):
            parts.append(_node(entry, (_MARGIN + place % _BY_GRID * step, y + place // _BY_GRID * _ROW)))
        y += (-(-len(here) // _BY_GRID)) * _ROW + _HEAD / 2
    return Markup("<g>{}</g>").format(Markup("").join(parts)), y + _MARGIN


def _style(found: nx.DiGraph) -> Markup:
    """What stands out while a claim is pointed at or has the focus: its arrows, by a rule of its own."""
    near = "#claim-graph:has(.node:is(:hover,:focus-visible))"
    own = ",".join(
        f'#claim-graph:has([data-id="{id_}"]:is(:hover,:focus-visible)) .{id_}' for id_ in found if found.degree(id_)
    )
    return Markup(
        "<style>#claim-graph .edge{fill:var(--muted);stroke:none;opacity:.65}"
        "#claim-graph .line{fill:none;stroke:var(--muted);stroke-width:1.3}"
        "#claim-graph .node rect{stroke-width:1.5}"
        "#claim-graph .node:is(:hover,:focus-visible) rect{stroke-width:4}"
        "#claim-graph .node:focus-visible{outline:3px solid var(--accent);outline-offset:2px}"
        + near
        + " .edge{opacity:.12}"
        + (own + "{opacity:1;fill:var(--ink)}" if own else "")
        + (own.replace(",", " .line,") + " .line{stroke:var(--ink);stroke-width:2.4}" if own else "")
        + "</style>"
    )


def _legend() -> Markup:
    item = Markup(
        '<li style="display:flex;gap:.4em;align-items:center"><span aria-hidden="true" style="display:inline-block;'
        "min-width:1.7em;text-align:center;font-weight:700;border-radius:4px;color:var(--paper);"
        'background:var(--{})">{}</span>{}</li>'
    )
    items = Markup("").join(item.format(one.value.lower(), one.symbol, one.value) for one in reversed(Verdict))
    return Markup(
        '<ul class="graph-legend" style="display:flex;flex-wrap:wrap;gap:.3em 1.4em;list-style:none;padding:0">{}'
        "<li>an arrow goes from a claim to one that leans on it</li></ul>"
    ).format(items)
