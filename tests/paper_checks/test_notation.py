"""Signs in our words change no letter of them, expressions keep their meaning, and no text becomes markup."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup
from sympy import IndexedBase, Rational, Sum, Symbol, log, sqrt

from depthlaw.paper_checks.claims.statements import Growth, Values
from depthlaw.paper_checks.notation.expressions import latex
from depthlaw.paper_checks.notation.signs import html, signs
from depthlaw.paper_checks.papers.registry import claims
from depthlaw.paper_checks.report import typeset
from depthlaw.theory.symbols import L, N, l

alpha, v, w = Symbol("alpha", positive=True), IndexedBase("v"), IndexedBase("w")

LETTERS = st.sampled_from([*"aLN12 ^_*/()|<>&${}[],.'+-=\\", "lambda", "sqrt", "||", "**", "norm_gain", "\\frac", "->"])


def parsed(found: Markup) -> ElementTree.Element:
    """As XML, which is stricter than HTML."""
    return ElementTree.fromstring(f"<page>{found}</page>")


def typed(found: Markup) -> str:
    """What is copied from a page: all but the signs and the MathML that are shown."""
    return Markup(re.sub(r'<math.*?</math>|<span class="shown".*?</span>|<[^>]*>', "", found)).unescape()


def shown(found: Markup) -> str:
    """What is seen, powers with their mark."""
    raised = re.sub(r'<span class="typed".*?</span>', "", found).replace("<sup>", "^").replace("<sub>", "_")
    return Markup(re.sub(r"<[^>]*>", "", raised)).unescape()


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("lambda_q lambda_k", "λ_q λ_k"),
        ("Theta(L^(1/(pi - 1))) and L^0.47", "Θ(L^1/(π - 1)) and L^0.47"),
        ("1/sqrt(2*N), (8*N)**(-1/4)", "1/√(2N), (8N)^-1/4"),
        ("x_(l-1), W^{l,2}_ij, dL/dx_l", "x_l-1, W^l,2_ij, dL/dx_l"),
        ("-eta*||theta||*||g||_1 <= v_l^2/d", "-η·‖θ‖·‖g‖_1 ≤ v_l^2/d"),
        ("norm_gain, q_proj, xavier_normal_(weight), su-lambda-one, alphabet", None),
        ("a rate of 1e-3, S1-24 and (10), N-layer, --select alpha-one, c^degree", None),
        ("2*Sum(a[k]/Product(b[n], (n, 1, k)), (k, 2, L), (l, 1, L))", "2Σ_k=2^LΣ_l=1^L(a[k]/Π_n=1^k(b[n]))"),
        ("Sum(a, b) and Sum(c[l], (l, 1, L", None),
        ("theta* of an A and I, x ≤ y², 2^", "θ* of an A and I, x ≤ y², 2^"),
    ],
)
def test_signs_stand_for_words(text: str, seen: str | None) -> None:
    assert shown(html(text)) == (seen or text)
    assert typed(html(text)) == text


@given(st.lists(LETTERS, max_size=25).map("".join))
def test_no_letter_is_lost(text: str) -> None:
    """What is copied is what was typed, whatever it is."""
    assert typed(html(text)) == text
    parsed(html(text))
    signs(text)


# ---------------------------------------------------------------- expressions


@pytest.mark.parametrize(
    ("expr", "written"),
    [
        ((8 * N) ** Rational(-1, 4), "{(8 N)}^{-1/4}"),
        (1 / sqrt(2 * N), r"\frac{1}{\sqrt{2 N}}"),
        (sqrt(log(2 * N)), r"\sqrt{\log{(2 N )}}"),
        (Sum(v[l] ** 2 + w[l] ** 2, (l, 1, L)), r"\sum_{l=1}^{L} ({v}_{l}^{2} + {w}_{l}^{2})"),
        ((alpha - 1) / alpha, r"\frac{\alpha - 1}{\alpha}"),
        (alpha * (alpha - 2) / sqrt(alpha), r"\sqrt{\alpha} (\alpha - 2)"),  # no root of a square, which has no sign
    ],
)
def test_expressions(expr: object, written: str) -> None:
    assert latex(expr) == written  # pyright: ignore[reportArgumentType]


def test_every_printed_statement_is_typeset_from_its_expressions() -> None:
    statements = [part.statement for claim in claims().values() for part in claim.parts]
    assert len(statements) > 300
    for printed in statements:
        found = typeset.statement(printed)
        parsed(found)
        if not hasattr(printed, "source"):
            assert "<code>" not in found  # a formula that could not be read
        if not isinstance(printed, Values) and not hasattr(printed, "source"):
            assert typed(found) == printed.text
    assert sum("<math" in typeset.statement(printed) for printed in statements) > 80


def test_latex_of_quotations_is_typeset() -> None:
    found = typeset.prose(r"set $\lambda/\alpha=1/\sqrt{2N}$, so $$ \alpha = (2N)^{1/4} $$")
    assert found.count("<math") == 2 and 'display="block"' in found
    for claim in claims().values():
        assert "<code" not in typeset.prose(claim.quote), claim.id


# ---------------------------------------------------------------- what comes from outside

HOSTILE = [
    "<script>alert(1)</script> & \"quotes\" 'too'",
    r"$\text{<script>alert(1)</script>}$ and $\text{<b onclick=x>y</b>}$",
    r"$\href{javascript:alert(1)}{x}$ $\style{background:url(//x)}{x}$",
    r"$\frac{a}$ and $x_$ and $\left($",
    "x^(<img src=x onerror=y>) sqrt(<b>) lambda_{<i>}",
    "\\frac{<script>}{x}",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(text: str) -> None:
    statements = (Growth(scheme=text, order=N), Values(((text, N),)))
    for found in (
        *(one(text) for one in (typeset.prose, typeset.cell, typeset.label)),
        *map(typeset.statement, statements),
    ):
        for element in parsed(found).iter():
            tag = element.tag.removeprefix("{http://www.w3.org/1998/Math/MathML}")
            assert tag in ("page", "span", "sup", "sub", "code") or tag.startswith("m")
            assert not {name for name in element.attrib if name.startswith(("on", "href", "src", "style"))}


@pytest.mark.parametrize("broken", [r"x_", r"\left(", r"\unknown x", r"\href{//x}{x}", r"\style{color:red}{x}"])
def test_broken_latex_is_refused(broken: str) -> None:
    with pytest.raises(ValueError):
        typeset.mathml(broken)
