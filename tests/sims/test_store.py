"""Stores: what goes in comes back, by its content; what is no store stays as it is; a claim ends with its process."""

import itertools
import json
import math
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from depthlaw.sims.training import store as module
from depthlaw.sims.training.store import STALE, Store, export, import_, key, plain

CONFIG = {"scheme": "post-ln", "num_layers": 4, "learning_rate": 1e-3, "measure_at": (0, 10), "text": None}
RESULT = {"outcome": "trained", "losses": [5.5, 0.1], "held_out": None, "updates": {"10": {"update": 2.5e-300}}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(st.text(), parts, max_size=4),
    max_leaves=12,
)
CONFIGS = st.dictionaries(st.text(), JSON, max_size=4)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.sqlite"


def test_a_run_comes_back_with_what_it_was_made_with(path: Path) -> None:
    with Store(path) as store:
        assert store.find(CONFIG) is None
        store.add(CONFIG, RESULT, device="a GPU", seconds=1.23456)
        assert store.find(CONFIG) == RESULT
    with Store(path) as store:
        assert store.find(dict(reversed(CONFIG.items()))) == RESULT
        assert store.find({**CONFIG, "num_layers": 5}) is None
        assert store.keys() == {key(CONFIG)}
        (row,) = store.rows()
    assert row.config == {**CONFIG, "measure_at": [0, 10]}
    assert row.result == RESULT
    assert (row.about.device, row.about.seconds) == ("a GPU", 1.23)
    assert abs(row.about.created.timestamp() - time.time()) < 3600
    assert row.about.versions.python == ".".join(map(str, sys.version_info[:3]))


def test_the_first_result_stays(path: Path) -> None:
    with Store(path) as store, Store(path) as other:
        store.add(CONFIG, {"n": 1})
        other.add(CONFIG, {"n": 2})
        assert store.find(CONFIG) == other.find(CONFIG) == {"n": 1}
        assert len(list(store.rows())) == 1


@pytest.mark.wide
def test_any_json_comes_back_exactly(path: Path) -> None:
    numbers = itertools.count()
    with Store(path) as store:

        @settings(max_examples=12)
        @given(CONFIGS, CONFIGS)
        def check(config: dict[str, Any], result: dict[str, Any]) -> None:
            config = {"n": next(numbers), "config": config}
            store.add(config, result)
            row = store.row(key(config))
            for given, kept in ((config, row.config), (result, row.result), (result, store.find(config))):
                assert json.dumps(kept) == json.dumps(given)  # 1 is not 1.0 here, nor 0.0 -0.0

        check()


@settings(max_examples=20)
@given(CONFIGS, st.randoms(use_true_random=False))
def test_a_key_is_of_the_content(config: dict[str, Any], rng: random.Random) -> None:
    def shuffled(value: Any) -> Any:
        """Names in another order, tuples for lists, 1.0 for 1 where it is the same."""
        if isinstance(value, dict):
            names = rng.sample(list(value), len(value))
            return {name: shuffled(value[name]) for name in names}
        if isinstance(value, list):
            return tuple(shuffled(part) for part in value)
        if type(value) is int and abs(value) < 2**53:
            return float(value)
        return value

    assert key(shuffled(config)) == key(config) == key(json.loads(json.dumps(config)))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"a": [0.0, {"b": math.nan}]}, "it.a[1].b: nan is not JSON (allowed: finite numbers, and null for none)"),
        ({"a": {1}}, "it.a: a set is not JSON (allowed: numbers, text, lists, mappings, null)"),
        ({"a": {1: 2}}, "it.a: 1 is no name (allowed: text)"),
        ({"a": "\ud800"}, r"it.a: '\ud800' is not text (allowed: what UTF-8 can write)"),
    ],
)
def test_what_json_cannot_carry_is_an_error_in_one_line(path: Path, value: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError) as caught:
        plain(value, "it")
    assert str(caught.value) == says
    with Store(path) as store:
        for config, result in ((value, RESULT), (CONFIG, value)):
            with pytest.raises(ValueError, match=r"^(config|result)"):
                store.add(config, result)
        assert store.keys() == set()


def of_a_later_version(path: Path) -> None:
    Store(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version=7")


def cut_by_a_byte(path: Path) -> None:
    """Of a last page that ends in zeros, which SQLite would fill in."""
    Store(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE last (value)")
        database.commit()
    path.write_bytes(path.read_bytes()[:-1])


NO_STORES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a record": (
        lambda path: path.write_text('{"kind":"measure"}\n' * 100, encoding="utf-8"),
        "file is not a database",
    ),
    "of a later version": (of_a_later_version, "a store of version 7, and this reads version 1"),
    "cut by a byte": (cut_by_a_byte, "damaged: its end is cut off"),
}


@pytest.mark.parametrize("name", NO_STORES)
def test_what_is_no_store_is_refused_in_one_line_and_stays_as_it_is(path: Path, name: str) -> None:
    make, says = NO_STORES[name]
    make(path)
    before = path.read_bytes()
    assert before
    with pytest.raises(ValueError) as caught:
        Store(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert says in text
    assert text.endswith("(allowed: a store of runs, or a name that is free)")
    assert "\n" not in text
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]  # nothing beside it


@pytest.mark.parametrize(
    ("part", "old", "new", "says"),
    [
        ("result", ":", " ", f"run {key(CONFIG)[:12]} does not fit"),
        ("about", ":", " ", f"run {key(CONFIG)[:12]} does not fit"),
        ("config", "0.001", "0.002", "has another configuration than it was stored with"),
    ],
)
def test_a_row_that_was_changed_is_told(path: Path, part: str, old: str, new: str, says: str) -> None:
    with Store(path) as store:
        store.add(CONFIG, RESULT)
        assert len(list(store.rows())) == 1
        with closing(sqlite3.connect(path)) as database:
            database.execute(f"UPDATE runs SET {part} = replace({part}, '{old}', '{new}')")
            database.commit()
        with pytest.raises(ValueError, match=says) as caught:
            list(store.rows())
        assert "\n" not in str(caught.value)


def test_a_disk_that_is_full_at_the_end_hides_no_error(path: Path) -> None:
    """Claims that cannot be dropped are those of an owner who has ended."""
    with pytest.raises(ValueError, match=r"^what went wrong$"), Store(path) as store:
        store.claim({"x": 1})
        store._database.execute("PRAGMA query_only = 1")  # as little can be written as on a full disk
        raise ValueError("what went wrong")
    with Store(path) as store:
        assert store.claim({"x": 1})


ADD_AND_DIE = """
import os, pathlib, signal, sys
from depthlaw.sims.training.store import Store
store = Store(pathlib.Path(sys.argv[1]))
store.add({"n": 1}, {"n": 2})
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_add_has_returned_from_survives_kill_9(path: Path) -> None:
    child = subprocess.run([sys.executable, "-c", ADD_AND_DIE, str(path)], check=False)
    assert child.returncode == -signal.SIGKILL
    with Store(path) as store:
        assert store.find({"n": 1}) == {"n": 2}


def claim_as(path: Path, **changes: Any) -> None:
    """CONFIG's claim, as another process has written it."""
    with closing(sqlite3.connect(path)) as database:
        for column, value in changes.items():
            assert database.execute(f"UPDATE claims SET {column} = ?", (value,)).rowcount == 1
        database.commit()


def test_a_claim_is_of_one_store_until_it_is_dropped(path: Path) -> None:
    with Store(path) as store, Store(path) as other:
        assert store.claim(CONFIG)
        assert store.claim(CONFIG)
        assert not other.claim(CONFIG)
        other.release(CONFIG)  # not its own
        assert not other.claim(CONFIG)
        assert other.claim({**CONFIG, "num_layers": 5})
        store.release(CONFIG)
        assert other.claim(CONFIG)
        other.release()
        assert store.claim(CONFIG)
        store.add(CONFIG, RESULT)
        assert not store.claim(CONFIG)  # it has a result
        assert not other.claim(CONFIG)


def test_a_claim_lasts_as_long_as_its_process(path: Path) -> None:
    """One that lives, is a zombie, is gone; and the next one with its pid."""
    with Store(path) as store, Store(path) as other, Popen([sys.executable, "-c", "input()"], stdin=PIPE) as child:
        started = module._started(child.pid)
        assert started is not None
        assert store.claim(CONFIG)
        claim_as(path, pid=child.pid, started=started, owner="its", beat=0.0)  # the beat does not matter here
        assert not other.claim(CONFIG)
        claim_as(path, started=started - 60)
        assert other.claim(CONFIG)
        claim_as(path, pid=child.pid, started=started, owner="its")
        child.kill()
        wait_until_zombie(child.pid)
        assert other.claim(CONFIG)
        claim_as(path, pid=child.pid, started=started, owner="its")
        child.wait(60)
        assert other.claim(CONFIG)


def wait_until_zombie(pid: int) -> None:
    end = time.monotonic() + 60
    while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_claim_of_an_earlier_process_with_this_pid_is_nobody_s(path: Path) -> None:
    """A container that starts again gives its only process the same pid, at nearly the same time."""
    with Store(path) as store:
        assert store.claim(CONFIG)
        claim_as(path, owner="an earlier process's")
        assert store.claim(CONFIG)


def test_another_host_s_claim_lasts_until_its_heart_has_not_beaten_for_long(path: Path) -> None:
    with Store(path) as store, Store(path) as other:
        assert store.claim(CONFIG)
        claim_as(path, host="another", beat=time.time() - STALE / 2)
        assert not other.claim(CONFIG)
        claim_as(path, beat=time.time() - 2 * STALE)
        store.beat()
        assert not other.claim(CONFIG)
        claim_as(path, beat=time.time() - 2 * STALE)
        assert other.claim(CONFIG)
        store.beat()  # too late: it is the other's now
        assert not store.claim(CONFIG)


def test_an_exported_file_gives_the_same_store_and_the_same_bytes(path: Path) -> None:
    lines, again = path.with_name("runs.jsonl"), path.with_name("again.jsonl")
    lines.write_text("before", encoding="utf-8")
    with Store(path) as store:
        for n in range(5):
            store.add({"n": n, "rate": 0.1}, {"loss": random.random(), "text": "Tiefe \u2264 \U0001f600"})
        rows = list(store.rows())
        assert export(store, lines) == 5
    assert [key(row.config) for row in rows] == sorted(key(row.config) for row in rows)
    with Store(path.with_name("other.sqlite")) as other:
        assert import_(other, lines) == 5
        assert list(other.rows()) == rows
        assert import_(other, lines) == 0
        assert export(other, again) == 5
    assert again.read_bytes() == lines.read_bytes()
    assert len(lines.read_bytes().splitlines()) == 5


def test_an_export_that_fails_leaves_what_was_there(path: Path) -> None:
    lines = path.with_name("runs.jsonl")
    lines.write_text("before", encoding="utf-8")
    with Store(path) as store:
        store.add(CONFIG, RESULT)
        with closing(sqlite3.connect(path)) as database:
            database.execute("UPDATE runs SET about = '{}'")
            database.commit()
        with pytest.raises(ValueError, match="does not fit"):
            export(store, lines)
    assert lines.read_text(encoding="utf-8") == "before"
    assert sorted(file.name for file in path.parent.iterdir()) == ["runs.jsonl", "runs.sqlite"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"n": 1', '"n": 1e999', "config"),
        ('"seconds": 0.0', '"seconds": "0"', "about.seconds"),
        ('"created": "2', '"created": "', "about.created"),
        ('"config": ', '"host": "a machine", "config": ', "host"),
        ('{"about"', '"about"', "it is no JSON: "),
    ],
)
def test_a_line_that_does_not_fit_is_an_error_in_one_line_and_no_other_is_added(
    path: Path, old: str, new: str, says: str
) -> None:
    lines = path.with_name("runs.jsonl")
    with Store(path) as store:
        store.add({"n": 1}, {"n": 2})
        export(store, lines)
    good = lines.read_text(encoding="utf-8")
    assert old in good
    lines.write_text(good + good.replace(old, new), encoding="utf-8")
    with Store(path.with_name("other.sqlite")) as other:
        with pytest.raises(ValueError, match=rf"^{lines}, line 2 does not fit: .*{says}") as caught:
            import_(other, lines)
        assert "\n" not in str(caught.value)
        assert other.keys() == set()
