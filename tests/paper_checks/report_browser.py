"""What tests ask a browser about a site: what it complains of, what is seen, where links and the focus go."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Request

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-component-update",
    "--disable-sync",
)
DESKTOP, PHONE, SMALL_PHONE = (1280, 900), (360, 740), (320, 640)
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
OF_COLOUR, OF_WIDTH = ["color-contrast"], ["scrollable-region-focusable", "target-size", "meta-viewport"]
"""Rules whose outcome a theme, and a width, can change."""


def is_file(url: str) -> bool:
    return url.startswith(("file:", "data:"))


def names(built: Path) -> list[str]:
    return sorted(path.name for path in built.glob("*.html"))


def url(built: Path, name: str) -> str:
    page, _, fragment = name.partition("#")
    return (built / page).as_uri() + (f"#{fragment}" if fragment else "")


def broken(built: Path, tmp_path: Path, name: str, old: str, new: str) -> Path:
    """A copy of the site in which one file is another."""
    copy = tmp_path / "broken"
    shutil.copytree(built, copy, dirs_exist_ok=True)
    text = (copy / name).read_text(encoding="utf-8")
    assert old in text
    (copy / name).write_text(text.replace(old, new, 1), encoding="utf-8")
    return copy


def broken_all(built: Path, copy: Path, name: str, old: str, new: str) -> Path:
    """A copy of the site in which one file has another text wherever it had the old one."""
    shutil.copytree(built, copy, dirs_exist_ok=True)
    text = (copy / name).read_text(encoding="utf-8")
    assert old in text
    (copy / name).write_text(text.replace(old, new), encoding="utf-8")
    return copy


class Noise:
    """What a tab complains of, and what it asks for that is not a file of the site."""

    def __init__(self, page: Page, built: Path) -> None:
        self.heard: list[str] = []
        here = built.as_uri()
        page.on("console", lambda said: self.heard.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.heard.append(str(error)))
        page.on("requestfailed", self.failed)
        page.on("request", lambda asked: None if asked.url.startswith(here) else self.heard.append(asked.url))

    def failed(self, asked: Request) -> None:
        """What was still on its way when the tab went on to another page is none."""
        if asked.failure != "net::ERR_ABORTED":
            self.heard.append(f"{asked.url}: {asked.failure}")


def visible(page: Page) -> list[str]:
    return page.eval_on_selector_all(".entry", "all => all.filter(one => one.offsetParent).map(one => one.id)")


def wanted(found: Mapping[str, Any], **chosen: Sequence[str]) -> list[str]:
    """By the document: of each group one of the values chosen."""
    ids = []
    for entry in found["claims"]:
        routes = {item["route"] for part in entry["parts"] for item in part["evidence"]}
        values = {"verdict": {entry["verdict"]}, "source": {entry["source"]}, "route": routes}
        if all(values[group] & set(several) for group, several in chosen.items()):
            ids.append(entry["id"])
    return ids


PLACE = """id => {
  const claim = document.getElementById(id);
  const header = document.querySelector(".top").getBoundingClientRect().bottom;
  const title = claim.querySelector("h2").getBoundingClientRect();
  const seen = document.elementFromPoint(title.left + 5, title.top + title.height / 2);
  return title.top >= header && title.bottom <= innerHeight && claim.contains(seen);
}"""

LINKS = "() => [...document.querySelectorAll('a[href]')].map(one => one.href.baseVal ?? one.getAttribute('href'))"
IDS = "() => [...document.querySelectorAll('[id]')].map(one => one.id)"


def dead_links(page: Page, built: Path) -> list[str]:
    """Of the pages as they stand when their scripts have run."""
    links: dict[str, list[str]] = {}
    ids: dict[str, set[str]] = {}
    for name in names(built):
        page.goto(url(built, name))
        links[name], ids[name] = page.evaluate(LINKS), set(page.evaluate(IDS))
    dead = []
    for name, several in links.items():
        for link in several:
            target, _, fragment = link.partition("#")
            target = target or name
            is_there = link.startswith("https://") or (
                target in ids and (not fragment or "=" in fragment or fragment in ids[target])
            )
            if not is_there:
                dead.append(f"{name}: {link}")
    return dead


FOCUSED = """() => {
  const one = document.activeElement, box = one.getBoundingClientRect(), style = getComputedStyle(one);
  const rect = one.querySelector("rect");
  const isMarked = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  return {id: one.dataset.id ?? null, x: box.x + scrollX, y: box.y + scrollY, isMarked,
    isSeen: box.top >= 0 && box.bottom <= innerHeight, stroke: rect ? getComputedStyle(rect).strokeWidth : ""};
}"""


def tabbed(page: Page, number: int) -> list[dict[str, Any]]:
    found = []
    for _ in range(number):
        page.keyboard.press("Tab")
        found.append(page.evaluate(FOCUSED))
    return found


WIDER = """() => {
  const root = document.documentElement, wide = root.scrollWidth - root.clientWidth;
  if (wide <= 0) return [];
  const all = [...document.querySelectorAll("main *")];
  const over = all.filter(one => one.getBoundingClientRect().right > root.clientWidth + 0.5);
  return [`${wide} px: ` + over.slice(0, 3).map(one => `${one.localName}.${one.className}`).join(" ")];
}"""


DRAWN = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""When what a change of size or a fold brings about has been done."""


def violations(page: Page, rules: Sequence[str] | None = None) -> list[str]:
    """By axe: all of RULES, or these only."""
    page.evaluate(DRAWN)
    only = {"type": "tag", "values": RULES} if rules is None else {"type": "rule", "values": list(rules)}
    answer = Axe().run(page, options={"runOnly": only, "resultTypes": ["violations"]}).response
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in answer["violations"]]


SOME_OF_EACH = """kept => {
  for (const many of ["article.claim", ".entry", "main > section:has(.drawn)", ".node", ".drawn", ".evidence > li"])
    document.querySelectorAll(many).forEach((one, i) => { if (i > 1 && !kept.includes(one.id)) one.remove(); });
  for (const body of document.querySelectorAll("tbody, .chips"))
    [...body.children].slice(5).forEach(one => one.remove());
  document.querySelectorAll("math").forEach(one => one.replaceChildren("x"));
  document.querySelectorAll("details").forEach(one => { one.open = true; });
}"""
