"""The kinds of input that come from outside, and how many of each are tried.

A kind draws its n-th input from n alone, so that what one of them breaks is seen again by its number.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from typer.main import get_command

from depthlaw.cli.app import EXAMPLES, app
from depthlaw.cli.shared import options
from tests.command import told
from tests.fuzz.texts import NUMBERS, damaged, drawn, maybe, odd, slipped
from tests.fuzz.watch import CANARY, Input


@dataclass(frozen=True)
class Kind:
    """name: by which it is asked for. num: inputs of the long run. draw: an input, from a generator."""

    name: str
    num: int
    draw: Callable[[Random], Input]

    def input(self, number: int) -> Input:
        return self.draw(Random(f"{self.name} {number}"))


def typed(*words: str) -> tuple[str, ...]:
    """As a shell can hand words over: without NUL, and what is no text as Python reads such bytes."""
    return tuple(
        "".join(c for c in word if c != "\0" and not "\ud800" <= c < "\udc80" and not "\udcff" < c < "\ue000")
        for word in words
    )


# ---------------------------------------------------------------- command lines

_NAMES = {
    **{"--optimizer": options.OPTIMIZERS, "--activation": options.ANY_ACTIVATION, "--norm-kind": options.NORM_KINDS},
    **{"--norm": options.PLACEMENTS, "--arch": options.ARCHITECTURES, "--readout": options.READOUTS},
    **{
        "--loss": options.LOSSES,
        "--select": options.SELECTIONS,
        "--device": options.DEVICES,
        "--dtype": options.DTYPES,
    },
    **{"--shape": options.SHAPES, "--schedule": options.SCHEDULES, "--precision": options.PRECISIONS},
    **{"--scale": options.SCALES, "--only": "su-optimizers, su-prenorm, deepnet, magneto-gamma, bounds or cross"},
    **{"--source": "su, slides, magneto, deepnet or cited", "--code": "best, nothing, learning-rates or depth-mup"},
    "--hf": "gpt2, bert, t5 or llama",
}
_BY_METAVAR: dict[str, tuple[str, ...]] = {
    "N": ("1", "2", "3", "4", "8", "16", "32"),
    "M": ("1", "2", "3"),
    "X": ("0", "0.5", "1", "1e-3", "2", "1/4"),
    "LIST": ("2", "4", "2,4", "1,2,3", "2 4", "8,4", "1e-3,2e-3"),
    "C,P": ("1", "1,0", "2,1/2", "0.7,-1/4", "1,-1", "1/3,0.5", "1e-3,2"),
    "FILE": ("it.svg", "it.png", "it.jsonl", "it.sqlite", "it.txt", "in/it.svg", "../it.svg", "@it", "."),
    "DIR": ("out", "../out", "."),
    "ADDRESS": ("tcp://127.0.0.1:8786", "127.0.0.1", "tls://h:1", "inproc://x", "[::1]:8786", "h:0", "tcp://h:99999"),
    "ID": ("S1-34", "DN-07", "s2-8", "LI-05"),
    "RUN": ("nonesuch.jsonl",),
    "[OTHER]": ("nonesuch.jsonl",),
    "[ID]...": ("S1-34", "DN-07", "LI-05"),
    "MODULE:FUNCTION": ("nonesuch:build",),
    "[MODULE:FACTORY]": ("nonesuch:build", "nonesuch.build"),
}
_NEEDED = {
    "advise": "--optimizer adamw --scheme pre-ln --from-layers 1 --layers 2 --width 16 --tokens 4",
    "rule": "--norm post --optimizer adam --arch encoder --layers 2",
    "predict": "--scheme post-ln --optimizer sgd --sublayers 4",
    "tables": "--only deepnet",
    "schemes": "",
    "audit": "--layers 1,2",
    "watch": "nonesuch.jsonl",
    "measure": "--scheme post-ln --optimizer sgd --sublayers 2 --width 8 --seeds 2 --no-keep",
    "train": "--scheme pre-ln --layers 1 --learning-rate 1e-3 --width 8 --tokens 4 --batch 2 --steps 2 --shape vit "
    "--workers 1 --store it.sqlite",
    "experiment": "warmup --plan --store it.sqlite",
    "bench": "--quick",
    "verify": "S1-34 --quick",
    "explain": "S1-34",
    "report": "--out out --quick",
}
"""What each command needs, at sizes that are quick."""
_NOT_TRIED = ("--install-completion", "--show-completion")  # the first writes into the user's shell's own file


@cache
def _parameters(command: str) -> Sequence[Any]:
    return get_command(app).commands[command].params  # pyright: ignore[reportAttributeAccessIssue]


def _value(rng: Random, parameter: Any) -> str:
    """One that may be meant."""
    name = parameter.opts[0]
    if name in _NAMES:
        return drawn(rng, options.names(_NAMES[name]))
    if name in ("--scheme", "name"):
        return drawn(rng, [*options.schemes(), "post-ln-init", *options.recipes()])
    if name == "--recipe":
        return drawn(rng, options.recipes())
    return drawn(rng, _BY_METAVAR.get(parameter.metavar or "", ("1",)))


def _option(rng: Random, parameter: Any, share: float) -> list[str]:
    """With a value, of a share of them one with slips."""
    name = drawn(rng, [*parameter.opts, *parameter.secondary_opts])
    values = [maybe(rng, _value(rng, parameter), share) for _ in range(max(1, abs(parameter.nargs)))]
    if not name.startswith("-"):
        return values
    if getattr(parameter, "is_flag", False):
        return [name]
    return [f"{name}={values[0]}"] if rng.random() < 0.1 else [name, *values]


def command_line(rng: Random) -> Input:
    """A whole command line of any command, with further options, with slips."""
    command = drawn(rng, _COMMANDS)
    words = _NEEDED[command].split() if rng.random() < 0.8 else drawn(rng, EXAMPLES[command]).split()[1:]
    share = rng.choice((0.0, 0.1, 0.5))
    for _ in range(rng.choice((0, 1, 1, 2, 3, 5))):
        words += _option(rng, drawn(rng, _parameters(command)), share)
    if rng.random() < 0.3:
        words.append("--json")
    words = [maybe(rng, word, share / 4) for word in words]
    for _ in range(rng.choice((0, 0, 0, 1, 2)) if words else 0):
        at, other = rng.randrange(len(words)), rng.randrange(len(words))
        slip = rng.randrange(4)
        if slip == 0:
            words[at] = odd(rng)
        elif slip == 1:
            words[at], words[other] = words[other], words[at]
        elif slip == 2:
            words.insert(at, words[other])
        elif len(words) > 1:
            del words[at]
    words = [word for word in words if not word.startswith(_NOT_TRIED)]
    if rng.random() < 0.95:  # the project's runs take seconds to read
        words = [word for word in words if word != "--from-record"]
    name = maybe(rng, command, share / 10)
    return Input(typed(name if name not in _NOT_TRIED else command, *words))


_COMMANDS = (*_NEEDED, *("predict", "measure", "train", "rule", "experiment", "explain", "schemes") * 2)


# ---------------------------------------------------------------- gains


def _number(rng: Random) -> str:
    return drawn(rng, ("1", "2", "0.5", "1/2", "-1/4", "0.7", "3e-2", "1/3", ".25", "-2", "7/5", drawn(rng, NUMBERS)))


def gain_list(rng: Random) -> Input:
    """Gains by sublayer, typed or in a file."""
    length = rng.choice((1, 2, 3, 4, 6))
    command = rng.choice(("predict", "predict", "predict", "measure"))
    words = [command, "--optimizer", drawn(rng, ("sgd", "adam", "lamb", "muon", "lars")), "--sublayers", str(length)]
    words += ["--scheme", drawn(rng, ("post-ln", "pre-ln", "sub-ln", "deepnorm", "rezero", "fixup"))]
    words += [] if command == "predict" else ["--width", "4", "--seeds", "2", "--no-keep"]
    words += ["--attention", "--tokens", "2"] if rng.random() < 0.1 else []
    files = {}
    for name in rng.choice((["--w"], ["--v"], ["--w", "--v"])):
        text = rng.choice((",", ", ", " ", "\n", ",\n")).join(_number(rng).lstrip("-") for _ in range(length))
        text = maybe(rng, text, 0.5)
        if rng.random() < 0.5:
            file = f"gains{name}.txt"
            content = text.encode("utf-8", "surrogatepass")
            files[file] = damaged(rng, content) if rng.random() < 0.3 else content
            text = f"@{maybe(rng, file, 0.05)}"
        words += [name, text]
    return Input(typed(*words, *(["--json"] if rng.random() < 0.5 else [])), files)


# ---------------------------------------------------------------- JSON


def _changed(rng: Random, value: Any) -> Any:
    """A value of JSON with one part of it changed, wherever that is."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        name = drawn(rng, list(value))
        slip = rng.randrange(12)
        if slip == 0:
            return {key: part for key, part in value.items() if key != name}
        if slip == 1:
            return value | {slipped(rng, name): value[name]}
        if slip == 2:
            return value | {name: value[drawn(rng, list(value))]}
        return value | {name: _changed(rng, value[name])}
    if isinstance(value, list) and value and rng.random() < 0.85:
        at, slip = rng.randrange(len(value)), rng.randrange(8)
        if slip == 0:
            return value[:at] + value[at + 1 :]
        if slip == 1:
            return value[: at + 1] + value[at:]
        return [*value[:at], _changed(rng, value[at]), *value[at + 1 :]]
    if isinstance(value, str) and rng.random() < 0.5:
        return slipped(rng, value)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and rng.random() < 0.6:
        return rng.choice(
            (0, -1, 1, 2, 0.5, -0.5, value * 2, -value, value + 1, 10**6, 10**18, 2**63, 1e300, 1e-300, 10**400)
        )
    return rng.choice(
        (None, True, False, 0, -1, 1.5, 1e300, "", "x", odd(rng), [], {}, [value], {"x": value}, [[], []])
    )


def _json(rng: Random, value: Any, share: float = 0.85) -> bytes:
    """A document with slips in its parts, or in its bytes."""
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3)) if rng.random() < share else 0):
        value = _changed(rng, value)
    content = json.dumps(value).encode()
    kind = rng.random()
    if kind < 0.12:
        return damaged(rng, content)
    if kind < 0.15:
        depth = rng.choice((10, 1000, 100_000))
        return content[:-1] + b',"x":' + b"[" * depth + b"]" * depth + content[-1:]
    if kind < 0.17:
        return content.replace(b"1", rng.choice((b"NaN", b"Infinity", b"-Infinity", b"1e999", b"9" * 5000)), 1)
    return content


# ---------------------------------------------------------------- configurations


@cache
def _configurations() -> list[dict[str, Any]]:
    from transformers import AutoConfig

    small = {"vocab_size": 64, "max_position_embeddings": 32, "num_hidden_layers": 2}
    names = ("gpt2", "bert", "llama", "t5", "opt", "mixtral")
    found = []
    for name in names:
        whole = json.loads(AutoConfig.for_model(name).to_json_string(use_diff=True))
        found.append(whole | {"model_type": name} | small)
    return found


def configuration(rng: Random) -> Input:
    value = drawn(rng, _configurations())
    if rng.random() < 0.2:
        value = value | {"auto_map": {"AutoModel": f"{CANARY}.Model"}, "trust_remote_code": True}
    content = _json(rng, value, 1)
    words = ["audit", "--hf", "config.json", "--layers", "1", "--seeds", "1", "--width", drawn(rng, ("8", "16"))]
    return Input(typed(*words, *(["--json"] if rng.random() < 0.5 else [])), {"config.json": content})


# ---------------------------------------------------------------- stores

TRAIN = (
    "train --scheme pre-ln --shape vit --layers 1 --width 8 --steps 2 --batch 4 --learning-rate 1e-3 --seeds 2 "
    "--workers 1"
)
_SHAPE: dict[str, Any] = {
    "shape": "vit",
    "num_layers": 1,
    "d_model": 8,
    "num_steps": 2,
    "batch_size": 4,
    "measure_at": (0,),
}
RUN = "runs.sqlite"


@cache
def stores() -> list[bytes]:
    """One with the runs of ``TRAIN``, one without any, one with further runs and a claim."""
    from depthlaw.network.trials import Trial, execute
    from depthlaw.sims.training.store import Store

    trials = [Trial(scheme=name, seed=seed, **_SHAPE) for name in ("pre-ln", "post-ln") for seed in (0, 1)]
    found = []
    with TemporaryDirectory() as folder:
        for name, chosen in (("all", trials), ("none", []), ("some", trials[:2])):
            path = Path(folder) / name
            with Store(path) as store:
                for trial in chosen:
                    (result,) = execute([trial.named()])
                    store.add(trial.named(), result)
            found.append(path.read_bytes())
    return found


def _edited(rng: Random, content: bytes) -> bytes:
    """A store whose rows, or whose tables, are not as they were: whole as a file of SQLite."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(content)
        column = drawn(rng, ("config", "result", "about"))
        kind = rng.randrange(7)
        try:
            if kind <= 2:
                for name, text in database.execute(f"SELECT key, {column} FROM runs").fetchall()[: rng.choice((1, 4))]:
                    new = _json(rng, json.loads(text), 1)
                    value = new.decode("utf-8", "replace") if rng.random() < 0.8 else new
                    database.execute(f"UPDATE runs SET {column} = ? WHERE key = ?", (value, name))
            elif kind == 3:
                from depthlaw.sims.training.store import key

                for name, text in database.execute("SELECT key, config FROM runs").fetchall()[:2]:
                    config = _changed(rng, json.loads(text))  # under the key of what it now says
                    try:
                        parts = (key(config), json.dumps(config))
                    except (ValueError, AttributeError, TypeError):
                        parts = (odd(rng), json.dumps(config))
                    database.execute("UPDATE runs SET key = ?, config = ? WHERE key = ?", (*parts, name))
            elif kind == 4:
                value = rng.choice(
                    (None, 5, 1.5, "", odd(rng).encode("utf-8", "replace").decode(), b"\xff\x00", "[1]", "{}")
                )
                database.execute(f"UPDATE runs SET {column} = ?", (value,))
            elif kind == 5:
                statement = drawn(
                    rng,
                    (
                        "PRAGMA user_version=0",
                        "PRAGMA user_version=99",
                        "PRAGMA application_id=7",
                        "DROP TABLE runs",
                        "DROP TABLE claims",
                        "ALTER TABLE runs RENAME COLUMN result TO other",
                        "ALTER TABLE runs ADD COLUMN more",
                        "DROP TABLE runs; CREATE VIEW runs AS SELECT 1 AS key, 2 AS config, 3 AS result, 4 AS about",
                        "CREATE TRIGGER t BEFORE INSERT ON claims BEGIN DELETE FROM runs; END",
                        "CREATE TRIGGER t BEFORE INSERT ON claims BEGIN SELECT RAISE(ABORT, 'no\nway'); END",
                    ),
                )
                database.executescript(statement)
            else:
                query = "INSERT INTO claims VALUES (?, ?, ?, ?, ?, ?)"
                values = [
                    rng.choice((odd(rng).encode("utf-8", "replace").decode(), 0, -1, 2**40, 1e300, "x"))
                    for _ in range(6)
                ]
                database.execute(query, values)
        except sqlite3.Error:  # what the table does not take is no such store
            pass
        database.commit()
        return database.serialize()


def store(rng: Random) -> Input:
    content = drawn(rng, stores())
    kind = rng.random()
    if kind < 0.55:
        content = _edited(rng, content)
    elif kind < 0.95:
        content = damaged(rng, content)
    words = f"{TRAIN} --store {RUN}".split()
    if rng.random() < 0.4:
        words = f"experiment {drawn(rng, ('warmup', 'best-rates', 'stable-rates'))} --plan --store {RUN}".split()
    return Input((*words, *(["--json"] if rng.random() < 0.5 else [])), {RUN: content}, keeps_runs=RUN)


# ---------------------------------------------------------------- records

MEASURE = "measure --scheme post-ln --optimizer sgd --sublayers 2 --width 4 --seeds 2 --dtype float64 --record it.jsonl"


@cache
def record_lines() -> list[dict[str, Any]]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "it.jsonl"
        for optimizer in ("sgd", "adam"):
            told(*MEASURE.replace("it.jsonl", str(path)).replace("sgd", optimizer).split())
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def record(rng: Random) -> Input:
    lines = [_json(rng, run, 0.6) for run in record_lines() for _ in range(rng.choice((1, 1, 2)))]
    content = b"\n".join(lines) + rng.choice((b"\n", b""))
    if rng.random() < 0.3:
        content = damaged(rng, content)
    words = (*MEASURE.split(), *(["--json"] if rng.random() < 0.5 else []))
    return Input(words, {"it.jsonl": content}, may_grow=frozenset({"it.jsonl"}))


# ---------------------------------------------------------------- text and parallel files


def own_text(rng: Random) -> Input:
    """A text, or two that are aligned, of a user's own: of any bytes."""
    import gzip

    def content() -> bytes:
        kind = rng.randrange(6)
        if kind == 0:
            found = rng.randbytes(rng.choice((0, 1, 100, 20_000)))
        elif kind == 1:
            found = (odd(rng)[:5000] + "\n").encode("utf-8", "surrogatepass") * rng.choice((1, 30, 400))
        else:
            words = ["the", "update", "of", "a", "deeper", "model", "moves", "as", "its", "layers", "grow\n"]
            found = "".join(f"{drawn(rng, words)} {number}\n" for number in range(rng.choice((1, 20, 2000)))).encode()
        return damaged(rng, found) if rng.random() < 0.2 else found

    def packed(text: bytes) -> bytes:
        found = gzip.compress(text, 1, mtime=0)
        return damaged(rng, found) if rng.random() < 0.5 else found

    is_packed = rng.random() < 0.3
    # Other names at each input: what was read of a file is remembered in a process.
    end = f"{rng.getrandbits(64)}{'.gz' if is_packed else '.txt'}"
    words = ["train", "--scheme", "pre-ln", "--layers", "1", "--width", "8", "--steps", "1", "--batch", "2"]
    words += ["--learning-rate", "1e-3", "--workers", "1", "--store", "new.sqlite"]
    words += ["--tokens", drawn(rng, ("1", "2", "8", "8", "8"))]
    if rng.random() < 0.5:
        texts = {f"text{end}": content()}
        words += ["--shape", rng.choice(("gpt", "bert")), "--text", *texts]
    else:
        first = content()
        second = rng.choice((first, content(), b"\n".join(reversed(first.split(b"\n")))))
        texts = {f"source{end}": first, f"target{end}": second}
        words += ["--shape", "nmt", "--parallel", *texts]
    files = {name: packed(text) if is_packed else text for name, text in texts.items()}
    return Input((*words, *(["--json"] if rng.random() < 0.5 else [])), files)


# ---------------------------------------------------------------- modules

_BODIES = (
    "m = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True); "
    "return nn.TransformerEncoder(m, n, enable_nested_tensor=False)",
    *("return None", "return 'a text'", "return nn.Linear(4, 4)", "return nn.Sequential()", "return nn.Module()"),
    *("return nn.Module", "raise ValueError('no\\nsuch\\nnumber')", "raise ValueError", "raise SystemExit('I go')"),
    *("raise SystemExit", "raise SystemExit(0)", "import sys; sys.exit(3)", "raise KeyError(n)", "raise MemoryError"),
    *("raise RecursionError", "raise UnicodeDecodeError('utf-8', b'x', 0, 1, 'so')", "return build(n)"),
    *("assert False", "yield n", "print('hello'); return nn.Linear(2, 2)"),
    *("import warnings; warnings.warn('careful'); return nn.Linear(2, 2)", "return nn.Linear(4, 4).half()"),
    *("return nn.LSTM(4, 4, n)", "m = nn.Linear(4, 4); m.forward = None; return m"),
    "m = nn.Linear(4, 4); nn.init.constant_(m.weight, float('nan')); return m",
    *("m = nn.Linear(4, 4); m.weight.requires_grad_(False); return m", "return nn.ModuleList([nn.Linear(4, 4)])"),
    "return type('M', (nn.Module,), {'forward': lambda self, x: {}})()",
    "return type('M', (nn.Module,), {'forward': lambda self: 1})()",
    "return type('M', (nn.Module,), {'forward': lambda self, x: x})()",
    "return type('\\x1b[31m', (nn.Module,), {'forward': lambda self, x: x})()",
)
_TOPS = (
    *("", "", "", "", "", "", "print('a module says this')", "raise ImportError('no\\nmore')"),
    *("import nonesuch_at_all", "raise SystemExit", "raise SystemExit('at import')", "1 / 0", "def broken(:"),
    *("x = '\\0'", "\x00", "raise Exception", "import sys; sys.exit(0)", "build = 5", "from mymodel import other"),
    *("import mymodel", "__getattr__ = None", "def __getattr__(name): raise RuntimeError(name)"),
    *("# coding: nonesuch", "import warnings\nwarnings.warn('x')"),
)
_HEADS = (
    *("def build(n):", "def build(n):", "def build(n):", "def build(n):", "def build():", "def build(a, b):"),
    *("def build(*, num_layers):", "async def build(n):", "def build(**n):", "def build(n, /):"),
    *("class build:\n  def __init__(self, n):\n   pass\n  def g(n):", "def other(n):"),
)
_CALLS = (
    *("mymodel:build", "mymodel:build", "mymodel:build", "mymodel:build", "mymodel.py:build", "mymodel:other"),
    *("mymodel:nn.Linear", "mymodel", "mymodel:", ":build", ":", "", "mymodel:build:x", "mymodel:build.x.y"),
    *("mymodel:__class__", "mymodel:__builtins__", "../mymodel:build", "/mymodel:build", "my-model:build"),
    *("mymodel;x:build", "mymodel:build()", "mymodel:build(2)", "mymodel.mymodel:build", ".mymodel:build"),
    *("..:build", "mymodel:__name__", "mymodel:__doc__.x", "mymodel:nn", "пакет:build", "nonesuch:build"),
    *("nonesuch.x:y", "encodings.nonesuch:x", "torch.nn:nonesuch", "torch.nn:Linear", "torch.nn:Identity"),
)


def module(rng: Random) -> Input:
    """A factory of the user's own, by whatever name, that does whatever it does."""
    head, body = drawn(rng, _HEADS), drawn(rng, _BODIES)
    source = f"{drawn(rng, _TOPS)}\nfrom torch import nn\n{head}\n    {body}\n"
    call = drawn(rng, _CALLS)
    words = ["audit", maybe(rng, call, 0.6), "--layers", "1", "--seeds", "1"]
    if rng.random() < 0.1:
        words += ["--input", maybe(rng, call, 0.3)]
    words += ["--json"] if rng.random() < 0.3 else []
    words += ["--groups", maybe(rng, call, 0.3)] if rng.random() < 0.1 else []
    return Input(typed(*words), {"mymodel.py": source.encode()}, own=True)


# ---------------------------------------------------------------- documents of verify


@cache
def _documents() -> list[dict[str, Any]]:
    from depthlaw.paper_checks.claims.sources import sources
    from depthlaw.paper_checks.verify.answers import kept
    from depthlaw.system.files import document

    found = []
    for id_ in ("S1-34", "DN-07", "S2-08", "LI-05"):
        answer = kept(id_)
        assert answer is not None
        entry = answer["claim"]
        source = {name: value for name, value in sources()[entry["source"]].model_dump().items() if name in _OF_SOURCE}
        summary = answer["summary"]
        found.append(
            document(
                claims=[entry],
                tables=answer["tables"],
                sources_beside=[],
                sources={entry["source"]: source | {"key": entry["source"]}},
                summary=summary,
            )
        )
    return found


_OF_SOURCE = ("title", "authors", "url", "version", "file", "sha256")


def verified(rng: Random) -> Input:
    """What ``report --from`` reads."""
    content = _json(rng, drawn(rng, _documents()))
    words = [
        "report",
        "--from",
        "verify.json",
        "--out",
        rng.choice(("out", "out", "out", "here", "verify.json", "../o")),
    ]
    files = {"verify.json": content, "here/mine.txt": b"mine"}
    return Input((*words, *(["--json"] if rng.random() < 0.5 else [])), files)


# ---------------------------------------------------------------- checkpoints


@cache
def checkpoints() -> dict[str, bytes]:
    """Of the runs of ``TRAIN``, by their names: each after its first step."""
    from depthlaw.network.trials import Trial
    from depthlaw.sims.training.store import key
    from depthlaw.sims.training.train import train

    found = {}
    with TemporaryDirectory() as folder:
        for seed in (0, 1):
            trial = Trial(scheme="pre-ln", seed=seed, **_SHAPE)
            path, written = Path(folder) / f"{key(trial.named())}.pt", []

            def look(_: int, path: Path = path, written: list[bytes] = written) -> None:
                written += [path.read_bytes()] if path.exists() else []

            train(trial.lower(), checkpoint=path, checkpoint_every=1, advance=look)
            found[path.name] = written[0]
    return found


def checkpoint(rng: Random) -> Input:
    """The files of runs that were stopped, beside their store."""
    files = {
        f"{RUN}.checkpoints/{name}": damaged(rng, content) if rng.random() < 0.7 else content
        for name, content in checkpoints().items()
    }
    words = (*TRAIN.split(), "--store", RUN, "--checkpoint-every", "1")
    return Input((*words, *(["--json"] if rng.random() < 0.5 else [])), files, may_end=frozenset(files))


KINDS = (
    Kind("command lines", 9_500, command_line),
    Kind("gains", 5_000, gain_list),
    Kind("configurations", 300, configuration),
    Kind("stores", 1_200, store),
    Kind("records", 16_000, record),
    Kind("texts", 1_000, own_text),
    Kind("modules", 36_000, module),
    Kind("documents", 36_000, verified),
    Kind("checkpoints", 200, checkpoint),
)
