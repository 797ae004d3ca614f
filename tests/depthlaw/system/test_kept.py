"""Answers that were computed once: read again, of the code that computed them and of no other, and never in the way."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer import main

from depthlaw.cli import app
from depthlaw.network import kernel
from depthlaw.network.kernel import later_update_of, update_of
from depthlaw.system import kept as module
from depthlaw.system.kept import clear, keeping, kept
from depthlaw.theory.kernel.after_start import predict_after_start
from depthlaw.theory.kernel.predict import Inputs, KernelUpdate, Sublayer, Transformer
from depthlaw.theory.stack import SublayerKind
from tests.command import told


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEPTHLAW_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


def counting() -> tuple[list[int], Callable[[], int]]:
    calls: list[int] = []

    def make() -> int:
        calls.append(len(calls))
        return len(calls)

    return calls, make


def test_what_was_asked_is_read_and_what_differs_is_computed(folder: Path) -> None:
    calls, make = counting()
    with keeping():
        assert [kept({"n": 1}, make), kept({"n": 1}, make), kept({"n": 2}, make)] == [1, 1, 2]
    assert len(calls) == len(list(folder.iterdir())) == 2


def test_only_commands_that_people_wait_for_keep_answers(folder: Path) -> None:
    calls, make = counting()
    with keeping(is_on=False):
        assert [kept({}, make), kept({}, make)] == [1, 2]
    assert len(calls) == 2 and not folder.exists()
    assert not {"verify", "measure", "tables", "experiment", "report"} & set(app._KEEPING)


def test_other_code_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, make = counting()
    with keeping():
        kept({}, make)
        monkeypatch.setattr(module, "_code", lambda: "another version")
        assert kept({}, make) == 2


@pytest.mark.parametrize("content", ["", "{", "\udcff"], ids=["empty", "half", "no text"])
def test_a_broken_file_is_computed_anew(folder: Path, content: str) -> None:
    _, make = counting()
    with keeping():
        kept({}, make)
        (path,) = folder.iterdir()
        path.write_bytes(content.encode(errors="surrogateescape"))
        assert kept({}, make) == 2
        assert json.loads(path.read_text()) == 2


def test_the_oldest_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 3)
    _, make = counting()
    with keeping():
        for n in range(3):
            kept({"n": n}, make)
            for age, path in enumerate(sorted(folder.iterdir(), key=lambda path: path.read_text(), reverse=True)):
                os.utime(path, (1000 - age, 1000 - age))
        kept({"n": 0}, make)  # used again: now the second is the oldest
        kept({"n": 3}, make)
    assert sorted(path.read_text() for path in folder.iterdir()) == ["1", "3", "4"]


def test_clearing_leaves_what_is_not_ours(folder: Path) -> None:
    _, make = counting()
    with keeping():
        kept({}, make)
    (folder / "notes.json").write_text("mine")
    assert clear() == (1, 1)
    assert [path.name for path in folder.iterdir()] == ["notes.json"]


def test_a_prediction_that_is_read_is_the_one_that_was_computed() -> None:
    """All of it: an error that is NaN, the logarithm of an update of 0; the bar comes to its end either way."""
    layer = (Sublayer(kind=SublayerKind.SELF, norms=frozenset({"q", "pre"})), Sublayer(kind=SublayerKind.FFN))
    for gain in (1.0, 0.0):
        grown = tuple(Sublayer(kind=one.kind, norms=one.norms, gains={"out": gain, "fc2": gain}) for one in layer)
        network, inputs = Transformer(encoder=2 * grown, placement="none"), Inputs(num_tokens=2)
        advanced: list[float] = []
        computed = update_of(network, inputs, "sgd", replicates=1)
        with keeping():
            written, read = (update_of(network, inputs, "sgd", advance=advanced.append, replicates=1) for _ in "12")
        # NaN is equal to nothing: compared as text.
        assert repr(computed) == repr(written) == repr(read)
        assert advanced[-1] == sum(advanced[:-1]) == 2 * network.num_sublayers


def test_a_law_of_later_steps_is_kept_with_all_that_it_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is derived once, is the number that theory gives, and is no other's."""
    layer = (Sublayer(kind=SublayerKind.SELF), Sublayer(kind=SublayerKind.FFN))
    network, inputs = Transformer(encoder=layer), Inputs(num_tokens=2)
    asked = {"law": "noise", "optimizer": "adamw", "size": 0.5, "d_model": 64, "effort": 1.0}
    others = {"law": "aligned", "optimizer": "muon", "size": 1.0, "d_model": 256, "effort": 2.0}
    derived: list[float] = []

    def derive(*arguments: Any, **options: Any) -> KernelUpdate:
        answer = predict_after_start(*arguments, **options)
        derived.append(answer.update)
        return answer

    monkeypatch.setattr(kernel, "predict_after_start", derive)
    with keeping():
        for changes in [{}, *({name: value} for name, value in others.items())]:
            advanced: list[float] = []
            rest = asked | changes
            first, again = (
                later_update_of(network=network, inputs=inputs, advance=advanced.append, replicates=1, **rest)
                for _ in "12"
            )
            assert first == again == derived[-1]
            assert sum(advanced) == 2 * 2 * network.num_sublayers
    assert len(derived) == 1 + len(others)


def test_the_command_answers_the_same_and_clears(folder: Path) -> None:
    asked = "predict --scheme pre-ln --optimizer adam --attention --layers 1,2 --json"
    first, second = told(*asked.split()), told(*asked.split())
    number = len(list(folder.iterdir()))
    assert first == second and number >= 2
    assert told("--clear-cache").startswith(f"removed {number} kept answers, ")
    assert not list(folder.iterdir())


# ---------------------------------------------------------------- what a command printed


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """In place of the command line, one that prints how often it was asked; to fill: the exit codes."""
    codes: list[int] = []
    numbers = iter(range(1, 100))

    def answer(arguments: list[str], standalone_mode: bool) -> int | None:
        print("answer", next(numbers))
        return codes.pop() if codes else None

    monkeypatch.setattr(app, "app", answer)
    return codes


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with keeping():
        app._run(arguments)
    return capsys.readouterr().out.strip()


def test_what_a_command_printed_is_printed_again(answers: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    asked = [printed(capsys, "rule", what) for what in ("--why", "--why", "--json", "--why")]
    assert asked == ["answer 1", "answer 1", "answer 2", "answer 1"]


def test_a_command_is_asked_anew_where_its_answer_may_differ(
    answers: list[int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for asked in (("rule", "--w=@gains"), ("advise", "--model", "m:f"), ("explain", "S1-01", "--anew"), ("tables",)):
        assert printed(capsys, *asked) != printed(capsys, *asked)
    answers.append(1)
    assert printed(capsys, "explain", "failed") != printed(capsys, "explain", "failed")
    before = printed(capsys, "schemes")
    monkeypatch.setenv("COLUMNS", "71")
    narrow = printed(capsys, "schemes")
    monkeypatch.setattr("depthlaw.cli.shared.output.stamps", lambda: ["other code"])
    assert len({before, narrow, printed(capsys, "schemes")}) == 3


def test_what_is_kept_and_is_no_text_is_asked_anew(
    answers: list[int], capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    before = printed(capsys, "schemes")
    for path in folder.iterdir():
        path.write_text("{}", encoding="utf-8")
    assert printed(capsys, "schemes") == "answer 2" != before


def test_options_that_name_what_is_the_users_are_known() -> None:
    commands: Any = main.get_command(app.app)
    for name in app._PRINTING:
        own = [one for one in commands.commands[name].params if (one.metavar or "").startswith(("FILE", "MODULE"))]
        assert {option for one in own for option in one.opts} <= set(app._ELSEWHERE), name
