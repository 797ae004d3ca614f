"""The sources beside one another: where two of them print one thing, and whether they print the same.

Where the claims hold what is printed as objects of one kind, these are compared; else the answer is stated, with why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sympy import Expr, Indexed, S, limit, oo

from depthlaw.paper_checks.claims.claim import Claim
from depthlaw.paper_checks.papers.registry import claims
from depthlaw.paper_checks.routes import algebra
from depthlaw.theory.symbols import L, N, gains_in, gains_out

Claims = Mapping[str, Claim]
Compare = Callable[[Claims], bool]


class Topic(NamedTuple):
    """agree: what is expected. compare: finds that out from the claims. beside: a further place, without a claim."""

    name: str
    ids: tuple[str, ...]
    agree: bool
    text: str
    compare: Compare | None = None
    beside: str = ""


def _printed(claims: Claims, id_: str, part: int = 0) -> Any:
    return claims[id_].parts[part].statement


def _same(first: str, second: str) -> Compare:
    """Whether two claims print the same, part by part, as far as both have parts."""
    return lambda claims: all(
        a.statement == b.statement for a, b in zip(claims[first].parts, claims[second].parts, strict=False)
    )


def _same_bound(first: str, second: str) -> Compare:
    """Whether the bounds of two claims are one sum, for every L."""
    return lambda claims: algebra.sums_equal(*(_printed(claims, id_)["bound"] for id_ in (first, second))) is True


def _same_steps(*places: tuple[str, int]) -> Compare:
    """Whether these parts of claims print the same; of sublayers, the same steps."""
    return lambda claims: len({getattr(s, "steps", s) for s in (_printed(claims, *place) for place in places)}) == 1


def _same_code(claims: Claims) -> bool:
    """Whether both print the same code, but for blanks, of which the paper's extraction lost some."""
    return "".join(claims["S2-02"].quote.split()) == "".join(_printed(claims, "S3-01")["code"].split())


def _same_update(claims: Claims) -> bool:
    """Whether the slide's norm, at the paper's gamma, is the change of the label's logit."""
    paper, slide = _printed(claims, "S2-07"), _printed(claims, "S3-04")["update"]
    letters = {letter.name: letter for letter in slide.free_symbols}
    gammas = {letter: paper["elsewhere"] for name, letter in letters.items() if name.startswith("gamma")}
    gammas[letters["gamma0"]] = paper["at_label"]
    return slide.subs(gammas) == abs(letters["f0"] - letters["f0_new"])


def _same_variances(claims: Claims) -> bool:
    paper, slide = _printed(claims, "S2-06")["variance"], _printed(claims, "S3-07")
    return (slide["W2"], slide["W1"]) == (paper, paper.xreplace({gains_out: gains_in}))


def _same_cross(claims: Claims) -> bool:
    """Whether DeepNet has the cross-attention where Magneto has it, in the first ten layers of a decoder."""
    place = _printed(claims, "DN-03")["cross"]
    (layer,) = place.free_symbols
    return all(place.subs(layer, j) % 3 == _printed(claims, "S2-18")["remainder"] for j in range(1, 11))


def _same_order(column: str, law: Callable[[Claims], Expr]) -> Compare:
    """Whether a law in L is that of the slides' table, in N: their ratio at L = 2N goes to a number that is not 0."""

    def compare(claims: Claims) -> bool:
        ratio = limit(law(claims).subs(L, 2 * N) / _printed(claims, "S3-10")[column], N, oo)
        return bool(ratio.is_finite and ratio != 0)

    return compare


def _post_law(claims: Claims) -> Expr:
    return _printed(claims, "S2-11").bound.replace(lambda e: isinstance(e, Indexed), lambda _: S.One).doit()


def _of_deepnet(power: int, id_: str, part: int, name: str) -> Compare:
    """Whether Su's number is beta alpha^power of DeepNet's encoder."""

    def compare(claims: Claims) -> bool:
        theirs = _printed(claims, "DN-04")
        return algebra.equal(theirs["beta"] * theirs["alpha"] ** power, _printed(claims, id_, part)[name]) is True

    return compare


def _same_norms(claims: Claims) -> bool:
    """Whether the paper gives three models the norms that the slides' introduction gives them."""
    slides = {("BERT", "Post-LN"), ("GPT", "Pre-LN"), ("ViT", "Pre-LN")}
    return slides <= set(_printed(claims, "S2-22").entries)


_RATIO, _PRODUCT = _of_deepnet(-1, "S1-24", 0, "ratio"), _of_deepnet(1, "S1-25", 1, "product")
_POST, _PRE = _same_order("post", _post_law), _same_order("pre", lambda claims: _printed(claims, "S2-10")["order"])
_SUBLAYER, _PRE_LN = _same_steps(("S2-01", 1), ("S3-06", 1)), _same_steps(("S2-12", 0), ("LI-01", 1))
_THEOREM_42 = "each displacement of an SGD step is eta sqrt(v^2 + w^2) at alpha = 1: eta sum v^2 + w^2"
_CROSS = "l % 3 = 1, first of a layer, in Magneto; 3j - 1, the second, in DeepNet"
_DEEPNET = "DeepNet's results, second-hand"
TOPICS = (
    Topic("pseudo-code of Sub-LN", ("S2-02", "S3-01"), True, "letter for letter", _same_code),
    Topic("gamma", ("S2-03", "S3-02"), True, "the same four roots", _same("S2-03", "S3-02")),
    Topic("variances of W1, W2", ("S2-06", "S3-07"), False, "the slide lost the index l", _same_variances),
    Topic("model update", ("S2-07", "S3-04"), True, "||gamma^T (F(x, theta*) - F(x, theta))||", _same_update),
    Topic("bound of Pre-LN", ("S2-09", "S3-05"), True, "(10), Theorem 1", _same_bound("S2-09", "S3-05")),
    Topic("bound of Sub-LN", ("S2-14", "S3-06"), True, "(12), Theorem 2's formula", _same_bound("S2-14", "S3-06")),
    Topic("sublayer of Sub-LN", ("S2-01", "S3-06"), False, "the slide lacks phi", _SUBLAYER),
    Topic("(13)", ("S2-16", "S3-08"), True, "equality, inequality and condition", _same("S2-16", "S3-08")),
    Topic("Sub-LN below Pre-LN", ("S2-17", "S3-09"), True, "the same conclusion, of (13)", _same("S2-17", "S3-09")),
    Topic("GOAL", ("S2-20", "S3-12"), True, "dF_sub = Theta(eta d) per SGD step", _same("S2-20", "S3-12")),
    Topic("bracket at equal gains", ("S2-21", "S3-13"), True, "O(log L / gamma^2)", _same("S2-21", "S3-13")),
    Topic("order of Post-LN", ("S2-11", "S3-10"), True, "sum v_l^2 + w_l^2 at gains 1 is Theta(N)", _POST),
    Topic("order of Pre-LN", ("S2-10", "S3-10"), True, "O(log L) and Theta(log N)", _PRE),
    Topic("Post-LN, after DeepNet", ("S2-11", "DN-02"), True, _THEOREM_42),
    Topic("Pre-LN, after Admin", ("S2-12", "LI-01"), True, "Corollary 1: O(log N)", _PRE_LN),
    Topic("which model uses which norm", ("S2-22",), True, "of three models", _same_norms, "slides, Introduction"),
    Topic("guaranteed training stability", ("S2-24",), True, "the same words", beside="slides, Takeaways"),
    Topic("lambda/alpha of DeepNet, by Su", ("S1-24", "DN-04"), True, "beta/alpha = 1/sqrt(4N)", _RATIO),
    Topic("lambda = 1/alpha, by Su", ("S1-25", "DN-04"), False, "DeepNet: alpha beta = 4^(-1/4)", _PRODUCT),
    Topic("sublayers of 1,000 layers", ("S1-50", "DN-12"), True, "2,500", _same("S1-50", "DN-12")),
    Topic("200 layers against 48", ("S1-44", "S1-45", "S1-46"), True, "3.2B, 12B, 5 BLEU on Flores", beside=_DEEPNET),
    Topic("which sublayer is cross-attention", ("S2-18", "DN-03"), False, _CROSS, _same_cross),
)


def agreements(among: Claims | None = None) -> list[dict[str, Any]]:
    """Each topic of which all claims are there: its places, whether they agree, and how that is known."""
    among = claims() if among is None else among
    return [
        {
            "topic": topic.name,
            "claims": list(topic.ids),
            "beside": topic.beside,
            "agree": topic.agree if topic.compare is None else topic.compare(among),
            "expected": topic.agree,
            "how": "stated" if topic.compare is None else "compared",
            "text": topic.text,
        }
        for topic in TOPICS
        if among.keys() >= set(topic.ids)
    ]
