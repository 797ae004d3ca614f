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
import paper_checks
import sims
import theory

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("theory", "sims", "paper_checks", "depthlaw.py")
PUBLIC = """
theory.bounds.update: derive_bound
theory.meanfield.closedform: ClosedForm closed_form
theory.rules.derivation: Bound evaluate
theory.asymptotics.evaluate: constant evaluate
theory.meanfield.growth: update_order
theory.kernel.predict: predict_kernel
theory.kernel.setting: Inputs Sublayer Transformer
theory.kernel.update: unit_power
theory.rules.magnitude: compact
theory.meanfield.update: predict predict_setting
theory.moments: Activation activation exact large_scale numeric precise small_scale
theory.optimizers: Optimizer optimizer
theory.asymptotics.orders: Order cross_check leading_order
theory.rules.check: flat_gain is_flat rule_order rule_scheme
theory.rules.types: Rule SideRule evaluate
theory.rules.solve: solve_rule update_under
theory.bounds.scalar_model: scalar_sensitivity scalar_slope
theory.schemes: Scheme custom_scheme scheme
theory.meanfield.setting: Prediction Setting
theory.stack: Placement Stack transfer
theory.tables: bounds cross cross_block deepnet expression_cell magneto_gamma order_cells su_optimizers su_prenorm
sims.training.data: DataConfig load
sims.ensemble: Ensemble Member
sims.measure: Question choose_device run
sims.model: ModelConfig SublayerConfig Transformer alternating decoder_layers
sims.optim: first_step make
sims.training.outcomes: compare_edges compare_means differs edge next_rate rank_correlation share
sims.training.outcomes: rank_correlation_over_seeds
sims.training.planning: largest_sd seeds_for_difference seeds_for_shares
sims.records.record: append current find make read
sims.stats: Estimate agrees estimate fit_exponent ratio ratio_to_exact width_term
sims.training.store: Store export import_ key
sims.training.sweep: Report pool sweep
sims.training.train: TrainConfig train
sims.update: Task draw_inputs first_order roles_of
paper_checks.claims.claim: Check Evidence claim judge perform try_mutants worst
paper_checks.lowering.lower: lower_encoder_decoder lower_ffn lower_transformer
paper_checks.lowering.measuring: Extras Kept measure
paper_checks.lowering.networks: Network
paper_checks.pages.prose: formula latex pick say table typeset
paper_checks.papers.registry: claim claims load_bearing
paper_checks.routes.search: prove search
paper_checks.claims.sources: sources
paper_checks.claims.statements: Growth Values
paper_checks.lowering.trials: Trial execute
paper_checks.verify.document: check verify
"""
"""What README, notebooks and commands work with, where it is defined."""


def public() -> list[str]:
    lines = (line.split(": ") for line in PUBLIC.strip().splitlines())
    return [f"{module}.{name}" for module, names in lines for name in names.split()]


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


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
    found = dict(pair for module in sources() for pair in docstrings_of(module).items())
    assert len(public()) == len(set(public())) > 100
    assert [name for name in public() if name not in found] == []
    wrong = []
    for name in public():
        summary, _, rest = found[name].partition("\n")
        if not summary.strip().endswith((".", ":", "?")) or rest.partition("\n")[0].strip():
            wrong.append(f"{name} begins so: {summary!r}")
        toured = shown_on_tour(found[name.rpartition(".")[0]])
        if name not in toured and not doctest.DocTestParser().get_examples(found[name]):
            wrong.append(f"{name} has no example")
    assert not wrong, "\n".join(wrong)


def test_what_the_readme_shows_is_behind_the_front_door() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\bdepthlaw\.(\w+)\(", readme))
    assert shown and shown <= set(dir(depthlaw))


def test_the_front_door_gives_every_name_and_hides_no_room() -> None:
    """A name that is a package too would be the one or the other, whichever was imported first."""
    for package in (theory, sims, paper_checks):
        rooms = {path.stem for path in Path(str(package.__file__)).parent.iterdir()}
        assert not rooms & set(package.__all__)
        for name in package.__all__:
            assert getattr(depthlaw, name) is getattr(package, name)
    name = "nothing"
    with pytest.raises(AttributeError, match="has no 'nothing'; it has ACTIVATIONS, "):
        getattr(depthlaw, name)
