"""Ctrl-C, and the SIGTERM of batch systems, in `depthlaw`: one line, exit 130, no traceback and no worker left behind.

The first interrupt ends the workers and is a KeyboardInterrupt in this process, so that whatever is open is closed on
its way up, and the line is said when that is done. A second one ends the command at once. Only the process that is the
command has these handlers, and no other that imports this (a notebook, a test, a worker).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

STOPPED = 130
"""The exit code of shells for Ctrl-C."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_IS_COMMAND = os.path.basename(sys.argv[0]) == "depthlaw" and "multiprocessing" not in sys.modules
_SHOW_CURSOR = "\r\x1b[2K\x1b[?25h"
"""Clears what a bar has left of its line."""
_told: list[Callable[[], str]] = []


def begin() -> None:
    """The command begins: before this, it only imported itself, and an interrupt ended it at once."""
    _told.clear()
    if is_stopping():
        _handle(_stop)


def is_stopping() -> bool:
    """Whether an interrupt came to the command."""
    return signal.getsignal(signal.SIGINT) is _leave


def finish() -> None:
    """The command ends: where an interrupt came, with the line and at once, and else no interrupt is heard any more."""
    if is_stopping():
        _give_back_semaphores()
        _leave()
    if _IS_COMMAND:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def is_follower() -> bool:
    """Whether torchrun started this process beside the first one, which says what is to be said."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("RANK", "0") != "0"


def line() -> str:
    """What is said of an interrupt."""
    return f"interrupted, stopping{f'; {_told[-1]()}' if _told else ''}"


@contextmanager
def telling(text: str | Callable[[], str]) -> Iterator[None]:
    """What the line says of an interrupt in this block: what is kept, or that nothing is; as it is then."""
    line = (lambda: text) if isinstance(text, str) else text
    _told.append(line)
    yield
    _told.remove(line)  # not where an interrupt leaves the block: the line is said later


@contextmanager
def shielded() -> Iterator[None]:
    """Ctrl-C waits for the end of this block, and never comes to a process or thread that is started in it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _handle(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for number in _SIGNALS:
        signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> None:
    _handle(_leave)
    _end_workers()
    raise KeyboardInterrupt


def _leave(number: int = 0, frame: FrameType | None = None) -> None:
    _handle(signal.SIG_IGN)  # one more would say the line again
    _end_workers()
    if not is_follower():
        _say(f"depthlaw: {line()}\n")
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


def _give_back_semaphores() -> None:
    """Those that workers shared: ``os._exit`` skips this, and multiprocessing would warn that they leaked."""
    util = sys.modules.get("multiprocessing.util")
    with suppress(Exception):
        getattr(util, "_run_finalizers", lambda _: None)(0)


# Now, and not in a function: the first to import this is the command line, and what it imports next takes a while.
if _IS_COMMAND and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    _handle(_leave)
