"""The remedies of one network at two depths: which there are, what each changes, and what it leaves of the growth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

from depthlaw.advice.laws import (
    PEOPLE_USE,
    SELECTIONS,
    VECTORS,
    Law,
    Laws,
    changed,
    laws_of_members,
    laws_of_scheme,
    placement,
    scheme_with,
    unscaled,
    with_sublayers,
)
from depthlaw.advice.own import OwnNetwork
from depthlaw.advice.records import gain_of, record_of
from depthlaw.advice.remedy import (
    ALL,
    HELD,
    MATTERS,
    Outlook,
    Remedy,
    away,
    branches_of,
    factors_of,
    matters_of,
    vanished_of,
)
from depthlaw.network.lower import COUPLED
from depthlaw.network.network import Network
from depthlaw.network.predicted_rows import shares
from depthlaw.sims.config import BRANCH_ROLES, ModelConfig, SublayerConfig
from depthlaw.theory.kernel.predict import unit_power
from depthlaw.theory.optimizers import optimizer as optimizer_named
from depthlaw.theory.rules.solve import solve_rule
from depthlaw.theory.schemes import SCHEMES
from depthlaw.theory.symbols import L, M, N

if TYPE_CHECKING:
    from depthlaw.recipes.recipe import Recipe

REPLICATES = 1
"""Sets of quasi-random points of a prediction. The same points are drawn at both depths and for every remedy, so that
most of their error is gone from the ratio of two updates: a test holds it against the whole prediction."""
_MOST_SOLVED, _SOLVED, _LARGEST = 8, 1.02, 1e4
"""Of the embedding's scale: the most steps to it, how near to the tuned model's update it comes, and the largest."""
_DERIVED = "derived for"
_WHOLE = 2.0
"""What a role that else vanishes may grow or shrink by, and is told to stay."""


def layers_text(network: Network) -> str:
    """The number of layers, of both sides of an encoder-decoder; "4 x 8" of 4 layers that are visited 8 times each."""
    if network.num_layers:
        number = "-".join(f"{count // network.visits}" for count in network.num_layers)
    else:
        number = f"{network.num_sublayers / (2 * network.visits):g}"
    return number if network.visits == 1 else f"{number} x {network.visits}"


class TwoDepths:
    """One network at two depths, and what every remedy is held against.

    tuned: the shallower network. plain: the deeper one as its scheme or recipe has it. kept: with the numbers of the
    shallower one: laws of the number of layers are read at the shallower one's, laws of a layer's index go on.
    """

    def __init__(
        self, shallow: Network, deep: Network, optimizer: str, advance: Callable[[float], None] = lambda _: None
    ) -> None:
        self.shallow, self.deep, self.optimizer, self.advance = shallow, deep, optimizer, advance
        self.tuned, self.plain = shallow.config(optimizer), deep.config(optimizer)
        self.norm, self.num_sides = placement(self.plain), len(self.plain.sides)
        self.few, self.many = (
            {N: layers[0], M: layers[1], L: network.depth}
            for network in (shallow, deep)
            for layers in [network.num_layers or [max(1, network.depth // 2)] * 2]
        )
        if isinstance(deep, OwnNetwork) and isinstance(shallow, OwnNetwork):
            self.kept = deep.with_numbers_of(shallow)
        elif deep.recipe is not None:
            first = shallow.num_layers[0] if shallow.num_layers else shallow.num_sublayers // 2
            self.kept = replace(deep, recipe=deep.recipe.with_layers(first)).config(optimizer)
        elif deep.num_layers is None:
            scheme = with_sublayers(deep.scheme, shallow.num_sublayers)
            self.kept = replace(deep, scheme=scheme).config(optimizer)
        else:  # neither side's numbers depend on the layer's index, so the shallower one's layers are repeated
            encoder, decoder = (
                tuple(few[index % len(few)] for index in range(len(many)))
                for few, many in ((self.tuned.encoder, self.plain.encoder), (self.tuned.decoder, self.plain.decoder))
            )
            self.kept = replace(self.plain, encoder=encoder, decoder=decoder)

    @cached_property
    def first(self) -> Outlook:
        return self.outlook(self.tuned)

    @cached_property
    def last(self) -> Outlook:
        return self.outlook(self.plain)

    @cached_property
    def vanished(self) -> list[str]:
        return vanished_of(matters_of(self.first, self.last), factors_of(self.first, self.last))

    def outlook(self, config: ModelConfig) -> Outlook:
        """NoTheoryError for what the kernel rung does not know."""
        answer = self.deep.kernel_update(self.optimizer, self.advance, config, replicates=REPLICATES)
        units = {role: unit_power(self.optimizer, role) for role in answer.roles}
        by_role = shares([{"update": answer.update, "roles": answer.roles}], units, config.d_model)
        return Outlook(
            update=answer.update,
            roles=answer.roles,
            shares={role: share or 0.0 for role, (share,) in by_role.items()},
            branches=branches_of(config, answer.streams),
        )

    def laws(self) -> Iterator[tuple[str, str, Laws]]:
        """(name, note, law) of every remedy that changes more than learning rates, each law once."""
        seen, names = {tuple(Law().key for _ in self.plain.sides)}, set[str]()
        for name, note, laws in (*self._derived(), *self._used()):
            key = tuple(law.key for law in laws(self.few, self.many))
            if key not in seen and all(min(of_side) > 0 for of_side in key):
                seen.add(key)
                yield f"{name} without its learning rate" if name in names else name, note, laws
                names.add(name)

    def _derived(self) -> Iterator[tuple[str, str, Laws]]:
        """The members of the family that the magnitude argument derives for this optimizer."""
        rule = solve_rule(self.norm, optimizer_named(self.optimizer), self.deep.arch)
        of_sides = [{member.name: member for member in (side.member, *side.alternatives)} for side in rule.sides]
        for name, plain_name in SELECTIONS.items():
            members = [of_side[name] for of_side in of_sides if name in of_side]
            if len(members) == len(of_sides) and all(member.init_gain is not None for member in members):
                laws = partial(laws_of_members, members, self.norm)
                asked = self.norm, self.optimizer, self.few, self.many
                if known := scheme_with(laws(self.few, self.many), *asked):
                    laws = partial(laws_of_scheme, known, self.optimizer, self.num_sides)
                yield known or plain_name, f"{_DERIVED} {self.optimizer}: {members[0].note}", laws

    def _used(self) -> Iterator[tuple[str, str, Laws]]:
        """What people use with norms in that place, whichever optimizer it was derived for."""
        for name in PEOPLE_USE[self.norm]:
            if self.num_sides == 1 or name in COUPLED:
                laws = partial(laws_of_scheme, name, self.optimizer, self.num_sides)
                yield name, SCHEMES[name].source, laws
                if any(law.learning_rate != 1 for law in laws(self.few, self.many)):
                    note = "the same weight on every branch, at the tuned learning rate"
                    yield name, note, lambda *at, laws=laws: tuple(replace(law, learning_rate=1.0) for law in laws(*at))

    def remedy(
        self,
        name: str,
        changes: Sequence[str],
        note: str,
        config: ModelConfig,
        outlook: Outlook,
        *,
        before: tuple[ModelConfig, Outlook] | None = None,
        own_rates: Mapping[str, float] | None = None,
        **rest: Any,
    ) -> Remedy:
        """before: the tuned model, where the remedy changes it. own_rates: by role, what learning rates are multiplied
        by beside those of ``config``."""
        tuned, first = before or (self.tuned, self.first)
        # What was trained are deeper models, without experts, each layer visited once.
        has_gain = bool(changes) and self.deep.depth > self.shallow.depth and not self.deep.has_experts
        has_gain = has_gain and self.deep.visits == 1
        own_rates = own_rates or {}
        factors = factors_of(first, outlook)
        leaves = {role: factor * own_rates.get(role, 1.0) for role, factor in factors.items() if role != "update"}
        before_all, after_all = (
            look.update * sum(share * rates.get(role, 1.0) for role, share in look.shares.items())
            for look, rates in ((first, {}), (outlook, own_rates))
        )
        matters = [role for role in matters_of(first, self.last) if role not in self.vanished]
        rates, eps, relative_update = {}, {}, {}
        degrees = optimizer_named(self.optimizer)
        p, t = float(degrees.gradient_degree), float(degrees.parameter_degree)
        for role, left in leaves.items():
            means = (
                [_mean(numbers, _every(numbers), role, of) for numbers in (config, tuned)]
                for of in ("lr_multipliers", "gains")
            )
            rate, gain = (after / before if before else 1.0 for after, before in means)  # a gain may be 0 at the start
            rates[role] = rate = rate * own_rates.get(role, 1.0)
            # By the degrees p and t of the optimizer's step a role's part of the update goes as rate g^(p + 1) gain^t,
            # g the gradient of one parameter: so much larger is that, and so should Adam's epsilon be.
            number = _number(config, role) / _number(tuned, role)
            eps[role] = (left / (rate * number * gain**t)) ** (1 / (p + 1)) if left < math.inf else 1.0
            if role in BRANCH_ROLES and eps[role]:
                relative_update[role] = rate * eps[role] ** p * gain ** (t - 1)
        return Remedy(
            name=name,
            changes=changes,
            note=note,
            tuned=tuned,
            config=config,
            leaves=leaves | {ALL: after_all / before_all},
            matters=[role for role in leaves if role in matters or first.shares[role] * leaves[role] >= MATTERS],
            rates=rates,
            own_rates=own_rates,
            eps=eps,
            relative_update=relative_update,
            branches=outlook.branches,
            gain=gain_of(name, self.deep.scheme.name, self.kept, self.plain, self.optimizer) if has_gain else None,
            keeps_forward=_weights(config) == _weights(self.plain),
            **rest,
        )

    def remedies(self) -> Iterator[Remedy]:
        deep, plain, kept, last = self.deep, self.plain, self.kept, self.last
        of_training = None if deep.recipe is not None else self._record(deep.scheme.name)
        yield self.remedy(
            "nothing", [], "the model as its scheme or recipe has it at this depth", plain, last, record=of_training
        )
        factors, matters = factors_of(self.first, last), matters_of(self.first, last)
        # A role that vanishes, or that hardly counts and goes the other way, as keys do where all tokens become alike,
        # is left: its rate would be beyond all bounds, and one step of it as large as its matrix.
        rates = {
            role: 1 / x
            for role, x in factors.items()
            if role != "update" and MATTERS <= x < math.inf and _moves(x)
            if role in matters or (x > 1) == (factors["update"] > 1)
        }
        if any(role in rates for role in matters):
            note = "each role's learning rate over the factor by which its update grows"
            yield self.remedy("learning-rates", _rate_lines(rates), note, plain, last, own_rates=rates)
        if _moves(factors["update"]):
            branches = [role for role in (*BRANCH_ROLES, *VECTORS) if role in last.roles]
            rate = 1 / factors["update"]
            note = "one learning rate for all parameters of the branches, over the factor of the whole update"
            changes = [f"learning rate of the branches x {rate:.3g}"]
            yield self.remedy("learning-rate", changes, note, plain, last, own_rates=dict.fromkeys(branches, rate))
        few = layers_text(self.shallow)
        if isinstance(self.larger_embedding, Remedy):
            yield self.larger_embedding
        own_init = [f"init as in the model of {few} layers"] if kept != plain else []
        has_twice = False
        for name, note, laws_of in self.laws():
            laws = laws_of(self.few, self.many)
            config, changes = changed(kept, laws), list(_law_lines(kept, laws))
            if _key(config) == _key(plain):
                continue  # what the scheme itself does
            record = self._record(name)
            remedy = self.remedy(name, [*changes, *own_init], note, config, self.outlook(config), record=record)
            yield remedy
            if remedy.worst > HELD and self.is_whole(name, note):
                yield self._at_both(name, note, laws_of)
            if own_init and not has_twice and any(law.branch_weight < 1 for law in laws):
                has_twice, twice = True, changed(plain, laws)
                warning = f"it does the job twice: {deep.scheme.name} scales with the number of layers by itself, too"
                beside = f"{name} beside what {deep.scheme.name} itself changes with depth"
                yield self.remedy(f"{name} on top", changes, beside, twice, self.outlook(twice), warnings=[warning])

    @cached_property
    def larger_embedding(self) -> Remedy | str:
        """The embedding so many times as large in the forward pass that the whole update stays what it was, where that
        takes away more than half of any role's growth; else why it is no way."""
        if self.norm == "post":
            return "the norms behind the sums divide by any scale of it"
        if not self.plain.ends_in_norm:
            return "no norm stands before the head, so the logits would be larger by as much"
        if not _moves(self.last.update / self.first.update):
            return "the whole update stays what it was without one"
        # Of branches that are small beside the stream, each gradient goes as one over the embedding's scale.
        power = 1 + float(optimizer_named(self.optimizer).gradient_degree)
        scale, config, look = 1.0, self.plain, self.last
        for _ in range(_MOST_SOLVED):
            left = look.update / self.first.update
            if away(left) < _SOLVED or not 1 / _LARGEST < scale < _LARGEST:
                break
            scale *= left ** (1 / power)
            config = replace(self.plain, embedding_multiplier=self.plain.embedding_multiplier * scale)
            look = self.outlook(config)
        if away(left := look.update / self.first.update) >= _SOLVED:
            return f"no scale that was tried holds the whole update; at x {scale:.3g} it is x {left:.3g}"
        note = "the stream is so much larger beside the branches, as it is with a smaller branch weight"
        changes = [f"embedding x {scale:.4g} in the forward pass, its learning rate as it is"]
        remedy, factors = self.remedy("embedding", changes, note, config, look), factors_of(self.first, self.last)
        worst = max(factors, key=lambda role: away(factors[role]))
        if remedy.worst >= away(factors[worst]) ** 0.5:
            at = remedy.worst_role
            return (
                f"x {scale:.3g} would hold the whole update, but leave {at} x {remedy.leaves[at]:.3g}, not much better "
                f"than {worst} x {factors[worst]:.3g} where nothing is changed"
            )
        return remedy

    def is_whole(self, name: str, note: str) -> bool:
        """Whether a law is worth a remedy of its own at both depths: derived for this optimizer, and in use."""
        return note.startswith(_DERIVED) and (self.num_sides > 1 or name in PEOPLE_USE[self.norm])

    def _record(self, name: str) -> dict[str, Any] | None:
        return record_of(name, self.optimizer, num_sides=self.num_sides) if self.deep.visits == 1 else None

    def _at_both(self, name: str, note: str, laws: Laws) -> Remedy:
        """The law's own numbers at either depth: the tuned model is changed, too, and is to be tuned anew."""
        networks = (self.shallow, self.deep)
        if self.deep.recipe is None and not isinstance(self.deep, OwnNetwork):
            plain = [unscaled(network).config(self.optimizer) for network in networks]
        else:
            plain = [self.tuned, self.kept]
        first, last = (changed(config, laws(None, at)) for config, at in zip(plain, (self.few, self.many), strict=True))
        start, look = self.outlook(first), self.outlook(last)
        few, many = map(layers_text, networks)
        moved = start.update / self.first.update
        changes = [
            f"the model of {few} layers as {name} has it, too: its update is x {moved:.3g}, so tune its learning rate "
            "anew",
            *_own_lines(first, last, few, many),
        ]
        return self.remedy(
            f"{name} at both depths",
            changes,
            f"{note}, at both depths",
            last,
            look,
            before=(first, start),
            record=self._record(name),
            keeps_tuned=False,
        )

    def remarks(self, remedies: Sequence[Remedy]) -> Iterator[str]:
        deep, name = self.deep, self.deep.scheme.name
        if deep.visits > 1:
            yield "K x R: K layers, gone through R times with the same weights; schemes count a layer at each visit"
        now, before = self.plain.encoder[-1], self.kept.encoder[-1]
        least = 1 - 1e-9
        if now.branch_weight < before.branch_weight * least and any(
            now.gains.get(role, 1.0) < before.gains.get(role, 1.0) * least for role in ("fc2", "out")
        ):
            yield (
                f"{name} does the same job twice: deeper models have smaller output matrices and a smaller branch "
                "weight"
            )
        for role in self.vanished:
            whole = [remedy.name for remedy in remedies if away(remedy.leaves[role]) <= _WHOLE]
            yield (
                f"{role} hardly moves the deeper model: x {self.last.roles[role] / self.first.roles[role]:.2g} where "
                "nothing is changed. No learning rate is raised for it, and no way is ranked by it; "
                + (f"within a factor of {_WHOLE:g} it stays with {', '.join(whole)}" if whole else "every way loses it")
            )
        for remedy in remedies:
            if remedy.warnings:
                yield (
                    f"the numbers of {name} change with the depth, so {remedy.name} does the job twice and does not "
                    f"hold the update: x {remedy.leaves[remedy.worst_role]:.3g} in {remedy.worst_role}"
                )
        if isinstance(self.larger_embedding, str):
            yield f"a larger or smaller embedding is no way here: {self.larger_embedding}"
        by_name = {remedy.name: remedy for remedy in remedies}
        by_name.setdefault(name, by_name["nothing"])
        members = ("su-adam", "su-lamb") if self.num_sides == 1 else ("residual-weight", "init-gain")
        member = members[self.optimizer == "lamb"] if optimizer_named(self.optimizer).is_sign_type else ""
        if member in by_name and "deepnorm" in by_name:
            first, other = (
                f"x {by_name[row].leaves[by_name[row].worst_role]:.3g} in {by_name[row].worst_role}"
                for row in (member, "deepnorm")
            )
            yield (
                f"of the two members of the family, {member} is derived for {self.optimizer} and lets it grow {first}; "
                f"deepnorm is derived for SGD and lets it grow {other}"
            )
        unprinted = [optimizer for optimizer in PEOPLE_USE[self.norm] if optimizer not in COUPLED]
        if self.num_sides > 1 and unprinted:
            derived = [remedy.name for remedy in remedies if remedy.keeps_tuned and remedy.note.startswith(_DERIVED)]
            yield (
                f"no source prints {', '.join(unprinted)} for two sides; derived here for {self.optimizer}, by side: "
                f"{', '.join(derived) or 'nothing'}"
            )
        for left in published(deep, by_name):
            yield f"left out of {left.name}, as a published model has it: {left.leaves_out}"
        yield f"at infinite width; the relative correction is of order L/d, {deep.depth / deep.d_model:.2g} here"


def published(network: Network, names: Iterable[str]) -> Sequence[Recipe]:
    """The published model that the network is, and those that are called as remedies are, where something is left out
    of them."""
    from depthlaw.recipes.catalogue import RECIPES

    named = {name: RECIPES[name] for name in (name.partition(" ")[0] for name in names) if name in RECIPES}
    by_name = {} if network.recipe is None else {network.recipe.name: network.recipe}
    return [recipe for recipe in {**by_name, **named}.values() if recipe.leaves_out]


def _key(config: ModelConfig) -> list[tuple[float, ...]]:
    """Two networks of one shape and one key are one, but for rounding."""
    return [
        tuple(
            float(f"{number:.9g}")
            for number in (
                *(sublayer.residual_weight, sublayer.branch_weight),
                *(sublayer.gains.get(role, 1.0) for role in BRANCH_ROLES),
                *(sublayer.lr_multipliers.get(role, 1.0) for role in (*BRANCH_ROLES, *VECTORS)),
            )
        )
        for sublayer in _every(config)
    ]


def _every(config: ModelConfig) -> list[SublayerConfig]:
    return [sublayer for _, side in config.sides for sublayer in side]


def _with_role(config: ModelConfig, sublayers: Sequence[SublayerConfig], role: str) -> Sequence[SublayerConfig]:
    """Those that have a parameter of that role."""
    if role not in BRANCH_ROLES:
        return sublayers
    return [sublayer for sublayer in sublayers if role in config.roles(sublayer.kind)]


def _number(config: ModelConfig, role: str) -> int:
    """Of its parameters: one of an embedding or a head."""
    return 1 if role in ("embedding", "head") else max(1, len(_with_role(config, _every(config), role)))


def _mean(config: ModelConfig, sublayers: Sequence[SublayerConfig], role: str, of: str) -> float:
    """of: "gains" or "lr_multipliers", which are 1 where a sublayer says nothing."""
    numbers = [getattr(sublayer, of).get(role, 1.0) for sublayer in _with_role(config, sublayers, role)]
    return fmean(numbers) if numbers else 1.0


def _moves(factor: float) -> bool:
    return away(factor) > HELD**0.5


def _weights(config: ModelConfig) -> list[tuple[float, ...]]:
    """What stands in the forward pass; a trained vector on the branch (LayerScale) is only initialised."""
    weights = [
        (round(sublayer.residual_weight, 9), sublayer.has_layer_scale or round(sublayer.branch_weight, 9))
        for sublayer in _every(config)
    ]
    return [(round(config.embedding_multiplier, 9),), *weights]


def _own_lines(first: ModelConfig, last: ModelConfig, few: str, many: str) -> Iterator[str]:
    for (side, befores), (_, afters) in zip(first.sides, last.sides, strict=True):
        of = f" of the {side}" if len(first.sides) > 1 else ""
        for what in ("residual_weight", "branch_weight"):
            before, after = getattr(befores[-1], what), getattr(afters[-1], what)
            if (before, after) != (1, 1):
                yield f"{what.replace('_', ' ')}{of} {before:.4g} at {few} layers, {after:.4g} at {many}"
        gains = {
            role: "" if before == after else f"{before} at {few} layers, {after} at {many}"
            for role in BRANCH_ROLES
            for before, after in [[f"{_mean(first, of_side, role, 'gains'):.4g}" for of_side in (befores, afters)]]
        }
        yield from (f"init gain of {named}{of} {text}" for text, named in _grouped(gains).items() if text)
        means = {
            role: [_mean(numbers, side, role, "lr_multipliers") for numbers, side in ((first, befores), (last, afters))]
            for role in BRANCH_ROLES
            if _with_role(last, afters, role)
        }
        rates = _grouped({role: f"{after / before:.4g}" for role, (before, after) in means.items() if before})
        for rate, roles in rates.items():
            if rate != "1":
                named = "the branches" if len(rates) == 1 else roles
                yield f"learning rate of {named}{of} x {rate} from {few} to {many} layers"


def _rate_lines(rates: Mapping[str, float]) -> list[str]:
    """A line for the roles that share a rate to two digits."""
    by_rate = _grouped({role: f"{rate:.2g}" for role, rate in rates.items()})
    lines = [f"of {roles} x {rate}" for rate, roles in by_rate.items()]
    return [f"learning rate {lines[0]}", *lines[1:]]


def _grouped(numbers: Mapping[str, str]) -> dict[str, str]:
    """By number, the roles that have it."""
    return {
        number: ", ".join(role for role in numbers if numbers[role] == number)
        for number in dict.fromkeys(numbers.values())
    }


def _law_lines(config: ModelConfig, laws: Sequence[Law]) -> Iterator[str]:
    for (side, sublayers), law in zip(config.sides, laws, strict=True):
        of_side = {role for sublayer in sublayers for role in config.roles(sublayer.kind)}
        scaled = [role for role in BRANCH_ROLES if role in of_side]
        of = f" of the {side}" if len(laws) > 1 else ""
        if law.residual_weight != 1:
            yield f"residual weight{of} x {law.residual_weight:.4g}"
        if law.branch_weight != 1:
            yield f"branch weight{of} x {law.branch_weight:.4g}"
        gains = {role: f"{gain:.4g}" for role in scaled if (gain := law.gains.get(role, 1.0)) != 1}
        for gain, roles in _grouped(gains).items():
            yield f"standard deviation of {roles}{of} x {gain}"
        if law.learning_rate != 1:
            yield f"learning rate{of or ' of the branches'} x {law.learning_rate:.4g}"
