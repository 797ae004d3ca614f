"""Each notebook runs, is in step with its source, has pictures, and types no number into its prose."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from depthlaw.paper_checks.claims.claim import Part, PartResult
from depthlaw.paper_checks.pages.notebooks import NOTEBOOKS, cells_digests, digest, main, names, run, source
from tests.near import is_near
from tests.notebooks.here import code, shown
from tests.often import often

MOST_BYTES = 1_000_000
NAMES = names()
ALLOWED = (
    r"^#+ \d+\. ",  # the number of a notebook or of a part of it, before its title
    r"\${1,2}[^$]*[A-Za-z\\][^$]*\${1,2}",  # a formula, but no number set as one
    r"```.*?```|`[^`]*[A-Za-z][^`]*`",  # code, but no number set as code
    r"\]\([^)]*\)",  # where a link leads
    r"\b(?:S1|S2|S3|DN|LI|CD|KE|TP|CP|PL|AR|GP|DS)-\d+\b",  # a claim
    r"\barXiv[ :]\d{4}\.\d{4,5}(?:v\d+)?",
    r"\b(?:Theorem|Lemma|Section|Table|Figure|Notebook|[Nn]otebook|Equation|Theorems|notebooks)s? \d+(?:\.\d+)*",
    r"\(\d{1,2}\)",  # an equation's number
    r"^\d+\. ",  # an item of a list
    r"\bW_?[12]\b|\bx_0\b|\b(?:GPT|T|ViT)-?\d\b",  # names
)


def typed_numbers(markdown: str) -> list[str]:
    """The numbers in a text's prose, which nothing computes, and the decimal ones in its formulas."""
    formulas = re.findall(r"\${1,2}[^$]+\${1,2}", re.sub(r"^#.*$", " ", markdown, flags=re.MULTILINE))
    decimals = re.findall(r"\d+\.\d+", " ".join(formulas))
    for allowed in ALLOWED:
        markdown = re.sub(allowed, " ", markdown, flags=re.MULTILINE | re.DOTALL if "```" in allowed else re.MULTILINE)
    return decimals + re.findall(r"\d[\d.,]*", markdown)


def committed(name: str) -> Any:
    return json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def own_jupyter(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels have nothing of what somebody set up at home, and need no home to write to."""
    for variable in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path_factory.mktemp("jupyter")))
    monkeypatch.setenv("DEPTHLAW_NOTEBOOKS", "fast")  # which a run sets, and here it is set back


@pytest.mark.parametrize("name", often(NAMES, 12, wide=4))
def test_notebook_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In fast mode. What claims are judged to be is of other tests: here each
    part is what it is expected to be. (``judge`` itself stays: a module that a notebook imports first would keep
    another one.)
    """

    def judged(part: Part) -> PartResult:
        return PartResult(part=part, verdict=part.expected, evidence=())

    for name_of_step in ("judge_part", "judge_quickly"):
        monkeypatch.setattr(f"depthlaw.paper_checks.claims.claim.{name_of_step}", judged)
    found = shown(code(name), name)
    assert any("image/png" in one for one in found)
    assert any("text/markdown" in one for one in found)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", NAMES)
def test_notebook_says_the_same_when_it_is_run_again(name: str) -> None:
    """In a kernel of its own: else its outputs are of another theory, other records or other verdicts.

    A machine rounds in its own way, so numbers are compared to three digits; pictures are not.
    """
    pairs = zip(said(committed(name)["cells"]), said(run(name).cells), strict=True)
    assert [pair for pair in pairs if not is_near(*pair, rel=5e-3, absolute=1e-12)] == []


def said(cells: list[Any]) -> list[str]:
    """What each cell prints and shows as text."""
    outputs = [one for cell in cells if cell["cell_type"] == "code" for one in cell["outputs"]]
    parts = [one.get("text") or one.get("data", {}).get("text/markdown", "") for one in outputs]
    return ["".join(part) for part in parts]


@pytest.mark.parametrize("name", NAMES)
def test_notebook_was_run_as_it_stands_and_has_pictures(name: str) -> None:
    kept = committed(name)
    assert kept["metadata"]["depthlaw"]["source_sha256"] == digest(name)
    assert kept["metadata"]["depthlaw"]["cells_sha256"] == cells_digests(kept["cells"])
    assert [cell["source"] for cell in kept["cells"]] == [cell.source for cell in source(name).cells]
    cells = [cell for cell in kept["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    assert (NOTEBOOKS / f"{name}.ipynb").stat().st_size < MOST_BYTES


@pytest.mark.parametrize("name", NAMES)
def test_notebook_types_no_number_and_no_quotation_and_derives_nothing(name: str) -> None:
    """``quote`` of paper_checks.pages.prose has the words of a claim; claims, theory and measurements are tested
    elsewhere."""
    for cell in source(name).cells:
        if cell.cell_type == "markdown":
            assert not typed_numbers(cell.source)
            assert not re.findall(r"^>.*$", cell.source, flags=re.MULTILINE)
        else:
            # but for a model of the reader's own
            assert not re.search(r"^\s*(?:assert\b|class\s+\w+(?!\w|\(nn\.Module\)))", cell.source, flags=re.MULTILINE)


@pytest.mark.wide
def test_a_notebook_that_fails_is_red_and_the_others_are_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In kernels."""
    (tmp_path / "00_mutant.py").write_text("# %%\nlayers = 0\n\n# %%\nhalf = 1\nhalf / layers\n", encoding="utf-8")
    (tmp_path / "01_picture.py").write_text(PICTURE, encoding="utf-8")
    monkeypatch.setattr("depthlaw.paper_checks.pages.notebooks.NOTEBOOKS", tmp_path)
    assert main(["--fast"]) == 1
    told = capsys.readouterr().err
    assert "00_mutant failed" in told and "half / layers" in told and "ZeroDivisionError" in told
    assert "01_picture, " in told and "01_picture failed" not in told
    assert not list(tmp_path.glob("*.ipynb"))


PICTURE = """# %%
import os
assert os.environ["DEPTHLAW_NOTEBOOKS"] == "fast"
import matplotlib.pyplot as plt
from depthlaw.paper_checks.pages.prose import say, style
style()
plt.subplots()[1].plot([1, 2])
plt.show()
say("drawn")
"""


# --- what somebody edited in Jupyter is not overwritten

SOURCE = "# %%\nLAYERS = 6\n\n# %%\nprint(LAYERS)\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With one notebook, 00_small, that was run; runs are not of a kernel, which is what the others test."""
    monkeypatch.setattr("depthlaw.paper_checks.pages.notebooks.NOTEBOOKS", tmp_path)

    def unexecuted(name: str, *, is_fast: bool = False) -> Any:
        del is_fast
        found = source(name)
        found.metadata["depthlaw"] = {"cells_sha256": cells_digests(found.cells)}
        return found

    monkeypatch.setattr("depthlaw.paper_checks.pages.notebooks.run", unexecuted)
    for name in ("00_small", "01_other"):
        (tmp_path / f"{name}.py").write_text(SOURCE, encoding="utf-8")
    assert main([]) == 0
    return tmp_path


def edit(path: Path, old: str, new: str, *, has_digest: bool = True) -> None:
    """As JupyterLab saves it: the text by lines, and an empty cell at the end after the last one was run."""
    found = json.loads(path.read_text(encoding="utf-8"))
    for cell in found["cells"]:
        cell["source"] = "".join(cell["source"]).replace(old, new).splitlines(keepends=True)
    found["cells"].append({"cell_type": "code", "source": [], "metadata": {}, "outputs": [], "execution_count": None})
    if not has_digest:
        del found["metadata"]["depthlaw"]
    path.write_text(json.dumps(found), encoding="utf-8")


@pytest.mark.parametrize("has_digest", [True, False])
def test_an_edited_notebook_is_kept_and_the_others_are_run(
    folder: Path, capsys: pytest.CaptureFixture[str], has_digest: bool
) -> None:
    path = folder / "00_small.ipynb"
    edit(path, "LAYERS = 6", "LAYERS = 96", has_digest=has_digest)
    edited = path.read_bytes()
    (folder / "01_other.py").write_text(SOURCE.replace("6", "7"), encoding="utf-8")
    capsys.readouterr()
    assert main([]) == 1
    assert path.read_bytes() == edited
    assert "LAYERS = 7" in (folder / "01_other.ipynb").read_text(encoding="utf-8")
    [line] = [line for line in capsys.readouterr().err.splitlines() if "00_small" in line]
    at = f"{folder.name}/00_small"
    assert line == (
        f"depthlaw: {at}.ipynb has an edit (`LAYERS = 96`) that {at}.py has not, and was kept: copy it there, or throw "
        'it away: make notebooks NAME="00_small --discard-edits"'
    )
    # and what the line says can be done
    assert main(["00_small", "--discard-edits"]) == 0
    assert "LAYERS = 6" in path.read_text(encoding="utf-8")
    edit(path, "LAYERS = 6", "LAYERS = 96", has_digest=has_digest)
    (folder / "00_small.py").write_text(SOURCE.replace("6", "96"), encoding="utf-8")
    assert main(["00_small"]) == 0


def test_an_edit_is_told_apart_from_changes_of_the_source(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The .py has gone on since: what is named, and what is kept, is the edit alone, until the .py has it too."""
    path = folder / "00_small.ipynb"
    edit(path, "LAYERS = 6", "LAYERS = 96")
    gone_on = SOURCE.replace("print(LAYERS)", "print(2 * LAYERS)")
    (folder / "00_small.py").write_text(gone_on, encoding="utf-8")
    capsys.readouterr()
    assert main(["00_small"]) == 1
    assert "has an edit (`LAYERS = 96`)" in capsys.readouterr().err
    (folder / "00_small.py").write_text(gone_on.replace("LAYERS = 6", "LAYERS = 96"), encoding="utf-8")
    assert main(["00_small"]) == 0
    assert "print(2 * LAYERS)" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("content", ["<<<<<<< ours\n", "[]", '{"cells": [{}], "metadata": {}}'])
def test_a_notebook_that_cannot_be_read_is_kept(folder: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    path = folder / "00_small.ipynb"
    path.write_text(content, encoding="utf-8")
    capsys.readouterr()
    assert main([]) == 1
    assert path.read_text(encoding="utf-8") == content
    assert "00_small.ipynb is no notebook that can be read, and was kept" in capsys.readouterr().err
    assert main(["--discard-edits"]) == 0
