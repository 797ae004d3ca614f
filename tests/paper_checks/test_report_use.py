"""The report as people use it: counts lead to claims, folds open, commands are copied, themes stay, scripts are extras.

The slow tests show each check a site that is broken in the way that it looks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.paper_checks.report_browser import (
    PLACE,
    SMALL_PHONE,
    Noise,
    broken,
    names,
    out_of_sight,
    tabbed,
    url,
    visible,
    wanted,
)

pytestmark = pytest.mark.browser


COUNTS = (
    (".card", "verdict=REFUTED", {"verdict": ["REFUTED"]}),
    (".card", "verdict=MISPRINT", {"verdict": ["MISPRINT"]}),
    ("td a", "verdict=REFUTED&source=deepnet", {"verdict": ["REFUTED"], "source": ["deepnet"]}),
    (".routes a", "route=kernel", {"route": ["kernel"]}),
)


def check_count(page: Page, reported: Mapping[str, Any], built: Path, place: int) -> None:
    """A count of the overview is the number of claims that its link leads to."""
    where, state, chosen = COUNTS[place]
    page.goto(url(built, "index.html"))
    link = page.locator(f'{where}[href="claims.html#{state}"]')
    number = link.locator(".number").inner_text() if where == ".card" else link.inner_text()
    several = wanted(reported, **chosen)
    assert where == ".routes a" or number == str(len(several))
    link.click()
    page.wait_for_url(f"**/claims.html#{state}")
    assert visible(page) == several


BAD_COUNTS = {
    "a number that is not the claims'": (0, "index.html", '<span class="number">', '<span class="number">1'),
    "a link that leads to others": (1, "static/site.js", "location.hash.slice(1)", "''"),
    "the source is dropped": (
        2,
        "static/site.js",
        'const groups = ["verdict", "source", "route"]',
        'const groups = ["verdict", "route"]',
    ),
}


def test_counts_of_the_overview_lead_into_the_filter(
    built: Path, reported: dict[str, Any], opened: Callable[..., Page]
) -> None:
    for place in range(len(COUNTS)):
        check_count(opened(), reported, built, place)


@pytest.mark.slow
@pytest.mark.parametrize("what", BAD_COUNTS)
def test_a_wrong_count_is_seen(
    built: Path, reported: dict[str, Any], opened: Callable[..., Page], tmp_path: Path, what: str
) -> None:
    place, *change = BAD_COUNTS[what]
    with pytest.raises(AssertionError):
        check_count(opened(), reported, broken(built, tmp_path, *change), place)


def check_without_scripts(page: Page, reported: Mapping[str, Any], built: Path) -> None:
    page.goto(url(built, "claims.html"))
    assert visible(page) == [entry["id"] for entry in reported["claims"]]
    assert page.locator("#filter").is_hidden()
    check_bare_source(page, built)


def check_bare_source(page: Page, built: Path) -> None:
    page.goto(url(built, "source-deepnet.html#DN-11"))
    assert page.locator("#theme").is_hidden()
    folds = [page.locator(f"#{id_} > details.body") for id_ in ("DN-11", "DN-10")]
    assert [fold.count() for fold in folds] == [1, 1]
    body, other = (fold.locator("> .part").first for fold in folds)
    assert body.evaluate("one => one.checkVisibility()")  # the link opens it
    assert not other.evaluate("one => one.checkVisibility()")
    assert page.locator("#DN-10 .says").is_visible()
    folds[1].locator("> summary").click()
    assert other.is_visible()


BARE = {
    "claims that only scripts show": ("claims.html", '<li class="entry"', '<li hidden class="entry"'),
    "a filter that cannot filter": ("claims.html", 'role="search" hidden', 'role="search"'),
    "a button without its script": ("source-deepnet.html", 'id="theme" hidden', 'id="theme"'),
    "a link that leaves its claim shut": ("static/style.css", ":root:not(.js) .claim:target", ".none"),
    "folds that are none": ("source-deepnet.html", "<details", "<div"),
}


def test_without_scripts_nothing_is_missing(built: Path, reported: dict[str, Any], opened: Callable[..., Page]) -> None:
    check_without_scripts(opened(java_script_enabled=False), reported, built)


@pytest.mark.slow
@pytest.mark.parametrize("what", BARE)
def test_what_only_scripts_show_is_seen(
    built: Path, reported: dict[str, Any], opened: Callable[..., Page], tmp_path: Path, what: str
) -> None:
    bad, page = broken(built, tmp_path, *BARE[what]), opened(java_script_enabled=False)
    with pytest.raises(AssertionError):
        if BARE[what][0] == "claims.html":
            check_without_scripts(page, reported, bad)
        else:
            check_bare_source(page, bad)


# ---------------------------------------------------------------- keyboard, folds and commands


def check_skip_link(page: Page, built: Path) -> None:
    page.goto(url(built, "index.html"))
    skip = tabbed(page, 1)
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    assert out_of_sight(skip) == []
    page.keyboard.press("Enter")
    inside = tabbed(page, 8)
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")
    assert out_of_sight(inside) == []


BAD_SKIPS = {
    "it stays out of sight": ("static/style.css", ".skip:focus { top: 0.5rem; }", ""),
    "it leads nowhere": ("index.html", 'class="skip" href="#content"', 'class="skip" href="#none"'),
    "it is not the first": ("index.html", '<a class="skip"', '<a href="#x">x</a><a class="skip"'),
    "the focus is not marked": ("static/style.css", "outline: 3px solid var(--accent)", "outline: none"),
    "a card with the focus leaves the window": (
        "static/style.css",
        ".skip:focus {",
        ".card:focus { position: fixed; top: -99rem } .skip:focus {",
    ),
}


def test_the_first_tab_skips_to_the_content(built: Path, opened: Callable[..., Page]) -> None:
    check_skip_link(opened(), built)


@pytest.mark.slow
@pytest.mark.parametrize("what", BAD_SKIPS)
def test_a_skip_that_fails_is_seen(built: Path, opened: Callable[..., Page], tmp_path: Path, what: str) -> None:
    bad = broken(built, tmp_path, *BAD_SKIPS[what])
    with pytest.raises(AssertionError):
        check_skip_link(opened(), bad)


COVER = """([links, isBeside, over]) => {
  const [one, next] = document.querySelectorAll(links);
  one.scrollIntoView({block: "center"});
  next.focus({preventScroll: true});
  const at = () => one.getClientRects()[0], box = one.closest(".scroll");
  if (isBeside) box.scrollLeft += at().left - box.getBoundingClientRect().left - 4;
  else scrollBy(0, at().top - 4);
  const {left, top, width, height} = at();
  return document.elementFromPoint(left + width / 2, top + height / 2).closest(over) !== null;
}"""
"""Puts the first of these links under what stays in its place when a page, or a table, is scrolled."""
COVERED = {
    "the header": [".found .ref", False, ".top"],
    "the head of the row": [".sources tr:first-child td a", True, "th"],
}


def check_uncovered(page: Page, built: Path, over: str) -> None:
    """A link under it comes forth when it takes the focus."""
    page.goto(url(built, "index.html"))
    assert page.evaluate(COVER, COVERED[over])
    assert out_of_sight(tabbed(page, 1, "Shift+Tab")) == []


BAD_COVERS = {
    "the header": ("static/style.css", "scroll-padding-block: 4rem 0.5rem;", ""),
    "the head of the row": ("static/style.css", "  .scroll { scroll-padding-inline-start: 9.5rem; }", ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("over", COVERED)
def test_nothing_lies_on_what_has_the_focus(
    built: Path, opened: Callable[..., Page], tmp_path: Path, over: str
) -> None:
    check_uncovered(opened(SMALL_PHONE), built, over)
    bad = broken(built, tmp_path / "bad", *BAD_COVERS[over])
    with pytest.raises(AssertionError, match="href"):
        check_uncovered(opened(SMALL_PHONE), bad, over)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(1280, 900), (1280, 560), (360, 740), (320, 400)])
def test_the_focus_is_seen_all_the_way_through_every_page(
    full: Path, opened: Callable[..., Page], size: tuple[int, int]
) -> None:
    """Of a page with more places than a person would go through, the first few hundred, some folds open."""
    page = opened(size)
    hidden = {}
    for name in names(full):
        page.goto(url(full, name))
        page.evaluate("document.querySelectorAll('details').forEach((one, i) => { one.open = i % 4 === 0 })")
        found = tabbed(page, 150)
        hidden[name] = out_of_sight(found) + out_of_sight(tabbed(page, len(found) // 2, "Shift+Tab"))
    assert hidden == {name: [] for name in hidden}


GO_TO = """id => new Promise(done => {
  addEventListener("hashchange", () => setTimeout(done), {once: true});
  location.hash = id;
})"""
"""Follows a link within the page, until the page has done what it does then."""


def check_folds(page: Page, built: Path) -> None:
    page.goto(url(built, "source-deepnet.html"))
    assert page.locator("details.fold[open]").count() == 0
    assert page.locator("#DN-11 .says").is_visible()
    body, fold = (page.locator(f"#DN-11 details.{name}").first for name in ("body", "fold:not(.body)"))
    part, inside = page.locator("#DN-11 .part").first, fold.locator(":scope > :not(summary)").first
    assert part.is_hidden()
    page.evaluate(GO_TO, "DN-11")
    assert body.get_attribute("open") is not None
    assert page.locator("details.fold[open]").count() == 1
    assert page.evaluate(PLACE, "DN-11")
    assert part.is_visible() and inside.is_hidden()
    fold.locator(":scope > summary").focus()
    page.keyboard.press("Enter")
    assert inside.is_visible()
    page.keyboard.press("Space")
    assert inside.is_hidden()
    body.locator(":scope > summary").focus()
    page.keyboard.press("Enter")
    assert part.is_hidden()
    page.get_by_role("button", name="Open all").click()
    assert page.locator("details.fold:not([open])").count() == 0
    assert page.locator("#said").inner_text() == "Everything is open."
    page.get_by_role("button", name="Close all", exact=True).click()
    assert page.locator("details.fold[open]").count() == 0


BAD_FOLDS = {
    "claims begin open": ("source-deepnet.html", '<details class="fold body">', '<details open class="fold body">'),
    "a link leaves its claim shut": ("static/site.js", 'addEventListener("hashchange", reveal)', ""),
    "a link opens every claim": ("static/site.js", '$$(":scope > details.body", target)', '$$("details.body")'),
    "the button opens the first": (
        "static/site.js",
        '$$("details.fold")) fold',
        '$$("details.fold").slice(0, 1)) fold',
    ),
    "the button is silent": ("static/site.js", '"Everything is open."', '""'),
    "it does not close": ("static/site.js", "fold.open = isOpen", "fold.open = true"),
}


def test_folds_open_by_link_by_keyboard_and_all_at_once(built: Path, opened: Callable[..., Page]) -> None:
    check_folds(opened(), built)


@pytest.mark.slow
@pytest.mark.parametrize("what", BAD_FOLDS)
def test_a_fold_that_fails_is_seen(built: Path, opened: Callable[..., Page], tmp_path: Path, what: str) -> None:
    bad = broken(built, tmp_path, *BAD_FOLDS[what])
    with pytest.raises(AssertionError):
        check_folds(opened(), bad)


LISTEN = """button => {
  window.labels = [];
  new MutationObserver(() => labels.push(button.textContent)).observe(button, {childList: true});
}"""
"""What the button says: it says it for two seconds, which on a busy machine nobody may see."""


def check_copying(page: Page, built: Path) -> None:
    page.goto(url(built, "source-deepnet.html#DN-11"))
    box = page.locator("#DN-11 .command").first
    command = box.locator("code").inner_text()
    button = box.get_by_role("button")
    assert button.count() == 1
    button.evaluate(LISTEN)
    button.click()
    page.wait_for_function("labels.length")
    assert page.locator("#said").inner_text() == "The command is copied."
    assert page.evaluate("labels[0]") == "Copied"
    page.goto(url(built, "claims.html"))
    page.focus("#q")
    page.keyboard.press("ControlOrMeta+V")
    assert page.input_value("#q") == command


BAD_COPIES = {
    "something else is copied": ("navigator.clipboard.writeText(text)", "navigator.clipboard.writeText(text + ' ')"),
    "the old way copies something else": ("area.value = text", "area.value = 'x'"),
    "it is not said": ('say(isDone ? "The command is copied."', 'say(isDone ? ""'),
    "no button": ("box.append(button)", ""),
}


def copying(opened: Callable[..., Page], has_clipboard: bool) -> Page:
    page = opened(own=f"copies{has_clipboard}", permissions=["clipboard-read", "clipboard-write"])
    if not has_clipboard:
        page.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    return page


@pytest.mark.parametrize("has_clipboard", [True, False])
def test_a_command_is_copied(built: Path, opened: Callable[..., Page], has_clipboard: bool) -> None:
    check_copying(copying(opened, has_clipboard), built)


@pytest.mark.slow
@pytest.mark.parametrize("what", BAD_COPIES)
@pytest.mark.parametrize("has_clipboard", [True, False])
def test_a_copy_that_fails_is_seen(
    built: Path, opened: Callable[..., Page], tmp_path: Path, what: str, has_clipboard: bool
) -> None:
    """Of the two ways to copy, each where it is taken."""
    bad = broken(built, tmp_path, "static/site.js", *BAD_COPIES[what])
    if what == ("the old way copies something else" if has_clipboard else "something else is copied"):
        check_copying(copying(opened, has_clipboard), bad)
    else:
        with pytest.raises(AssertionError):
            check_copying(copying(opened, has_clipboard), bad)


# ---------------------------------------------------------------- themes


def paper(page: Page) -> str:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


LIGHT, DARK = "rgb(255, 255, 255)", "rgb(20, 24, 27)"


def check_themes(opened: Callable[..., Page], built: Path) -> None:
    """The system's, and the button's, which stays."""
    for theme, other, first, second in (("light", "dark", LIGHT, DARK), ("dark", "light", DARK, LIGHT)):
        page = opened(theme=theme, own="themes")
        page.goto(url(built, "source-xiong.html"))
        page.evaluate("localStorage.clear()")
        page.reload()
        button = page.locator("#theme")
        assert (paper(page), button.get_attribute("aria-pressed")) == (first, str(theme == "dark").lower())
        button.focus()
        page.keyboard.press("Enter")
        assert (paper(page), button.get_attribute("aria-pressed")) == (second, str(other == "dark").lower())
        page.goto(url(built, "source-admin.html"))
        assert paper(page) == second


BAD_THEMES = {
    "one paper for both": ("static/style.css", "light-dark(#ffffff, #14181b)", "#ffffff"),
    "the choice is not kept": ("static/site.js", "localStorage.setItem", "String"),
    "the choice is not read": ("static/theme.js", 'chosen === "light" || chosen === "dark"', "false"),
    "the button does not say": ("static/site.js", 'setAttribute("aria-pressed"', 'setAttribute("data-pressed"'),
    "the dark choice has no colours": ("static/style.css", ':root[data-theme="dark"] { color-scheme: dark; }', ""),
}


def test_themes(built: Path, opened: Callable[..., Page]) -> None:
    check_themes(opened, built)


@pytest.mark.slow
@pytest.mark.parametrize("what", BAD_THEMES)
def test_a_theme_that_fails_is_seen(built: Path, opened: Callable[..., Page], tmp_path: Path, what: str) -> None:
    bad = broken(built, tmp_path, *BAD_THEMES[what])
    with pytest.raises(AssertionError):
        check_themes(opened, bad)


def test_where_nothing_can_be_kept_the_theme_changes_without_an_error(built: Path, opened: Callable[..., Page]) -> None:
    page = opened(own="shut")
    heard = Noise(page).of(built)
    page.add_init_script("Object.defineProperty(window, 'localStorage', {get() { throw new Error('shut') }})")
    page.goto(url(built, "schemes.html"))
    page.click("#theme")
    assert paper(page) == DARK
    assert heard == []
