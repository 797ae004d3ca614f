"""``depthlaw tables --latex``: rows and braces are whole, and pdflatex takes it."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from paper_checks.cli.tables import LATEX_LEAVES_OUT, latex, packages
from paper_checks.verify import tables_file

TABLES = ("su-optimizers", "su-prenorm", "deepnet", "magneto-gamma", "bounds", "cross")


@cache
def tables() -> dict[str, dict[str, Any]]:
    """The committed ones, whether or not theory has changed since: their form is what counts here."""
    return {table["id"]: table for table in json.loads(tables_file.FILE.read_text(encoding="utf-8"))["tables"]}


def faults(text: str) -> list[str]:
    """What is wrong with LaTeX of tables, without a TeX: braces, environments, and rows of another length."""
    found = []
    plain = re.sub(r"(?m)^%.*\n", "", text).replace(r"\$", "")
    braces = re.sub(r"\\[{}]", "", plain)
    if braces.count("{") != braces.count("}"):
        found.append("braces")
    if plain.count("$") % 2:
        found.append("dollars")
    begun, ended = (re.findall(rf"\\{word}{{(\w+)}}", plain) for word in ("begin", "end"))
    if begun != ended:
        found.append("environments")
    width = 0
    for line in plain.splitlines():
        if match := re.search(r"\\begin{\w+}{(?:@{})?(l+)", line):
            width = len(match[1])
        elif r"\\" in line and len(re.sub(r"\$[^$]*\$|\\&", "", line).split("&")) != width:
            found.append(f"a row of another length: {line}")
        words = re.sub(r"\$[^$]*\$|\\[a-z]+(?:{[^}]*})*|\\[~^]{}|\\[_&%#]", "", line)
        if line.endswith(r"\\") and re.search(r"[_^#%~]", words):
            found.append(f"a sign that text may not have: {line}")
    return found


@pytest.mark.parametrize("id_", TABLES)
def test_tables_are_whole(id_: str) -> None:
    table = tables()[id_]
    text = latex(table)
    assert faults(text) == []
    assert len(re.findall(r"\\\\(?: \\hline)?$", text, re.MULTILINE)) == len(table["rows"]) + 1
    assert set(LATEX_LEAVES_OUT.get(id_, ())) < set(table["rows"][0])


def test_every_table_is_tried() -> None:
    assert tuple(tables()) == TABLES
    assert LATEX_LEAVES_OUT.keys() <= set(TABLES)


@pytest.mark.parametrize(
    ("old", "new", "seen"),
    [
        (" & ", " ", "row"),
        ("{", "", "braces"),
        (r"\end{tabular}", "", "environments"),
        ("$", "", "dollars"),
        ("sgd &", "su_sgd &", "sign"),
    ],
)
def test_a_broken_table_is_seen(old: str, new: str, seen: str) -> None:
    text = latex(tables()["su-optimizers"])
    assert old in text
    assert any(seen in fault for fault in faults(text.replace(old, new, 1)))


def test_a_comment_names_the_packages() -> None:
    assert packages([tables()["bounds"]]) == "% \\usepackage{amsmath}\n"
    assert packages([tables()["cross"]]) == "% \\usepackage{amsmath,longtable}\n"


def test_formulas_are_typeset_and_text_is_escaped() -> None:
    text = latex(tables()["su-optimizers"])
    assert r"lamb & $-\eta \left\|\theta\right\|/\sqrt{n} \operatorname{sign}(g)$" in text
    assert r"& loss change & $\alpha$ & $\lambda$" in text
    odd = {"id": "odd", "title": "odd", "rows": [{"a_b": r"50 % of {x} & \y, a_b <c> $5 #1 ~ ^"}]}
    assert faults(latex(odd)) == []
    assert r"50 \% of \{x\} \& \textbackslash{}y, a\_b $<$c$>$ \$5 \#1 \~{} \^{}" in latex(odd)


# ---------------------------------------------------------------- with a TeX


def compiled(body: str, head: str, folder: Path) -> str:
    """pdflatex's errors and what is too wide; empty where all is well."""
    source = f"\\documentclass{{article}}\n{head.removeprefix('% ')}\\begin{{document}}\n{body}\n\\end{{document}}\n"
    (folder / "tables.tex").write_text(source, encoding="utf-8")
    command = ["pdflatex", "-no-shell-escape", "-halt-on-error", "-interaction=nonstopmode", "tables.tex"]
    runs = [  # longtable learns its widths in the first
        subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120) for _ in range(2)
    ]
    lines = [line for line in runs[-1].stdout.splitlines() if line.startswith("!") or "Overfull" in line]
    return "\n".join(lines) or ("" if (folder / "tables.pdf").exists() else "no output")


@pytest.mark.tex
@pytest.mark.slow
@pytest.mark.parametrize("id_", TABLES)
def test_pdflatex_takes_each_table(id_: str, tmp_path: Path) -> None:
    table = tables()[id_]
    assert compiled(latex(table), packages([table]), tmp_path) == ""


@pytest.mark.tex
def test_pdflatex_takes_them_all_together(tmp_path: Path) -> None:
    kept = [{**table, "rows": table["rows"][:60]} for table in tables().values()]
    assert compiled("\n".join(map(latex, kept)), packages(kept), tmp_path) == ""


BROKEN = [
    ("sgd &", "su_sgd &"),
    pytest.param(r"\end{tabular}", "", marks=pytest.mark.slow),
    pytest.param(" & ", " & & & & & ", marks=pytest.mark.slow),
]


@pytest.mark.tex
@pytest.mark.parametrize(("old", "new"), BROKEN)
def test_pdflatex_sees_a_broken_table(old: str, new: str, tmp_path: Path) -> None:
    table = tables()["su-optimizers"]
    assert compiled(latex(table).replace(old, new, 1), packages([table]), tmp_path)
