"""The report as people use it: counts lead to claims, folds open, commands are copied, themes stay, scripts are extras.

Each check is shown a site that is broken in the way that it looks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, TimeoutError

from tests.paper_checks.report_browser import PLACE, Noise, broken_all, tabbed, url, visible, wanted

pytestmark = pytest.mark.browser


COUNTS = (
    (".card", "verdict=REFUTED", {"verdict": ["REFUTED"]}),
    (".card", "verdict=MISPRINT", {"verdict": ["MISPRINT"]}),
    ("td a", "verdict=REFUTED&source=deepnet", {"verdict": ["REFUTED"], "source": ["deepnet"]}),
    (".routes a", "route=kernel", {"route": ["kernel"]}),
)


def check_counts(page: Page, reported: Mapping[str, Any], built: Path) -> None:
    """A count of the overview is the number of claims that its link leads to."""
    for where, state, chosen in COUNTS:
        page.goto(url(built, "index.html"))
        link = page.locator(f'{where}[href="claims.html#{state}"]')
        number = link.locator(".number").inner_text() if where == ".card" else link.inner_text()
        several = wanted(reported, **chosen)
        assert where == ".routes a" or number == str(len(several))
        link.click()
        page.wait_for_url(f"**/claims.html#{state}")
        assert visible(page) == several


BAD_COUNTS = {
    "a number that is not the claims'": ("index.html", '<span class="number">', '<span class="number">1'),
    "a link that leads to others": ("static/site.js", "location.hash.slice(1)", "''"),
    "the source is dropped": (
        "static/site.js",
        'const groups = ["verdict", "source", "route"]',
        'const groups = ["verdict", "route"]',
    ),
}


def test_counts_of_the_overview_lead_into_the_filter(
    built: Path, reported: dict[str, Any], opened: Callable[..., Page], tmp_path: Path
) -> None:
    check_counts(opened(), reported, built)
    for what, change in BAD_COUNTS.items():
        bad = broken_all(built, tmp_path / what, *change)
        with pytest.raises(AssertionError):
            check_counts(opened(), reported, bad)


def check_without_scripts(page: Page, reported: Mapping[str, Any], built: Path) -> None:
    page.goto(url(built, "claims.html"))
    assert visible(page) == [entry["id"] for entry in reported["claims"]]
    assert page.locator("#filter").is_hidden()
    assert page.locator("#theme").is_hidden()
    page.goto(url(built, "source-su.html#S1-08"))
    body, other = (page.locator(f"#{id_} > details.body > .part").first for id_ in ("S1-08", "S1-07"))
    assert body.evaluate("one => one.checkVisibility()")  # the link opens it
    assert not other.evaluate("one => one.checkVisibility()")
    assert page.locator("#S1-07 .says").is_visible()
    page.locator("#S1-07 > details > summary").click()
    assert other.is_visible()


BARE = {
    "claims that only scripts show": ("claims.html", '<li class="entry"', '<li hidden class="entry"'),
    "a filter that cannot filter": ("claims.html", 'role="search" hidden', 'role="search"'),
    "a button without its script": ("source-su.html", 'id="theme" hidden', 'id="theme"'),
    "a link that leaves its claim shut": ("static/style.css", ":root:not(.js) .claim:target", ".none"),
    "folds that are none": ("source-su.html", "<details", "<div"),
}


def test_without_scripts_nothing_is_missing(
    built: Path, reported: dict[str, Any], opened: Callable[..., Page], tmp_path: Path
) -> None:
    check_without_scripts(opened(java_script_enabled=False), reported, built)
    for what, change in BARE.items():
        bad = broken_all(built, tmp_path / what, *change)
        page = opened(java_script_enabled=False)
        page.set_default_timeout(2000)
        with pytest.raises((AssertionError, TimeoutError)):
            check_without_scripts(page, reported, bad)
            assert page.locator("#theme").is_hidden()


# ---------------------------------------------------------------- keyboard, folds and commands


def check_skip_link(page: Page, built: Path) -> None:
    page.goto(url(built, "index.html"))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    assert page.evaluate("document.activeElement.getBoundingClientRect().top >= 0")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")
    for one in tabbed(page, 8):
        assert one["isMarked"] and one["isSeen"]


BAD_SKIPS = {
    "it stays out of sight": ("static/style.css", ".skip:focus { top: 0.5rem; }", ""),
    "it leads nowhere": ("index.html", 'class="skip" href="#content"', 'class="skip" href="#none"'),
    "it is not the first": ("index.html", '<a class="skip"', '<a href="#x">x</a><a class="skip"'),
    "the focus is not marked": ("static/style.css", "outline: 3px solid var(--accent)", "outline: none"),
}


def test_the_first_tab_skips_to_the_content(built: Path, opened: Callable[..., Page], tmp_path: Path) -> None:
    check_skip_link(opened(), built)
    for what, change in BAD_SKIPS.items():
        bad = broken_all(built, tmp_path / what, *change)
        with pytest.raises(AssertionError):
            check_skip_link(opened(), bad)


def check_folds(page: Page, built: Path) -> None:
    page.goto(url(built, "source-su.html"))
    assert page.locator("details.fold[open]").count() == 0
    assert page.locator("#S1-08 .says").is_visible()
    body, fold = (page.locator(f"#S1-08 details.{name}").first for name in ("body", "fold:not(.body)"))
    part, inside = page.locator("#S1-08 .part").first, fold.locator(":scope > :not(summary)").first
    assert part.is_hidden()
    page.evaluate("location.hash = 'S1-08'")
    page.wait_for_function("document.querySelector('#S1-08 > .body').open", timeout=2000)
    assert page.locator("details.fold[open]").count() == 1
    assert page.evaluate(PLACE, "S1-08")
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
    "claims begin open": ("source-su.html", '<details class="fold body">', '<details open class="fold body">'),
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


def test_folds_open_by_link_by_keyboard_and_all_at_once(
    built: Path, opened: Callable[..., Page], tmp_path: Path
) -> None:
    check_folds(opened(), built)
    for what, change in BAD_FOLDS.items():
        bad = broken_all(built, tmp_path / what, *change)
        with pytest.raises((AssertionError, TimeoutError)):
            check_folds(opened(), bad)


def check_copying(page: Page, built: Path) -> None:
    page.set_default_timeout(3000)
    page.goto(url(built, "source-su.html#S1-08"))
    box = page.locator("#S1-08 .command").first
    command = box.locator("code").inner_text()
    box.get_by_role("button").click()
    page.wait_for_function("document.querySelector('#said').textContent")
    assert page.locator("#said").inner_text() == "The command is copied."
    assert box.get_by_role("button").inner_text() == "Copied"
    page.goto(url(built, "claims.html"))
    page.focus("#q")
    page.keyboard.press("Control+V")
    assert page.input_value("#q") == command


BAD_COPIES = {
    "something else is copied": ("navigator.clipboard.writeText(text)", "navigator.clipboard.writeText(text + ' ')"),
    "the old way copies something else": ("area.value = text", "area.value = 'x'"),
    "it is not said": ('say(isDone ? "The command is copied."', 'say(isDone ? ""'),
    "no button": ("box.append(button)", ""),
}


@pytest.mark.parametrize("has_clipboard", [True, False])
def test_a_command_is_copied(built: Path, opened: Callable[..., Page], has_clipboard: bool, tmp_path: Path) -> None:
    def page() -> Page:
        found = opened(permissions=["clipboard-read", "clipboard-write"])
        if not has_clipboard:
            found.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
        return found

    check_copying(page(), built)
    other = "the old way copies something else" if has_clipboard else "something else is copied"
    for what, change in BAD_COPIES.items():
        bad = broken_all(built, tmp_path / what, "static/site.js", *change)
        if what == other:
            continue
        with pytest.raises((AssertionError, TimeoutError)):
            check_copying(page(), bad)


# ---------------------------------------------------------------- themes


def paper(page: Page) -> str:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


LIGHT, DARK = "rgb(255, 255, 255)", "rgb(20, 24, 27)"


def check_themes(opened: Callable[..., Page], built: Path) -> None:
    """The system's, the button's, which stays, and no error where nothing can be kept."""
    for theme, other, first, second in (("light", "dark", LIGHT, DARK), ("dark", "light", DARK, LIGHT)):
        page = opened(theme=theme)
        page.goto(url(built, "schemes.html"))
        button = page.locator("#theme")
        assert (paper(page), button.get_attribute("aria-pressed")) == (first, str(theme == "dark").lower())
        button.focus()
        page.keyboard.press("Enter")
        assert (paper(page), button.get_attribute("aria-pressed")) == (second, str(other == "dark").lower())
        page.goto(url(built, "index.html"))
        assert paper(page) == second

    page = opened()
    heard = Noise(page, built).heard
    page.add_init_script("Object.defineProperty(window, 'localStorage', {get() { throw new Error('shut') }})")
    page.goto(url(built, "schemes.html"))
    page.click("#theme")
    assert paper(page) == DARK
    assert heard == []


BAD_THEMES = {
    "one paper for both": ("static/style.css", "light-dark(#ffffff, #14181b)", "#ffffff"),
    "the choice is not kept": ("static/site.js", "localStorage.setItem", "String"),
    "the choice is not read": ("static/theme.js", 'chosen === "light" || chosen === "dark"', "false"),
    "the button does not say": ("static/site.js", 'setAttribute("aria-pressed"', 'setAttribute("data-pressed"'),
    "the dark choice has no colours": ("static/style.css", ':root[data-theme="dark"] { color-scheme: dark; }', ""),
}


def test_themes(built: Path, opened: Callable[..., Page], tmp_path: Path) -> None:
    check_themes(opened, built)
    for what, change in BAD_THEMES.items():
        bad = broken_all(built, tmp_path / what, *change)
        with pytest.raises(AssertionError):
            check_themes(opened, bad)
