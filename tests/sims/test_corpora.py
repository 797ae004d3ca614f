"""The raw examples: what is taken of the library, bytecode as dis has it, the split, files of one's own."""

import dis
import gzip
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from depthlaw.sims.training import corpora

ROOT = Path(__file__).resolve().parents[2]


MODULE = b"""import os

def twice(values):
    return [2 * value for value in values]   # a list

class Empty: pass
"""


def test_bytecode_is_that_of_dis() -> None:
    pairs = dict(corpora.bytecode_pairs(MODULE))
    expected: dict[int, list[str]] = {}
    for code in corpora.code_objects(compile(MODULE, "<test>", "exec", dont_inherit=True, optimize=0)):
        for instruction in dis.get_instructions(code):
            line = instruction.positions.lineno if instruction.positions else None
            if line:
                expected.setdefault(line, []).append(instruction.opname)
    named = {line: [corpora.OPERATIONS[byte] for byte in operations] for line, operations in pairs.items()}
    lines = MODULE.splitlines()
    assert named == {lines[line - 1].strip(): operations for line, operations in expected.items()}
    assert set(named) == {lines[i].strip() for i in (0, 2, 3, 5)}
    changed = dict(corpora.bytecode_pairs(MODULE.replace(b"2 * value", b"value")))
    assert set(changed.values()) != set(pairs.values())


def test_source_is_compiled_and_never_run() -> None:
    pairs = dict(corpora.bytecode_pairs(b"raise SystemExit('run')"))
    assert list(pairs) == [b"raise SystemExit('run')"]


def test_the_split_is_that_of_the_hash() -> None:
    assert [i for i in range(60) if corpora.is_held_out(b"%d" % i)] == [0, 7, 9, 10, 33, 40, 44, 51, 57, 59]


def test_a_paragraph_of_the_help_pages_is_on_one_side() -> None:
    """Pages quote one another, as that on special method names does those on its parts."""
    pieces = corpora.help_pages()
    assert len(dict(pieces)) == len(pieces) > 1000 and all(piece.endswith(b"\n\n") for _, piece in pieces)
    training, held_out = (set(side.split(b"\n\n")) for side in corpora.sides(pieces))
    assert training & held_out == {b""} and 0.05 < len(held_out) / len(training) < 0.2


def test_another_process_finds_the_same_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
from depthlaw.sims.training import corpora
corpora.LIBRARY_BYTES = 200_000
print(corpora.digest_of(*(line for pair in corpora.library_pairs() for line in pair)))
print(corpora.utterance(7, 50)[1].tolist())
"""
    other_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    said = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": other_seed},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    monkeypatch.setattr(corpora, "LIBRARY_BYTES", 200_000)
    monkeypatch.setattr(corpora, "standard_library", corpora.standard_library.__wrapped__)
    digest = corpora.digest_of(*itertools.chain.from_iterable(corpora.library_pairs.__wrapped__()))
    assert said.split("\n")[:2] == [digest, str(corpora.utterance(7, 50)[1].tolist())]


def test_pairs_are_stripped_distinct_and_not_empty(tmp_path: Path) -> None:
    files = (tmp_path / "a", tmp_path / "b")
    for file, content in zip(files, (b"x \r\ny\n\nx\nz", b"1\n2\n3\n 1\n\n"), strict=True):
        file.write_bytes(content)
    assert corpora.parallel_pairs((str(files[0]), str(files[1]))) == (((b"x", b"1"), (b"y", b"2")), 5)


@pytest.mark.parametrize("name", ["a", "a.gz"])
def test_a_file_whose_end_has_to_be_seen_is_read_to_a_limit(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpora, "MAX_FILE_BYTES", 100)
    path, small = tmp_path / name, tmp_path / "small"
    content = b"x\n" * 60
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    small.write_bytes(content[:100])
    with pytest.raises(ValueError, match=rf"{name} has more than 100 bytes{', unpacked' if '.gz' in name else ''}$"):
        corpora.parallel_pairs((str(path), str(small)))
    assert corpora.parallel_pairs((str(small), str(small))) == (((b"x", b"x"),), 50)


def test_the_library_is_taken_without_its_tests_and_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("a.py", "test/b.py", "c/tests/d.py", "site-packages/e.py", "c/f.py", "g.txt", "_sysconfigdata_h.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path, encoding="utf-8")
    monkeypatch.setattr(corpora.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    assert corpora.standard_library.__wrapped__() == ((b"a.py", b"a.py"), (b"c/f.py", b"c/f.py"))
    monkeypatch.setattr(corpora, "LIBRARY_BYTES", 5)
    assert len(corpora.standard_library.__wrapped__()) == 1
