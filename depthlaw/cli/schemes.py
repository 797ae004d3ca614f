"""``depthlaw schemes``: the named schemes and the recipes of published models, in tables or one of them in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from depthlaw.cli.shared import options
from depthlaw.cli.shared.options import BadInputError, argument, refusing
from depthlaw.cli.shared.output import print_json
from depthlaw.system.files import document
from depthlaw.system.page import Page, grid

if TYPE_CHECKING:
    from rich.table import Table
    from sympy import Expr

    from depthlaw.recipes.recipe import Recipe
    from depthlaw.theory.schemes import Scheme

EXAMPLES = ("schemes deepnorm", "schemes su-adam", "schemes gpt2 --json", "schemes llama-3")
_WEIGHTS = {"residual_weight": "a", "branch_weight": "b", "input_scale": "c"}
_NORMS = {
    "pre": "before the branch",
    "heads": "of queries, keys and values, not before the attention",
    "inner": "before the last matrix of the branch",
    "branch": "behind the branch",
    "post": "behind the sum of stream and branch",
    "final": "once before the head",
}
"""Where each norm of a ``theory.stack.Placement`` stands, in words."""


def run(
    name: str | None = argument(
        "The scheme or recipe to describe; a table of all if left out.", "[NAME]", complete=options.schemes
    ),
    as_json: bool = options.JSON,
) -> None:
    """List the schemes and recipes that other commands take by name, or describe one of them.

    A scheme says where norms stand, what the residual weight and the init gains
    are, and who published it. A recipe is a published model as it is built and
    initialised: its block, standard deviations and input, with its source.
    """
    from depthlaw.recipes.catalogue import RECIPES
    from depthlaw.theory.schemes import SCHEMES, nearest, scheme

    wanted = None if name is None else name.lower()
    names = list(SCHEMES) if wanted is None else [] if wanted in RECIPES and wanted not in SCHEMES else [wanted]
    if wanted is not None and wanted not in (*SCHEMES, *RECIPES):
        raise BadInputError(nearest(wanted, [*{**SCHEMES, **RECIPES}], "scheme or recipe"))
    with refusing():
        schemes = [entry(scheme(each)) for each in names]
    recipes = [recipe_entry(recipe) for recipe in RECIPES.values() if wanted in (None, recipe.name)]
    if as_json:
        print_json(document(schemes=schemes, recipes=recipes))
    elif wanted is None:
        _show_all(schemes, recipes)
    else:
        for facts in map(facts_of, schemes):
            _show(facts, f"--scheme {wanted} --optimizer adamw --sublayers 8,64,512")
        for facts in map(facts_of_recipe, recipes):
            _show(facts, f"--recipe {wanted} --optimizer adamw --layers 8,32 --roles")


def _show(facts: Iterator[tuple[str, str]], question: str) -> None:
    page = Page()
    page.show(grid(("", ""), facts, ("", ""), show_header=False, box=None))
    page.say("How its update grows with depth:")
    page.say_where(f"  depthlaw predict {question}")


def recipe_entry(recipe: Recipe) -> dict[str, Any]:
    """One recipe as other programs read it. Laws are texts that sympy reads, in the letters of ``recipes.recipe``."""
    from depthlaw.theory.kernel.setting import GATED

    laws = ("hidden", "attention_scale", "residual_weight", "branch_weight", "input_scale", "layer_scale")
    laws += ("embedding_std", "position_std", "embedding_multiplier")
    head = recipe.embedding_std if recipe.head is None else recipe.head
    roles = set(recipe.std) - (set() if recipe.activation in GATED else {"fc3"})
    norms = [
        {"up_to": str(norms.up_to)} | {kind: sorted(getattr(norms, kind)) for kind in ("attention", "ffn", "cross")}
        for norms in recipe.norms
    ]
    plain = (
        "name",
        "says",
        "leaves_out",
        "source",
        "arch",
        "norm_kind",
        "activation",
        "queries_per_key",
        "head_size",
        "rotary_base",
    )
    plain += ("rotary_share", "logit_softcap", "is_parallel", "has_bias", "has_final")
    return {
        **{name: getattr(recipe, name) for name in plain},
        "norms": norms,
        **{name: None if (law := getattr(recipe, name)) is None else str(law) for name in laws},
        "std": {role: str(law) for role, law in recipe.std.items() if role in roles} | {"head": str(head)},
        "size": dict(recipe.size),
    }


def facts_of_recipe(recipe: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """One recipe in words: facts, each with its name."""
    yield "recipe", f"{recipe['name']}: {recipe['says']}."
    if recipe["leaves_out"]:
        yield "left out here", f"{recipe['leaves_out']}."
    yield "source", recipe["source"]
    for norms in recipe["norms"]:
        places = "; ".join(f"{kind}: {', '.join(norms[kind]) or 'none'}" for kind in ("attention", "ffn"))
        where = "" if norms["up_to"] == "1" else f" (up to {norms['up_to']} of the layers)"
        yield recipe["norm_kind"], f"{places}{where}"
    yield "activation", f"{recipe['activation']}, hidden width F = {recipe['hidden']}"
    yield "block", "; ".join(_block(recipe))
    yield from _by_value("std", recipe["std"], "of")
    yield "input", f"std {recipe['embedding_std']}, times {recipe['embedding_multiplier']}"
    for name in ("residual_weight", "branch_weight", "input_scale", "layer_scale"):
        if recipe[name] not in (None, "1"):
            yield name.replace("_", " "), recipe[name]
    yield "own size", f"{recipe['size']['num_layers']} layers of width {recipe['size']['d_model']}"
    yield "letters", "N layers, of which l is one; d: d_model, F: hidden width, K: head size, H heads"


def _block(recipe: dict[str, Any]) -> Iterator[str]:
    """The kind of the stack, and what its attention has beyond the papers'."""
    yield recipe["arch"]
    yield "with biases" if recipe["has_bias"] else "without biases"
    if recipe["is_parallel"]:
        yield "attention and FFN side by side"
    if recipe["rotary_base"]:
        share = "" if recipe["rotary_share"] == 1 else f", of {recipe['rotary_share']:.0%} of a head"
        yield f"rotary positions of base {recipe['rotary_base']:,.0f}{share}"
    if recipe["queries_per_key"] > 1:
        yield f"{recipe['queries_per_key']} heads share keys and values"
    if recipe["head_size"]:
        yield f"heads of size {recipe['head_size']} at every width"
    if recipe["attention_scale"]:
        yield f"scores times {recipe['attention_scale']}"
    if recipe["logit_softcap"]:
        yield f"scores capped at {recipe['logit_softcap']:g}"


def _by_value(what: str, by_role: dict[str, str], of: str) -> Iterator[tuple[str, str]]:
    for value in dict.fromkeys(by_role.values()):
        yield what, f"{value} {of} {', '.join(role for role, other in by_role.items() if other == value)}"


def entry(scheme: Scheme) -> dict[str, Any]:
    """One scheme as other programs read it. Weights and gains are texts that sympy reads, in L and the index l.

    >>> from depthlaw.cli.schemes import entry
    >>> from depthlaw.theory.schemes import SCHEMES
    >>> found = entry(SCHEMES["deepnorm"])
    >>> found["form"], found["residual_weight"], found["gains"]["fc1"]
    ('x_l = norm(a x + W2 phi(W1 x))', 'L**(1/4)', '(4*L)**(-1/4)')
    """
    from depthlaw.theory.optimizers import OPTIMIZERS
    from depthlaw.theory.stack import SCALED_ROLES, UNSCALED_ROLES, SublayerKind

    stack = scheme.stack
    gains = {role: "1" for role in UNSCALED_ROLES[SublayerKind.SELF]}
    for kind in (SublayerKind.SELF, SublayerKind.FFN):
        first, second = SCALED_ROLES[kind]
        gains |= {first: _text(stack.gain_in), second: _text(stack.gain_out)}
    weights = {name: getattr(stack, name) for name in _WEIGHTS}
    return {
        "name": scheme.name,
        "form": _form(scheme),
        # Admin's rule depends on the activation, so it is no expression in L.
        **{name: "sqrt(1 + sum of Var f_j over j < l)" if law is None else _text(law) for name, law in weights.items()},
        "gains": gains,
        "norms": list(stack.placement.names),
        "norms_of_ffns": None if stack.even is None else list(stack.even.names),
        "norms_of_early_layers": None if stack.early is None else list(stack.early.names),
        "early_share": str(stack.early_share),
        "norm_function": stack.norm_function or None,
        "has_second_stream": stack.has_second_stream,
        "source": scheme.source,
        "trains_branch_weight": stack.trains_branch_weight,
        "sign_lr_multiplier": _text(scheme.lr_multiplier),
        "lr_multiplier": {
            name: _text(rate)
            for name, optimizer in OPTIMIZERS.items()
            if (rate := scheme.lr_multiplier_under(optimizer)) != 1
        },
        "eps_multiplier": _text(scheme.eps_multiplier),
        "embedding_scale": _text(stack.embedding_scale),
        "min_sublayers": scheme.min_sublayers,
    }


def _text(law: Expr) -> str:
    from depthlaw.theory.rules.magnitude import compact

    return min(compact(law), str(law), key=len)


def _form(scheme: Scheme) -> str:
    """One sublayer on the stream x; a weight is left out where it is 1."""
    placement, stack = scheme.stack.placement, scheme.stack
    norm = stack.norm_function or "norm"
    a, b, c = ("" if getattr(stack, name) == 1 else f"{letter} " for name, letter in _WEIGHTS.items())
    hidden = f"phi(W1 {c}{f'{norm}(x)' if placement.has_pre else 'x'})"
    branch = f"W2 {f'norm({hidden})' if placement.inner else hidden}"
    added = f"{b}{f'norm({branch})' if placement.branch else branch}"
    form = f"x_l = norm({a}x + {added})" if placement.post else f"x_l = {a}x + {added}"
    return f"{form}, y_l = y + {added}; the head reads x_L + norm(y_L)" if stack.has_second_stream else form


_FUNCTIONS = {"dyt": "tanh(x/2)", "derf": "erf(x/2)"}


def facts_of(scheme: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """One scheme in words: facts, each with its name."""
    from depthlaw.theory.kernel.setting import PLACES

    yield "scheme", f"{scheme['name']}, from {scheme['source']}"
    yield "one sublayer", scheme["form"]
    early = f"norm, first {scheme['early_share']}"
    for what, key in (("norm", "norms"), ("norm of FFNs", "norms_of_ffns"), (early, "norms_of_early_layers")):
        if scheme[key] is not None:
            yield from ((what, _NORMS[place]) for place in scheme[key])
            if not scheme[key]:
                yield what, "none"
    if scheme["norm_function"]:
        function = _FUNCTIONS[scheme["norm_function"]]
        yield "norm function", f"{function} of each entry, in every norm's place; its scale is not trained here"
    if {"inner", "branch"} <= PLACES.get(scheme["name"], set()):
        yield "", "(in an attention behind the branch, not within it)"
    for name, letter in _WEIGHTS.items():
        trained = ", a trained parameter" if name == "branch_weight" and scheme["trains_branch_weight"] else ""
        yield name.replace("_", " "), f"{letter} = {scheme[name]}{trained}"
    yield from _by_value("init gain", scheme["gains"], "on")
    if scheme["embedding_scale"] != "1":
        yield "embedding", f"its entries times {scheme['embedding_scale']}, of a standard deviation of 1 in x_0"
    for rate in dict.fromkeys(scheme["lr_multiplier"].values()):
        names = ", ".join(name for name, multiplier in scheme["lr_multiplier"].items() if multiplier == rate)
        yield "learning rate", f"x {rate} under {names}"
    if scheme["eps_multiplier"] != "1":
        yield "Adam's epsilon", f"x {scheme['eps_multiplier']}, of what is trained in the branches"
    if scheme["min_sublayers"] > 1:
        yield "defined from", f"{scheme['min_sublayers']} sublayers on"
    text = (
        "L sublayers, two to a layer, of which l is one. W1 and W2: fc1 and fc2 of an FFN, v and out of an attention. "
    )
    yield "letters", f"{text}A weight that the form leaves out is 1."


def _show_all(schemes: list[dict[str, Any]], recipes: list[dict[str, Any]]) -> None:
    """The schemes in a table, with sources where the terminal is wide enough, and the recipes in another."""
    page, heads = Page(), ["scheme", "norms", "what is not 1", "source"]
    rows = [
        (scheme["name"], ", ".join(scheme["norms"]) or "none", _differing(scheme), scheme["source"])
        for scheme in schemes
    ]

    def table(columns: list[str]) -> Table:
        return grid(columns, (row[: len(columns)] for row in rows), heads, box=None, padding=(0, 1))

    page.show_whole([table(heads)], [table(heads[:-1])])
    page.say(
        "a: residual weight; b: branch weight; c: input scale; gains: v, out, fc1, fc2.\n"
        "L: sublayers, of which l is one. `depthlaw schemes NAME` tells of one scheme.\n\n"
        "Recipes are published models as they are built:\n"
    )
    lines = ((recipe["name"], recipe["says"]) for recipe in recipes)
    page.show(grid(["recipe", "what it is"], lines, ["recipe", "what it is"], box=None, padding=(0, 1)))
    commands = "advise, audit, predict, measure and train"
    page.say(f"`depthlaw schemes NAME` tells of one; --recipe NAME of {commands} asks about it.")


def _differing(scheme: dict[str, Any]) -> str:
    """Its weights and gains that are not 1; each on a line where one line would be too long for a terminal."""
    letters = {**_WEIGHTS, "embedding_scale": "embedding"}
    parts = [f"{letter} = {scheme[name]}" for name, letter in letters.items() if scheme[name] != "1"]
    gains = {role: gain for role, gain in scheme["gains"].items() if gain != "1"}
    for gain in dict.fromkeys(gains.values()):
        roles = [role for role in gains if gains[role] == gain]
        parts.append(f"{'gains' if len(roles) == 4 else ', '.join(roles)} = {gain}")
    line = "; ".join(parts)
    return line if len(line) <= 48 else ";\n".join(parts)
