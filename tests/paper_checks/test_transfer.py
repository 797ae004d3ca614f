"""What the record of transfer says: of runs that are made up, the numbers that were put in; and its kept remedies."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

import pytest

from depthlaw.advice.records import GAINS
from depthlaw.advice.remedy import LATER
from depthlaw.network.trials import OF_RECIPE, Trial
from depthlaw.paper_checks.experiments import elsewhere, experiment, transfer, transfer_laws
from depthlaw.paper_checks.experiments.after_start import ADAMW, MUON
from depthlaw.paper_checks.experiments.base import Book
from depthlaw.paper_checks.experiments.kernel_laws import correlation_of
from depthlaw.paper_checks.experiments.scale import SMALL
from depthlaw.paper_checks.pages.training import transfer as transfer_page
from depthlaw.paper_checks.pages.training.runs import Record
from depthlaw.paper_checks.routes.training.after_start import nearest
from depthlaw.paper_checks.routes.training.transfer import (
    ADVISED,
    Transfer,
    at_every_depth,
    distances,
    is_above_0,
    is_cost,
    lasts,
    longer,
    moved_elsewhere,
    pays,
    transfers,
)
from depthlaw.sims.training.data import DataConfig, load
from depthlaw.sims.training.store import read
from depthlaw.system.places import training_record
from tests import made_runs
from tests.often import often

SEEDS = 4
CASES = {(case.model, case.optimizer, case.times): case for case in transfer.cases(SMALL) if not case.is_halfway}
AT_ONCE = [case for case in transfer.cases(SMALL) if case.times == 1]
CASE = CASES["pre-ln", ADAMW, 1]
MODEL = CASE.model
BEST, MOVED = 2.0**-7, 2.0**-9


def made(
    loss: Callable[[Trial, str], float | None],
    num_seeds: int = SEEDS,
    models: Sequence[str] = (MODEL,),
    optimizer: str = ADAMW,
) -> Book:
    """Every run of some models; None: it diverged. A loss is 0.01 higher with each seed, at every rate alike."""
    arms = [
        arm for arm in experiment("transfer").arms if arm.trial.scheme in models and arm.trial.optimizer == optimizer
    ]
    book = made_runs.fill(arms, range(num_seeds))
    for trial in book.trials:
        value = loss(trial, "nothing" if trial.change is None else trial.change.name)
        end = {"held_out": None, "outcome": "diverged"} if value is None else {"held_out": value + 0.01 * trial.seed}
        book[trial] = book[trial].model_copy(update=end)
    return book


def parabola(trial: Trial, best: float, least: float) -> float:
    return least + 0.1 * (math.log2(trial.learning_rate) - math.log2(best)) ** 2


def moves(trial: Trial, remedy: str) -> float:
    """As it is, the best rate falls by two octaves; the advice keeps it, and costs 0.02 of loss."""
    if trial.num_layers == transfer.TUNED or remedy != "nothing":
        return parabola(trial, BEST, 2.0 + 0.02 * (remedy == ADVISED))
    return parabola(trial, MOVED, 2.0)


def test_gains_and_costs_are_what_was_put_in() -> None:
    one = Transfer.of(CASE, made(moves))
    assert one.seeds == tuple(range(SEEDS)) and one.tuned == [BEST] * SEEDS
    assert one.gain(ADVISED, 32).mean == pytest.approx(0.4 - 0.02)
    for gain in (one.gain_over_tuning(ADVISED, 32), one.gain_over_few_layers(ADVISED, 32)):
        assert gain.mean == pytest.approx(-0.02)
    assert one.gain_over_tuning("nothing", 32).mean == pytest.approx(-0.4)
    assert one.transfer_cost("nothing", 32).mean == pytest.approx(0.4)
    assert one.transfer_cost(ADVISED, 32).mean == pytest.approx(0)
    assert one.remedy_cost(ADVISED, 32).mean == pytest.approx(0.02)
    assert [slope for slope in one.slopes if slope is not None] == pytest.approx([-2 / 3] * SEEDS, abs=0.02)
    assert pays(one, 32) is True
    said = transfer_page.in_readme(Record.of("transfer", made(moves)))
    assert f"{SEEDS} seeds" in said and "in 1 of 1 models under AdamW (by 0.40 [0.40, 0.40] nats in pre-ln);" in said
    assert "Beside a deeper model tuned anew the best ways take off 0.00." in said
    assert f"{ADVISED} alone, of which the plan asked, in 1." in said
    assert is_cost(one.transfer_cost("nothing", 32)) is True and is_cost(one.remedy_cost(ADVISED, 32)) is False


def test_what_was_shown_of_a_way_and_which_beat_it() -> None:
    """The advice costs 0.2 beside the others, of which one differs by chance alone, and one by less than counts."""

    def loss(trial: Trial, remedy: str) -> float:
        if trial.num_layers == transfer.TUNED:
            return parabola(trial, BEST, 2.0)
        own = {ADVISED: 0.2, "learning-rate": 0.3 * (-1) ** trial.seed, "depth-mup": 0.01, "nothing": 0.1}
        return parabola(trial, BEST, 2.0 + own.get(remedy, 0.0))

    one = Transfer.of(CASE, made(loss))
    told = {remedy: (one.verdict(remedy, 32), one.beaten_by(remedy, 32)) for remedy in CASE.remedies}
    assert told == {
        ADVISED: (-1, ["depth-mup", "completep"]),
        "learning-rate": (0, []),
        "depth-mup": (1, []),
        "completep": (1, []),
    }
    steady = made(lambda trial, remedy: loss(trial, "completep" if remedy == "learning-rate" else remedy))
    said = transfer_page.in_short(Record.of("transfer", steady))
    (costs,) = (line for line in said.splitlines() if line.startswith("- What a way costs by the plan"))
    assert f"shown to be above 0.05 nats in {one.case.name}: {ADVISED} 0." in costs and "depth-mup" not in costs


def test_a_gain_lasts_where_longer_runs_show_it_too() -> None:
    """Both ways gain 0.2; in longer runs one still does, and the other by chance alone."""

    def loss(trial: Trial, remedy: str) -> float:
        is_long = trial.num_steps > min(steps)
        gone = 0.2 + 0.1 * (-1) ** trial.seed if remedy == ADVISED and is_long else 0.0
        as_is = 0.2 if trial.num_layers > transfer.TUNED and remedy == "nothing" else 0.0
        return parabola(trial, BEST, 2.0 + gone + as_is)

    steps = {arm.trial.num_steps for arm in experiment("transfer").arms}
    assert len(steps) == 2 and max(steps) == transfer.LONGER * min(steps)
    book = made(loss)
    several = transfers(book)
    [(short, long)] = longer(several)
    assert [(of.case.optimizer, of.case.times) for of in (short, long)] == [(ADAMW, 1), (ADAMW, transfer.LONGER)]
    pairs = {remedy: [case.gain(remedy, 32) for case in (short, long)] for remedy in (ADVISED, "depth-mup")}
    assert {remedy: lasts(*pair) for remedy, pair in pairs.items()} == {ADVISED: False, "depth-mup": True}
    assert lasts(pairs[ADVISED][1], pairs["depth-mup"][1]) is None
    rows = {row["remedy"]: row for row in transfer_page.gains(Record.of("transfer", book))}
    assert rows["depth-mup"]["longer"] == {"times": 10, "mean": 0.2, "low": 0.2, "high": 0.2, "num_seeds": SEEDS}
    assert "longer" not in rows["completep"]
    assert all(row["learns"] for row in rows.values())


def test_a_gain_grows_with_depth_where_the_seeds_that_have_both_say_so() -> None:
    """One way gains twice as much at 32 layers as at 16, another as much, a third more by less than chance. One seed
    has no 16 layers: its 32 count elsewhere alone."""
    as_it_is = {4: 0.0, 16: 0.2, 32: 0.4}

    def loss(trial: Trial, remedy: str) -> float:
        chance = 0.01 * trial.num_layers / 32 * (-1) ** trial.seed
        own = {"nothing": as_it_is[trial.num_layers], "depth-mup": as_it_is[trial.num_layers] - 0.2 + chance}
        own["learning-rate"] = own["nothing"] / 2 + 10 * chance
        return parabola(trial, BEST, 2.0 + own.get(remedy, 0.0) * (trial.num_layers > transfer.TUNED))

    every = made(loss)
    book = Book({t: of for t, of in every.items() if (t.num_layers, t.seed) != (16, SEEDS - 1)})
    lucky = {**book}  # the seed without 16 layers tunes the others' rate, too
    for trial in book.trials:
        if (trial.num_layers, trial.seed, trial.learning_rate) == (transfer.TUNED, SEEDS - 1, 4 * BEST):
            lucky[trial] = book[trial].model_copy(update={"held_out": -9.0})
    assert at_every_depth(Book(lucky))[0].tuned == [4 * BEST] * (SEEDS - 1)
    (one,) = at_every_depth(book)
    assert one.seeds == tuple(range(SEEDS - 1)) and Transfer.of(CASE, book).seeds == tuple(range(SEEDS))
    told = {remedy: (one.growth(remedy).mean, is_above_0(one.growth(remedy))) for remedy in CASE.remedies}
    assert told[ADVISED] == (pytest.approx(0.2), True) and told["depth-mup"] == (pytest.approx(0, abs=0.01), None)
    assert told["learning-rate"][1] is None
    text = transfer_page.transfer(Record.of("transfer", book), "", "")
    row = f"| {MODEL} | {ADAMW} | {ADVISED} | 0.200 [0.200, 0.200] | 0.400 [0.400, 0.400] | 0.200 [0.200, 0.200] | 3 |"
    assert f"{row} grows |" in text
    assert f"### {MODEL}, 16 layers, adamw, {SEEDS - 1} of 5 seeds" in text
    gains = transfer_page.gains(Record.of("transfer", book))
    seeds = {(row["layers"], row["num_seeds"], row["halfway"]["layers"], row["halfway"]["num_seeds"]) for row in gains}
    assert seeds == {(32, SEEDS, 16, SEEDS - 1)} and len(gains) == len(CASE.remedies)
    assert {row["remedy"]: row["halfway"]["mean"] for row in gains}[ADVISED] == 0.2
    said = transfer_page.in_short(Record.of("transfer", book))
    told = f"the gain grows with {ADVISED} in {MODEL}, completep in {MODEL}; of the other 2 pairs of way and model"
    assert "From 16 to 32 layers (3 seeds) " + told in said
    alike = transfer_page.in_short(Record.of("transfer", made(moves)))
    assert f"Whether the ways gain more at 32 layers than at 16, {SEEDS} seeds do not tell." in alike
    under_muon = Record.of("transfer", Book(every | made(moves, models=[transfer.GPT2], optimizer=MUON)))
    assert "the gain grows" in transfer_page.in_short(under_muon, ADAMW)
    assert "the gain grows" not in (of_muon := transfer_page.in_short(under_muon, MUON))
    assert f"than at 16, {SEEDS} seeds do not tell." in of_muon


def test_advice_has_a_row_of_every_case() -> None:
    rows = {(row["model"], row["optimizer"], row["remedy"]): row for row in json.loads(GAINS.read_text())}
    assert {*rows} == {(case.name, case.optimizer, way) for case in AT_ONCE for way in case.remedies}
    halves = {(case.name, case.optimizer) for case in AT_ONCE if case.is_halfway}
    assert {whose[:2] for whose, row in rows.items() if "halfway" in row} == halves


def test_no_seed_is_judged_by_the_rate_that_it_chose() -> None:
    """One seed is lucky at a rate that is bad for the others: they choose for it."""
    lucky = 2 * BEST

    def loss(trial: Trial, remedy: str) -> float:
        is_lucky = trial.seed == 0 and trial.learning_rate == lucky and trial.num_layers == transfer.TUNED
        return 0.5 if is_lucky else parabola(trial, BEST, 2.0)

    assert Transfer.of(CASE, made(loss)).tuned[0] == BEST


def test_a_run_that_diverged_counts_as_a_guess() -> None:
    def loss(trial: Trial, remedy: str) -> float | None:
        is_deep = trial.num_layers > transfer.TUNED and remedy == "nothing"
        return None if is_deep and trial.learning_rate == BEST else moves(trial, remedy)

    book = made(loss)
    guess = next(iter(book.values())).guess
    assert Transfer.of(CASE, book).at_tuned("nothing", 32) == [guess] * SEEDS


MOVING = {"pre-ln": 2.0**-6, f"{OF_RECIPE}gpt2": 2.0**-9}
"""Models, and a rate at which each is tuned that leaves room in its grid for every law."""


def moves_as(law: str, optimizer: str, start: float | None = None) -> Callable[[Trial, str], float]:
    """The best rate of a model goes over its depth as a law says, up to a few hundredths of an octave of each seed."""

    def loss(trial: Trial, remedy: str) -> float:
        tuned = start or MOVING[trial.scheme]
        steep = transfer_laws.predicted(law, CASES[trial.scheme, optimizer, 1], tuned)
        own = 2.0 ** (0.03 * (-1) ** trial.seed) if trial.num_layers > transfer.TUNED else 1.0
        return parabola(trial, tuned * own * (trial.num_layers / transfer.TUNED) ** steep, 2.0)

    return loss


@pytest.mark.parametrize("law", transfer_laws.laws_of(ADAMW))
def test_a_best_rate_that_moves_as_a_law_is_told_as_that_law(law: str) -> None:
    book = made(moves_as(law, ADAMW), models=tuple(MOVING))
    by_law = distances([Transfer.of(CASES[model, ADAMW, 1], book) for model in MOVING])
    best, worse = nearest(by_law)
    assert (best, {best, *worse}) == (law, {*transfer_laws.laws_of(ADAMW)})
    assert max(by_law[law]) < 0.05


def test_under_muon_two_laws_are_told_from_each_other() -> None:
    """There the law behind the first step that was nearest is that of the first step itself."""
    first, none = transfer_laws.laws_of(MUON)
    for law, other in ((first, none), (none, first)):
        book = made(moves_as(law, MUON, 2.0**-4), optimizer=MUON)
        assert nearest(distances([Transfer.of(CASES[MODEL, MUON, 1], book)])) == (law, [other])


def test_runs_under_muon_are_told_as_such_and_so_is_how_few_seeds_they_have() -> None:
    """The way that helps takes 0.2 off, of 3 seeds where the plan asks for 5."""

    def loss(trial: Trial, remedy: str) -> float:
        is_deep = trial.num_layers > transfer.TUNED
        return parabola(trial, 2.0**-4, 2.0 + 0.2 * (is_deep and remedy != "depth-mup"))

    record = Record.of("transfer", made(loss, 3, optimizer=MUON))
    told = {(row["model"], row["optimizer"], row["remedy"]): row for row in transfer_page.gains(record)}
    assert {*told} == {(MODEL, MUON, remedy) for remedy in CASES[MODEL, MUON, 1].remedies}
    found = told[MODEL, MUON, "depth-mup"]
    assert (found["mean"], found["num_seeds"], found["verdict"]) == (pytest.approx(0.2), 3, 1)
    text = transfer_page.in_short(record, MUON)
    assert text.startswith(
        "Under Muon beside AdamW some way is shown to gain in 1 of 1 models. None is shown to add 0.05 nats."
    )
    assert f"| {MODEL} (3 of 5 seeds) | depth-mup | depth-mup | 2.01 | 2.21 |" in text
    heads = text.split("\n\n")[1].splitlines()[0]
    own = CASES[MODEL, MUON, 1].remedies
    assert all(f"| {way} |" in heads or f"| {way}: " in text for way in own), "a way of the figure is not in the table"
    assert transfer_page.in_short(record) == ""
    more = made(loss, SEEDS, models=(f"{OF_RECIPE}gpt2",), optimizer=MUON)
    both = Record.of("transfer", Book({trial: book[trial] for book in (record.book, more) for trial in book.trials}))
    assert "in 2 of 2 models under Muon beside AdamW (by 0.20 [" in transfer_page.in_readme(both)


def test_a_model_of_more_seeds_is_not_judged_by_the_fewer_of_another_alone() -> None:
    """Both laws are told of the seeds that both have, and of all of the one that has more."""
    model, other = MOVING
    book = made(moves_as("no move", ADAMW), models=(model, other))
    fewer = Book({trial: book[trial] for trial in book.trials if trial.scheme == model or trial.seed < SEEDS - 1})
    none = Record.of("elsewhere", Book({}))
    said = transfer_page.which_in_short(Record.of("transfer", fewer), none)
    of_both, of_one = said.splitlines()[-2:]
    assert of_both.startswith("| gpt2, pre-ln | adamw | 4 and 32 layers, 32 wide | 120 | 3 | no move |")
    assert of_one.startswith("| pre-ln alone, of more seeds | adamw | 4 and 32 layers, 32 wide | 120 | 4 | no move |")
    assert "alone" not in transfer_page.which_in_short(Record.of("transfer", book), none)


def test_a_model_that_learns_nothing_in_some_seeds_is_named_with_how_many() -> None:
    guess = next(iter(made(moves, 1).values())).guess

    def loss(trial: Trial, remedy: str) -> float:
        is_bad = trial.num_layers > transfer.TUNED and remedy == "nothing" and trial.seed == 0
        return guess + 0.1 if is_bad else moves(trial, remedy)

    text = transfer_page.in_short(Record.of("transfer", made(loss)))
    assert f"{MODEL} (in 1 of {SEEDS} seeds) of 32 layers, as they are, learn nothing at the tuned rate" in text


def test_a_seed_whose_best_rate_is_beyond_the_grid_has_no_slope_there() -> None:
    """The others of that model still say how it moved, and the seed still counts in the other model."""
    gpt2 = f"{OF_RECIPE}gpt2"

    def loss(trial: Trial, remedy: str) -> float:
        is_beyond = (trial.scheme, trial.seed, trial.num_layers) == (gpt2, 0, 32) and remedy == "nothing"
        first = transfer_laws.predicted("first", CASES[trial.scheme, ADAMW, 1], MOVING[trial.scheme])
        bent = {gpt2: 0.0, "pre-ln": first}[trial.scheme]
        best = MOVING[trial.scheme] * (trial.num_layers / transfer.TUNED) ** bent
        return parabola(trial, 1.0 if is_beyond else best, 2.0)

    book = made(loss, models=tuple(MOVING))
    both = [Transfer.of(CASES[model, ADAMW, 1], book) for model in MOVING]
    by_model = {one.case.model: one for one in both}
    assert by_model[gpt2].slopes[0] is None and not by_model[gpt2].is_known and by_model["pre-ln"].is_known
    assert (by_model[gpt2].beyond(32), by_model[gpt2].beyond(4)) == ((0, 1), (0, 0))
    away = distances(both)["first"]
    assert away[0] < 0.05 and all(0.6 < one < 0.7 for one in away[1:])  # 0.92 / sqrt(2): of two models, one


def test_best_rates_of_a_model_that_learns_nothing_are_looked_at_apart() -> None:
    """One model's best rate moves as the first step's law says; another's deepest is worse than guessing anywhere."""
    guess = next(iter(made_runs.fill([experiment("transfer").arms[0]], range(1)).values())).guess
    first, stays = (moves_as(law, ADAMW) for law in ("first", "no move"))

    def loss(trial: Trial, remedy: str) -> float:
        if trial.scheme == MODEL or trial.num_layers == transfer.TUNED:
            return first(trial, remedy)
        return guess + stays(trial, remedy)

    record = Record.of("transfer", made(loss, models=tuple(MOVING)))
    one, other = (Transfer.of(CASES[model, ADAMW, 1], record.book) for model in MOVING)
    assert one.learns and one.is_known and other.is_known and not other.learns
    text = transfer_page.transfer(record, "", "")
    planned, apart = text.split("A look that was not planned, without models whose deepest learn nothing (pre-ln)")
    assert "(gpt2, pre-ln)" in planned and "The nearest is first, better than aligned and no move" in apart
    assert f"| {fmean(other.at_best('nothing', 32)):.2f} |" in planned


def test_advice_looks_at_later_steps_by_the_law_that_the_plan_names() -> None:
    assert LATER[ADAMW] == transfer_laws.LATER[ADAMW] and MUON not in LATER and transfer_laws.LATER[MUON] == "first"


LLAMA = CASES[f"{OF_RECIPE}llama-3", ADAMW, 1]


def test_llama_3_is_trained_with_four_heads_that_share_one_of_keys() -> None:
    for width, name in ((32, "small"), (64, "wide")):
        arms = [arm for arm in experiment("transfer", name).arms if arm.trial.scheme == LLAMA.model]
        models = [arm.trial.lower().model for arm in arms if arm.trial.learning_rate == LLAMA.rates[0]]
        heads = {(one.num_heads, one.num_kv_heads) for one in models}
        assert heads == {(width // 8, width // 32)}


@pytest.mark.parametrize(
    "case",
    often([CASE, LLAMA, elsewhere.CASES[-1]], 3, wide=1),
    ids=lambda case: f"{case.experiment}-{case.name}",
)
def test_the_kept_laws_are_those_that_are_derived_now(case: transfer.Case) -> None:
    shallow, deep = (transfer_laws.updates(replace(case, rates=case.rates[:1]), n) for n in case.layers)
    for law, by_rate in shallow.items():
        key = next(iter(by_rate))
        bent = -math.log2(deep[law][key] / by_rate[key]) / 3
        assert transfer_laws.predicted(law, case, case.rates[0]) == pytest.approx(bent, abs=0.05)


def test_the_laws_elsewhere_are_of_its_text() -> None:
    """Of the pages that the record was made with; in every Python's few pairs of bytes are equal."""
    recorded = next(str(row.config["data"]) for row in read(training_record("elsewhere", SMALL.name)))
    is_same = load(DataConfig(name="help", num_tokens=SMALL.num_tokens)).digest == recorded
    away = abs(correlation_of("help", 256) - transfer_laws.CORRELATIONS["gpt-help"])
    assert away < (1e-3 if is_same else 0.1)


def told_elsewhere(case: transfer.Case, steep: Callable[[float], float]) -> Book:
    """Runs of a case whose best rate goes over depth by a power, which may hang on the tuned rate, up to a few
    hundredths of an octave of each seed."""
    start, (few, _), plan = 2.0**-6, case.layers, experiment("elsewhere")
    names = {case.arm_name(n, transfer.NOTHING, rate) for n in case.layers for rate in case.rates}
    book = made_runs.fill([arm for arm in plan.arms if arm.name in names], plan.seeds_of(SEEDS))
    for trial in book.trials:
        own = 2.0 ** (0.03 * (-1) ** trial.seed) if trial.num_layers > few else 1.0
        loss = parabola(trial, start * own * (trial.num_layers / few) ** steep(start), 2.0)
        book[trial] = book[trial].model_copy(update={"held_out": loss})
    return book


@pytest.mark.parametrize(
    "case",
    [case for case in elsewhere.CASES if case.model in ("pre-ln", transfer.GPT2)],
    ids=lambda c: c.name + c.longer,
)
def test_elsewhere_tells_which_law_moves_and_which_are_refuted(case: transfer.Case) -> None:
    """Of best rates that move as the first step's law says."""
    book = told_elsewhere(case, lambda rate: transfer_laws.predicted("first", case, rate))
    (one,) = moved_elsewhere(book)
    assert one.case == case and one.seeds == tuple(range(100, 100 + SEEDS)) and one.refuted() == ["aligned", "no move"]
    record, beside = Record.of("elsewhere", book), Record.of("transfer", Book({}))
    text = transfer_page.elsewhere(record, "", "", beside)
    for told in (f"| {case.name} | ", "| aligned, no move |", "The nearest is first, better than"):
        assert told in text
    assert (f"Longer runs ({120 * case.times:,} steps), 4 seeds:" in text) == (case.times > 1)
    sentence = transfer_page.elsewhere_in_readme(record)
    assert ("it fell about so: " in sentence) == (case.times > 1) == bool(sentence)
    assert "No law here says so." not in sentence
    row = next(
        line for line in transfer_page.elsewhere_in_short(record).splitlines() if line.startswith(f"| {case.name}")
    )
    assert row.startswith(f"| {case.name} | {120 * case.times:,} | {SEEDS} | ") and "| aligned, no move |" in row
    nearest_of_all = transfer_page.which_in_short(beside, record).splitlines()[-1]
    assert nearest_of_all.endswith("| first | aligned, no move |")


@pytest.mark.parametrize(
    ("steep", "said"), [(-0.4, "fell by less than the update says: "), (-0.9, "did not: "), (0.3, "did not: ")]
)
def test_how_a_best_rate_that_moves_as_no_law_says_does_move(steep: float, said: str) -> None:
    book = told_elsewhere(elsewhere.PLANS[1][0], lambda _: steep)
    record = Record.of("elsewhere", book)
    sentence = transfer_page.elsewhere_in_readme(record)
    assert said in sentence and "No law here says so." in sentence
    assert "| first, aligned, no move |" in transfer_page.elsewhere_in_short(record)


def test_a_quartic_finds_the_least_of_a_lopsided_curve_which_a_parabola_misses() -> None:
    """Least at 2^-6.6 (5 layers) and 2^-8 (40); the logarithm of a loss rises faster above than below."""
    case, least = elsewhere.PLANS[1][0], {5: -6.6, 40: -8.0}
    book = told_elsewhere(case, lambda _: 0.0)
    for trial in book.trials:
        x = math.log2(trial.learning_rate) - least[trial.num_layers]
        loss = 2 * math.exp(0.1 * x**2 + 0.03 * x**3 + 0.01 * x**4)
        book[trial] = book[trial].model_copy(update={"held_out": loss})
    (one,) = moved_elsewhere(book)
    steep = -1.4 / math.log2(40 / 5)
    assert one.slopes_through_five == pytest.approx([steep] * SEEDS, abs=1e-3)
    assert all(slope is not None and abs(slope - steep) > 0.005 for slope in one.slopes)


@pytest.mark.parametrize(("steep", "said"), [(0.0, "stays put"), (-0.5, "falls"), (0.5, "rises")])
def test_the_control_stays_put_or_does_not(steep: float, said: str) -> None:
    """Beside longer runs whose best rate falls by an exponent of -0.5."""
    control, longer = elsewhere.PLANS[2][0], told_elsewhere(elsewhere.PLANS[1][0], lambda _: -0.5)
    record = Record.of("elsewhere", Book({**told_elsewhere(control, lambda _: steep), **longer}))
    text = transfer_page.elsewhere(record, "", "", Record.of("transfer", Book({})))
    assert (
        f"longer runs above: it {'does not' if steep == -0.5 else 'does'}. That it lie within a quarter of 0: " in text
    )
    assert ("it does." if steep == 0 else f"it does not, the best rate {said}.") in text.split("a quarter of 0: ")[1]
    assert f"| {control.name} | 480 | {SEEDS} | -0.02 |" in transfer_page.elsewhere_in_short(record)
    sentence = transfer_page.elsewhere_in_readme(record)
    assert f"{'And' if steep == 0 else 'But'} in {control.name} (480 steps, {SEEDS} seeds)" in sentence
    assert f"whose update is flat, it {said}: " in sentence
    assert ("So it is not shown that the best rate falls because the update grows." in sentence) == (steep != 0)


def test_longer_runs_are_held_against_the_next_shorter_ones() -> None:
    steep = {1: -0.2, elsewhere.LONGER: -0.5, elsewhere.LONGEST: -0.4}
    book = Book()
    for case in elsewhere.CASES:
        if case.model == MODEL:
            book |= told_elsewhere(case, lambda _, times=case.times: steep[times])
    text = transfer_page.elsewhere(Record.of("elsewhere", book), "", "", Record.of("transfer", Book({})))
    assert "less that after 120 steps, paired by seed, a look that was not planned: -0.30 [" in text
    assert "less that after 480 steps, paired by seed: 0.10 [" in text


@pytest.mark.wide
@pytest.mark.parametrize(
    "case",
    [
        *often((case for case in AT_ONCE if case.model == MODEL), 4, wide=1),
        *(pytest.param(case, marks=pytest.mark.slow) for case in AT_ONCE if case.model != MODEL),
    ],
)
def test_the_kept_remedies_are_those_of_advise(case: transfer.Case) -> None:
    """To what the points of a prediction leave open."""
    layers = transfer.DEEPER[0]
    for change in transfer.derived(SMALL.d_model, case, layers):
        kept = dict(transfer.kept()[SMALL.d_model, case.optimizer, case.model, layers, change.name].numbers)
        assert kept == pytest.approx(dict(change.numbers), rel=0.02)
