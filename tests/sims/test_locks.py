"""Locks on files: who has one keeps others out, also by Windows' own call, for which something stands in here."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from depthlaw.sims import locks
from depthlaw.sims.locks import lock


@pytest.fixture(params=["flock", "msvcrt"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """msvcrt: one lock of bytes far behind the end of a file, as Windows keeps it, of whoever asked first."""
    if request.param == "flock":
        pytest.importorskip("fcntl")
        return
    owners: set[int] = set()

    def locking(number: int, mode: int, size: int) -> None:
        assert (mode, size) == (2, 1)
        if owners - {number}:
            raise OSError(13, "Permission denied")
        owners.add(number)

    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2))


@pytest.mark.usefixtures("system")
def test_who_has_a_lock_keeps_others_out_and_stays_where_it_reads(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b"one\ntwo\n")
    with path.open("rb") as mine, path.open("rb") as theirs:
        mine.readline()
        lock(mine)
        assert mine.readline() == b"two\n"
        with pytest.raises(BlockingIOError):
            lock(theirs, waits=False)
