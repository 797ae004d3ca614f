"""Formulas on the report's pages: they mean what was derived or printed, and no text becomes markup."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from functools import cache
from time import process_time
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup, escape
from sympy import Basic, Expr, Symbol, sqrt, symbols

from paper_checks.claims.statements import Growth, Values
from paper_checks.notation import formulas, tokens
from paper_checks.notation.formulas import PLACE, NotAFormulaError, formula, pieces
from paper_checks.notation.latex import latex
from paper_checks.notation.mathml import NoMathError, mathml
from paper_checks.notation.names import SPECIAL
from paper_checks.papers.registry import claims
from paper_checks.papers.slides.more import Code
from paper_checks.report import typeset, views
from paper_checks.verify.concord import TOPICS
from paper_checks.verify.findings import claims_with_findings, finding_of
from tests.paper_checks.math_reader import LETTERS, at_letters, value_of
from tests.paper_checks.report_pages import SOME, checked

N, M = symbols("N M", positive=True)
ELEMENTS = frozenset({"math", "span", "code", "pre", "page"})
SOURCE = re.compile(r"\*\*|sqrt|Sum\(|\^|Theta|log\(|\b(?:alpha|beta|lambda|eta)\b(?! one)")
"""What is left of a formula where it was not typeset."""
MATH = re.compile(r"<math.*?</math>", re.DOTALL)


def statements() -> Iterator[tuple[str, Any]]:
    for claim in claims().values():
        for part in claim.parts:
            yield f"{claim.id}, {part.name}", part.statement


@cache
def expressions() -> frozenset[Expr]:
    """Those of all statements that have letters, but for symbols that stand for more than a letter."""

    def walk(found: Any) -> Iterator[Basic]:
        if isinstance(found, Basic):
            yield found
        elif isinstance(found, tuple):
            for one in found:
                yield from walk(one)
        elif dataclasses.is_dataclass(found):
            yield from walk(tuple(getattr(found, field.name) for field in dataclasses.fields(found)))

    listed = {expr for _, statement in statements() for expr in walk(statement) if isinstance(expr, Expr)}
    return frozenset(
        expr for expr in listed if expr.free_symbols and not SPECIAL.keys() & {str(s) for s in expr.free_symbols}
    )


def texts() -> Iterator[str]:
    """Sentences of ours about the claims."""
    for claim in claims().values():
        yield claim.summary
        for part in claim.parts:
            kept = (part.name, part.condition, part.open, part.statement.text)
            amendments = (found.text for found in (part.misprint, part.hedge, part.instead) if found is not None)
            yield from (text for text in (*kept, *amendments) if text and "\n" not in text and "\\" not in text)


def parsed(found: Markup) -> ElementTree.Element:
    """As XML, which is stricter than HTML."""
    return ElementTree.fromstring(f"<page>{found}</page>")


def content(found: Markup) -> str:
    """The text of a page, without the marks that keep a comma where it is."""
    return "".join(parsed(found).itertext()).replace("\u2060", "")


# ---------------------------------------------------------------- what formulas mean


def unlike(typeset_as: Callable[[Expr], Markup]) -> Iterator[str]:
    """Expressions whose MathML, read anew, has another value than sympy gives them."""
    for expr in sorted(expressions(), key=str):
        match = MATH.search(typeset_as(expr))
        read = match and value_of(ElementTree.fromstring(match.group()))
        if not read or abs(read / at_letters(expr) - 1) > 1e-9:
            yield str(expr)


def test_what_is_typeset_has_the_value_of_the_expression() -> None:
    assert len(expressions()) > 50
    assert list(unlike(typeset.expression)) == []


def upside_down(expr: Expr) -> Markup:
    """With its fractions turned over."""
    math = ElementTree.fromstring(typeset.expression(expr).removeprefix(typeset.BEGIN).removesuffix(typeset.END))
    for fraction in list(math.iter("mfrac")):
        fraction[:] = fraction[::-1]
    return Markup(ElementTree.tostring(math, encoding="unicode"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"<mn>2</mn>", r"<mn>3</mn>"),  # a number misread
        (r"<mo>−</mo>", r"<mo>+</mo>"),
        (r"<mo [^>]*>[()]</mo>", ""),  # brackets lost
    ],
)
def test_a_formula_broken_on_purpose_is_found(old: str, new: str) -> None:
    assert any(unlike(lambda expr: Markup(re.sub(old, new, typeset.expression(expr)))))


def test_a_fraction_turned_over_is_found() -> None:
    assert any(unlike(upside_down))


def test_powers_are_gathered_as_the_papers_print_them() -> None:
    assert content(typeset.expression(2 ** (sqrt(1) / 4) * N ** (sqrt(1) / 4))) == "(2N)1/4"
    assert "<mfrac><mrow><mn>1</mn></mrow><mrow><msqrt>" in typeset.expression(1 / sqrt(2 * N))


def test_what_our_grammar_does_not_know_sympy_typesets() -> None:
    from sympy import Integral

    x = Symbol("x")
    assert "∫" in content(typeset.expression(Integral(x, x)))


# ---------------------------------------------------------------- statements


def test_every_printed_statement_is_typeset() -> None:
    kept = dict(statements())
    assert len(kept) >= 300
    for where, statement in kept.items():
        found = typeset.statement(statement)
        page = parsed(found)
        if not isinstance(statement, Code):
            assert page.find(".//code") is None, where
        assert not SOURCE.search(MATH.sub(" ", found)), where


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        (Values.of(alpha=(2 * N) ** (sqrt(1) / 4), encoder_of_two=1), "α=(2N)1/4; encoder of two = 1"),
        (Values.of(dz_dlambda_1=N), "∂z/∂λ1=N"),
        (Values.of(lam=1, change=-Symbol("eta") * Symbol("norm_g") ** 2), "λ=1; change = −η‖g‖2"),
        (Growth(scheme="post-ln", order=sqrt(N)), "update of post-ln, relu, layernorm under sgd = Θ(N)"),
    ],
)
def test_statements_read_as_they_should(statement: Any, shown: str) -> None:
    assert content(typeset.statement(statement)) == shown


def test_a_bound_stands_by_itself() -> None:
    found = typeset.statement(claims()["S2-08"].parts[0].statement)
    page = parsed(found)
    (formula_,) = page.findall("span[@class='formula']")
    (math,) = formula_.findall("math")
    assert math.get("display") == "block"
    assert formula_.get("tabindex") == "0"
    assert (page.text or "").startswith("update of pre-ln")
    assert (formula_.tail or "").strip() == "at equal gains"


# ---------------------------------------------------------------- sentences


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("grows as L^0.47, not log L", ["L^{0.47}", r"\log L"]),
        ("gain sqrt(log 2N) is", [r"\sqrt{\log 2 N}"]),
        ("(8N)^(-1/4) and exp(0.59 N^(1/4))", ["{(8 N)}^{-1/4}", r"\exp(0.59 N^{1/4})"]),
        ("Theta(L^(1/(pi - 1)))", [r"\Theta(L^{1/(\pi - 1)})"]),
        ("x^l = G^l(x^(l-1))", [r"x^{l} = G^{l} (x^{l - 1})"]),  # no power of l(...)
        ("||theta_i* - theta_i||", [r"\left\|\theta_{i}^{\ast} - \theta_{i}\right\|"]),
        ("so <dL/dW, U> = 0", [r"\langle d L/d W, U\rangle = 0"]),
        ("sum_(i <= L) 2/(i + 1)", [r"\sum_{i \leq L}  2/(i + 1)"]),
        ("at gain 1 E phi'^2 > E phi^2", [r"\operatorname{E} \phi'^{2} > \operatorname{E} \phi^{2}"]),
        ("where w_l >> w_i", [r"w_{l} \gg w_{i}"]),
        ("0.707 (d x d) at", [r"(d \times d)"]),
        ("E[x e^(s x)] of v[l]", ["x e^{s x}", "v_{l}"]),  # a mean is no index
        ("100 * (4 * 1 + 8) = 1200", [r"100 (4 \cdot 1 + 8) = 1200"]),
    ],
)
def test_formulas_in_a_sentence(text: str, written: list[str]) -> None:
    assert [latex(piece, is_stacked=False) for piece in pieces(text) if not isinstance(piece, str)] == written


@pytest.mark.parametrize(
    "text",
    [
        "a post-LN model of 24L, 6L-6L and 350M parameters, see S1-24 and (10)",
        "Adam's step; the layer(s) of q_proj, norm_gain and xavier_normal_(weight)",
        "a rate of 1e-3 at 3.2B, i.e. 1/2 to 3/4 of it, T-T Pre-LN; an A and I",
        "su-lambda-one, N-layer, x-axis, MNLI-m",
    ],
)
def test_words_stay_words(text: str) -> None:
    assert pieces(text) == [text]
    assert typeset.prose(text).replace('<span class="whole">1e-3</span>', "1e-3") == escape(text)


def changed(typeset_as: Callable[[str], Markup]) -> list[str]:
    """Our sentences whose numbers are others, or in another order, once they are typeset."""

    def numbers(text: str) -> list[str]:
        return re.findall(r"\d", text)

    kept = (text for text in texts() if "Sum(" not in text)  # of which the limits come first
    return [text for text in kept if numbers(content(typeset_as(text))) != numbers(text)]


def test_every_number_of_our_texts_stays_where_it_was() -> None:
    assert sum("<math" in typeset.prose(text) for text in texts()) > 100
    assert changed(typeset.prose) == []
    assert changed(lambda text: Markup(typeset.prose(text).replace("<mn>2</mn>", "", 1)))


def test_numbers_options_and_code_are_whole() -> None:
    assert typeset.prose("5e-4, <1.2e-3") == '<span class="whole">5e-4</span>, &lt;<span class="whole">1.2e-3</span>'
    assert typeset.prose("with --seeds 5") == 'with <span class="whole">--seeds</span> 5'
    assert typeset.prose("(`a <b> L^2`) and ``c``") == "(<code>a &lt;b&gt; L^2</code>) and <code>c</code>"
    assert typeset.prose("one--two") == "one--two"


def test_lines_may_end_within_long_formulas() -> None:
    long = "alpha_e = (2N c^2)^(1/4) = 0.557 (N^2 M)^(1/8) + v_d w_d/alpha_d + v_e w_e/alpha_e"
    found = typeset.prose(long)
    assert found.count("<math") > 2
    assert found.count("</math>\u200b<math") == found.count("<math") - 1


def test_latex_of_quotations_is_typeset() -> None:
    found = typeset.prose(r"set $\lambda/\alpha=1/\sqrt{2N}$, so $$ \alpha = (2N)^{1/4} $$")
    assert found.count("<math") == 2
    assert 'display="block"' in found
    assert typeset.prose(r"\frac{\partial \mathcal{L}}{\partial \lambda}").count("<mfrac>") == 1
    for claim in claims().values():
        assert "<code" not in typeset.prose(claim.quote), claim.id
    assert typeset.quote("L^2, v_l, Wl,2") == "L^2, v_l, Wl,2"  # a source's words stay as they are


# ---------------------------------------------------------------- cells


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("encoder-decoder", "encoder-decoder"),
        ("-1", "-1"),
        ("", ""),
        ("(2*N)**(-1/4)", "(2N)−1/4"),
        ("6.204 N^1/2 (log N)^-1/2", "6.204N1/2(logN)−1/2"),  # the whole fraction is the power
        ("-eta*||theta||*||g||_1/sqrt(n)", "−η‖θ‖‖g‖1n"),
        ("51.8535939745012338126239575864", "51.8535939745…"),
        ("faster than any power, exp(0.04253 N)", "faster than any power, exp(0.04253N)"),
    ],
)
def test_cells(text: str, shown: str) -> None:
    assert content(typeset.cell(text)) == shown


@pytest.mark.parametrize("text", ["2 +", "sgd", "f(x", "N layers", "alpha beta gamma!", "", "sqrt(N) is", "N)"])
def test_what_is_no_formula_from_end_to_end_is_refused(text: str) -> None:
    with pytest.raises(NotAFormulaError):
        formula(text)


# ---------------------------------------------------------------- what is left of a formula on a page

LEFT = re.compile(
    r"\*\*|\^|sqrt|\blog\(|\|[A-Za-z]|\|\||<=|>=|!=|->|Theta|[A-Za-z]bar\b|\w\*\w|\b[a-z]\[\w"
    r"|\b(?<![\w-])(?:alpha|beta|gamma|lambda|eta|theta|sigma|phi|kappa|rho)\b(?!-| one)|[A-Za-z]_\w+"
)
NAMES = re.compile(
    r"\b(?:norm_(?:gain|bias)|[qkv]_proj|out_proj|leaky_relu|layer_norm|subln_init\(w\)|stack_\w+|xavier_\w+_?|notebooks/\S+)"
)
"""Names of code, which are no formulas."""


def left(found: Markup) -> list[str]:
    """Pieces of ASCII mathematics in what a reader sees of a text, but for code and words of a PDF."""
    seen = re.sub(r"<(math|code|pre)\b.*?</\1>|<[^>]*>", " ", found, flags=re.DOTALL)
    return LEFT.findall(NAMES.sub(" ", str(Markup(seen).unescape())))


def said() -> list[str]:
    """Our sentences of the claims, without the statements, which are typeset from their objects."""
    stated = {one.text for _, one in statements()}
    return [text for text in texts() if text not in stated]


def shown() -> Iterator[tuple[str, Markup]]:
    """What the pages show of every claim, finding and topic, and all that is said of the claims that are checked."""
    for claim in claims().values():
        yield f"{claim.id}, locator", typeset.prose(claim.locator)
        if not ("\n" in claim.quote or "\t" in claim.quote):
            yield f"{claim.id}, quote", views.quoted(claim.quote)
    for where, one in statements():
        yield where, typeset.statement(one)
    for text in (
        *said(),
        *(finding_of(one.id).text for one in claims_with_findings()),
        *(topic.name for topic in TOPICS),
    ):
        yield text, typeset.prose(text)
    for id_ in SOME:
        for part in checked(id_)["parts"]:
            for item in part["evidence"]:
                for text in (item["detail"], *item["steps"]):
                    yield text, typeset.prose(text)
                yield from ((name, typeset.label(name)) for name in item["numbers"])


def test_no_formula_is_left_half_typeset() -> None:
    found = dict(shown())
    assert len(found) > 900
    assert {where: left(one) for where, one in found.items() if left(one)} == {}


@pytest.mark.parametrize(
    ("text", "is_left"),
    [
        ("|average|^2/|x_i|^2 = 1/n", False),
        ("E|ubar W|^2 = |ubar|^2, ubar the mean", False),
        ("of order =Theta=: it is", False),
        ("gain^2 * 2/(fan_in + fan_out) at c^degree, log(slope)", False),
        ("W^{l,2}_ij ~ N(0, v^2/d) of subln_init(w), O() for <=.", False),
        ("m_hat over sqrt(v_hat)", False),
        ("(what it divides by)^2", True),
        ("a sqrt of |one two|", True),
        ("the table of power_value", True),
    ],
)
def test_what_is_left_of_a_formula_is_seen(text: str, is_left: bool) -> None:
    assert bool(left(typeset.prose(text))) is is_left


@pytest.mark.parametrize(
    ("owner", "name", "less"),
    [
        (tokens, "_TOKEN", re.compile(r"\d+|[A-Za-z]+|\S")),
        (formulas, "_BARE", frozenset()),
        (formulas, "FUNCTIONS", frozenset()),
        (formulas._Reader, "words", lambda *_: None),
        (formulas._Reader, "is_word", lambda *_: False),
        (typeset, "_SIGN", re.compile(r"(?!)")),
    ],
)
def test_a_typesetter_that_reads_less_is_seen(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, less: Any
) -> None:
    monkeypatch.setattr(owner, name, less)
    typeset._sentence.cache_clear()
    try:
        assert any(left(typeset.prose(text)) for text in said())
    finally:
        monkeypatch.undo()
        typeset._sentence.cache_clear()


# ---------------------------------------------------------------- what comes from outside

HOSTILE = [
    "<script>alert(1)</script> & \"quotes\" 'too'",
    r"$\text{<script>alert(1)</script>}$",
    r"$\text{<b onclick=x>y</b>}$",
    r"$\href{javascript:alert(1)}{x}$",
    r"$\style{background:url(//x)}{x}$",
    r"$\frac{a}$ and $x_$ and $\left($",
    "unbalanced $x and $ y",
    "$" * 5,
    f"{PLACE}0{PLACE} <i>",
    "x^<img src=x onerror=y>",
    "sqrt(<b>) log(<b>) |<b>| <<b>, x>",
    "((((((((((((((((x",
    "\\frac{<script>}{x}",
]


def assert_is_inert(found: Markup) -> None:
    for element in parsed(found).iter():
        is_ours = element.tag in ELEMENTS or element.tag.startswith("m")
        assert is_ours, element.tag
        assert not {name for name in element.attrib if name.startswith(("on", "href", "src", "style"))}


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(text: str) -> None:
    for found in (typeset.prose(text), typeset.cell(text), typeset.quote(text)):
        assert_is_inert(found)
    assert_is_inert(typeset.statement(Growth(scheme=text, order=N)))
    assert_is_inert(typeset.statement(Values(((text, N),))))


def test_markup_that_came_through_would_be_seen() -> None:
    with pytest.raises(AssertionError, match="script"):
        assert_is_inert(Markup("<script>alert(1)</script>"))


@pytest.mark.parametrize(
    "text", ["f(" * 40, "|f" * 60, "((((((((" * 60, "log " * 900, "<x," * 90, "x^(" * 90, "||" * 90]
)
def test_no_text_makes_it_slow(text: str) -> None:
    start = process_time()
    typeset.prose(f"{text}x")
    typeset.cell(f"{text}x")
    assert process_time() - start < 10


@given(st.text(st.sampled_from("aLN12 ^_*/()|<>&$\\{}[],.'+-=\"fracsqtlog" + PLACE), max_size=40))
def test_no_text_makes_it_fail(text: str) -> None:
    for typeset_as in (typeset.prose, typeset.cell, typeset.quote):
        assert_is_inert(typeset_as(text))


@pytest.mark.parametrize("broken", [r"\frac{a}", r"x_", r"\left(", r"\unknown x", r"\text{<i>}", r"\text{a & b}"])
def test_broken_latex_is_refused(broken: str) -> None:
    with pytest.raises(NoMathError):
        mathml(broken)


def test_the_letters_of_the_reader_are_those_of_the_statements() -> None:
    used = {str(symbol) for expr in expressions() for symbol in expr.free_symbols}
    assert {name.split("_")[0] for name in used if len(name) > 2 and "[" not in name} <= LETTERS.keys()


@pytest.mark.parametrize("text", ["O(ηd log L)", "naïve words", "x ≤ y²"])
def test_no_letter_of_another_alphabet_is_lost(text: str) -> None:
    seen = re.sub(r"<[^>]*>|\s|\N{WORD JOINER}", "", typeset.prose(text))
    assert [letter for letter in text if not letter.isascii()] == [letter for letter in seen if not letter.isascii()]
