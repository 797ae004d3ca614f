"""The report in a real Chromium: it loads in silence, the filter filters, everything is reached, seen and legible.

One site for all tests, made of as few claims checked in truth as have every kind of content. Each check is shown a
site that is broken in the way that it looks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from paper_checks.registry import claims
from tests.paper_checks.report_browser import (
    DESKTOP,
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
    tabbed,
    url,
    violations,
    visible,
    wanted,
)
from tests.paper_checks.report_pages import SOME

pytestmark = pytest.mark.browser


# ---------------------------------------------------------------- loading


def noise(opened: Callable[..., Page], built: Path, several: Sequence[str]) -> list[str]:
    page = opened()
    heard = Noise(page, built).heard
    for name in several:
        page.goto(url(built, name))
    page.context.close()
    return heard


LOUD = {
    "a script that fails": ("<main", "<script>undefined_name()</script><main"),
    "a message": ("<main", "<script>console.warn('old')</script><main"),
    "a picture from elsewhere": ("<main", '<img src="https://a.example/b.png" alt=""><main'),
    "a script that is not there": ("static/theme.js", "static/themes.js"),
}


def test_every_page_loads_in_silence(built: Path, opened: Callable[..., Page], tmp_path: Path) -> None:
    assert noise(opened, built, names(built)) == []
    for what, (old, new) in LOUD.items():
        assert noise(opened, broken(built, tmp_path, "schemes.html", old, new), ["schemes.html"]), what


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


def test_the_filter_filters(built: Path, reported: dict[str, Any], opened: Callable[..., Page], tmp_path: Path) -> None:
    check_filter(opened(), reported, built)
    for old, new in BAD_FILTERS.values():
        bad = broken(built, tmp_path, "static/site.js", old, new)
        with pytest.raises(AssertionError):
            check_filter(opened(), reported, bad)


# ---------------------------------------------------------------- links


def test_every_claim_is_reached_and_not_under_the_header(
    built: Path, reported: dict[str, Any], opened: Callable[..., Page], tmp_path: Path
) -> None:
    by_source: dict[str, list[str]] = {}
    for entry in reported["claims"]:
        by_source.setdefault(entry["source"], []).append(entry["id"])
    page = opened()
    for source, ids in by_source.items():
        page.goto(url(built, "claims.html"))
        page.click(f'.entry a[href="source-{source}.html#{ids[-1]}"]')
        page.wait_for_url(f"**/source-{source}.html#{ids[-1]}")
        assert page.evaluate(PLACE, ids[-1]), ids[-1]
        assert page.evaluate(f"ids => ids.filter(id => {{ location.hash = id; return !({PLACE})(id); }})", ids) == []
    small = opened(PHONE)
    small.goto(url(built, "source-su.html#S1-24"))
    assert small.evaluate(PLACE, "S1-24")
    under = broken(built, tmp_path, "static/style.css", "scroll-padding-top: 4rem", "scroll-padding-top: 0")
    css = under / "static" / "style.css"
    css.write_text(css.read_text().replace(".claim { margin-block: 2rem 0; padding-top: 1.5rem", ".claim { "))
    page.goto(url(under, "source-su.html#S1-24"))
    assert not page.evaluate(PLACE, "S1-24")


def test_no_link_is_dead(built: Path, opened: Callable[..., Page], tmp_path: Path) -> None:
    page = opened()
    assert dead_links(page, built) == []
    bad = broken(built, tmp_path, "graph.html", 'href="source-su.html#S1-23"', 'href="source-su.html#S1-99"')
    for name in names(bad):
        if name not in ("graph.html", "source-su.html"):
            (bad / name).write_text("<title>away</title>")
    assert "graph.html: source-su.html#S1-99" in dead_links(page, bad)


# ---------------------------------------------------------------- the graph and the keyboard


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

    page.goto(url(built, "graph.html"))
    page.locator(".graph-box").focus()
    seen = tabbed(page, 12)
    assert all(one["id"] and one["isMarked"] and one["isSeen"] and one["stroke"] == "4px" for one in seen)
    places = [(round(one["x"]), round(one["y"])) for one in seen]
    assert places == sorted(places)  # column by column, and down each
    page.keyboard.press("Enter")
    page.wait_for_url(f"**#{seen[-1]['id']}")

    bad = broken(built, tmp_path, "graph.html", "outline:3px solid var(--accent)", "outline:none")
    page.goto(url(bad, "graph.html"))
    page.locator(".graph-box").focus()
    assert not tabbed(page, 1)[0]["isMarked"]


# ---------------------------------------------------------------- widths


def unfold(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")


def test_no_page_scrolls_sideways(built: Path, opened: Callable[..., Page], tmp_path: Path) -> None:
    """Folded and unfolded; themes differ in colours only, and one page shows that they do."""
    page = opened(PHONE)
    wide = {}
    for name in names(built):
        page.goto(url(built, name))
        wide[name] = page.evaluate(WIDER)
        unfold(page)
        wide[name] += page.evaluate(WIDER)
        page.set_viewport_size({"width": SMALL_PHONE[0], "height": SMALL_PHONE[1]})
        wide[name] += page.evaluate(WIDER)
        page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    assert wide == {name: [] for name in wide}
    dark = opened(PHONE, "dark")
    for name in ("index.html", "claims.html", "source-deepnet.html", "tables.html"):
        dark.goto(url(built, name))
        assert dark.evaluate(WIDER) == []
    bad = broken(built, tmp_path, "schemes.html", "<h1>", '<p style="width:400px">wide</p><h1>')
    page.goto(url(bad, "schemes.html"))
    assert page.evaluate(WIDER)


def test_print_shows_what_is_folded(built: Path, opened: Callable[..., Page], tmp_path: Path) -> None:
    def folded(page: Page) -> list[bool]:
        inside = "details.fold:not([open]) > :not(summary)"
        return page.eval_on_selector_all(inside, "all => all.map(one => one.checkVisibility())")

    page = opened(java_script_enabled=False)
    page.goto(url(built, "source-su.html"))
    assert len(folded(page)) > 5
    assert not any(folded(page))
    page.emulate_media(media="print")
    assert all(folded(page))
    assert page.locator(".top").is_hidden()
    bad = broken(built, tmp_path, "static/style.css", "details::details-content", "details.none")
    page.goto(url(bad, "source-su.html"))
    assert not all(folded(page))


# ---------------------------------------------------------------- axe


BARRED = {
    "image-alt": ("<h1>", '<img src="static/icon.svg"><h1>'),
    "color-contrast": ("<h1>", '<p style="color:#888;background:#999">grey</p><h1>'),
    "heading-order": ("<h1>Schemes</h1>", "<h1>Schemes</h1><h4>too deep</h4>"),
    "button-name": ("<h1>", "<button></button><h1>"),
}


def test_axe_finds_nothing(built: Path, opened: Callable[..., Page], tmp_path: Path) -> None:
    """Every page by every rule, and on a phone in the dark by the rules for which that makes a difference.

    Of what a page has many times over some are kept, folds open: of claims those that are checked in truth.
    """
    wrong: dict[str, list[str]] = {}
    page = opened(reduced_motion="reduce")  # else a colour may be on its way from one theme to the other
    for name in names(built):
        page.goto(url(built, name))
        page.evaluate(SOME_OF_EACH, list(SOME))
        wrong[name] = violations(page)
        page.emulate_media(color_scheme="dark")
        page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
        wrong[name] += violations(page, OF_COLOUR + OF_WIDTH)
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": DESKTOP[0], "height": DESKTOP[1]})
    assert wrong == {name: [] for name in wrong}
    for rule, (old, new) in BARRED.items():
        page.goto(url(broken(built, tmp_path, "schemes.html", old, new), "schemes.html"))
        assert any(one.startswith(rule) for one in violations(page)), rule
