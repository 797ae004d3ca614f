"""Whatever comes from outside: no traceback, no hang, nothing executed, nothing lost. The kinds of input are those of
``tests/fuzz/kinds.py``, and what must hold of each input is said in ``tests/fuzz/watch.py``.

An input that broke something is shown again by ``python -m tests.fuzz KIND NUMBER``, as the failure says.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fuzz.kinds import KINDS, MEASURE, RUN, TRAIN, Kind, checkpoints, record_lines, stores
from tests.fuzz.watch import CANARY, Input, Watch, watching

_SHOWN = 20


def once_broken() -> Iterator[Input]:
    """Inputs that once ended in a traceback, ran for half a minute, or were taken for what they are not."""
    yield Input(("explain", "\x1b[2J\u202e"))  # characters that a terminal obeys
    yield Input(("predict", "--scheme", "pre-ln", "--optimizer", "sgd", "--sublayers", "2", "--w", "@\x1b[31m"))
    wide = "predict --scheme pre-ln --optimizer adam --attention --layers 1 --width 100000 --heads 1"
    yield Input(tuple(wide.split()))
    tiny = f"predict --optimizer sophia --norm post --sublayers 7 --activation silu --branch-weight 1/{'7' * 30}"
    yield Input(tuple(tiny.split()))
    for top, body, name in (
        ("raise SystemExit('at import')", "pass", "build"),
        ("def __getattr__(name): raise RuntimeError(name)", "pass", "nonesuch"),
        ("", "raise SystemExit", "build"),
        ("", "m = nn.Linear(4, 4); m.forward = None; return m", "build"),
        ("", "pass", "__doc__.x"),
    ):
        source = f"{top}\nfrom torch import nn\ndef build(n):\n    {body}\n".encode()
        audit = ("audit", f"mymodel:{name}", "--layers", "1", "--seeds", "1", "--json")
        yield Input(audit, {"mymodel.py": source}, own=True)
    many_heads = json.dumps({"model_type": "gpt2", "n_head": 10**18}).encode()
    yield Input(("audit", "--hf", "config.json", "--layers", "1", "--seeds", "1"), {"config.json": many_heads})
    own = f"{TRAIN} --store {RUN} --json".replace("--shape vit", "--shape nmt --parallel blank.txt blank.txt").split()
    yield Input(tuple(own), {"blank.txt": b"\n" * 300})
    whole = stores()[0]
    for statements in (
        "DROP TABLE claims",
        "ALTER TABLE runs RENAME TO r; CREATE VIEW runs AS SELECT 1 AS key, config, result, about FROM r",
    ):
        database = sqlite3.connect(":memory:")
        database.deserialize(whole)
        database.executescript(statements)
        for command in (f"{TRAIN} --store {RUN}", f"experiment warmup --plan --store {RUN}"):
            yield Input(tuple(command.split()), {RUN: database.serialize()}, keeps_runs=RUN)
        database.close()
    lines = "\n".join(map(json.dumps, record_lines())).replace('"update"', '"other"')
    yield Input(tuple(MEASURE.split()), {"it.jsonl": lines.encode()})
    flipped = {
        f"{RUN}.checkpoints/{name}": content.replace(b"update", b"5pdate") for name, content in checkpoints().items()
    }
    yield Input((*TRAIN.split(), "--store", RUN, "--checkpoint-every", "1"), flipped)


def tried(watch: Watch, kind: Kind, numbers: range) -> list[str]:
    """What inputs of a kind broke."""
    broken = []
    for number in numbers:
        given = kind.input(number)
        if found := watch.broken(given):
            broken.append(f'python -m tests.fuzz "{kind.name}" {number}: {"; ".join(found)}\n{given}')
    return broken


LONG = ("command lines", "stores", "checkpoints")
"""Kinds whose inputs are many, or take a second."""


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.wide] * (kind.name in LONG)) for kind in KINDS],
    ids=lambda kind: kind.name,
)
def test_a_few_of_each_kind(kind: Kind, tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        broken = tried(watch, kind, range(12 if kind.num > 1_200 else 4))  # some take a second each
    assert not broken, "\n".join(broken)


def test_what_once_broke_something_is_refused(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        for given in once_broken():
            watch.ended.clear()
            assert (watch.broken(given), set(watch.ended) <= {"exit 2", "exit 1", "exit 0"}) == ([], True), str(given)


@pytest.mark.slow
def test_a_hundred_thousand_in_one_process(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    broken, total = [], 0
    for kind in KINDS:
        start = time.process_time()
        with watching(tmp_path / kind.name) as watch:
            broken += tried(watch, kind, range(kind.num))
        seconds, ended = time.process_time() - start, ", ".join(f"{end} {n}" for end, n in sorted(watch.ended.items()))
        total += sum(watch.ended.values())
        record_property("told", f"fuzzed: {kind.num} {kind.name} in {seconds:.0f} s of the processor: {ended}")
    record_property("told", f"fuzzed: {total} inputs in all, {len(broken)} broke something")
    assert total >= 100_000
    assert not broken, "\n".join(broken[:_SHOWN])


# ---------------------------------------------------------------- that the watch sees what it is there for


DONE = {
    "was compiled": f"open({CANARY!r}, 'w').close()",
    "os.system": f"import os; os.system('true # {CANARY}')",
    "outside of the folder": "open('/'.join(['', 'tmp', 'nobody-asked']), 'w')",
    "was made": "with open('here.txt', 'w'): pass",
    "is gone": "import os; os.remove('given.txt')",
    "was changed": "with open('given.txt', 'a') as file: file.write('more')",
    "ZeroDivisionError": "1 / 0",
    "seconds of the processor": "while 1: pass",
    "lines of its own": "import sys; print('so', file=sys.stderr)",
    "control characters": "print('\\x1b[2J')",
}


@pytest.mark.parametrize("said", DONE)
def test_what_an_input_must_not_do_is_seen(said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """schemes, as if it ran the name that it was given."""
    monkeypatch.setattr("tests.fuzz.watch.LIMIT", 0.5)
    monkeypatch.setattr("depthlaw.recipes.catalogue.RECIPES", _Runs())
    with watching(tmp_path) as watch:
        broken = watch.broken(Input(("schemes", DONE[said]), {"given.txt": b"as it was"}))
    assert any(said in line for line in broken), broken


class _Runs(dict):
    """Of recipes: it runs the name that is looked for."""

    def __contains__(self, name: object) -> bool:
        exec(str(name).replace(CANARY.lower(), CANARY))
        return False
