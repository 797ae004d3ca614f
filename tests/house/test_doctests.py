"""The examples in docstrings are run, and every name of the public interface has one.

Each example runs in an empty namespace: what a reader copies is all that it needs.
"""

import ast
import doctest
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import depthlaw
from depthlaw import paper_checks, sims, theory

ROOT = Path(__file__).resolve().parents[2]
GIVEN = {"Result", "Claim", "NoTheoryError", "Advice", "Remedy"}
"""Public names that nobody makes: functions give them, and their examples show them."""
PACKAGES = ("theory", "sims", "paper_checks", "depthlaw")


def public() -> list[str]:
    """The functions and classes that a front door has, where they are defined."""
    doors = (depthlaw, theory, sims, paper_checks)
    values = [getattr(package, name) for package in doors for name in package.__all__]
    named = [value for value in values if callable(value) and value.__name__ not in GIVEN]
    return sorted({f"{value.__module__}.{value.__name__}" for value in named})


def module_name(path: Path) -> str:
    """Each folder is a room of depthlaw, and depthlaw/ has what it is itself."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] == "depthlaw" else ("depthlaw", *parts)).removesuffix(".__init__")


def docstrings(source: str, module: str) -> Iterator[tuple[str, str]]:
    """Of the module, its classes and functions, as they are written: a decorator hides none of them."""

    def visit(node: ast.Module | ast.ClassDef | ast.FunctionDef, name: str) -> Iterator[tuple[str, str]]:
        yield name, ast.get_docstring(node) or ""
        for child in node.body:
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                yield from visit(child, f"{name}.{child.name}")

    yield from visit(ast.parse(source), module)


@cache
def sources() -> dict[str, str]:
    """By module."""
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {module_name(path): path.read_text(encoding="utf-8") for path in paths}


@cache
def docstrings_of(module: str) -> dict[str, str]:
    return dict(docstrings(sources()[module], module))


def with_examples() -> list[str]:
    return [module for module, source in sources().items() if re.search(r"^ *>>> ", source, flags=re.MULTILINE)]


# ---------------------------------------------------------------- examples


@pytest.mark.parametrize("module", with_examples())
def test_examples(module: str) -> None:
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    wrong: list[str] = []
    for name, text in docstrings_of(module).items():
        runner.run(doctest.DocTestParser().get_doctest(text, {}, name, None, None), out=wrong.append)
    assert not wrong, "".join(wrong)


# ---------------------------------------------------------------- the public interface


def shown_on_tour(docstring: str) -> set[str]:
    """The names that its examples import and then use."""
    source = "".join(example.source for example in doctest.DocTestParser().get_examples(docstring))
    nodes = list(ast.walk(ast.parse(source)))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return {f"{node.module}.{alias.name}" for node in imports for alias in node.names if alias.name in used}


def test_the_public_interface_is_documented() -> None:
    """Each name begins with a line that says what it is, and has an example, of its own or of its module."""
    docstrings_by_name = dict(pair for module in sources() for pair in docstrings_of(module).items())
    assert len(public()) > 50
    assert [name for name in public() if name not in docstrings_by_name] == []
    wrong = []
    for name in public():
        summary, _, rest = docstrings_by_name[name].partition("\n")
        if not summary.strip().endswith((".", ":", "?")) or rest.partition("\n")[0].strip():
            wrong.append(f"{name} begins so: {summary!r}")
        toured = shown_on_tour(docstrings_by_name[name.rpartition(".")[0]])
        if name not in toured and not doctest.DocTestParser().get_examples(docstrings_by_name[name]):
            wrong.append(f"{name} has no example")
    assert not wrong, "\n".join(wrong)


def test_the_front_door_gives_every_name_and_hides_no_room() -> None:
    """A name that is a package too would be the one or the other, whichever was imported first."""
    for package in (depthlaw, theory, sims, paper_checks):
        rooms = {path.stem for path in Path(str(package.__file__)).parent.iterdir()}
        assert not rooms & set(package.__all__)
        assert all(getattr(package, name) is not None for name in package.__all__)
    assert set(depthlaw.__all__) <= set(dir(depthlaw))
    name = "nothing"
    with pytest.raises(AttributeError, match="No depthlaw attribute nothing"):
        getattr(depthlaw, name)
