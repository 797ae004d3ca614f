"""Being stopped: by Ctrl-C in a terminal or of the command alone, and by SIGTERM."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from signal import SIGINT, SIGTERM

import pytest

from paper_checks.cli import running
from paper_checks.cli.inputs import BadInputError
from paper_checks.cli.running import stoppable

WORD = "depthlaw: interrupted: the runs under way end first; again to stop now\n"


class Worker:
    num_ends = 0

    def terminate(self) -> None:
        self.num_ends += 1


def stopped_by(first: int, second: int | None, patch: pytest.MonkeyPatch, *, waits: bool) -> Worker:
    """As a sweep is: it waits for its workers, and then goes on as KeyboardInterrupt. waits: until the word is said."""
    worker, before = Worker(), [signal.getsignal(number) for number in (SIGINT, SIGTERM)]
    patch.setattr(running, "active_children", lambda: [worker])
    patch.setattr(running, "_MOMENT", 0 if waits else 60)
    with pytest.raises(BadInputError, match="interrupted; what was finished is in runs"), stoppable(Path("runs")):
        try:
            os.kill(os.getpid(), first)
        finally:
            for word in (thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)):
                if waits:
                    word.join()
            if second is not None:
                os.kill(os.getpid(), second)
    assert [signal.getsignal(number) for number in (SIGINT, SIGTERM)] == before
    return worker


def check_stops(patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C waits, and says so where the workers did not end at once; again, or SIGTERM, ends them."""
    assert stopped_by(SIGINT, None, patch, waits=True).num_ends == 0
    assert capsys.readouterr().err == WORD
    assert stopped_by(SIGINT, None, patch, waits=False).num_ends == 0
    assert not capsys.readouterr().err
    assert stopped_by(SIGINT, SIGINT, patch, waits=True).num_ends == 1
    assert stopped_by(SIGTERM, None, patch, waits=False).num_ends == 1
    assert capsys.readouterr().err == WORD


def test_what_stops_the_command_ends_its_workers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_stops(monkeypatch, capsys)


@pytest.mark.parametrize("mutant", ["_say_that_runs_end_first", "Worker"])
def test_a_mutant_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if mutant == "Worker":
        monkeypatch.setattr(Worker, "terminate", lambda self: None)
    else:
        monkeypatch.setattr(running, mutant, lambda: None)
    with pytest.raises(AssertionError):
        check_stops(monkeypatch, capsys)
