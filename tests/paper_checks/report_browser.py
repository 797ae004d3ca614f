"""What tests ask a browser about a site: what it complains of, what is seen, where links and the focus go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import files
from pathlib import Path
from typing import Any

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


def is_file(url: str) -> bool:
    return url.startswith(("file:", "data:"))


def url(built: Path, name: str) -> str:
    page, _, fragment = name.partition("#")
    return (built / page).as_uri() + (f"#{fragment}" if fragment else "")


class Noise:
    """What a tab complains of, and what it asks for that is not a file of a site."""

    def __init__(self, page: Page) -> None:
        self.heard: list[str] = []
        self.here = ""
        page.on("console", lambda said: self.heard.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.heard.append(str(error)))
        page.on("requestfailed", self.failed)
        page.on("request", self.asked)

    def of(self, built: Path) -> list[str]:
        """From now on, of this site: the list that it goes into."""
        self.here, self.heard = built.as_uri(), []
        return self.heard

    def asked(self, one: Request) -> None:
        if not one.url.startswith(self.here):
            self.heard.append(one.url)

    def failed(self, one: Request) -> None:
        """What was still on its way when the tab went on to another page is none."""
        if one.failure != "net::ERR_ABORTED":
            self.heard.append(f"{one.url}: {one.failure}")


def visible(page: Page) -> list[str]:
    return page.eval_on_selector_all(".entry", "all => all.filter(one => one.offsetParent).map(one => one.id)")


def wanted(found: Mapping[str, Any], **chosen: Sequence[str]) -> list[str]:
    """By the document: of each group one of the values chosen."""
    ids = []
    for entry in found["claims"]:
        routes = {item["route"] for part in entry["parts"] for item in part["evidence"]}
        values = {"kind": {entry["kind"]}, "verdict": {entry["verdict"]}, "source": {entry["source"]}, "route": routes}
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

FOCUSED = """async () => {
  const one = document.activeElement, style = getComputedStyle(one), rect = one.querySelector("rect");
  // When the browser has finished scrolling: in two frames it does not move.
  for (let still = 0, before = ""; still < 2; ) {
    await new Promise(requestAnimationFrame);
    const box = one.getBoundingClientRect(), now = `${box.x} ${box.y}`;
    still = now === before ? still + 1 : 0;
    before = now;
  }
  // Seen is what lies in the window with nothing over it: the header, a row's head, the edge of a box that scrolls.
  const places = [0.03, 0.25, 0.5, 0.75, 0.97];
  const isSeen = box => {
    const [left, top] = [Math.max(box.left, 0), Math.max(box.top, 0)];
    const [wide, high] = [Math.min(box.right, innerWidth) - left, Math.min(box.bottom, innerHeight) - top];
    const hits = places.flatMap(u => places.map(v => document.elementFromPoint(left + u * wide, top + v * high)));
    return wide > 0 && high > 0 && hits.some(hit => one.contains(hit));
  };
  return {id: one.dataset.id ?? null, is: one.outerHTML.slice(0, 120), isOut: one === document.body,
    x: rect?.x.baseVal.value, y: rect?.y.baseVal.value, stroke: rect ? getComputedStyle(rect).strokeWidth : "",
    isMarked: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
    isSeen: [...one.getClientRects()].some(isSeen)};
}"""
"""What has the focus: whether it is marked, and whether a reader sees some of it. One that is larger than the window
cannot be in it as a whole, and where a browser puts an edge differs by a fraction of a pixel."""


def tabbed(page: Page, number: int, key: str = "Tab") -> list[dict[str, Any]]:
    """What takes the focus, one after the other; none of it is left once the last of the page has had it."""
    found: list[dict[str, Any]] = []
    for _ in range(number):
        page.keyboard.press(key)
        one = page.evaluate(FOCUSED)
        if one["isOut"]:
            break
        found.append(one)
    return found


def out_of_sight(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """What has the focus where nobody sees it."""
    return [one["is"] for one in found if not (one["isMarked"] and one["isSeen"])]


WIDER = """() => {
  const root = document.documentElement, wide = root.scrollWidth - root.clientWidth;
  if (wide <= 0) return [];
  const all = [...document.querySelectorAll("main *")];
  const over = all.filter(one => one.getBoundingClientRect().right > root.clientWidth + 0.5);
  return [`${wide} px: ` + over.slice(0, 3).map(one => `${one.localName}.${one.className}`).join(" ")];
}"""


DRAWN = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""When what a change of size or a fold brings about has been done."""


@cache
def axe() -> str:
    """axe-core, as axe_playwright_python brings it along; that package itself reads it in the locale's encoding, which
    may not be UTF-8, and cannot be imported there."""
    (script,) = (one for one in files("axe-playwright-python") or () if one.name == "axe.min.js")
    return Path(str(script.locate())).read_text(encoding="utf-8")


def violations(page: Page) -> list[str]:
    """By axe."""
    page.evaluate(DRAWN)
    page.evaluate(axe())
    answer = page.evaluate("rules => axe.run({runOnly: rules, resultTypes: ['violations']})", RULES)
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in answer["violations"]]


SOME_OF_EACH = """kept => {
  for (const many of ["article.claim", ".entry", "main > section:has(.drawn)", ".node", ".drawn", ".evidence > li"])
    document.querySelectorAll(many).forEach((one, i) => { if (i > 1 && !kept.includes(one.id)) one.remove(); });
  for (const body of document.querySelectorAll("tbody, .chips"))
    [...body.children].slice(3).forEach(one => one.remove());
  document.querySelectorAll("math").forEach(one => one.replaceChildren("x"));
  document.querySelectorAll(".drawn svg > :not(title, desc)").forEach(one => one.remove());
  document.querySelectorAll("details").forEach(one => { one.open = true; });
  // axe judges no contrast on a gradient; the shadows at the edges are looked at by themselves.
  document.querySelectorAll(".scroll, .canvas, .statement").forEach(one => { one.style.backgroundImage = "none"; });
}"""
"""Of what a page has many times over, a few, everything open."""
