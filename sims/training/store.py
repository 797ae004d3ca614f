"""Finished runs in one SQLite file, by the content of their configuration; and who is at work on which unfinished one.

A run that ``add`` has returned from is there after kill -9 and after a power cut: SQLite's rollback journal with
``synchronous=EXTRA`` waits for the disk at every commit, the journal's removal included. A run takes seconds at least
and a commit milliseconds, so nothing is to be gained from anything faster. The rollback journal, not the write-ahead
log: the file is one file, and can be copied when nobody writes. It also needs no memory that processes share, which a
network file system does not give; there it works where the locks do, of which SQLite's authors warn that they often do
not. Processes that sweep from several machines are better off with a file each, ``export`` and ``import_``.

A claim keeps two processes from the same run. It names its process by host, pid and start. A process of this host that
is gone, a zombie, or another one with its pid, has lost its claims at once. Of another host only the heartbeat tells:
one older than STALE is of a dead process, or of one that sleeps; if that one ends its run after all, the first result
stays. A host here is a name, a boot and a namespace of pids: a container's pids mean nothing in another.

Schema: the application_id in the file's header says that it is one of these, user_version which one.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import socket
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psutil
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator

from depthlaw.sims.records.record import STRICT, Versions, in_one_line, rounded

if TYPE_CHECKING:
    from typing import Self

APPLICATION_ID = 0x64657074
"""'dept', as the file's header has it."""
SCHEMA_VERSION = 1
PATIENCE = 60.0
"""Seconds to wait for another process that writes."""
BEAT = 15.0
"""Seconds between heartbeats: a process that sweeps calls ``beat`` this often."""
STALE = 300.0
"""Seconds without a heartbeat after which another host's claim is nobody's: far above BEAT and clocks' differences."""
SAME_START = 1.5
"""Seconds: the kernel tells when it booted in whole ones, so starts of one process may differ by one."""

SCHEMA = (
    "CREATE TABLE runs (key TEXT PRIMARY KEY, config TEXT NOT NULL, result TEXT NOT NULL, about TEXT NOT NULL)",
    "CREATE TABLE claims (key TEXT PRIMARY KEY, owner TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL,"
    " started REAL NOT NULL, beat REAL NOT NULL)",
)
_OWNERS: set[str] = set()
"""The open stores of this process: a claim with its pid and none of these was of an earlier process."""


class About(BaseModel):
    """What a run was made with. seconds: what it took. created: UTC. Older files have more, which nothing reads."""

    model_config = STRICT | ConfigDict(extra="ignore")

    versions: Versions
    device: str = Field(min_length=1)
    created: AwareDatetime
    seconds: float = Field(ge=0)


class Row(BaseModel):
    """A finished run, as a line of an exported file has it."""

    model_config = STRICT

    config: dict[str, JsonValue]
    result: dict[str, JsonValue]
    about: About

    @field_validator("config", "result")
    @classmethod
    def _is_plain(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        return plain(value, "it")


def plain(value: Any, name: str) -> Any:
    """What JSON gives back of a value; tuples become lists. ValueError names the part that JSON cannot carry."""
    match value:
        case None | bool() | int():
            return value
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ValueError(f"{name}: {value!a} is not text (allowed: what UTF-8 can write)") from None
            return value
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{name}: {value} is not JSON (allowed: finite numbers, and null for none)")
            return value
        case list() | tuple():
            return [plain(item, f"{name}[{index}]") for index, item in enumerate(value)]
        case Mapping():
            if odd := [part for part in value if not isinstance(part, str)]:
                raise ValueError(f"{name}: {odd[0]!r} is no name (allowed: text)")
            return {plain(part, name): plain(item, f"{name}.{part}") for part, item in value.items()}
    raise ValueError(f"{name}: a {type(value).__name__} is not JSON (allowed: numbers, text, lists, mappings, null)")


def key(config: Mapping[str, Any]) -> str:
    """sha256 of the content of a configuration: the order of names does not matter, nor whether 1 is written 1.0.

    ValueError, in one line, of what JSON cannot carry.

    >>> from depthlaw.sims.training.store import key
    >>> key({"seed": 1, "lr": 0.1}) == key({"lr": 0.1, "seed": 1.0}), len(key({}))
    (True, 64)
    >>> key({"lr": float("nan")})
    Traceback (most recent call last):
        ...
    ValueError: config.lr: nan is not JSON (allowed: finite numbers, and null for none)
    """
    text = json.dumps(_with_whole_numbers(plain(config, "config")), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _with_whole_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_whole_numbers(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_whole_numbers(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Store:
    """One file of runs, made where there is none. Of one thread; closed, or left with ``with``, it drops its claims.
    num_added: runs that this has made its file keep.

    ValueError, in one line, of a file that is damaged or something else, which stays as it is, and of a place that
    cannot be written. Later, sqlite3.Error: no room on the disk, or another process that writes for PATIENCE seconds.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from depthlaw.sims.training.store import Store
    >>> with TemporaryDirectory() as folder, Store(Path(folder) / "runs.sqlite") as store:
    ...     store.claim({"scheme": "post-ln", "seed": 0})
    ...     store.add({"scheme": "post-ln", "seed": 0}, {"held_out": 2.31})
    ...     store.find({"seed": 0, "scheme": "post-ln"})
    ...     store.claim({"scheme": "post-ln", "seed": 0})
    True
    {'held_out': 2.31}
    False
    """

    def __init__(self, path: Path) -> None:
        self.path, self.num_added = path, 0
        self._owner = uuid4().hex
        if path.exists() and not path.is_file():
            raise ValueError(f"{path}: not a file (allowed: a store of runs, or a name that is free)")
        try:
            self._database = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
        except sqlite3.Error as error:
            raise ValueError(f"{path}: {error}") from None
        try:
            self._open()
        except (sqlite3.Error, ValueError) as error:
            self._database.close()
            raise ValueError(f"{path}: {error} (allowed: a store of runs, or a name that is free)") from None
        _OWNERS.add(self._owner)

    def _open(self) -> None:
        self._database.execute("PRAGMA synchronous=EXTRA")
        # Under the lock for writing: no other process is making the file or adding to it. An error rolls back, so that
        # not even the page is written with which SQLite begins a file of a few bytes, which it takes for an empty one.
        with self._transaction():
            size = self.path.stat().st_size
            if size == 0:  # new, or of a process that was killed before it had made it
                self._database.execute(f"PRAGMA application_id={APPLICATION_ID}")
                self._database.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
                for statement in SCHEMA:
                    self._database.execute(statement)
                return
            if self._pragma("application_id") != APPLICATION_ID:
                raise ValueError("something else")
            if (version := self._pragma("user_version")) != SCHEMA_VERSION:
                raise ValueError(f"a store of version {version}, and this reads version {SCHEMA_VERSION}")
            if (state := self._pragma("quick_check(1)")) != "ok":
                raise ValueError(f"damaged: {' '.join(str(state).split())}")
            if size != self._pragma("page_count") * self._pragma("page_size"):  # SQLite fills a last page with zeros
                raise ValueError("damaged: its end is cut off")
            tables = self._database.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid")
            if tuple(sql for (sql,) in tables) != SCHEMA:  # a view or trigger would be run by what reads and adds runs
                raise ValueError("its tables are not those of a store")

    def close(self) -> None:
        if self._owner in _OWNERS:
            _OWNERS.remove(self._owner)
            try:
                self.release()
            except sqlite3.OperationalError:  # a full disk: whoever comes next sees that the claims' owner has ended
                pass
            finally:
                self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ------------------------------------------------------------ runs

    def keys(self) -> set[str]:
        """The keys of the finished runs."""
        return {name for (name,) in self._database.execute("SELECT key FROM runs")}

    def find(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """The result of the finished run of this configuration."""
        row = self._database.execute("SELECT result FROM runs WHERE key = ?", (key(config),)).fetchone()
        return None if row is None else json.loads(row[0])

    def add(
        self, config: Mapping[str, Any], result: Mapping[str, Any], *, device: str = "cpu", seconds: float = 0.0
    ) -> None:
        """Keep a finished run, and drop its claim. Where the configuration has a result already, that one stays.

        ValueError, in one line, of what JSON cannot carry: NaN and infinities are for the caller to write as None.
        """
        about = {
            "versions": _versions(),
            "device": device,
            "created": datetime.now(UTC).replace(microsecond=0),
            "seconds": rounded(seconds, 3),
        }
        row = _row({"config": plain(config, "config"), "result": plain(result, "result"), "about": about}, "a run")
        with self._transaction():
            is_new = self._insert(row)
        self.num_added += is_new

    def add_all(self, rows: Sequence[Row]) -> int:
        """Keep rows that another store has, all of them or none; how many are new here."""
        with self._transaction():
            return sum(self._insert(row) for row in rows)

    def rows(self) -> Iterator[Row]:
        """The finished runs, by their keys. ValueError of one that was damaged."""
        # One query each: a query that stays open would keep other processes from writing.
        for name in sorted(self.keys()):
            yield self.row(name)

    def row(self, name: str) -> Row:
        """The finished run of a key. KeyError without one, ValueError of one that was damaged."""
        query = "SELECT config, result, about FROM runs WHERE key = ?"
        if (parts := self._database.execute(query, (name,)).fetchone()) is None:
            raise KeyError(name)
        row = _row('{{"config":{},"result":{},"about":{}}}'.format(*parts), f"{self.path}: run {name[:12]}")
        if key(row.config) != name:
            raise ValueError(f"{self.path}: run {name[:12]} has another configuration than it was stored with")
        return row

    def _insert(self, row: Row) -> bool:
        name, parts = key(row.config), (_json(row.config), _json(row.result), row.about.model_dump_json())
        self._database.execute("DELETE FROM claims WHERE key = ?", (name,))
        # ON CONFLICT, not OR IGNORE, which would swallow other errors too.
        query = "INSERT INTO runs VALUES (?, ?, ?, ?) ON CONFLICT (key) DO NOTHING"
        return self._database.execute(query, (name, *parts)).rowcount == 1

    # ------------------------------------------------------------ claims

    def claim(self, config: Mapping[str, Any]) -> bool:
        """Whether this store may run it now: it has no result, and no living process but this store has claimed it."""
        name = key(config)
        with self._transaction():  # the result and the claim are looked up under one lock
            if self._database.execute("SELECT 1 FROM runs WHERE key = ?", (name,)).fetchone():
                return False
            query = "SELECT owner, host, pid, started, beat FROM claims WHERE key = ?"
            claimed = self._database.execute(query, (name,)).fetchone()
            if claimed and claimed[0] != self._owner and _is_alive(*claimed):
                return False
            claim = (name, self._owner, _host(), os.getpid(), _started(os.getpid()), time.time())
            self._database.execute("REPLACE INTO claims VALUES (?, ?, ?, ?, ?, ?)", claim)
        return True

    def beat(self) -> None:
        """Tell other hosts that this process lives."""
        self._database.execute("UPDATE claims SET beat = ? WHERE owner = ?", (time.time(), self._owner))

    def release(self, config: Mapping[str, Any] | None = None) -> None:
        """Drop this store's claim of a run, or all its claims."""
        query, parts = "DELETE FROM claims WHERE owner = ?", [self._owner]
        if config is not None:
            query, parts = f"{query} AND key = ?", [self._owner, key(config)]
        self._database.execute(query, parts)

    # ------------------------------------------------------------ SQLite

    def _pragma(self, name: str) -> Any:
        return self._database.execute(f"PRAGMA {name}").fetchone()[0]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """A transaction, locked for writing from its beginning: a lock asked for later may be refused at once."""
        try:
            self._database.execute("BEGIN IMMEDIATE")
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise


def _is_alive(owner: str, host: str, pid: int, started: float, beat: float) -> bool:
    if host != _host():
        return time.time() - beat < STALE
    if pid == os.getpid():
        return owner in _OWNERS
    now = _started(pid)
    return now is not None and abs(now - started) < SAME_START


def _started(pid: int) -> float | None:
    """Seconds from the machine's start to the process's, which setting the clock does not change. None: it is gone."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process.create_time() - psutil.boot_time()
    except psutil.NoSuchProcess:
        return None


@cache
def _host() -> str:
    parts = [socket.gethostname()]
    with suppress(OSError):  # Linux has these
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


@cache
def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        **{name: version(name).partition("+")[0] for name in ("torch", "numpy", "depthlaw")},
    }


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False)


def _row(parts: Mapping[str, Any] | str | bytes, name: str) -> Row:
    try:
        return Row.model_validate(parts) if isinstance(parts, Mapping) else Row.model_validate_json(parts)
    except ValidationError as error:
        raise ValueError(f"{name} does not fit: {in_one_line(error)}") from None


# ---------------------------------------------------------------- JSON Lines


def export(store: Store, path: Path) -> int:
    """Write the finished runs, one on a line, by their keys: the same runs, the same bytes. How many there are.

    The file is there whole or not at all. OSError where it cannot be written.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from depthlaw.sims.training.store import Store, export, import_
    >>> with TemporaryDirectory() as folder:
    ...     lines = Path(folder) / "runs.jsonl"
    ...     with Store(Path(folder) / "mine.sqlite") as mine:
    ...         mine.add({"seed": 0}, {"held_out": 2.31})
    ...         export(mine, lines)
    ...     with Store(Path(folder) / "yours.sqlite") as yours:
    ...         import_(yours, lines), import_(yours, lines)
    1
    (1, 0)
    """
    beside = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    num_rows = 0
    try:
        with beside.open("xb") as file:
            for row in store.rows():
                line = {"config": row.config, "result": row.result, "about": row.about.model_dump(mode="json")}
                file.write(json.dumps(line, sort_keys=True, allow_nan=False).encode() + b"\n")
                num_rows += 1
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return num_rows


def import_(store: Store, path: Path) -> int:
    """Add the runs of such a file, all of them or none; how many are new. A run that is there already stays as it is.

    ValueError, in one line, of a line that does not fit; OSError of a file that cannot be read. ``export`` writes them.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from depthlaw.sims.training.store import Store, import_
    >>> with TemporaryDirectory() as folder, Store(Path(folder) / "runs.sqlite") as store:
    ...     lines = Path(folder) / "runs.jsonl"
    ...     _ = lines.write_text("")
    ...     import_(store, lines)
    0
    """
    return store.add_all(read(path))


def read(path: Path) -> list[Row]:
    """The runs of a file that ``export`` wrote. Raises the errors of ``import_``."""
    with path.open("rb") as file:
        return [_row(line, f"{path}, line {number}") for number, line in enumerate(file, start=1)]
