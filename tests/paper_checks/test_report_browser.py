"""The report in a real Chromium: each kind of page is silent, narrow and legible, and works as people use it.

One site for all tests, of as few claims checked in truth as have every kind of content.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page

from tests.often import often
from tests.paper_checks.report_browser import (
    PHONE,
    PLACE,
    SMALL_PHONE,
    SOME_OF_EACH,
    WIDER,
    Noise,
    out_of_sight,
    tabbed,
    url,
    violations,
    visible,
    wanted,
)
from tests.paper_checks.report_pages import SOME

pytestmark = [pytest.mark.browser, pytest.mark.wide]
Opened = Callable[..., Page]
KINDS = ("index", "claims", "source-deepnet", "graph", "tables", "schemes", "summary", "training", "transformers")
"""A page of each template."""


def wrong(page: Page, noise: Noise, built: Path, name: str) -> list[str]:
    """What a page complains of, what is wider than the window, folded and unfolded, and what axe finds."""
    heard = noise.of(built)
    page.goto(url(built, name))
    wide = page.evaluate(WIDER)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    wide += page.evaluate(WIDER)
    page.evaluate(SOME_OF_EACH, list(SOME))
    return heard + wide + violations(page)


@pytest.mark.parametrize("name", often(KINDS, 5))
def test_each_kind_of_page(built: Path, opened: Opened, name: str) -> None:
    """At a desk in the light, and on a phone in the dark."""
    page = opened()
    noise = Noise(page)
    assert wrong(page, noise, built, f"{name}.html") == []
    assert wrong(opened(PHONE, "dark"), noise, built, f"{name}.html") == []


@pytest.mark.parametrize("name", often(["source-deepnet", "claims", "index", "summary"], 4))
def test_the_focus_is_marked_and_seen_on_its_way(built: Path, opened: Opened, name: str) -> None:
    """There and back, on a phone; the first is the link that skips to the content."""
    page = opened(SMALL_PHONE)
    page.goto(url(built, f"{name}.html"))
    page.evaluate("document.querySelectorAll('details').forEach((one, i) => { one.open = i % 4 === 0 })")
    found = tabbed(page, 1)
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    found += tabbed(page, 25)
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")
    assert out_of_sight([*found, *tabbed(page, 15, "Shift+Tab")]) == []


EDGE = """([selector, end]) => {
  const box = [...document.querySelectorAll(selector)].find(one => one.scrollWidth > one.clientWidth + 30);
  box.scrollLeft = end ? box.scrollWidth : 0;
  box.scrollIntoView({block: "center"});
  const {top, right} = box.getBoundingClientRect();
  return [right - 3, top, box.clientHeight];
}"""


@pytest.mark.parametrize(
    ("name", "selector", "theme"), [("tables", ".scroll", "light"), ("graph", ".graph-box", "dark")]
)
def test_what_scrolls_shows_it_at_its_edge(built: Path, opened: Opened, name: str, selector: str, theme: str) -> None:
    """On a phone: a shadow where there is more, and none at the end."""

    def edge(end: bool) -> float:
        """How far the right edge of the box is from the paper, at most places of it."""
        left, top, high = page.evaluate(EDGE, [selector, end])
        page.wait_for_timeout(50)
        clip = {"x": left, "y": max(top, 0), "width": 2, "height": min(high, PHONE[1] - max(top, 0))}
        shot = Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("L")  # pyright: ignore[reportArgumentType]
        paper = Image.open(io.BytesIO(page.screenshot(clip={"x": 2, "y": 300, "width": 1, "height": 1}))).convert("L")
        return float(np.median(np.abs(np.asarray(shot, dtype=float) - float(np.asarray(paper)[0, 0]))))

    page = opened(PHONE, theme)
    page.goto(url(built, f"{name}.html"))
    assert edge(False) > 15
    assert edge(True) < 6


# ---------------------------------------------------------------- reading and finding


def test_the_filter_filters(built: Path, reported: Any, opened: Opened) -> None:
    """By boxes, words and the address; what it hides takes its heading with it."""
    page = opened()
    page.goto(url(built, "claims.html"))
    every = visible(page)
    assert sorted(every) == sorted(entry["id"] for entry in reported["claims"])
    for verdict, number in reported["summary"]["verdicts"].items():
        assert page.locator(f'[data-count="{verdict}"]').inner_text() == str(number)
    for group, value in (("kind", "step"), ("source", "magneto")):
        box = page.locator(f'input[name="{group}"][value="{value}"]')
        box.check()
        ids = wanted(reported, **{group: [value]})
        assert sorted(visible(page)) == sorted(ids)
        kinds = {entry["kind"] for entry in reported["claims"] if entry["id"] in ids}
        assert page.locator(".kind:visible").count() == len(kinds)
        box.uncheck()
    for value in ("REFUTED", "MISPRINT", "su", "proof"):
        page.check(f'input[value="{value}"]')
    both = wanted(reported, verdict=["REFUTED", "MISPRINT"], source=["su"], route=["proof"])
    assert 0 < len(both) < len(wanted(reported, verdict=["REFUTED"]))
    assert sorted(visible(page)) == sorted(both)
    assert page.locator("#count").inner_text() == f"{len(both)} of {len(every)} claims"
    assert page.url.endswith("#verdict=MISPRINT,REFUTED&source=su&route=proof")
    page.reload()
    assert sorted(visible(page)) == sorted(both)
    page.click("#reset")
    assert visible(page) == every and "#" not in page.url
    page.fill("#q", "  lemma 4.1  ")
    assert 0 < len(visible(page)) < len(every)
    page.fill("#q", "no claim has these words")
    assert visible(page) == [] and page.locator("#none").is_visible()
    page.click("#reset-none")
    page.click('.entry a[href="source-fixup.html#LI-05"]')
    page.wait_for_url("**/source-fixup.html#LI-05")
    assert page.evaluate(PLACE, "LI-05")


COUNTS: Mapping[str, dict[str, list[str]]] = {
    "kind=result&verdict=REFUTED": {"kind": ["result"], "verdict": ["REFUTED"]},
    "verdict=REFUTED&source=deepnet": {"verdict": ["REFUTED"], "source": ["deepnet"]},
    "route=kernel": {"route": ["kernel"]},
}


def test_a_count_of_the_overview_leads_to_as_many_claims(built: Path, reported: Any, opened: Opened) -> None:
    page = opened()
    for state, chosen in COUNTS.items():
        page.goto(url(built, "index.html"))
        link, several = page.locator(f'main [href="claims.html#{state}"]'), wanted(reported, **chosen)
        assert state.startswith("route") or link.inner_text().split()[0] == str(len(several))
        link.click()
        page.wait_for_url(f"**/claims.html#{state}")
        assert sorted(visible(page)) == sorted(several)


def test_without_scripts_nothing_is_missing_and_paper_shows_folds(built: Path, reported: Any, opened: Opened) -> None:
    page = opened(java_script_enabled=False)
    page.goto(url(built, "claims.html"))
    assert sorted(visible(page)) == sorted(entry["id"] for entry in reported["claims"])
    assert page.locator("#filter").is_hidden()
    page.goto(url(built, "source-deepnet.html#DN-11"))
    assert page.locator("#theme").is_hidden()
    inside = "one => one.checkVisibility()"
    body, other = (page.locator(f"#{id_} > details.body > .part").first for id_ in ("DN-11", "DN-10"))
    assert body.evaluate(inside) and not other.evaluate(inside)  # the link opens it
    page.locator("#DN-10 > details.body > summary").click()
    assert other.is_visible()
    page.goto(url(built, "source-deepnet.html"))
    page.emulate_media(media="print")
    assert page.locator(".top").is_hidden()
    folded = "details.fold:not([open]) > :not(summary)"
    assert all(page.eval_on_selector_all(folded, "all => all.map(one => one.checkVisibility())"))


# ---------------------------------------------------------------- folds, commands, themes, the graph

GO_TO = """id => new Promise(done => {
  addEventListener("hashchange", () => setTimeout(done), {once: true});
  location.hash = id;
})"""
"""Follows a link within the page, until the page has done what it does then."""


def test_folds_open_by_link_by_keyboard_and_all_at_once(built: Path, opened: Opened) -> None:
    page = opened()
    page.goto(url(built, "source-deepnet.html"))
    folds = page.locator("details.fold[open]")
    body, part = page.locator("#DN-11 details.body"), page.locator("#DN-11 .part").first
    assert folds.count() == 0 and page.locator("#DN-11 .says").is_visible() and part.is_hidden()
    page.evaluate(GO_TO, "DN-11")
    assert folds.count() == 1 and part.is_visible() and page.evaluate(PLACE, "DN-11")
    body.locator(":scope > summary").focus()
    page.keyboard.press("Enter")
    assert part.is_hidden()
    page.get_by_role("button", name="Open all").click()
    assert page.locator("details.fold:not([open])").count() == 0
    assert page.locator("#said").inner_text() == "Everything is open."
    page.get_by_role("button", name="Close all", exact=True).click()
    assert folds.count() == 0


@pytest.mark.parametrize("has_clipboard", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_command_is_copied(built: Path, opened: Opened, has_clipboard: bool) -> None:
    page = opened(own=f"copies{has_clipboard}", permissions=["clipboard-read", "clipboard-write"])
    if not has_clipboard:
        page.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.goto(url(built, "source-deepnet.html#DN-11"))
    box = page.locator("#DN-11 .command").first
    command, button = box.locator("code").inner_text(), box.get_by_role("button")
    button.click()
    page.wait_for_function("document.querySelector('#said').textContent === 'The command is copied.'")
    page.goto(url(built, "claims.html"))
    page.focus("#q")
    page.keyboard.press("ControlOrMeta+V")
    assert page.input_value("#q") == command


PAPER = "getComputedStyle(document.body).backgroundColor"
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(20, 24, 27)"


def test_the_theme_is_the_system_s_or_the_button_s_which_stays(built: Path, opened: Opened) -> None:
    for theme, first, second in (("light", LIGHT, DARK), ("dark", DARK, LIGHT)):
        page = opened(theme=theme, own="themes")
        page.goto(url(built, "source-xiong.html"))
        page.evaluate("localStorage.clear()")
        page.reload()
        button = page.locator("#theme")
        assert (page.evaluate(PAPER), button.get_attribute("aria-pressed")) == (first, str(first == DARK).lower())
        button.focus()
        page.keyboard.press("Enter")
        assert (page.evaluate(PAPER), button.get_attribute("aria-pressed")) == (second, str(second == DARK).lower())
        page.goto(url(built, "source-admin.html"))
        assert page.evaluate(PAPER) == second
    page = opened(own="shut")  # where nothing can be kept
    heard = Noise(page).of(built)
    page.add_init_script("Object.defineProperty(window, 'localStorage', {get() { throw new Error('shut') }})")
    page.goto(url(built, "schemes.html"))
    page.click("#theme")
    assert page.evaluate(PAPER) == DARK and heard == []
