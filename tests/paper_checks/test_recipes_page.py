"""RECIPES.md and its picture say what is kept of the recipes and of other people's models."""

from __future__ import annotations

import pytest

from depthlaw.paper_checks.experiments import kernel_kept
from depthlaw.paper_checks.experiments.kernel_laws import OF_RECIPES, RECIPE_LENGTHS, Law, of_recipes
from depthlaw.paper_checks.pages import recipes
from depthlaw.paper_checks.pages.drawing import svg
from depthlaw.system.places import ROOT
from tests.near import is_same_picture


def test_page_and_picture_are_in_step() -> None:
    assert recipes.PAGE.read_text(encoding="utf-8") == recipes.page()
    assert is_same_picture(recipes.PICTURE.read_text(encoding="utf-8"), svg(recipes.picture()))


def test_the_readme_names_the_depths_of_the_page() -> None:
    assert f"from {recipes.FIRST} to {recipes.LAST:,} layers" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "lengths", [RECIPE_LENGTHS[:2], pytest.param(RECIPE_LENGTHS, marks=pytest.mark.slow)], ids=["shallow", "all"]
)
def test_what_is_kept_are_answers_to_the_numbers_that_recipes_have_now(lengths: tuple[int, ...]) -> None:
    asked = {question.key for question in of_recipes(lengths)}
    depths = [*lengths, *([length] * 2 for length in lengths)]  # of one stack, and of two
    assert asked == {answer.key for answer in kernel_kept.stored(OF_RECIPES) if answer.about["num_layers"] in depths}


@pytest.mark.parametrize("name", ["gpt2", pytest.param("llama-3", marks=pytest.mark.slow)])
def test_a_recipe_is_derived_again(name: str) -> None:
    [question] = [one for one in of_recipes(RECIPE_LENGTHS[:1]) if one.network.scheme.name == name]
    kept = kernel_kept.read(OF_RECIPES).find(question.network, "adamw")
    again = kernel_kept.ask(question)
    for optimizer, roles in kept.by_optimizer.items():
        values = {role: one.value for role, one in again.by_optimizer[optimizer].items()}
        assert values == pytest.approx({role: one.value for role, one in roles.items()}, rel=1e-4)


def test_going_is_that_of_a_power(monkeypatch: pytest.MonkeyPatch) -> None:
    """The role that grows most is sought among those that matter at the last depth."""
    powers = {"q": 2.0, "fc2": 0.75, "bias": 0.5}
    first = {"q": 1e-9, "fc2": 1.0, "bias": 1.0}
    by_role = {role: {n: first[role] * n**power for n in RECIPE_LENGTHS} for role, power in powers.items()}
    made = Law(updates={n: 2.0 * n**0.5 for n in RECIPE_LENGTHS}, roles=by_role, errors={})
    monkeypatch.setattr(recipes, "recipe_law", lambda *_: made)
    found = recipes.going("gpt2", "adamw")
    assert (found.exponent, found.end) == pytest.approx((0.5, 0.5))
    assert found.factor == pytest.approx((RECIPE_LENGTHS[-1] / RECIPE_LENGTHS[0]) ** 0.5)
    assert found.worst[0] == "fc2" and found.worst[1] == pytest.approx(0.75)


def test_no_two_lines_of_a_panel_look_alike() -> None:
    for panel in recipes.picture().panels:
        looks = [(curve.colour, curve.line_style) for curve in panel.curves]
        assert len(set(looks)) == len(looks) == len(recipes.SHOWN)
