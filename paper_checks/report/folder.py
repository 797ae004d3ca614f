"""Where the site goes: never over what is not ours, and the old one stays whole until the new one is."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from depthlaw.system.stopping import shielded

MARKER = ".depthlaw-report"
"""Lists the files of the site; a folder with another file in it is not ours to replace."""


class NotOursError(ValueError):
    """The folder cannot be replaced; its text says why, in one line."""


def check(out: Path) -> Path:
    """The folder to write, links resolved. NotOursError where that would lose somebody's files, or cannot be done."""
    out = out.resolve()
    if out == Path.cwd() or out in Path.cwd().parents:
        raise NotOursError(f"{out} is the folder that you are in, or holds it")
    if out.exists() and not out.is_dir():
        raise NotOursError(f"{out} is not a folder")
    if out.is_dir():
        _check_ours(out)
    parent = next(folder for folder in out.parents if folder.exists())
    try:  # and not os.access: root is told yes of a file system that nobody can write to
        with tempfile.TemporaryDirectory(dir=parent, prefix=f".{out.name}."):
            pass
    except OSError as error:
        raise NotOursError(f"the folder {parent} cannot be written to ({error.strerror})") from error
    return out


def _check_ours(out: Path) -> None:
    inside = sorted(path.name for path in out.iterdir())
    if inside and MARKER not in inside:
        raise NotOursError(f"{out} is not empty and holds no report ({inside[0]} is in it)")
    known = {MARKER, *(out / MARKER).read_text(encoding="utf-8", errors="replace").splitlines()} if inside else set()
    there = (path.relative_to(out).as_posix() for path in out.rglob("*") if not path.is_dir() or path.is_symlink())
    if strange := sorted(set(there) - known):
        raise NotOursError(f"{out} holds a report, and {strange[0]} besides, which would be lost")


def replace(out: Path, fill: Callable[[Path], list[str]]) -> None:
    """Let ``fill`` write into a folder beside ``out`` and say which files it wrote, then put that in its place.

    Whatever goes wrong before the end leaves ``out`` as it was.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.", ignore_cleanup_errors=True) as beside:
        new, old = Path(beside, "new"), Path(beside, "old")
        new.mkdir()
        names = sorted(fill(new))
        (new / MARKER).write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        with shielded():  # between two renames there is neither the old one nor the new one
            if out.exists():
                out.rename(old)
            try:
                new.rename(out)
            except OSError:
                if old.exists():
                    old.rename(out)
                raise
