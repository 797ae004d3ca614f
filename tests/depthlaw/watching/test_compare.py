"""Two runs beside each other: ratios at the same place, and what the verdict says of their course."""

from math import sqrt
from pathlib import Path

import pytest

from depthlaw.watching.compare import change_of, compare, described
from depthlaw.watching.record import NothingYetError, Run, Writer, is_being_written
from tests.depthlaw.watching.runs import made, trained

STEPS = (0, 1, 2, 4, 8, 20, 40, 60, 80)


def run(path: Path, changes, **options) -> Run:
    return Run.read(made(path, changes, **options))


def flat(value: float = 1.0) -> dict[int, float]:
    return dict.fromkeys(STEPS, value)


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ((3, 3, 3, 3, 3, 3, 3, 1, 1), "moved 3 times as far in steps 0 to 40, then alike"),
        ((1, 1.2, 1, 1, 1, 0.9, 1, 1, 1.1), "moved alike in steps 0 to 80"),
        ((0.25,) * 9, "moved 0.25 times as far in steps 0 to 80"),
        ((1, 1, 4, 4, 4, 1, 1, 1, 1), "moved alike in steps 0 to 1, then 4 times as far up to step 8, then alike"),
        ((1, 1, 1, 9, 1, 1, 1, 1, 1), "moved alike in steps 0 to 80"),
        ((5, 1, 1, 1, 1, 1, 1, 1, 1), "moved 5 times as far at step 0, then alike"),
        (
            (2, 2, 1, 1, 2, 2, 1, 1, 8),
            f"moved {(2**4 * 8) ** (1 / 9):.2g} times as far on the whole, back and forth: alike at 4 of 9 looks, 8 "
            "times as far at step 80",
        ),
    ],
    ids=["then alike", "alike", "less", "between", "one look", "the first", "back and forth"],
)
def test_the_course_of_a_role_in_words(times, text, tmp_path):
    """A single look that says otherwise cuts nothing in two; the first and the last count."""
    first = run(tmp_path / "a", {"fc2": flat(), "q": flat()})
    second = run(tmp_path / "b", {"fc2": dict(zip(STEPS, times, strict=True)), "q": flat()}, num_layers=48)
    found = compare(first, second)
    (fc2,) = [role for role in found.roles if role.role == "fc2"]
    assert fc2.text() == text
    assert [pair.times for pair in fc2.pairs] == pytest.approx(times)


def test_a_role_that_is_frozen_in_one_run_is_not_told_to_be_alike(tmp_path):
    first = run(tmp_path / "a", {"fc2": flat(), "q": flat()})
    second = run(tmp_path / "b", {"fc2": flat()}, roles=["q"], num_layers=48)
    for pair in ((first, second), (second, first)):
        found = compare(*pair)
        assert found.verdict[0].endswith("within 1.5 times: fc2.")
        assert found.verdict[1:] == ["Moved in both runs at no common place, so not compared: q."]


def test_the_verdict_names_what_moved_further_and_what_did_not(tmp_path):
    first = run(tmp_path / "a", {"fc2": flat(), "q": flat()})
    second = run(tmp_path / "b", {"fc2": flat(3.1), "q": flat(1.2)}, num_layers=48)
    assert compare(first, second).verdict == [
        "fc2 of 48 layers moved 3.1 times as far as that of 12 layers in steps 0 to 80.",
        "The other roles that matter moved as far as that of 12 layers, within 1.5 times: q.",
    ]
    assert compare(first, first).verdict == [
        f"Each role of {first.path} that matters moved as far as that of {first.path}, within 1.5 times: fc2, q."
    ]


def test_a_step_that_is_far_from_linear_is_said_to_be(tmp_path):
    first, second = (run(tmp_path / name, {"fc2": flat()}, num_layers=n) for name, n in (("a", 12), ("b", 48)))
    bent = second.model_copy(update={"looks": [look.model_copy(update={"first_order": 6.2}) for look in second.looks]})
    assert not any("linear" in line for line in compare(first, second).verdict)
    (line,) = (line for line in compare(first, bent).verdict if "linear" in line)
    assert line.startswith("The step of 48 layers at step 0 is far from linear") and "6.2 times" in line


def test_steps_that_only_one_run_was_looked_at_are_between_two_looks_or_left_out(tmp_path):
    first = run(tmp_path / "a", {"fc2": {0: 1.0, 10: 4.0, 20: 4.0}})
    second = run(tmp_path / "b", {"fc2": {5: 6.0, 10: 4.0, 30: 1.0}}, num_layers=48)
    (fc2,) = compare(first, second).roles
    assert [(p.at, p.times, p.is_between) for p in fc2.pairs] == [(5, pytest.approx(6 / 2), True), (10, 1.0, False)]


def test_equal_tokens_are_not_equal_steps(tmp_path):
    first = run(tmp_path / "a", {"fc2": {0: 1.0, 3: 2.0, 7: 8.0}}, tokens=10)
    second = run(tmp_path / "b", {"fc2": {0: 2.0, 1: 4.0}}, tokens=40, num_layers=48)
    (fc2,) = compare(first, second, "tokens").roles
    assert [(pair.at, pair.times) for pair in fc2.pairs] == [(40, 1.0), (80, pytest.approx(0.5))]
    assert compare(first, second, "tokens").roles[0].text("tokens").endswith("0.5 times as far")


def test_a_step_under_a_rate_of_0_is_no_step(tmp_path):
    first = run(tmp_path / "a", {"fc2": {0: 0.0, 1: 1.0}})
    second = run(tmp_path / "b", {"fc2": {0: 0.0, 1: 2.0}})
    assert [pair.at for pair in compare(first, second).roles[0].pairs] == [1]


def test_runs_that_have_nothing_in_common_are_refused(tmp_path):
    first = run(tmp_path / "a", {"fc2": flat()})
    other = run(tmp_path / "b", {"fc2": flat()}, roles=["fc3"])
    with pytest.raises(ValueError, match=r"a is of another architecture than .*b: only one has fc3"):
        compare(first, other)
    later = run(tmp_path / "c", {"fc2": {100: 1.0, 200: 1.0}})
    with pytest.raises(ValueError, match=r"have no steps in common: 0 to 80 and 100 to 200"):
        compare(first, later)
    still = run(tmp_path / "e", {"fc2": {0: 0.0, 1: 0.0}})
    with pytest.raises(ValueError, match=r"e has no step that moved the logits by a finite number above 0"):
        compare(first, still)
    empty = run(tmp_path / "d", {"fc2": {}})
    with pytest.raises(NothingYetError, match="has no look yet"):
        compare(first, empty)


@pytest.mark.wide
def test_of_real_runs_each_ratio_is_that_of_the_files(tmp_path):
    first, second = (Run.read(trained(tmp_path / f"{n}.jsonl", n)) for n in (1, 3))
    found = compare(first, second)
    assert found.names == ("1 layer", "3 layers")
    assert [pair.at for pair in found.whole.pairs] == [0, 1, 2, 4, 8]
    for role in found.roles:
        changes = [
            (change_of(a, role.role), change_of(b, role.role)) for a, b in zip(first.looks, second.looks, strict=True)
        ]
        assert [pair.times for pair in role.pairs] == [two / one for one, two in changes if one and two]
    assert sum(role.share[1] for role in found.roles) == pytest.approx(1)
    assert "Loss at step 8: " in found.losses
    assert described(second)[0].startswith("Step 8 moved the logits by ")


def test_a_file_is_known_to_be_written_while_it_is(tmp_path):
    path = made(tmp_path / "a", {"fc2": flat()})
    assert not is_being_written(path)
    writer = Writer(path, Run.read(path).header)
    assert is_being_written(path)
    writer.close()
    assert not is_being_written(path)


def test_parts_have_geometric_means(tmp_path):
    first = run(tmp_path / "a", {"fc2": {0: 1.0, 1: 1.0}})
    second = run(tmp_path / "b", {"fc2": {0: 2.0, 1: 8.0}})
    (part,) = compare(first, second).roles[0].parts
    assert (part.start, part.end, part.num_looks, part.course) == (0, 1, 2, "further")
    assert part.times == pytest.approx(sqrt(16))
