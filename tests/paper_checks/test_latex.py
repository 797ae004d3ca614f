"""``depthlaw tables --latex``: rows and braces are whole, and pdflatex takes it."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from depthlaw.cli.tables import LATEX_LEAVES_OUT, latex, packages
from depthlaw.paper_checks.verify import tables_file

TABLES = ("su-optimizers", "su-prenorm", "deepnet", "magneto-gamma", "bounds", "cross")


@cache
def tables() -> dict[str, dict[str, Any]]:
    """The committed ones, whether or not theory has changed since: their form is what counts here."""
    return {table["id"]: table for table in json.loads(tables_file.FILE.read_text(encoding="utf-8"))["tables"]}


def test_tables_are_whole() -> None:
    """Of each a row for each row, of as many cells; no formula, brace or sign of LaTeX stands bare in one."""
    assert tuple(tables()) == TABLES
    for id_, table in tables().items():
        columns = len(table["rows"][0]) - len(LATEX_LEAVES_OUT.get(id_, ()))
        rows = re.findall(r"^(.*) \\\\(?: \\hline)?$", latex(table), re.MULTILINE)
        assert len(rows) == len(table["rows"]) + 1
        for row in rows:
            assert len(re.split(r"(?<!\\) & ", row)) == columns
            assert row.count("{") == row.count("}") and row.count("$") % 2 == 0
            assert not re.search(r"[_^*|]|[a-z]{6,}\(", re.sub(r"\$[^$]*\$", "", row)) and "*" not in row


@pytest.mark.tex
def test_pdflatex_takes_them_all_together(tmp_path: Path) -> None:
    """Nothing is too wide, and no comment lacks a package."""
    kept = [{**table, "rows": table["rows"][:60]} for table in tables().values()]
    head, body = packages(kept).removeprefix("% "), "\n".join(map(latex, kept))
    source = f"\\documentclass{{article}}\n{head}\\begin{{document}}\n{body}\n\\end{{document}}\n"
    (tmp_path / "tables.tex").write_text(source, encoding="utf-8")
    command = ["pdflatex", "-no-shell-escape", "-halt-on-error", "-interaction=nonstopmode", "tables.tex"]
    runs = [  # longtable learns its widths in the first
        subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
        for _ in range(2)
    ]
    assert [line for line in runs[-1].stdout.splitlines() if line.startswith("!") or "Overfull" in line] == []
    assert (tmp_path / "tables.pdf").exists()
