"""What to change when a model is made deeper: how its update grows by itself, and the remedies, ranked.

A model is tuned at one depth and wanted at another. A remedy leaves the tuned model as it is. It says what the deeper
one has: the tuned model's own numbers, times a law of the two depths. The laws are those of the derived rules
(``theory.rules``) and of schemes that people use (``theory.schemes``). What a remedy leaves of the growth is predicted
by the kernel rung, role by role, for the user's own block, and so is what else it changes.
"""

from __future__ import annotations

import io
import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from rich.console import Console

from depthlaw.advice.code import code
from depthlaw.advice.own import OwnNetwork, first_of, warnings_of
from depthlaw.advice.remedies import REPLICATES, TwoDepths, layers_text
from depthlaw.advice.remedy import Remedy, after_start, factors_of, matters_of, ranked, vanished_of
from depthlaw.advice.text import FLAT, line, show
from depthlaw.network import EFFORT
from depthlaw.network.embedding import beside_another
from depthlaw.network.network import Network, check_words, sublayers_of
from depthlaw.recipes.catalogue import recipe as recipe_named
from depthlaw.recipes.catalogue import scheme as scheme_named
from depthlaw.system.page import Page

if TYPE_CHECKING:
    from torch import nn

    from depthlaw.sims.stats import Estimate


_APPLIED: weakref.WeakSet[Any] = weakref.WeakSet()
"""Models whose parameters a remedy has multiplied."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Advice:
    """How the update of a model grows from one depth to another, and the remedies: what ``advise`` answers. ``print``
    of it prints what the command prints.

    shallow, deep: the network at both depths, as its scheme or recipe has it. factors, exponents, shares: of each
    role and of "update", as it is: the update at the deeper over that at the shallower, its exponent in the depth, and
    the role's share at the deeper. matters: roles whose share at either depth is at least ``MATTERS``. remedies: the
    best one first. remarks: a line each; warnings: those that stand before everything else; first: what is to be done
    before any of it, empty where there is nothing."""

    shallow: Network
    deep: Network
    optimizer: str
    factors: Mapping[str, float]
    exponents: Mapping[str, float]
    shares: Mapping[str, float]
    matters: Sequence[str]
    remedies: Sequence[Remedy]
    remarks: Sequence[str]
    warnings: Sequence[str] = ()
    first: str = ""

    def __repr__(self) -> str:
        return f"<Advice: {line(self)}>"

    def __str__(self) -> str:
        """The page that the command prints."""
        with (page := Page(Console(file=io.StringIO()))).console.capture() as printed:
            show(page, [self])
        return printed.get()

    @property
    def name(self) -> str:
        """Of the model that was asked about."""
        return self.deep.scheme.name

    @property
    def vanished(self) -> list[str]:
        """Roles that matter in the tuned model, and hardly move the deeper one."""
        return vanished_of(self.matters, self.factors)

    def after_start(self, remedy: Remedy) -> float | None:
        """As the function of that name in ``remedy``: how far a step moves the deeper model behind the first few."""
        if remedy.name not in self._later:
            self._later[remedy.name] = after_start(remedy, self.deep, self.optimizer)
        return self._later[remedy.name]

    @cached_property
    def _later(self) -> dict[str, float | None]:
        return {}

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        as_it_is = [
            {"role": role, "factor": factor, "exponent": self.exponents[role]}
            | {"share": self.shares.get(role, 1.0), "matters": role in self.matters}
            for role, factor in self.factors.items()
        ]
        return {
            "scheme": self.deep.scheme.name,
            "optimizer": self.optimizer,
            "network": self.block,
            "d_model": self.deep.d_model,
            "from": self.shallow.lengths,
            "to": self.deep.lengths,
            "as_it_is": as_it_is,
            "remedies": [self._remedy(remedy) for remedy in self.remedies],
            "remarks": [*([self.first] if self.first else []), *self.warnings, *self.remarks],
        }

    @property
    def block(self) -> dict[str, Any]:
        """What the answer is about beside the depths, the width and the optimizer."""
        network = self.deep
        names = ("arch", "activation", "norm_kind", "num_tokens")
        heads = {} if network.has_wide_heads else {"num_heads": network.num_heads}
        is_own = isinstance(network, OwnNetwork)
        kind = {"model" if is_own else "recipe" if network.recipe is not None else "scheme": network.scheme.name}
        return kind | {name: getattr(network, name) for name in names} | heads | network.block.options

    def _remedy(self, remedy: Remedy) -> dict[str, Any]:
        return {
            "name": remedy.name,
            "changes": list(remedy.changes),
            "note": remedy.note,
            "leaves": [{"role": role, "factor": factor} for role, factor in remedy.leaves.items()],
            "worst": {"role": remedy.worst_role, "factor": remedy.leaves[remedy.worst_role]},
            "after_start": self.after_start(remedy),
            "relative_update": remedy.relative,
            "branches_at_init": remedy.branches,
            "training_record": remedy.record,
            "training_gain": remedy.gain,
            "warnings": list(remedy.warnings),
            "code": "\n".join(self.code(remedy)),
        }

    def measure(self, remedy: Remedy, seeds: Sequence[int]) -> dict[str, Estimate]:
        """What ``remedy.leaves`` predicts, of real networks: by role that matters, with an interval over the seeds.

        Both depths have networks of their own, at the width that was asked about: take a small one.
        """
        from depthlaw.sims.measure import Question, collect
        from depthlaw.sims.stats import estimate, ratio, ratio_to_exact

        first, last = (
            collect(Question(config=config, task=self.deep.task, optimizers=(self.optimizer,)), chosen)
            for config, chosen in ((remedy.tuned, seeds), (remedy.config, [seed + 10**6 for seed in seeds]))
        )
        leaves = {}
        for role in remedy.matters:
            before, after = (estimate(values[f"{self.optimizer}/{role}"]) for values in (first, last))
            leaves[role] = ratio_to_exact(ratio(after, before), 1 / remedy.own_rates.get(role, 1.0))
        return leaves

    def apply(
        self,
        model: nn.Module,
        lr: float,
        *,
        remedy: str = "best",
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        is_tuned: bool = False,
        others: Sequence[str] = (),
    ) -> Any:
        """Make a model that was just built with the deeper number of layers what a remedy wants, in place, and give the
        groups of its parameters for torch.optim; of muon and muon+adamw two lists, for Muon and for what is beside it.

        Of advice for a model of one's own, ``advise(model=...)``. lr, eps, weight_decay: those of the tuned model.
        remedy: its name, or "best". is_tuned: for the tuned model, where the remedy changes that one, too. others:
        names of parameters that the model which was read has not, such as those of a head; else these are refused. The
        model may be wrapped, as DDP, torch.compile and a model with a head do, whose names begin with a word more.
        ValueError, in one line, where the remedy wants another forward pass, the model is not the one that was read, or
        its parameters were scaled already.
        """
        from depthlaw.advice.own_changes import changed_by, initialised, param_groups

        network = self.shallow if is_tuned else self.deep
        if not isinstance(network, OwnNetwork):
            raise ValueError("apply is for advice for a model of your own: advise(model=build, ...)")
        changed = changed_by(self.named(remedy), network, self.optimizer, is_tuned=is_tuned)
        if changed.must_change:
            raise ValueError(f"{remedy} is not in the parameters alone: {'; '.join(changed.must_change)}")
        if model in _APPLIED:
            raise ValueError("apply has scaled the parameters of this model already: build it anew")
        rows = initialised(model, changed, others)
        if changed.slices or any(row.scale != 1 for _, row in rows.values()):
            _APPLIED.add(model)
        return param_groups(rows, self.optimizer, lr, eps, weight_decay)

    def named(self, remedy: str) -> Remedy:
        """A remedy by its name, or the best one. ValueError, in one line, for a name that none has."""
        if remedy == "best":
            return self.remedies[0]
        names = {remedy.name: remedy for remedy in self.remedies}
        if remedy not in names:
            raise ValueError(f"{remedy!r} is none of the ways that there are (allowed: best, {', '.join(names)})")
        return names[remedy]

    def code(self, remedy: Remedy) -> list[str]:
        """What builds the remedy's model and its parameter groups, as lines of Python to paste."""
        few, many = layers_text(self.shallow), layers_text(self.deep)
        title = f"{remedy.name}: {many} layers at d_model {self.deep.d_model}, tuned at {few} layers, {self.optimizer}"
        if isinstance(self.deep, OwnNetwork) and isinstance(self.shallow, OwnNetwork):
            from depthlaw.advice.own_changes import code_of_own

            return code_of_own(remedy, self.shallow, self.deep, self.optimizer, title)
        tuned = None if remedy.keeps_tuned else remedy.tuned
        return code(remedy.config, self.optimizer, title, rates=remedy.rates, eps=remedy.eps, tuned=tuned)


# ---------------------------------------------------------------- the question


@overload
def advise(
    model: Callable[..., nn.Module] | None = None,
    *,
    from_layers: int | tuple[int, int],
    layers: int | tuple[int, int],
    **question: Any,
) -> Advice: ...


@overload
def advise(
    model: Callable[..., nn.Module] | None = None,
    *,
    from_layers: int | tuple[int, int],
    layers: list[Any],
    **question: Any,
) -> list[Advice]: ...


def advise(
    model: Callable[..., nn.Module] | None = None,
    *,
    from_layers: int | tuple[int, int],
    layers: int | tuple[int, int] | list[Any],
    optimizer: str = "adamw",
    width: int | None = None,
    scheme: str | None = None,
    recipe: str | None = None,
    hf: str | None = None,
    inputs: Callable[[nn.Module], Any] | None = None,
    arch: str | None = None,
    visits: int = 1,
    from_visits: int | None = None,
    **network: Any,
) -> Advice | list[Advice]:
    """What to change in a model that was tuned with ``from_layers`` layers and is to have ``layers``.

    layers may be a list, of which the answer is a list, too. Name the model by scheme, arch and width, or by recipe,
    whose width is the published one if left out. An encoder-decoder takes a tuple, the layers of both sides. visits:
    how often the layers are gone through with the same weights; from_visits: in the tuned model, as often if left out.
    network: further fields of ``Network``, such as activation, num_heads or block.

    model: in place of these, a function that is called with a number of layers and returns a torch module, or hf, a
    model type of Hugging Face's transformers or a config.json, built with random weights at a width, 256 or less if
    left out. inputs: what that module is called with. These are as ``depthlaw.audit`` takes them. The module is read at
    both depths, the code uses its parameters' names, and ``Advice.apply`` changes a module as the advice says.

    ValueError, in one line, for a question that has no answer, NoTheoryError for a network that the kernel rung does
    not know.

    >>> from depthlaw.advice.advice import advise
    >>> advice = advise(scheme="pre-ln", optimizer="adam", from_layers=4, layers=16, width=256, num_tokens=4)
    >>> round(advice.factors["update"], 1), [remedy.name for remedy in advice.remedies][:2]
    (2.4, ['depth-mup', 'completep'])
    """
    if sum(given_as is not None for given_as in (scheme, recipe, model, hf)) != 1:
        raise ValueError("give one of scheme, recipe, model and hf")
    check_words("advise", network)
    each = layers if isinstance(layers, list) else [layers]
    if model is not None or hf is not None:
        given = {"width": None if hf else width, "arch": arch, **network}
        if options := [name for name, value in given.items() if value is not None] + ["visits"] * (visits > 1):
            raise ValueError(f"{options[0]} does not go with a model of your own, which says it itself")
        numbers = [number for number in (from_layers, *each) if isinstance(number, int)]
        if len(numbers) <= len(each):
            raise ValueError("a model of your own is called with one number of layers, of either side")
        from depthlaw.auditing.builders import hugging_face

        build = model or hugging_face(str(hf), width)[0]
        advices = of_model(build, numbers[0], numbers[1:], optimizer, inputs)
    elif width is None and recipe is None:
        raise ValueError("width is wanted, d_model of the model")
    else:
        network |= {"arch": arch, "width": width}
        tuned = _network(scheme, recipe, from_layers, visits if from_visits is None else from_visits, network)
        advices = [compared(tuned, _network(scheme, recipe, number, visits, network), optimizer) for number in each]
    return advices if isinstance(layers, list) else advices[0]


def _network(
    scheme: str | None, recipe: str | None, layers: int | tuple[int, int], visits: int, rest: Mapping[str, Any]
) -> Network:
    """A named network. layers: of it, each of which is visited so often."""
    count = (visits * layers[0], visits * layers[1]) if isinstance(layers, tuple) else visits * layers
    arch, width = rest["arch"], rest["width"]
    rest = {name: value for name, value in rest.items() if name not in ("arch", "width")}
    if recipe is not None:
        published = recipe_named(recipe)
        if arch not in (None, published.arch):
            raise ValueError(f"the recipe {published.name} is of {published.arch} kind, not {arch}")
        return Network.of_recipe(published, count, width or published.size["d_model"], visits=visits, **rest)
    return Network(
        scheme=scheme_named(str(scheme)),
        arch=arch or "decoder",
        d_model=width,
        has_wide_heads="num_heads" not in rest,
        visits=visits,
        **sublayers_of(count),
        **rest,
    )


def compared(
    shallow: Network, deep: Network, optimizer: str, advance: Callable[[float], None] = lambda _: None
) -> Advice:
    """The advice for one network at two depths. advance: told how many passes over a sublayer were done."""
    check(shallow, deep, optimizer)
    depths = TwoDepths(shallow, deep, optimizer, advance)
    if not depths.first.update:
        raise ValueError(
            f"{deep.scheme.name}: a first step of {optimizer} leaves the branch matrices where they are, at any depth"
        )
    factors = factors_of(depths.first, depths.last)
    deeper = deep.depth / shallow.depth
    remedies = list(depths.remedies())
    return Advice(
        shallow=shallow,
        deep=deep,
        optimizer=optimizer,
        factors=factors,
        exponents={role: math.log(x) / math.log(deeper) if x > 0 else 0.0 for role, x in factors.items()},
        shares=depths.last.shares,
        matters=matters_of(depths.first, depths.last),
        remedies=ranked(remedies),
        remarks=[*depths.remarks(remedies), *_of_the_embedding(depths, remedies), FLAT],
    )


def _of_the_embedding(depths: TwoDepths, remedies: Sequence[Remedy]) -> Iterator[str]:
    """Of the model as it is, and of the first way that changes more than learning rates: what the embedding's scale has
    to do with the growth."""
    ways = [
        remedy for remedy in ranked(remedies) if remedy.name == "nothing" or (remedy.changes and not remedy.own_rates)
    ]
    for way in sorted(ways[:2], key=lambda remedy: remedy.name != "nothing"):
        other = beside_another(
            *(depths.shallow, depths.deep, depths.optimizer),
            configs=(way.tuned, way.config),
            growth=None if way.changes else depths.last.update / depths.first.update,
            advance=depths.advance,
            effort=EFFORT["logit"],
            replicates=REPLICATES,
        )
        if other is not None and other.text:
            yield f"{way.name}: {other.text}"


def of_model(
    build: Callable[..., nn.Module],
    from_layers: int,
    layers: Sequence[int],
    optimizer: str,
    inputs: Callable[[nn.Module], Any] | None = None,
    advance: Callable[[str, float, float | None], None] = lambda *_: None,
) -> list[Advice]:
    """Advice for a model of the user's own at each of several depths; it is built and audited at all of them."""
    from depthlaw.auditing.audit import audit

    if from_layers in layers:
        raise ValueError(f"both models have {from_layers} layers: nothing changes between equal depths")
    answer = audit(
        build,
        sorted({from_layers, *layers}),
        optimizer=optimizer,
        inputs=inputs,
        has_nearest=False,
        advance=advance,
    )
    built: dict[tuple[int, ...], int] = {}
    for depth in answer.depths:
        if depth.built.joined:
            name = type(depth.built.module).__name__
            unread = depth.built.joined[0].removeprefix("encoder: ")
            raise ValueError(f"there is no advice for {name}, not all of which is read: {unread}")
        if (other := built.setdefault(tuple(depth.counts.values()), depth.asked)) != depth.asked:
            raise ValueError(
                f"the builder takes no notice of its number: asked for {other} and for {depth.asked} layers, it builds "
                f"{' and '.join(map(str, depth.counts.values()))} both times"
            )
    networks = {depth.asked: OwnNetwork.of(answer, depth) for depth in answer.depths}
    shallow, advices = networks[from_layers], []
    for place, number in enumerate(layers):
        advance("comparing", place, len(layers))
        deep = networks[number]
        advice = compared(shallow, deep, optimizer)
        warnings = tuple(warnings_of(shallow, deep, advice.factors["update"]))
        advices.append(replace(advice, warnings=warnings, first=first_of(answer)))
    return advices


def num_passes(shallow: Network, deep: Network, optimizer: str) -> int:
    """Passes over a sublayer that ``compared`` does at most."""
    depths = TwoDepths(shallow, deep, optimizer)
    laws = [depths.is_whole(name, note) for name, note, _ in depths.laws()]
    at_both = sum(laws) * (shallow.depth + deep.depth)
    of_embeddings = 3 * (shallow.depth + deep.depth)
    with_laws = deep.depth * (1 + len(laws) + (depths.kept != depths.plain))
    return 2 * (shallow.depth + with_laws + at_both + of_embeddings)


def check(shallow: Network, deep: Network, optimizer: str) -> None:
    """ValueError, in one line, for two depths that are one and for an optimizer that a recipe was not made for."""
    if shallow.lengths == deep.lengths:
        raise ValueError(f"both models have {layers_text(deep)} layers: nothing changes between equal depths")
    if (recipe := deep.recipe) is not None and not recipe.is_made_for(optimizer):
        raise ValueError(
            f"the recipe {recipe.name} is made for {' or '.join(recipe.optimizers)}, whose steps scale with other "
            f"things than those of {optimizer}: ask about {recipe.optimizers[0]}, or give the block without a recipe"
        )
