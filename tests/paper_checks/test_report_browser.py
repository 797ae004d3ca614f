"""The report in a real Chromium: it loads in silence, the filter filters, everything is reached, seen and legible.

One site for all tests, made of as few claims checked in truth as have every kind of content; the slow tests look at the
site of all claims, and show each check a site that is broken in the way that it looks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from paper_checks.papers.registry import claims
from tests import once
from tests.paper_checks.report_browser import (
    DESKTOP,
    IDS,
    LINKS,
    OF_COLOUR,
    OF_WIDTH,
    PHONE,
    PLACE,
    SMALL_PHONE,
    SOME_OF_EACH,
    WIDER,
    Noise,
    broken,
    dead_links,
    names,
    out_of_sight,
    tabbed,
    url,
    violations,
    visible,
    wanted,
)
from tests.paper_checks.report_pages import SOME

pytestmark = pytest.mark.browser


# ---------------------------------------------------------------- every page


class Visits:
    """What is wrong with pages when a browser shows them, one visit of each."""

    def __init__(self, page: Page, built: Path, found: Mapping[str, Any]) -> None:
        self.page, self.built = page, built
        self.noise = Noise(page)
        self.claims = {name: [] for name in names(built)}
        for entry in found["claims"]:
            self.claims[f"source-{entry['source']}.html"].append(entry["id"])
        self.links: dict[str, list[str]] = {}
        self.ids: dict[str, set[str]] = {}

    def faults(self, name: str, built: Path | None = None) -> list[str]:
        """Of a page by itself, folded, unfolded and on a smaller phone; its links and ids are kept for ``dead``."""
        page = self.page
        heard = self.noise.of(built or self.built)
        page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
        page.goto(url(built or self.built, name))
        self.links[name], self.ids[name] = page.evaluate(LINKS), set(page.evaluate(IDS))
        wide = page.evaluate(WIDER)
        hidden = page.evaluate(
            f"ids => ids.filter(id => {{ location.hash = id; return !({PLACE})(id); }})", self.claims[name]
        )
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        wide += page.evaluate(WIDER)
        page.set_viewport_size({"width": SMALL_PHONE[0], "height": SMALL_PHONE[1]})
        wide += page.evaluate(WIDER)
        found = {"heard": heard, "wide": wide, "not reached": hidden}
        return [f"{kind}: {one}" for kind, several in found.items() for one in several]

    def dead(self, name: str) -> list[str]:
        """Of a page that was visited, when those that it leads to have been visited too."""
        return dead_links(name, self.links[name], self.ids)


UNDER = "html { scroll-padding: 0 } .claim { margin: 0; padding: 0; border: 0 } .claim h2 { margin: 0 }"
BROKEN = {
    "a script that fails": ("schemes.html", "<main", "<script>undefined_name()</script><main", "heard"),
    "a message": ("schemes.html", "<main", "<script>console.warn('old')</script><main", "heard"),
    "a picture from elsewhere": ("schemes.html", "<main", '<img src="https://a.example/b.png" alt=""><main', "heard"),
    "a script that is not there": ("schemes.html", "static/theme.js", "static/themes.js", "heard"),
    "a paragraph that is too wide": ("schemes.html", "<h1>", '<p style="width:400px">wide</p><h1>', "wide"),
    "one that is folded": ("schemes.html", "<h1>", '<details><p style="width:400px">wide</p></details><h1>', "wide"),
    "the header lies on a claim": ("source-fixup.html", "</head>", f"<style>{UNDER}</style></head>", "not reached"),
}


VISITED = ("index.html", "claims.html", "source-deepnet.html", "schemes.html", "training.html")
"""A page of each template but the graph, which has a test of its own; the slow lane visits the others."""


def test_pages_are_silent_and_narrow_and_lead_to_claims(
    built: Path, reported: dict[str, Any], opened: Callable[..., Page]
) -> None:
    visits = Visits(opened(PHONE), built, reported)
    assert {name: found for name in VISITED if (found := visits.faults(name))} == {}


@pytest.mark.slow
def test_a_page_that_is_loud_or_wide_or_leads_nowhere_is_seen(
    built: Path, reported: dict[str, Any], opened: Callable[..., Page], tmp_path: Path
) -> None:
    visits = Visits(opened(PHONE), built, reported)
    for name in names(built):
        visits.faults(name)
    for what, (name, old, new, said) in BROKEN.items():
        found = visits.faults(name, broken(built, tmp_path / what, name, old, new))
        assert any(one.startswith(said) for one in found), what
    old, new = 'href="source-su.html#S1-23"', 'href="source-su.html#S1-99"'
    visits.faults("graph.html", broken(built, tmp_path / "dead", "graph.html", old, new))
    assert set(visits.dead("graph.html")) == {"source-su.html#S1-99"}


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_of_the_whole_report_is_silent_narrow_and_legible(
    full: Path, opened: Callable[..., Page], theme: str
) -> None:
    page = opened(PHONE, theme)
    visits = Visits(page, full, once.whole())
    wrong: dict[str, list[str]] = {}
    for name in names(full):
        wrong[name] = visits.faults(name)
        page.evaluate(SOME_OF_EACH, list(SOME))
        for size in (DESKTOP, PHONE):
            opened(size, theme)
            wrong[name] += violations(page) + violations(page, OF_WIDTH)
    assert wrong == {name: [] for name in wrong}
    assert {name: found for name in names(full) if (found := visits.dead(name))} == {}


def test_a_claim_is_reached_from_the_list(built: Path, opened: Callable[..., Page]) -> None:
    page = opened()
    page.goto(url(built, "claims.html"))
    page.click('.entry a[href="source-fixup.html#LI-05"]')
    page.wait_for_url("**/source-fixup.html#LI-05")
    assert page.evaluate(PLACE, "LI-05")


# ---------------------------------------------------------------- axe

TEMPLATES = ("index", "source-deepnet", "graph")
"""Pages with parts of their own: figures, claims with their evidence, a drawing. The slow test has all."""
DARKENED = ("index",)
"""That with the most colours."""
BARRED = {
    "image-alt": '<img src="static/icon.svg">',
    "color-contrast": '<p style="color:#888;background:#999">grey</p>',
    "heading-order": "<h1>Schemes</h1><h4>too deep</h4>",
    "button-name": "<button></button>",
}


def test_axe_finds_nothing(built: Path, opened: Callable[..., Page]) -> None:
    """By every rule, and some on a phone in the dark by the rules for which that makes a difference.

    Of what a page has many times over some are kept, folds open: of claims those that are checked in truth.
    """
    wrong: dict[str, list[str]] = {}
    for name in TEMPLATES:
        page = opened()
        page.goto(url(built, f"{name}.html"))
        page.evaluate(SOME_OF_EACH, list(SOME))
        wrong[name] = violations(page)
        if name in DARKENED:
            wrong[name] += violations(opened(PHONE, "dark"), OF_COLOUR + OF_WIDTH)
    assert wrong == {name: [] for name in wrong}


@pytest.mark.slow
def test_what_axe_bars_is_seen(built: Path, opened: Callable[..., Page], tmp_path: Path) -> None:
    page = opened()
    page.goto(
        url(
            broken(built, tmp_path / "barred", "schemes.html", "<h1>", "".join(BARRED.values()) + "<h1>"),
            "schemes.html",
        )
    )
    found = violations(page)
    assert [rule for rule in BARRED if not any(one.startswith(rule) for one in found)] == []


# ---------------------------------------------------------------- the filter


def check_filter(page: Page, reported: Mapping[str, Any], built: Path) -> None:
    """As people use it: boxes, words, the address, reset."""
    every = [entry["id"] for entry in reported["claims"]]
    page.goto(url(built, "claims.html"))
    status = page.locator("#count")
    assert status.get_attribute("role") == "status"
    assert visible(page) == every

    for verdict, number in reported["summary"]["verdicts"].items():
        assert page.locator(f'[data-count="{verdict}"]').inner_text() == str(number)
    for group, value in (("verdict", "REFUTED"), ("source", "magneto"), ("route", "proof")):
        box = page.locator(f'input[name="{group}"][value="{value}"]')
        box.check()
        assert visible(page) == wanted(reported, **{group: [value]})
        box.uncheck()
    page.check('input[value="REFUTED"]')
    page.check('input[value="MISPRINT"]')
    page.check('input[value="su"]')
    page.check('input[value="proof"]')
    both = wanted(reported, verdict=["REFUTED", "MISPRINT"], source=["su"], route=["proof"])
    assert 0 < len(both) < len(wanted(reported, verdict=["REFUTED"]))
    assert visible(page) == both
    assert status.inner_text() == f"{len(both)} of {len(every)} claims"
    beside = wanted(reported, verdict=["REFUTED", "MISPRINT"], source=["deepnet"], route=["proof"])
    assert page.locator('[data-count="deepnet"]').inner_text() == str(len(beside))

    kept = page.url
    assert kept.endswith("#verdict=MISPRINT,REFUTED&source=su&route=proof")
    page.reload()
    assert visible(page) == both
    page.click("#reset")
    assert visible(page) == every
    assert "#" not in page.url
    page.goto(kept)
    assert visible(page) == both

    page.click("#reset")
    page.fill("#q", "  lemma 4.1  ")
    searched = visible(page)
    assert 0 < len(searched) < len(every)
    assert all("lemma 4.1" in _words(reported, id_) for id_ in searched)
    page.fill("#q", "S1-34")
    assert "S1-34" in visible(page)
    page.fill("#q", "no claim has these words")
    assert visible(page) == []
    assert page.locator("#none").is_visible()
    assert status.inner_text() == f"0 of {len(every)} claims"
    page.click("#reset-none")
    assert visible(page) == every
    assert page.locator("#none").is_hidden()


def _words(reported: Mapping[str, Any], id_: str) -> str:
    entry = next(one for one in reported["claims"] if one["id"] == id_)
    parts = " ".join(part["name"] + part["statement"] for part in entry["parts"])
    return f"{entry['locator']} {entry['quote']} {entry['statement']} {parts}".lower()


BAD_FILTERS = {
    "nothing is hidden": ("entry.item.hidden = !matches(entry, state, null)", "entry.item.hidden = false"),
    "any group is enough": ("return groups.every(", "return groups.some("),
    "the address is not read": ("wanted.includes(box.value)", "false"),
    "the count stays": ("${shown} of", "${entries.length} of"),
    "no word for nothing": ('$("#none").hidden = shown > 0', '$("#none").hidden = true'),
}


def test_the_filter_filters(built: Path, reported: dict[str, Any], opened: Callable[..., Page]) -> None:
    check_filter(opened(), reported, built)


@pytest.mark.slow
@pytest.mark.parametrize("what", BAD_FILTERS)
def test_a_filter_that_fails_is_seen(
    built: Path, reported: dict[str, Any], opened: Callable[..., Page], tmp_path: Path, what: str
) -> None:
    bad = broken(built, tmp_path, "static/site.js", *BAD_FILTERS[what])
    with pytest.raises(AssertionError):
        check_filter(opened(), reported, bad)


# ---------------------------------------------------------------- the graph


def test_the_graph_leads_to_claims_by_mouse_and_keyboard(
    built: Path, opened: Callable[..., Page], tmp_path: Path
) -> None:
    page = opened()
    page.goto(url(built, "graph.html"))
    nodes = page.locator("#claim-graph .node")
    assert sorted(nodes.evaluate_all("all => all.map(one => one.dataset.id)")) == sorted(claims())
    page.locator('.node[data-id="S1-23"]').click()
    page.wait_for_url("**/source-su.html#S1-23")
    assert page.evaluate(PLACE, "S1-23")

    page = opened(SMALL_PHONE)
    page.goto(url(built, "graph.html"))
    page.locator(".graph-box").focus()
    seen = tabbed(page, 12)
    assert out_of_sight(seen) == []
    assert all(one["id"] and one["stroke"] == "4px" for one in seen)
    places = [(one["x"], one["y"]) for one in seen]
    assert places == sorted(places)  # column by column, and down each
    page.keyboard.press("Enter")
    page.wait_for_url(f"**#{seen[-1]['id']}")

    bad = broken(built, tmp_path / "unmarked", "graph.html", "outline:3px solid var(--accent)", "outline:none")
    page.goto(url(bad, "graph.html"))
    page.locator(".graph-box").focus()
    assert out_of_sight(tabbed(page, 1))


# ---------------------------------------------------------------- on paper


def folded(page: Page) -> list[bool]:
    inside = "details.fold:not([open]) > :not(summary)"
    return page.eval_on_selector_all(inside, "all => all.map(one => one.checkVisibility())")


def test_print_shows_what_is_folded(built: Path, opened: Callable[..., Page], tmp_path: Path) -> None:
    page = opened(java_script_enabled=False)
    page.goto(url(built, "source-deepnet.html"))
    assert len(folded(page)) > 5
    assert not any(folded(page))
    page.emulate_media(media="print")
    assert all(folded(page))
    assert page.locator(".top").is_hidden()
    bad = broken(built, tmp_path / "folded", "static/style.css", "details::details-content", "details.none")
    page.goto(url(bad, "source-deepnet.html"))
    assert not all(folded(page))
