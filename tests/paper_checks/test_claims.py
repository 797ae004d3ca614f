"""Claims: how verdicts fold, that every check sees a mutant, and that two routes share nothing."""

from __future__ import annotations

import json
import math
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from sympy import S, log

from depthlaw.cli.app import app
from depthlaw.paper_checks.claims import claim as c
from depthlaw.paper_checks.claims.claim import Amendment, Check, Claim, Evidence, Mutant, Part, Route, Verdict
from depthlaw.paper_checks.claims.sources import sources
from depthlaw.paper_checks.claims.statements import Growth, Values
from depthlaw.paper_checks.papers import registry
from depthlaw.paper_checks.papers.registry import claims
from depthlaw.paper_checks.routes.checks import GROWTH, awaits
from depthlaw.theory.symbols import L
from tests import once
from tests.often import often

ROOT = Path(__file__).resolve().parents[2]
CONFIRMED, REFUTED, UNDECIDED = Verdict.CONFIRMED, Verdict.REFUTED, Verdict.UNDECIDED
ONE, TWO = Values.of(x=1), Values.of(x=2)


def says(verdict: Verdict, num_effective: int = 1) -> Check:
    """A check that says the same of every statement."""
    found = Evidence(route=Route.PROOF, num_effective=num_effective, verdict=verdict, detail="")
    return Check(route=Route.PROOF, run=lambda _: found)


def holds_of(good: Values) -> Check:
    """A check that holds of one statement alone."""

    def run(statement: Values) -> Evidence:
        verdict = CONFIRMED if statement == good else REFUTED
        return Evidence(route=Route.ARITHMETIC, num_effective=1, verdict=verdict, detail="")

    return Check(route=Route.ARITHMETIC, run=run)


def broken(_: Any) -> Evidence:
    raise ZeroDivisionError("nothing to divide by")


def part(*checks: Check, **rest: Any) -> Part:
    return Part(name="it", statement=ONE, checks=checks, mutants=(Mutant(name="two", statement=TWO),), **rest)


def test_a_claim_takes_its_worst_part() -> None:
    order = [Verdict.REFUTED, Verdict.MISPRINT, Verdict.UNDECIDED, Verdict.CONDITIONAL, Verdict.CONFIRMED]
    for i, verdict in enumerate(order):
        assert c.worst(reversed(order[i:])) is verdict
    assert c.worst([]) is UNDECIDED


BREAKS = Check(route=Route.NUMERIC, run=broken)


@pytest.mark.parametrize(
    ("checks", "verdict"),
    [
        ([says(CONFIRMED)], CONFIRMED),
        ([says(CONFIRMED), says(REFUTED)], REFUTED),
        ([says(REFUTED), says(UNDECIDED)], REFUTED),
        ([says(CONFIRMED), says(UNDECIDED)], UNDECIDED),
        ([says(CONFIRMED, num_effective=0)], UNDECIDED),
        ([says(REFUTED, num_effective=0)], UNDECIDED),
        ([BREAKS], UNDECIDED),
        ([says(CONFIRMED), BREAKS], UNDECIDED),
    ],
)
def test_a_part_folds_from_its_checks(checks: list[Check], verdict: Verdict) -> None:
    assert c.judge_part(part(*checks)).verdict is verdict


def test_a_check_that_raises_says_so_and_kills_no_mutant() -> None:
    evidence = c.perform(BREAKS, ONE)
    assert (evidence.verdict, evidence.num_effective, evidence.route) == (UNDECIDED, 0, Route.NUMERIC)
    assert "ZeroDivisionError: nothing to divide by" in evidence.detail
    assert not any(mutant.is_killed for mutant in c.try_mutants(part(BREAKS)))


def test_what_awaits_training_is_undecided_and_no_check_that_sees_nothing() -> None:
    found = part(holds_of(ONE), awaits("runs"), expected=UNDECIDED, open="runs")
    assert c.judge_part(found).verdict is UNDECIDED
    assert [mutant.is_killed for mutant in c.try_mutants(found)] == [True]


def test_an_amendment_counts_only_where_the_same_checks_hold_on_it() -> None:
    good, bad = Amendment(statement=TWO, text="two"), Amendment(statement=ONE, text="one")
    wrong = part(holds_of(TWO), misprint=good)
    assert c.judge_part(wrong).verdict is Verdict.MISPRINT
    assert c.judge_part(replace(wrong, misprint=bad)).verdict is REFUTED
    assert c.judge_part(replace(wrong, misprint=None, hedge=good)).verdict is Verdict.CONDITIONAL
    assert c.judge_part(replace(wrong, misprint=None, hedge=bad)).verdict is REFUTED
    assert c.judge_part(part(holds_of(ONE), misprint=good)).verdict is CONFIRMED  # what is right needs no correction
    assert c.judge_part(part(says(UNDECIDED), misprint=good)).verdict is UNDECIDED


def test_what_holds_instead_must_hold() -> None:
    for value, holds in ((2, True), (3, False)):
        amendment = Amendment(statement=Values.of(x=value), text="instead")
        result = c.judge_part(part(holds_of(TWO), instead=amendment))
        assert (result.verdict, result.instead_holds) == (REFUTED, holds)


def claimed(*parts: Part) -> Claim:
    return Claim(id="X-1", kind=c.Kind.STEP, source="su", locator="", quote="", summary="", parts=parts)


IMPOSSIBLE: dict[str, tuple[str, Callable[[], Any]]] = {
    "evidence of a misprint": ("evidence says", lambda: says(Verdict.MISPRINT)),
    "a number below 0": ("whole number", lambda: says(CONFIRMED, num_effective=-1)),
    "nothing to break": ("nothing to break", lambda: Part(name="", statement=Values.of("words"), checks=(BREAKS,))),
    "no checks": ("no check", part),
    "open parts alone, no mutant": (
        "no mutant",
        lambda: claimed(replace(part(awaits("runs"), expected=UNDECIDED, open="runs"), mutants=())),
    ),
    "open for no reason": ("what would decide it", lambda: part(says(UNDECIDED), expected=UNDECIDED)),
    "parts of one name": ("name of its own", lambda: claimed(part(says(CONFIRMED)), part(says(CONFIRMED)))),
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_what_cannot_be_is_refused(what: str) -> None:
    words, make = IMPOSSIBLE[what]
    with pytest.raises(ValueError, match=words):
        make()


def test_a_mutant_that_nobody_sees_survives() -> None:
    """And a check that sees none is named, also beside one that does."""
    survivor, blind = c.try_mutants(part(says(CONFIRMED)))
    assert not survivor.is_killed and not blind.is_killed and "sees none" in blind.name
    killed, blind = c.try_mutants(part(holds_of(ONE), says(CONFIRMED)))
    assert killed.red == (0,) and blind.name.startswith("check 2")


@pytest.mark.parametrize(
    ("statement", "verdict"),
    [
        (Growth(scheme="pre-ln", order=log(L)), CONFIRMED),
        (Growth(scheme="pre-ln", order=L), REFUTED),
        (Growth(scheme="pre-ln", order=L, is_upper=True), CONFIRMED),
        (Growth(scheme="pre-ln", order=S.One, is_upper=True), REFUTED),
        (Growth(scheme="pre-ln", order=log(L) ** 2), REFUTED),
        (Growth(scheme="post-ln", order=L), CONFIRMED),
    ],
)
def test_growth_is_told_by_both_routes(statement: Growth, verdict: Verdict) -> None:
    assert [c.perform(check, statement).verdict for check in GROWTH] == [verdict, verdict]


# ---------------------------------------------------------------- the claims themselves


@pytest.mark.parametrize("id_", often(reversed(claims()), 32, wide=8))
def test_a_claim_stands_as_it_is_expected(id_: str) -> None:
    """Its verdict and those of its parts, also by a quick look; its mutants, all killed; and what it has to say.

    ``make verify`` asks the same of every claim.
    """
    printed, found, quick = claims()[id_], once.claim(id_), once.quick_claim(id_)
    assert found["verdict"] == quick["verdict"] == found["expected"] == printed.expected.value
    for whole, short in zip(found["parts"], quick["parts"], strict=True):
        assert whole["verdict"] == short["verdict"] == whole["expected"], whole["name"]
        assert whole["instead_holds"] and short["instead_holds"], whole["name"]
        assert [item for item in short["evidence"] if item not in whole["evidence"]] == []
        if whole["verdict"] == "REFUTED":
            assert whole["counterexample"] and whole["condition"], whole["name"]
        if whole["verdict"] == "MISPRINT":
            assert whole["correction"] and whole["grounds"], whole["name"]
        if whole["verdict"] == "UNDECIDED":
            assert whole["open"], whole["name"]
        else:
            assert all(item["num_effective"] > 0 for item in whole["evidence"]), whole["name"]
    least = sum(not all(check.is_open for check in one.checks) for one in printed.parts)
    assert len(found["mutants"]) >= least > 0
    assert [mutant["name"] for mutant in found["mutants"] if not mutant["killed"]] == []
    assert printed.locator.strip()


def test_claims_that_use_one_another_in_a_circle_are_refused() -> None:
    first, second = (replace(claims()[id_], uses=()) for id_ in ("S1-01", "S1-02"))
    registry.check_acyclic({"A": replace(first, uses=("B",)), "B": second})
    with pytest.raises(ValueError, match=r"claims use one another in a circle: (A -> B -> A|B -> A -> B)"):
        registry.check_acyclic({"A": replace(first, uses=("B",)), "B": replace(second, uses=("A",))})


WITHOUT_THEORY = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("depthlaw.theory.") and name not in allowed:
            raise ImportError(f"asked for {name}")
allowed = {"depthlaw.theory.symbols", "depthlaw.theory.schemes", "depthlaw.theory.stack"}
sys.meta_path.insert(0, Refuse())
import depthlaw.theory.stack
del depthlaw.theory.stack.transfer
from depthlaw.paper_checks.routes import second_meanfield  # it alone has the schemes, and these are data
for name in ("schemes", "stack"):
    allowed.remove(f"depthlaw.theory.{name}")
    del sys.modules[f"depthlaw.theory.{name}"]
    delattr(depthlaw.theory, name)
from depthlaw.paper_checks.claims.claim import Route, perform
from depthlaw.paper_checks.papers.registry import claims, load_bearing
has_all, known = sys.argv[1] == "all", {}
def code(run):
    run = getattr(run, "func", run)
    return run.__code__, *(code(cell.cell_contents) for cell in run.__closure__ or () if is_code(cell.cell_contents))
def is_code(value):
    return hasattr(getattr(value, "func", value), "__code__")
def needs_theory(check, statement):
    if check.route is Route.KERNEL:
        return True
    if not has_all and (check.route is Route.MEASURED or check.is_slow):
        return False
    if has_all or code(check.run) not in known:
        detail = perform(check, statement).detail
        known[code(check.run)] = detail.startswith("gave up: ImportError")
    return known[code(check.run)]
assert load_bearing()
for id_, claim in claims().items():
    for part in claim.parts if has_all or id_ in load_bearing() else ():
        routes = [check.route for check in part.checks if needs_theory(check, part.statement)]
        kernel = routes.count(Route.KERNEL)
        least = 2 if id_ in load_bearing() else 1
        if len(routes) - kernel > 1 or kernel > 1 or len(part.checks) < max(least, len(routes) + least - 1):
            sys.exit(f"{id_}, {part.name}: {', '.join(route.value for route in routes)} are of theory")
"""


@pytest.mark.wide
@pytest.mark.parametrize("which", ["load-bearing", pytest.param("all", marks=pytest.mark.slow)])
def test_routes_of_a_part_share_nothing_of_theory(which: str) -> None:
    """All but one run without it; and the kernel rung, which is theory's too, and so never counts as a second route.

    Load-bearing claims have two routes at least, one of them without theory. Tried with all of theory/ but its symbols
    out of reach; the second mean field has the schemes, but as data. load-bearing: the quick checks of what must have
    two routes, each on the first statement that it is asked about; what is measured is taken to need no theory.
    """
    command = [sys.executable, "-c", WITHOUT_THEORY, which]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


SHOWN = {
    "S1-07": [math.sqrt(2), 1],
    "S1-08": [math.sqrt(1 / 2)],
    "S2-17": [1.0003, 3.0001],
    "S3-09": [1.0003, 3.0001],
    "S3-03": [4, 4],
    "DN-01": [math.sqrt(2), 0],
    "DN-02": [3.048],
    "DN-07": [1.0, 1.0006, 6.936],
    "DN-08": [10.01],
    "DN-09": [0.0546, 0.219, 1.749, 28650],
    "CD-01": [5, 33, 257],
    "CD-02": [4.094, 139651],
    "CD-03": [26.42, 4.949e6, 8.348e24],
    "CD-04": [3.083, 5.058, 7.124],
    "KE-02": [0, 0.6065, 1, 1],
    "KE-04": [math.sqrt(1 / 2)],
    "HC-02": [0.6, 0.00605, 0],
    "EM-01": [1.998, 2, 0.04, 0.0004],
}
"""By claim: the numbers that its counterexample's command of Python prints, which are those that the claim found."""
DRAWN: dict[str, Callable[..., bool]] = {
    "S1-10": lambda by_probe, by_matrix: abs(by_probe) < 1e-5 < 0.1 < by_matrix,
    "DN-15": lambda centred, *shifted: centred < 3 < shifted[0] < 100 < shifted[1],
}
"""The same where what is printed is drawn by chance."""


def is_shown(id_: str, option: str, code: str) -> bool:
    """Whether ``python -c CODE`` prints these numbers; run here, as an interpreter of its own takes seconds."""
    assert option == "-c"
    with redirect_stdout(StringIO()) as out:
        exec(code, {"__name__": "__main__"})
    numbers = [float(word) for word in out.getvalue().split() if re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", word)]
    return DRAWN[id_](*numbers) if id_ in DRAWN else numbers == pytest.approx(SHOWN[id_], rel=0.02, abs=1e-4)


@pytest.mark.parametrize(
    "id_", often((id_ for id_, claim in reversed(claims().items()) if claim.expected is REFUTED), 15, wide=5)
)
def test_counterexamples_can_be_seen_again(id_: str, capsys: pytest.CaptureFixture[str]) -> None:
    examples = [one["counterexample"] for one in once.judged_claim(id_)["parts"] if one["counterexample"]]
    assert examples
    for example in examples:
        program, command, *arguments = shlex.split(example["command"])
        if program == "python":
            assert is_shown(id_, command, *arguments)
            continue
        assert program == "depthlaw"
        if "rows" not in example:
            assert (command, arguments) == ("explain", [id_]) or command in ("predict", "experiment", "rule")
            continue
        app([command, *arguments, "--json"], standalone_mode=False)
        rows, kept = json.loads(capsys.readouterr().out)["rows"], example["rows"]
        assert [row["num_sublayers"] for row in rows] == [row["num_sublayers"] for row in kept]
        assert [row["update"] for row in rows] == pytest.approx([row["update"] for row in kept], rel=1e-9)
        over = [row["update_over_printed_order"] for row in kept]
        assert over == sorted(set(over))


def test_every_counterexample_is_seen_again() -> None:
    """By a command that is Python of its own, whose numbers are ``SHOWN``; by a check that measured networks; or by a
    test with the claim in its name, in a module of counterexamples."""
    modules = (ROOT / "tests" / "paper_checks").glob("test_counterexamples*.py")
    tests = re.findall(r"^def test_\w+", "\n".join(path.read_text(encoding="utf-8") for path in modules), re.MULTILINE)
    seen = {id_ for name in tests for id_ in re.findall(r"(?<=_)(?:S[123]|[A-Z]{2})_\d\d(?=_)", name)}
    seen |= {id_.replace("-", "_") for id_ in (*SHOWN, *DRAWN)}
    for id_, one in claims().items():
        if any(check.route is Route.MEASURED for part in one.parts for check in part.checks):
            seen.add(id_.replace("-", "_"))
    assert {id_.replace("-", "_") for id_, one in claims().items() if one.expected is REFUTED} <= seen


# ---------------------------------------------------------------- sources


COUNTS = {"S1": 50, "S2": 24, "S3": 49, "DN": 15, "LI": 6}
"""How many statements of each source are checkable: su, magneto, slides, deepnet, and what they cite."""
SHELF = {"CD": (1, 2, 3, 4, 7), "KE": (2, 3, 4, 5), "TP": (1, 2, 3, 4, 5), "CP": (1, 2, 5), "PL": (1, 2)}
SHELF |= {prefix: (1,) for prefix in ("AR", "GP", "DS", "CZ", "MC", "MG", "MX", "DT")}
SHELF |= {
    "SP": (1, 2),
    "HP": (1, 2),
    "HB": (1,),
    "NF": (1,),
    "HC": (1, 2),
    "EM": (1,),
    "GN": (1,),
    "CT": (1,),
    "ES": (1,),
}
SHELF |= {"LO": (2,), "LT": (1,)}
SHELF |= {prefix: (1,) for prefix in ("RZ", "SK", "TF", "DY", "NG", "BT", "BN", "RD", "OL", "SN", "DL")}
"""Those of later papers that are judged so far, by their numbers on the list of what these papers print."""


def test_every_statement_is_a_claim_of_its_source() -> None:
    """And every verdict occurs: a project that confirmed everything would have looked nowhere."""
    every = [f"{prefix}-{number:02d}" for prefix, count in COUNTS.items() for number in range(1, count + 1)]
    every += [f"{prefix}-{number:02d}" for prefix, numbers in SHELF.items() for number in numbers]
    assert list(claims()) == every
    assert all(id_.startswith(sources()[claim.source].prefix) for id_, claim in claims().items())
    assert {claim.expected for claim in claims().values()} == set(Verdict)


def test_every_source_is_pinned_and_used() -> None:
    assert {claim.source for claim in claims().values()} == set(sources())
    assert {key for key, source in sources().items() if source.sha256} == {"su", "magneto", "slides"}
