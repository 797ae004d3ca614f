"""The script that keeps what the commands answer, for a comparison of two checkouts."""

from pathlib import Path

from tests.documents import commands, write
from tests.house.test_house import ROOT


def test_a_document_has_the_exit_code_and_both_outputs(tmp_path: Path) -> None:
    write(ROOT, tmp_path, ["schemes gpt2", "schemes nothing"])
    found, refused = (path.read_text(encoding="utf-8") for path in sorted(tmp_path.iterdir()))
    assert found.startswith("schemes gpt2\nexit 0\ngpt2, from ")
    assert refused.startswith("schemes nothing\nexit 2\n")
    assert "depthlaw: " in refused.partition("---")[2]


def test_no_command_stands_twice_and_each_makes_a_file_of_its_own() -> None:
    assert len(set(commands())) == len(commands()) > 400
