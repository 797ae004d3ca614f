"""Letters and symbols of formulas in our texts, ``lambda_q``, ``W1``, ``dL``, and their LaTeX."""

from __future__ import annotations

import re
from functools import lru_cache

GREEK = frozenset(
    [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "eta",
        "theta",
        "kappa",
        "lambda",
        "rho",
        "sigma",
        "phi",
        "psi",
        "pi",
        "Delta",
        "Theta",
        "Gamma",
    ]
)
_SUBSCRIPTS = {
    "vocab": r"\text{vocab}",
    "last": r"\text{last}",
    "label": r"\text{label}",
    "sub": r"\text{sub}",
    "eps": r"\varepsilon",
}
_PRODUCTS = frozenset(["vw", "cv", "cw"])
SPECIAL = {
    "norm_g": r"\left\|g\right\|",
    "norm_theta": r"\left\|\theta\right\|",
    "l1_g": r"\left\|g\right\|_{1}",
    "sign_g": r"\operatorname{sign}(g)",
    "inner_G_U": r"\langle G, U\rangle",
    "tr_A": r"\operatorname{tr}(A)",
    "tr_A2": r"\operatorname{tr}(A^{2})",
    "G_x": "G(x)",
    "x_before": "x",
    "f0_new": "f_{0}^{*}",
    "f1_new": "f_{1}^{*}",
    "f2_new": "f_{2}^{*}",
    "f3_new": "f_{3}^{*}",
    "xbar": r"\bar{x}",
    "ubar": r"\bar{u}",
    "m_hat": r"\hat{m}",
    "v_hat": r"\hat{v}",
    "fan_in": r"\text{fan}_{\text{in}}",
    "fan_out": r"\text{fan}_{\text{out}}",
    "eps": r"\varepsilon",
    "grad": r"\nabla",
    "lam": r"\lambda",
    "LN": r"\operatorname{LN}",
    "oo": r"\infty",
    "infinity": r"\infty",
}
"""Symbols of the checks that stand for more than a letter."""


@lru_cache(maxsize=4096)
def name(text: str) -> str | None:
    r"""LaTeX of a name such as lambda_q, W1, dL or v_d; None of a word.

    >>> from paper_checks.notation.names import name
    >>> name("lambda_q"), name("W1"), name("layers")
    ('\\lambda_{q}', 'W_{1}', None)
    """
    if text in SPECIAL:
        return SPECIAL[text]
    head, *subs = text.split("_")
    found = _letter(head)
    if found is None or not all(_is_subscript(sub) for sub in subs):
        return None
    below = ",".join([*([found[1]] if found[1] else []), *map(_below, subs)])
    return f"{found[0]}_{{{below}}}" if below else found[0]


def _letter(head: str) -> tuple[str, str] | None:
    """A letter and its index: x, lambda, W1, gamma0; behind a d, as in dL or dtheta."""
    if len(head) == 1 or head in SPECIAL:
        return SPECIAL.get(head, head), ""
    if head in GREEK:
        return f"\\{head}", ""
    if head in _PRODUCTS:
        return " ".join(head), ""
    if match := re.fullmatch(r"([WUf]|gamma)(\d)", head):
        return (match[1] if len(match[1]) == 1 else f"\\{match[1]}"), match[2]
    if match := re.fullmatch(r"d([LFfzxvwW]|theta|lambda|alpha|[WU]\d)", head):
        letter, index = _letter(match[1]) or ("", "")
        return f"d {letter}", index
    return None


def _is_subscript(sub: str) -> bool:
    is_short = re.fullmatch(r"[A-Za-z]{1,2}|\d{1,4}|[A-Za-z]\d|(?:[a-z],)?\d[A-Za-z]", sub) is not None
    return is_short or sub in GREEK or sub in _SUBSCRIPTS


def _below(sub: str) -> str:
    if sub in GREEK:
        return f"\\{sub}"
    return _SUBSCRIPTS.get(sub, sub)
