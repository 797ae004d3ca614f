"""The report in a browser, for the modules that look at it: one site, of few claims checked in truth."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import once

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page


@pytest.fixture(scope="session")
def reported() -> dict[str, Any]:
    """The document of all claims as they are expected; of those that are checked in truth, their evidence."""
    from tests.paper_checks.report_pages import SOME, as_expected

    return once.once("report/document", lambda: as_expected(and_checked=SOME))


@pytest.fixture(scope="module")
def whole(reported: dict[str, Any]) -> dict[str, Any]:
    """The same, for one module, which may change it."""
    return deepcopy(reported)


@pytest.fixture(scope="module")
def some() -> dict[str, Any]:
    """A document of a few claims, checked in truth, mutants included."""
    from tests.paper_checks.report_pages import SOME, checked, document_of

    return document_of([checked(id_) for id_ in SOME])


@pytest.fixture(scope="session")
def built(reported: dict[str, Any]) -> Path:
    """The site of ``reported``, with figures of every kind; made once in a run."""
    return _site("few", reported, has_all_figures=False)


def _site(name: str, document: dict[str, Any], *, has_all_figures: bool) -> Path:
    from tests.paper_checks.report_pages import write_site

    out = Path(os.environ[once.FOLDER]) / "report" / name
    return Path(once.once(f"report/{name}", lambda: write_site(document, out, has_all_figures=has_all_figures)))


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """Of one module: while Playwright runs, no other test of this process could run an event loop of its own."""
    from playwright.sync_api import sync_playwright

    from tests.paper_checks.report_browser import FLAGS

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=list(FLAGS), timeout=PATIENCE)
        yield browser
        browser.close()


PATIENCE = 240_000
"""Milliseconds that a browser may take for what it certainly will do: a busy machine is slow, and that is no fault."""


@pytest.fixture(scope="module")
def opened(browser: Browser) -> Iterator[Callable[..., Page]]:
    """A tab of this size and theme, and of the kind that ``how`` says: each kind is opened once, and used again.

    own: the name of a test that wants a tab for itself. Nothing that a tab asks the network for is let out, and what
    moves on a page moves at once.
    """
    from tests.paper_checks.report_browser import DESKTOP, is_file

    tabs: dict[str, tuple[BrowserContext, Page]] = {}

    def open_(size: tuple[int, int] = DESKTOP, theme: Any = "light", own: str = "", **how: Any) -> Page:
        kind = repr((own, sorted(how.items())))
        if kind not in tabs:
            context = browser.new_context(reduced_motion="reduce", **how)
            context.route("**/*", lambda route: route.continue_() if is_file(route.request.url) else route.abort())
            context.set_default_timeout(PATIENCE)
            tabs[kind] = context, context.new_page()
        page = tabs[kind][1]
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.emulate_media(color_scheme=theme, media="screen")
        return page

    yield open_
    for context, _ in tabs.values():
        context.close()
