"""The graph of claims: every claim once, every arrow from left to right, nothing on top of anything."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import networkx as nx
import pytest

from paper_checks.claims.claim import Verdict
from paper_checks.papers.registry import claims
from paper_checks.report.graph import NODE, block, graph, neighbours


def entries() -> list[dict[str, Any]]:
    return [
        {"id": one.id, "source": one.source, "verdict": one.expected.value, "quote": one.quote, "uses": list(one.uses)}
        for one in claims().values()
    ]


def made(id_: str, *uses: str, quote: str = "", verdict: str = "CONFIRMED") -> dict[str, Any]:
    return {"id": id_, "source": "su", "verdict": verdict, "quote": quote, "uses": list(uses)}


def parsed(found: list[dict[str, Any]]) -> ElementTree.Element:
    return ElementTree.fromstring(f"<div>{graph(found)}</div>")


def corners(root: ElementTree.Element) -> dict[str, tuple[float, float]]:
    """Left upper, by id."""
    found = {}
    for node in root.iter("a"):
        [box] = node.findall("rect")
        found[node.attrib["data-id"]] = float(box.attrib["x"]), float(box.attrib["y"])
    return found


def overlapping(places: dict[str, tuple[float, float]]) -> list[tuple[str, str]]:
    (wide, high), pairs = NODE, combinations(places.items(), 2)
    return [(a, b) for (a, (x, y)), (b, (u, v)) in pairs if abs(x - u) < wide and abs(y - v) < high]


def backwards(root: ElementTree.Element) -> list[tuple[str, str]]:
    places = corners(root)
    edges = [(one.attrib["data-from"], one.attrib["data-to"]) for one in root.iter("g") if "data-from" in one.attrib]
    return [(used, user) for used, user in edges if places[used][0] + NODE[0] >= places[user][0]]


def test_every_claim_is_a_link_to_its_place() -> None:
    links = Counter(node.attrib["href"] for node in parsed(entries()).iter("a"))
    assert links == Counter(f"source-{one.source}.html#{one.id}" for one in claims().values())


def test_every_link_between_claims_is_an_arrow() -> None:
    root = parsed(entries())
    drawn = Counter((g.attrib["data-from"], g.attrib["data-to"]) for g in root.iter("g") if "data-from" in g.attrib)
    assert drawn == Counter((used, one.id) for one in claims().values() for used in one.uses)


def test_arrows_go_from_left_to_right() -> None:
    root = parsed(entries())
    assert not backwards(root)
    for edge in (one for one in root.iter("g") if "data-from" in one.attrib):
        edge.attrib["data-from"], edge.attrib["data-to"] = edge.attrib["data-to"], edge.attrib["data-from"]
    assert backwards(root)


def test_nothing_lies_on_anything_and_all_is_in_the_picture() -> None:
    root = parsed(entries())
    places = corners(root)
    assert len(places) == len(claims())
    assert not overlapping(places)
    assert overlapping(places | {"again": next(iter(places.values()))})
    [svg] = root.iter("svg")
    wide, high = (float(svg.attrib[name]) for name in ("width", "height"))
    assert all(x >= 0 and y >= 0 and x + NODE[0] <= wide and y + NODE[1] <= high for x, y in places.values())


def test_a_long_arrow_goes_around_what_stands_between() -> None:
    chain = nx.DiGraph([("a", "b"), ("b", "c"), ("a", "c")])
    found = block(chain)
    [(_, y)] = found.waypoints["a", "c"]
    assert abs(y - found.places["b"][1]) >= NODE[1]
    assert not found.waypoints["a", "b"]


def test_a_start_stands_next_to_what_leans_on_it() -> None:
    found = block(nx.DiGraph([("a", "b"), ("b", "c"), ("late", "c")]))
    assert found.places["late"][0] == found.places["b"][0]


def test_verdicts_are_told_without_colour() -> None:
    assert len({verdict.symbol for verdict in Verdict}) == len(Verdict)
    for verdict in Verdict:
        [node] = parsed([made("S1-01", verdict=verdict.value)]).iter("a")
        assert verdict.symbol in "".join(node.itertext())
        assert f"S1-01, {verdict.value}" in node.attrib["aria-label"]
        assert f"var(--{verdict.value.lower()})" in ElementTree.tostring(node, encoding="unicode")


def test_quotes_are_escaped() -> None:
    text = graph([made("S1-01", quote='<script>alert("x")</script> & more')])
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_what_stands_out_is_what_touches_the_claim() -> None:
    text = graph([made("S1-01"), made("S1-02", "S1-01"), made("S1-03")])
    assert '[data-id="S1-01"]:is(:hover,:focus-visible)) .S1-01' in text
    assert ".S1-03" not in text
    assert re.search(r'class="edge S1-01 S1-02"', text)


def test_neighbours_are_told_from_both_sides() -> None:
    found = neighbours(entries())
    assert found["S1-41"][0] == list(claims()["S1-41"].uses)
    pairs = {(used, id_) for id_, (uses, _) in found.items() for used in uses}
    assert pairs == {(id_, user) for id_, (_, users) in found.items() for user in users}
    assert len(pairs) == sum(len(one.uses) for one in claims().values())


def test_a_claim_that_is_not_there_is_refused() -> None:
    with pytest.raises(KeyError):
        graph([made("S1-02", "S1-01")])


def test_no_claims_make_an_empty_picture() -> None:
    assert not list(parsed([]).iter("a"))
