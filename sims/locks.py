"""Locks on open files. A lock ends when the file is closed or its process does."""

from __future__ import annotations

import os
import time
from importlib import import_module
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_FAR = 2**31 - 2
"""On Windows a lock is of bytes, which others then cannot read: so of the last that its call can name."""
_PAUSE_S = 0.05


def lock(file: IO[Any], *, is_shared: bool = False, waits: bool = True) -> None:
    """Lock the file for this process alone, or shared with others that only read it (on Windows alone, too).

    waits: until the lock is free. BlockingIOError where another process has it and this one does not wait; OSError on a
    file system without locks.
    """
    if fcntl is not None:
        fcntl.flock(file, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | (0 if waits else fcntl.LOCK_NB))
        return
    windows: Any = import_module("msvcrt")  # of which no type checker on another system knows
    number = file.fileno()
    while True:
        place = os.lseek(number, 0, os.SEEK_CUR)
        os.lseek(number, _FAR, os.SEEK_SET)
        try:
            windows.locking(number, windows.LK_NBLCK, 1)
            return
        except OSError:
            if not waits:
                raise BlockingIOError(f"{file.name} is locked by another process") from None
        finally:
            os.lseek(number, place, os.SEEK_SET)
        time.sleep(_PAUSE_S)
