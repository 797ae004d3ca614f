"""Where the site goes: never over what is not ours, and the old one stays whole until the new one is."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from paper_checks.system.stopping import shielded

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
    if out.is_dir() and (found := sorted(path.name for path in out.iterdir())):
        _check_ours(out, found)
    parent = next(folder for folder in out.parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise NotOursError(f"the folder {parent} cannot be written to")
    return out


def _check_ours(out: Path, found: list[str]) -> None:
    if MARKER not in found:
        raise NotOursError(f"{out} is not empty and holds no report ({found[0]} is in it)")
    known = {MARKER, *(out / MARKER).read_text(encoding="utf-8", errors="replace").splitlines()}
    there = (path.relative_to(out).as_posix() for path in out.rglob("*") if not path.is_dir() or path.is_symlink())
    if strange := sorted(set(there) - known):
        raise NotOursError(f"{out} holds a report, and {strange[0]} besides, which would be lost")


def replace(out: Path, fill: Callable[[Path], list[str]]) -> list[Path]:
    """Let ``fill`` write into a folder beside ``out``, then put that in its place; the files that it wrote.

    fill returns their names. Whatever goes wrong before the end leaves ``out`` as it was.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    try:
        names = sorted(fill(new))
        (new / MARKER).write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        mask = os.umask(0)
        os.umask(mask)
        new.chmod(0o777 & ~mask)
        with shielded():  # between two renames there is neither the old one nor the new one
            _swap(new, out)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return [out / name for name in names]


def _swap(new: Path, out: Path) -> None:
    if not out.exists():
        new.rename(out)
        return
    old = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}.old."))
    try:
        out.rename(old)  # over an empty folder, which a rename replaces
        try:
            new.rename(out)
        except OSError:
            old.rename(out)
            raise
    finally:
        shutil.rmtree(old, ignore_errors=True)
