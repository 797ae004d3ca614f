"""Gives the command one input after another in this process, and says what each one broke of what it must keep.

Whatever a person, a file or another program hands to ``depthlaw``, these hold:

- it ends with exit code 0, 1 or 2, with no traceback and no warning of a library;
- a refusal (2) has nothing on standard output, and on standard error lines of ``depthlaw: ...`` without control
  characters, the last of which says what is wrong;
- with ``--json``, exit 0 and 1 have one JSON document on standard output;
- it takes at most ``LIMIT`` seconds of the processor;
- no text of it is run: Python's own audit events tell of every compilation, process and connection;
- nothing is written outside of its folder, nothing is left there that nobody asked for, and each file that it was given
  is there afterwards as it was, or with more at its end where it may grow.

Nothing that reads an input is replaced. What is replaced is work that may take long by right, and begins only when all
of the input was read and taken: training, ``verify``, ``bench``, writing a site, and networks beyond a few layers. It
raises ``Begun``, which ends the input as one that was taken.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import walk_packages
from types import FrameType
from typing import Any, NoReturn

import pytest

from tests.command import depthlaw

LIMIT = 10.0
"""Seconds of the processor for one input."""
CANARY = "CANARY"
"""Stands in every text that would do something if it were run: it makes a file of this name."""
_RUNS = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "subprocess.Popen", "pty.spawn")
_RUNS += ("webbrowser.open", "pickle.find_class", "socket.connect", "socket.getaddrinfo", "ftplib.connect")
_CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink", "os.chmod")
_CHANGES += ("shutil.rmtree", "shutil.move", "sqlite3.connect")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Begun(BaseException):
    """Work was begun that may take long: all of the input was taken."""


class _TooLongError(BaseException):
    """The limit is over."""


class _ForbiddenError(BaseException):
    """Something was done that no input may lead to; it was stopped before it happened."""


@dataclass(frozen=True)
class Input:
    """A command line, and the files that stand in its folder.

    may_grow: names of files to whose end something may be added, may_end: that may go, as their work is done.
    keeps_runs: the store, whose runs must all be there afterwards. own: that the files are code of the user's own,
    which is there to be run.
    """

    arguments: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    may_grow: frozenset[str] = frozenset()
    may_end: frozenset[str] = frozenset()
    keeps_runs: str = ""
    own: bool = False

    def __str__(self) -> str:
        files = "".join(f"\n  {name}: {content[:300]!r}" for name, content in self.files.items())
        return f"depthlaw {' '.join(map(repr, self.arguments))}{files}"


@dataclass
class Watch:
    """The folder in which inputs are given to the command, with what is replaced there. ``ended`` counts their ends."""

    folder: Path
    ended: dict[str, int] = field(default_factory=dict)
    _forbidden: list[str] = field(default_factory=list)
    _given: Input = Input(())

    def broken(self, given: Input) -> list[str]:
        """What this input broke, a line each; the first thing in the first."""
        here = self.folder / "deep" / "down" / "HERE"
        here.mkdir(parents=True, exist_ok=True)
        for name, content in given.files.items():
            target = here / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        os.chdir(here)
        self._forbidden, self._given = [], given
        try:
            found = [*self._asked(given), *self._left(given, here)]
        finally:
            os.chdir(self.folder)
            _clear(self.folder, here)
            if given.own:
                _forget(self.folder)
        return found

    def _asked(self, given: Input) -> Iterator[str]:
        answer, end, told = None, "", ""
        try:
            with self._armed(), _limited():
                answer = depthlaw(*given.arguments)
        except Begun:
            end = "begun"
        except _TooLongError:
            end, told = "too long", f"it took more than {LIMIT:g} seconds of the processor"
            told += f", the last of them in {_place(sys.exc_info()[1])}"
        except _ForbiddenError:
            end = "forbidden"
        except BaseException as error:  # a traceback, whatever its kind
            if isinstance(error, KeyboardInterrupt) and "fuzz" not in _place(error):
                raise
            end, told = "traceback", f"{type(error).__name__}: {error} ({_place(error)})".replace("\n", " ")
        if answer is not None:
            end = f"exit {answer.returncode}"
        self.ended[end] = self.ended.get(end, 0) + 1
        if told:
            yield told
        yield from dict.fromkeys(self._forbidden)
        if answer is not None:
            yield from _said(given, answer.returncode, answer.stdout, answer.stderr)

    def _left(self, given: Input, here: Path) -> Iterator[str]:
        """What became of the files."""
        asked = _named(given, here)
        there = {path.relative_to(here).as_posix(): path for path in here.rglob("*") if path.is_file()}
        for name, content in given.files.items():
            if name not in there:
                if name not in given.may_end:
                    yield f"{name} is gone"
                continue
            now = there[name].read_bytes()
            grew = name in given.may_grow and now.startswith(content)
            if now == content or grew or (name == given.keeps_runs and _has_all(now, content)):
                continue
            yield f"{name} was changed: {len(content)} bytes, now {len(now)}"
        for name in there.keys() - given.files.keys():
            if str(there[name]) not in asked and not (given.own and "__pycache__" in name):
                yield f"{name} was made, which nobody asked for"
        if any(CANARY in path.name for path in self.folder.rglob("*")):
            yield f"{CANARY} is there: an input was run"

    # ------------------------------------------------------------ what is looked at while it runs

    @contextmanager
    def _armed(self) -> Iterator[None]:
        _watching.append(self)
        try:
            yield
        finally:
            _watching.remove(self)

    def look(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Of one audit event. Raises, so that it does not happen, where no input may lead to it."""
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITES and not isinstance(path, int):
                self._check_place("writing", path)
        elif event == "compile":
            source = arguments[0]
            text = source.decode("utf-8", "replace") if isinstance(source, bytes) else source
            if isinstance(text, str) and CANARY in text and not self._given.own:
                self._forbid(f"a text of the input was compiled: {text[:60]!r}")
        elif event in _RUNS:
            self._forbid(f"{event} {arguments!r:.80}")
        elif event in _CHANGES:
            self._check_place(event, arguments[0])

    def _check_place(self, what: str, path: Any) -> None:
        text = os.path.abspath(os.fsdecode(path)) if isinstance(path, (str, bytes, os.PathLike)) else str(path)
        is_python = ".pyc" in text or "__pycache__" in text
        if text.startswith(f"{self.folder}{os.sep}") or is_python or text in (os.devnull, ":memory:"):
            return
        if os.path.dirname(text) in map(
            os.path.dirname, _named(self._given, Path.cwd())
        ):  # whoever types a command may have it write anywhere
            raise Begun
        self._forbid(f"{what} {text!r:.120}, outside of the folder")

    def _forbid(self, what: str) -> NoReturn:
        self._forbidden.append(what)
        raise _ForbiddenError(what)


def _said(given: Input, code: int, out: str, err: str) -> Iterator[str]:
    """What is wrong with what was printed."""
    if code not in (0, 1, 2):
        yield f"exit code {code}"
    lines = err.split("\n")[:-1]
    if not given.own and any(not line.startswith("depthlaw: ") for line in lines):
        yield f"standard error has lines of its own: {err[:200]!r}"
    if odd := sorted({character for character in out + err if not character.isprintable() and character != "\n"}):
        yield f"control characters are printed: {odd!r:.80}"
    if code == 2 and (out or not lines):
        yield f"a refusal prints {out[:80]!r} and says {err[:80]!r}"
    if code != 2 and "--json" in given.arguments and not {"--help", "-h"} & set(given.arguments):
        try:
            json.loads(out)
        except ValueError as error:
            yield f"--json prints no JSON document ({error}): {out[:80]!r}"


def _named(given: Input, here: Path) -> set[str]:
    """The places that words of the command line are, read as names of files."""
    return {
        os.path.normpath(here / part) for word in given.arguments for part in (word, word.partition("=")[2]) if part
    }


def _clear(folder: Path, here: Path) -> None:
    """Everything below the folder but those that lead to ``here``, which stay: to make them anew takes long."""
    for place in (here, *here.parents):
        for entry in os.scandir(place):
            if entry.is_dir(follow_symlinks=False):
                if not here.is_relative_to(entry.path):
                    shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
        if place == folder:
            return


def _forget(folder: Path) -> None:
    """The modules that were imported from a folder, and the folder."""
    own = [name for name, module in sys.modules.items() if str(folder) in str(getattr(module, "__file__", ""))]
    for name in own:
        del sys.modules[name]
    sys.path[:] = [place for place in sys.path if not place.startswith(str(folder))]
    sys.path_importer_cache.clear()


def _has_all(now: bytes, before: bytes) -> bool:
    """Whether a store has every run that it had; an empty file has none."""
    there, found = _runs_of(before), _runs_of(now)
    return not before or (there is not None and found is not None and there <= found)


def _runs_of(content: bytes) -> set[tuple[Any, ...]] | None:
    with closing(sqlite3.connect(":memory:")) as database:
        try:
            database.deserialize(content)  # a MemoryError for what is no database
            return set(database.execute("SELECT key, config, result, about FROM runs"))
        except (sqlite3.Error, MemoryError):
            return None


def _place(error: BaseException | None) -> str:
    """The last line of the project's own in a traceback."""
    frames = traceback.extract_tb(None if error is None else error.__traceback__)
    rooms = ("/depthlaw/", "/paper_checks/", "/sims/", "/theory/")
    own = [frame for frame in frames if any(room in frame.filename for room in rooms)]
    frame = (own or frames or [None])[-1]
    return "nowhere" if frame is None else f"{'/'.join(Path(frame.filename).parts[-3:])}:{frame.lineno}"


_watching: list[Watch] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching:
        _watching[-1].look(event, arguments)


@contextmanager
def _limited() -> Iterator[None]:
    """Ends what takes too long, and again each second where what it is in swallows that."""

    def over(number: int, frame: FrameType | None) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, LIMIT, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


# ---------------------------------------------------------------- what is replaced

_MOST_SUBLAYERS, _MOST_WIDTH, _MOST_TOKENS = 8, 64, 16
"""Networks up to these sizes are measured and predicted in truth."""


def begun(*_: Any, **__: Any) -> NoReturn:
    raise Begun


def _only(work: Callable[..., Any], is_small: Callable[..., bool]) -> Callable[..., Any]:
    def guarded(*arguments: Any, **options: Any) -> Any:
        if not is_small(*arguments):
            raise Begun
        return work(*arguments, **options)

    return guarded


def _is_small_question(question: Any, seeds: Any, *_: Any) -> bool:
    config, task = question.config, question.task
    num_sublayers = len(config.encoder) + len(config.decoder)
    is_narrow = config.d_model <= _MOST_WIDTH and config.ffn_ratio <= 8 and task.num_classes <= 64
    return (
        num_sublayers <= _MOST_SUBLAYERS
        and len(seeds) <= 4
        and task.num_tokens * task.batch_size <= _MOST_TOKENS
        and is_narrow
    )


def _is_small_network(network: Any, inputs: Any, *_: Any) -> bool:
    num_sublayers = len(network.encoder) + len(network.decoder)
    num_tokens, head_size = inputs.num_tokens * inputs.batch_size, network.head_size or 1
    return num_sublayers <= _MOST_SUBLAYERS and num_tokens <= _MOST_TOKENS and head_size <= _MOST_WIDTH


class _Here(Executor):
    """In the place of worker processes: small runs are trained in this process, at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        _, configs, _ = args
        for config in configs:
            size = config["num_layers"] * config["d_model"] * config["num_tokens"] * config["batch_size"]
            if size * config["ffn_ratio"] * config["num_steps"] > _MOST_TRAINED:
                raise Begun
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


_MOST_TRAINED = 20_000
"""Layers, times width, tokens, batch, FFN ratio and steps, of a run that is trained in truth."""


@contextmanager
def watching(folder: Path) -> Iterator[Watch]:
    """What gives inputs to the command, in a folder that is its own."""
    import depthlaw.network.kernel
    import depthlaw.sims.measure
    from depthlaw import paper_checks
    from depthlaw.network import measuring
    from depthlaw.system import places

    import_module("matplotlib.font_manager")  # it writes a file of its own at its first import
    for found in walk_packages(paper_checks.__path__, "depthlaw.paper_checks."):
        import_module(found.name)  # what is imported later would keep what stands in the place of others for good
    if not _hooked:
        sys.addaudithook(_hook)
        _hooked.append(True)
    measuring._commit()  # asks git, once in a process
    before = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "RECORDS", folder / "records")
        patch.setattr(measuring, "LOCAL", folder / "records" / "local" / "measure.jsonl")
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "torch"))
        patch.setenv("DEPTHLAW_CACHE", "")
        patch.setattr("torch.cuda.is_available", lambda: False)
        patch.setattr("depthlaw.sims.ensemble.available_bytes", lambda device: 2**33)
        patch.setattr(depthlaw.sims.measure, "run", _only(depthlaw.sims.measure.run, _is_small_question))
        predict = _only(depthlaw.network.kernel.predict_kernel, _is_small_network)
        patch.setattr(depthlaw.network.kernel, "predict_kernel", predict)
        patch.setattr("depthlaw.sims.training.sweep.pool", lambda num_workers, **_: _Here())
        patch.setattr("depthlaw.sims.cluster._greets", lambda host, port: True)  # it would connect, as a client would
        for work in (
            "distributed.Client" if find_spec("distributed") else "depthlaw.sims.cluster.Cluster",
            "depthlaw.paper_checks.verify.document.verify",
            "depthlaw.paper_checks.verify.answers.verify",
            "depthlaw.paper_checks.verify.tables_file.derive",
            "depthlaw.paper_checks.experiments.bench.compare",
            "depthlaw.paper_checks.report.site.write",
        ):
            patch.setattr(work, begun)
        folder.mkdir(parents=True, exist_ok=True)
        os.chdir(folder)
        try:
            yield Watch(folder=folder)
        finally:
            os.chdir(before)


_hooked: list[bool] = []
