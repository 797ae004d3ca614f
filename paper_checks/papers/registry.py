"""All claims by id, in the order of the sources."""

from __future__ import annotations

from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pkgutil import walk_packages

from depthlaw.paper_checks import papers
from depthlaw.paper_checks.claims.claim import Claim, Kind
from depthlaw.paper_checks.claims.sources import sources


def modules() -> list[str]:
    """The names of the modules that hold the claims."""
    return [module.name for module in walk_packages(papers.__path__, f"{papers.__name__}.")]


@cache
def claims() -> dict[str, Claim]:
    """Every claim by its id, in the order of the sources.

    They stand in ``CLAIMS`` of the modules of ``paper_checks/papers``. ValueError where an id stands twice, a claim
    uses what does not exist, or claims use one another in a circle.
    """
    listed = [claim for name in modules() for claim in getattr(import_module(name), "CLAIMS", ())]
    prefixes = [source.prefix for source in sources().values()]
    listed.sort(key=lambda claim: (prefixes.index(sources()[claim.source].prefix), claim.id))
    by_id: dict[str, Claim] = {}
    for claim in listed:
        if by_id.setdefault(claim.id, claim) is not claim:
            raise ValueError(f"{claim.id} stands twice")
    for claim in listed:
        if missing := [used for used in claim.uses if used not in by_id]:
            raise ValueError(f"{claim.id} uses {', '.join(missing)}, which no module has")
    check_acyclic(by_id)
    return by_id


def claim(id_: str) -> Claim:
    """The claim with this id. LookupError, in one line, where there is none.

    >>> from depthlaw.paper_checks.papers.registry import claim
    >>> claim("S1-24").expected.value
    'CONFIRMED'
    """
    if id_ not in claims():
        raise LookupError(f"no claim {id_!r}; CLAIMS.md lists them all")
    return claims()[id_]


def check_acyclic(by_id: dict[str, Claim]) -> None:
    """ValueError, with the circle, where claims use one another in one."""
    try:
        TopologicalSorter({id_: claim.uses for id_, claim in by_id.items()}).prepare()
    except CycleError as error:
        raise ValueError(f"claims use one another in a circle: {' -> '.join(reversed(error.args[1]))}") from error


def load_bearing() -> set[str]:
    """Ids that another claim or a table uses: these need two independent routes."""
    used = {id_ for claim in claims().values() for id_ in claim.uses}
    return used | {claim.id for claim in claims().values() if claim.cells}


def results_of(id_: str) -> list[str]:
    """The results that people use which rest on a claim, straight or by way of others, in the order of the sources.

    >>> from depthlaw.paper_checks.papers.registry import results_of
    >>> "S1-25" in results_of("S1-22"), results_of("S1-25")
    (True, [])
    """
    return [other for other, claim in claims().items() if claim.kind is Kind.RESULT and id_ in rests_on(other)]


@cache
def rests_on(id_: str) -> frozenset[str]:
    """The claims that a claim rests on, straight or by way of others."""
    uses = claims()[id_].uses
    return frozenset(uses).union(*map(rests_on, uses))
