"""The sources beside one another: every comparison finds what is expected of it, and sees a changed claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from sympy import Rational, log, sqrt

from depthlaw.paper_checks.claims.claim import Claim
from depthlaw.paper_checks.claims.statements import Sublayer
from depthlaw.paper_checks.papers.magneto.theorems import from_three
from depthlaw.paper_checks.papers.registry import claims
from depthlaw.paper_checks.verify.concord import TOPICS, Topic, agreements
from depthlaw.theory.symbols import L, N, d, gains_in, gains_out, l

COMPARED = {topic.name: topic for topic in TOPICS if topic.compare is not None}


def test_what_is_compared_is_as_expected() -> None:
    """Topics have names of their own, claims that there are, and two sources, where nothing stands beside them."""
    rows = agreements()
    assert len({topic.name for topic in TOPICS}) == len(TOPICS)
    assert {row["topic"] for row in rows if row["how"] == "compared"} == set(COMPARED)
    assert [row["topic"] for row in rows if row["agree"] is not row["expected"]] == []
    for topic in TOPICS:
        assert set(topic.ids) <= set(claims()), topic.name
        assert len({id_.partition("-")[0] for id_ in topic.ids}) > 1 or topic.beside, f"{topic.name}: one source alone"


def test_a_topic_without_its_claims_is_left_out() -> None:
    assert agreements({}) == []
    assert [row["topic"] for row in agreements({id_: claims()[id_] for id_ in ("S2-03", "S3-02")})] == ["gamma"]


def statement(id_: str, part: int = 0) -> Any:
    return claims()[id_].parts[part].statement


def put(id_: str, part: int, other: Any) -> Mapping[str, Claim]:
    """The claims, with another statement in one part of one."""
    parts = list(claims()[id_].parts)
    parts[part] = replace(parts[part], statement=other)
    return {**claims(), id_: replace(claims()[id_], parts=tuple(parts))}


MUTANTS: dict[str, Any] = {
    "pseudo-code of Sub-LN": lambda: put("S3-01", 0, statement("S3-01").with_(code="def subln(x):\n    return x")),
    "gamma": lambda: put("S3-02", 0, statement("S3-02").with_(encoder=sqrt(log(N)))),
    "variances of W1, W2": lambda: put(
        "S3-07", 0, statement("S3-07").with_(W2=gains_out[l] ** 2 / d, W1=gains_in[l] ** 2 / d)
    ),
    "model update": lambda: put("S2-07", 0, statement("S2-07").with_(elsewhere=Rational(1, 10))),
    "bound of Pre-LN": lambda: put("S3-05", 0, statement("S3-05").with_(bound=from_three(statement("S3-05")["bound"]))),
    "bound of Sub-LN": lambda: put("S3-06", 0, statement("S3-06").with_(bound=from_three(statement("S3-06")["bound"]))),
    "sublayer of Sub-LN": lambda: put("S3-06", 1, Sublayer(statement("S2-01", 1).steps)),
    "bracket at equal gains": lambda: put("S3-13", 0, statement("S3-13").with_(order=log(L))),
    "order of Post-LN": lambda: put("S3-10", 0, statement("S3-10").with_(post=log(N))),
    "order of Pre-LN": lambda: put("S2-10", 0, statement("S2-10").with_(order=L)),
    "which model uses which norm": lambda: put("S2-22", 0, statement("S2-22").with_(BERT="Pre-LN")),
    "lambda/alpha of DeepNet, by Su": lambda: put("DN-04", 0, statement("DN-04").with_(beta=1)),
    "lambda = 1/alpha, by Su": lambda: put("DN-04", 0, statement("DN-04").with_(beta=(2 * N) ** -Rational(1, 4))),
    "(13)": lambda: put("S3-08", 0, statement("S3-08").with_(left=1)),
    "Sub-LN below Pre-LN": lambda: put("S3-09", 0, statement("S3-09", 1)),
    "GOAL": lambda: put("S3-12", 0, statement("S3-12").with_(gamma_squared=1)),
    "Pre-LN, after Admin": lambda: put("LI-01", 1, statement("LI-01", 1).with_(order=L)),
    "which sublayer is cross-attention": lambda: put("S2-18", 0, statement("S2-18").with_(remainder=2)),
    "sublayers of 1,000 layers": lambda: put("S1-50", 0, statement("S1-50").with_(decoder=499)),
}


@pytest.mark.parametrize("topic", COMPARED.values(), ids=list(COMPARED))
def test_a_comparison_sees_a_mutant(topic: Topic) -> None:
    found = {row["topic"]: row["agree"] for row in agreements(MUTANTS[topic.name]())}
    assert found[topic.name] is not topic.agree
