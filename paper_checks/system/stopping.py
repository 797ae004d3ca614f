"""Ctrl-C in `depthlaw`: said at once, in one line, and the command is gone a moment later, exit 130.

Held here: Ctrl-C of the process that is the command, and of no other that imports this (a notebook, a test). A command
that keeps what it has done, bit by bit, stops in a way of its own: `patiently`, and `commands.running.stoppable`.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

STOPPED = 130
"""As of shells for Ctrl-C."""
_LONGEST = 1.0
"""Seconds for temporary files to be removed and a bar to be cleared, before the command ends whatever it is doing."""
_IS_COMMAND = os.path.basename(sys.argv[0]) == "depthlaw"
_SHOW_CURSOR = "\r\x1b[2K\x1b[?25h"
_told: list[str] = []
_clears: list[Callable[[], None]] = []


def begin() -> None:
    """The command begins: from here on there is something to clear up."""
    if signal.getsignal(signal.SIGINT) is _stop_at_once:
        signal.signal(signal.SIGINT, _stop)


def is_stopping() -> bool:
    """Whether Ctrl-C came and is told of: this command has no other use for an alarm."""
    return signal.getsignal(signal.SIGALRM) is _leave


@contextmanager
def shielded() -> Iterator[None]:
    """Ctrl-C waits for the end of this block, and never comes to a process or thread that is started in it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def telling(text: str) -> Iterator[None]:
    """What the line says of a Ctrl-C in this block: what is kept, or that nothing is."""
    _told.append(text)
    try:
        yield
    finally:
        _told.pop()


@contextmanager
def clearing(clear: Callable[[], None]) -> Iterator[None]:
    """What takes a bar from the terminal, where the line is going to stand."""
    _clears.append(clear)
    try:
        yield
    finally:
        _clears.pop()


@contextmanager
def patiently() -> Iterator[None]:
    """Ctrl-C is a KeyboardInterrupt in this block and nothing more: there are things to keep. After it there is nothing
    left to stop."""
    before = signal.getsignal(signal.SIGINT)
    if before is not _stop:
        yield
        return
    after: signal.Handlers | Callable[[int, FrameType | None], None] = _stop
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        after = signal.SIG_IGN
        raise
    finally:
        signal.signal(signal.SIGINT, after)


def finish(code: int) -> None:
    """The command ends with that exit code: Ctrl-C has nothing left to stop, and would leave a traceback of the end."""
    if _IS_COMMAND:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if code == STOPPED:
            signal.signal(signal.SIGALRM, _leave)


def _stop_at_once(number: int, frame: FrameType | None) -> None:
    _say("depthlaw: interrupted, stopping\n")
    os._exit(STOPPED)


def _stop(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would only interrupt the clearing up
    # Some code swallows a KeyboardInterrupt, or turns it into another error: a library that is being loaded, say.
    signal.signal(signal.SIGALRM, _leave)
    signal.setitimer(signal.ITIMER_REAL, _LONGEST)
    try:
        for clear in _clears:
            clear()
    finally:
        _say(f"depthlaw: interrupted, stopping{f'; {_told[-1]}' if _told else ''}\n")
        _end_workers()
        raise KeyboardInterrupt


def _leave(number: int, frame: FrameType | None) -> None:
    _end_workers()
    os._exit(STOPPED)


def _leave_last() -> None:
    """When everything else has ended well: to take the libraries apart is a second more."""
    if is_stopping():
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(STOPPED)


def _say(text: str) -> None:
    """Past Python's buffers: what was interrupted may be writing into them."""
    with suppress(OSError):
        os.write(2, ((_SHOW_CURSOR if os.isatty(2) else "") + text).encode())


def _end_workers() -> None:
    """Nothing is imported here: what was interrupted may be an import of the same."""
    processes = sys.modules.get("multiprocessing.process")
    children: Callable[[], list] = getattr(processes, "active_children", list)
    for worker in children():
        worker.kill()


# Now, and not in a function: the first to import this is the command line, and what it imports next takes a while.
if _IS_COMMAND and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _stop_at_once)
    atexit.register(_leave_last)  # the first to be registered is the last to be called
