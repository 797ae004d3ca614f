"""The report in a browser, for the modules that look at it: one site, of few claims checked in truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    """The document of all claims as they are expected, made without checking: verdicts are what the registry pins."""
    from tests.paper_checks.report_pages import as_expected

    return as_expected()


@pytest.fixture(scope="module")
def some() -> dict[str, Any]:
    """A document of a few claims, checked in truth, mutants included."""
    from tests.paper_checks.report_pages import SOME, checked, document_of

    return document_of([checked(id_) for id_ in SOME])


@pytest.fixture(scope="session")
def reported() -> dict[str, Any]:
    from tests.paper_checks.report_pages import SOME, as_expected

    return as_expected(and_checked=SOME)


@pytest.fixture(scope="session")
def built(reported: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    from paper_checks.report import site
    from paper_checks.report.model import parse

    out = tmp_path_factory.mktemp("report") / "site"
    site.write(parse(reported), out)
    return out


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    from tests.paper_checks.report_browser import FLAGS

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a tab; nothing that it asks the network for is let out."""
    from tests.paper_checks.report_browser import DESKTOP, is_file

    contexts: list[BrowserContext] = []

    def open_(size: tuple[int, int] = DESKTOP, theme: Any = "light", **how: Any) -> Page:
        viewport: Any = {"width": size[0], "height": size[1]}
        context = browser.new_context(viewport=viewport, color_scheme=theme, **how)
        context.route("**/*", lambda route: route.continue_() if is_file(route.request.url) else route.abort())
        contexts.append(context)
        return context.new_page()

    yield open_
    for context in contexts:
        context.close()
