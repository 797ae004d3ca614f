"""Matplotlib's SVG made part of a page: its colours the page's own, its ids no other figure's, half its size."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from markupsafe import Markup

from paper_checks.pages.training.drawing import STYLES

_SVG = "{http://www.w3.org/2000/svg}"
_XLINK = "{http://www.w3.org/1999/xlink}"
KEPT = ("svg", "g", "path", "use", "defs", "clipPath", "rect", "text", "tspan", "title", "desc")
"""What a figure of ours consists of; there is no script and nothing from elsewhere in it."""
_PLAIN = {
    "#ffffff": "var(--paper)",
    "#000000": "var(--ink)",
    "#b0b0b0": "var(--line)",
    "#cccccc": "var(--line)",
    "#dddddd": "var(--line)",
    "#555555": "var(--muted)",
}
_SERIES = 8
_NUMBER = re.compile(r"-?\d+\.\d{2,}")
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}\b")


def themed(svg_text: str, prefix: str, *, title: str = "") -> Markup:
    """Inline SVG that follows the page's theme, ids prefixed, as wide as there is room for.

    ValueError, in one line, for an element that no figure of ours has, or a colour that is not known.
    """
    root = ElementTree.fromstring(svg_text)  # of this project's own files
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{_SVG}metadata", f"{_SVG}style") or "}metadata" in child.tag:
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        if element.tag not in KEPT:
            raise ValueError(f"a figure has no <{element.tag}>")
        element.tail = None if element.tail is None or not element.tail.strip() else element.tail
        element.text = None if element.text is None or not element.text.strip() else element.text
        element.attrib = {_plain_name(name): _value(name, text, prefix) for name, text in element.attrib.items()}
    size = {name: root.attrib.pop(name, "") for name in ("width", "height", "version")}
    width = float(size["width"].removesuffix("pt") or 640) * 4 / 3
    root.attrib |= {"role": "img", "class": "plot"}
    root.attrib["style"] = (
        f"width:100%;max-width:{width:.0f}px;height:auto;fill:var(--ink);stroke-linejoin:round;stroke-linecap:butt"
    )
    if title:
        named = ElementTree.Element("title")
        named.text = title
        root.insert(0, named)
    return Markup(ElementTree.tostring(root, encoding="unicode", short_empty_elements=True))


def _plain_name(name: str) -> str:
    return name.removeprefix(_XLINK)


def _value(name: str, text: str, prefix: str) -> str:
    if name == "id":
        return f"{prefix}-{text}"
    if _plain_name(name) == "href":
        return re.sub(r"^#", f"#{prefix}-", text)
    text = re.sub(r"url\(#", f"url(#{prefix}-", text)
    if name in ("d", "x", "y", "transform", "points"):
        return " ".join(_NUMBER.sub(lambda found: f"{float(found[0]):.1f}", text).split())
    return _COLOUR.sub(lambda found: colour(found[0]), _NUMBER.sub(lambda found: f"{float(found[0]):.2f}", text))


def colour(found: str) -> str:
    """A CSS colour of the page's theme. Of the schemes' colours the first eight that are no grey are --c1 to --c8, the
    others mixed with the ink; marks tell them apart as well."""
    plain = found.lower()
    if plain in _PLAIN:
        return _PLAIN[plain]
    places = {one.lower(): place for place, one in enumerate(one for one, _ in STYLES.values() if one not in _PLAIN)}
    if plain not in places:
        raise ValueError(f"{found} is no colour of a scheme")
    place = places[plain]
    variable = f"var(--c{place % _SERIES + 1})"
    return variable if place < _SERIES else f"color-mix(in srgb, {variable} 55%, var(--ink))"
