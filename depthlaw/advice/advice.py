"""What to change when a model is made deeper: how its update grows by itself, and the remedies, ranked.

A model is tuned at one depth and wanted at another. A remedy leaves the tuned model as it is. It says what the deeper
one has: the tuned model's own numbers, times a law of the two depths. The laws are those of the derived rules
(``theory.rules``) and of schemes that people use (``theory.schemes``). What a remedy leaves of the growth is predicted
by the kernel rung, role by role, for the user's own block, and so is what else it changes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sympy import Expr, S

from depthlaw.advice.code import code
from depthlaw.network.kernel import KIND_OF
from depthlaw.network.lower import COUPLED, branch_second
from depthlaw.network.network import Network, sublayers_of
from depthlaw.network.predicted_rows import shares
from depthlaw.sims.config import BRANCH_ROLES, ModelConfig, SublayerConfig
from depthlaw.system.places import TRAINING_RECORDS
from depthlaw.theory.asymptotics.evaluate import evaluate
from depthlaw.theory.kernel.predict import Stream, unit_power
from depthlaw.theory.optimizers import optimizer as optimizer_named
from depthlaw.theory.rules.selection import Member
from depthlaw.theory.rules.solve import solve_rule
from depthlaw.theory.schemes import SCHEMES, Scheme
from depthlaw.theory.schemes import scheme as scheme_named
from depthlaw.theory.stack import SCALED_ROLES, SublayerKind
from depthlaw.theory.symbols import L, M, N, l

if TYPE_CHECKING:
    from depthlaw.sims.stats import Estimate

MATTERS = 0.05
"""The least share of the update at which a role matters, as in TRANSFORMERS.md. Below it a role counts in ``ALL``."""
ALL = "all"
"""The update of everything that is trained, at the width that was asked about; it stands beside the roles."""
HELD = 1.1
"""A role whose update grows or shrinks by less than this factor is held."""
IDENTITY = 0.1
"""A model whose branches together are less of the stream than this starts as the identity."""
REPLICATES = 1
"""Sets of quasi-random points of a prediction. The same points are drawn at both depths and for every remedy, so that
most of their error is gone from the ratio of two updates: a test holds it against the whole prediction."""
_VECTORS = ("bias", "norm_gain", "norm_bias", "layer_scale")
_FAMILIES = ("adam", "adamw")
"""A first step of the two is one: a run under either is a record of both."""
_SELECTIONS: Mapping[str, str] = {
    "symmetric": "residual-weight",
    "alpha-one": "init-gain",
    "branch-weight": "branch-weight",
    "depth-mup": "depth-mup",
    "leading-log": "init-gain",
}
"""Members of a derived family that people use, ``theory.rules.selection`` says what each is; and the remedy's name."""
_PEOPLE_USE: Mapping[str, tuple[str, ...]] = {
    "post": ("deepnorm", "su-adam", "su-lamb"),
    "pre": ("completep", "depth-mup", "gpt2"),
    "sub": ("sub-ln-gamma", "completep", "depth-mup"),
    "none": ("depth-mup",),
}
"""Schemes whose laws are tried, by where norms stand in the user's model."""
_ALSO_NAMED = {"post": ("su-sgd",), "pre": ("su-pre-sgd", "su-pre-adam", "su-pre-lamb")}
"""Further schemes that a derived law may turn out to be."""
_DERIVED = "derived for"


@dataclass(frozen=True, kw_only=True)
class Law:
    """What the tuned model's numbers are multiplied by in the deeper one, on one side; by role where roles differ.

    learning_rate: of every parameter of the branches, vectors among them.
    """

    residual_weight: float = 1.0
    branch_weight: float = 1.0
    gains: Mapping[str, float] = field(default_factory=dict)
    learning_rate: float = 1.0

    @property
    def key(self) -> tuple[float, ...]:
        """Two laws of one key are one law."""
        gains = (self.gains.get(role, 1.0) for role in BRANCH_ROLES)
        return tuple(round(x, 9) for x in (self.residual_weight, self.branch_weight, *gains, self.learning_rate))

    def on(self, sublayer: SublayerConfig, shape: ModelConfig) -> SublayerConfig:
        roles = shape.roles(sublayer.kind)
        gains = {role: sublayer.gains.get(role, 1.0) * self.gains.get(role, 1.0) for role in roles}
        rates = {role: sublayer.lr_multipliers.get(role, 1.0) * self.learning_rate for role in (*roles, *_VECTORS)}
        return replace(
            sublayer,
            residual_weight=sublayer.residual_weight * self.residual_weight,
            branch_weight=sublayer.branch_weight * self.branch_weight,
            gains=gains,
            lr_multipliers=sublayer.lr_multipliers if self.learning_rate == 1 else rates,
        )


Depth = Mapping[Expr, int]
"""What the letters of a law stand for: layers N of the encoder, M of the decoder, and L sublayers."""
Laws = Callable[[Depth | None, Depth], tuple[Law, ...]]
"""Of each side: the law from the first depth to the last, or the numbers at the last where the first is None."""


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """A network's first step, predicted. update, roles: as ``theory.kernel.predict`` has them. shares: of each role,
    beside that of all branch matrices. branches: the part of the stream's length at the end that the branches put
    there, from 0 (the model is the identity) to 1."""

    update: float
    roles: Mapping[str, float]
    shares: Mapping[str, float]
    branches: float


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """What the deeper model is given, and what that leaves of the growth: a line of an ``Advice``.

    changes: a line each, beside the tuned model. tuned, config: the shallower network and the deeper one. By role,
    beside the tuned model's: leaves: the update, the remedy's learning rates in it, of ``ALL`` too; rates: learning
    rates; own_rates: those of them that ``config`` has not; eps: what Adam's epsilon is multiplied by, to be as small
    beside the gradient as it was; relative_update: the step of a matrix over the matrix. branches: as in ``Outlook``.
    record: of the runs that trained this law, None where there is none. keeps_forward: whether residual and branch
    weights are those that the scheme or recipe has by itself. warnings: a line each.
    """

    name: str
    changes: Sequence[str]
    note: str
    tuned: ModelConfig
    config: ModelConfig
    leaves: Mapping[str, float]
    matters: Sequence[str]
    rates: Mapping[str, float]
    eps: Mapping[str, float]
    relative_update: Mapping[str, float]
    branches: float
    record: Mapping[str, Any] | None = None
    own_rates: Mapping[str, float] = field(default_factory=dict)
    keeps_tuned: bool = True
    keeps_forward: bool = True
    warnings: Sequence[str] = ()

    @property
    def worst(self) -> float:
        """The factor, above 1, by which the update of the worst role that matters grows or shrinks."""
        return _away(self.leaves[self.worst_role])

    @property
    def worst_role(self) -> str:
        """Of those that matter; ``ALL`` where everything together is worse, or as good, to three digits."""
        return max((ALL, *self.matters), key=lambda role: round(_away(self.leaves[role]), 3))

    @property
    def relative(self) -> float:
        """The relative update that has moved furthest, of the matrices that matter."""
        moved = [self.relative_update[role] for role in self.matters if role in self.relative_update]
        return max(moved, key=_away, default=1.0)

    @property
    def rank(self) -> tuple[Any, ...]:
        """The least is best: no change where none is needed; then what holds every role, then what leaves less in the
        worst one, to a percent. Among equals: whether the model starts as the identity, whether the tuned model and the
        forward pass stay, how far the relative update moves, how many things change, and whether runs have it."""
        if not self.changes and self.worst <= HELD:
            return (-1.0,)
        left = 0.0 if self.worst <= HELD else round(math.log(self.worst), 2)
        stays = self.branches < IDENTITY, not self.keeps_tuned, not self.keeps_forward
        return left, *stays, round(math.log(_away(self.relative)), 1), len(self.changes), self.record is None


@dataclass(frozen=True, kw_only=True)
class Advice:
    """How the update of a model grows from one depth to another, and the remedies: what ``advise`` answers.

    shallow, deep: the network at both depths, as its scheme or recipe has it. factors, exponents, shares: of each
    role and of "update", as it is: the update at the deeper over that at the shallower, its exponent in the depth, and
    the role's share at the deeper. matters: roles whose share at either depth is at least ``MATTERS``. remedies: the
    best one first. remarks: a line each."""

    shallow: Network
    deep: Network
    optimizer: str
    factors: Mapping[str, float]
    exponents: Mapping[str, float]
    shares: Mapping[str, float]
    matters: Sequence[str]
    remedies: Sequence[Remedy]
    remarks: Sequence[str]

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
            "remarks": list(self.remarks),
        }

    @property
    def block(self) -> dict[str, Any]:
        """What the answer is about beside the depths, the width and the optimizer."""
        network = self.deep
        names = ("arch", "activation", "norm_kind", "num_tokens")
        heads = {} if network.has_wide_heads else {"num_heads": network.num_heads}
        kind = {"recipe" if network.recipe is not None else "scheme": network.scheme.name}
        return kind | {name: getattr(network, name) for name in names} | heads | network.block.options

    def _remedy(self, remedy: Remedy) -> dict[str, Any]:
        return {
            "name": remedy.name,
            "changes": list(remedy.changes),
            "note": remedy.note,
            "leaves": [{"role": role, "factor": factor} for role, factor in remedy.leaves.items()],
            "worst": {"role": remedy.worst_role, "factor": remedy.leaves[remedy.worst_role]},
            "relative_update": remedy.relative,
            "branches_at_init": remedy.branches,
            "training_record": remedy.record,
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

    def code(self, remedy: Remedy) -> list[str]:
        """What builds the remedy's model and its parameter groups, as lines of Python to paste."""
        few, many = layers_text(self.shallow), layers_text(self.deep)
        title = f"{remedy.name}: {many} layers at d_model {self.deep.d_model}, tuned at {few} layers, {self.optimizer}"
        tuned = None if remedy.keeps_tuned else remedy.tuned
        return code(remedy.config, self.optimizer, title, rates=remedy.rates, eps=remedy.eps, tuned=tuned)


def layers_text(network: Network) -> str:
    return "-".join(map(str, network.num_layers)) if network.num_layers else f"{network.num_sublayers / 2:g}"


# ---------------------------------------------------------------- the question


def advise(
    *,
    optimizer: str,
    from_layers: int | tuple[int, int],
    layers: int | tuple[int, int],
    d_model: int,
    scheme: str | None = None,
    recipe: str | None = None,
    arch: str | None = None,
    **network: Any,
) -> Advice:
    """What to change in a model that was tuned with ``from_layers`` layers and is to have ``layers``.

    scheme, recipe: the name of one of them. arch: of a scheme. layers: of an encoder-decoder, of both sides. network:
    further fields of ``Network``, such as activation, num_heads or block. ValueError, in one line, for a question that
    has no answer, NoTheoryError for a network that the kernel rung does not know.

    >>> from depthlaw.advice.advice import advise
    >>> advice = advise(scheme="pre-ln", optimizer="adam", from_layers=4, layers=16, d_model=256, num_tokens=4)
    >>> round(advice.factors["update"], 1), [remedy.name for remedy in advice.remedies][:2]
    (2.4, ['learning-rates', 'completep at both depths'])
    """
    if (scheme is None) == (recipe is None):
        raise ValueError("give one of scheme and recipe")
    if recipe is not None:
        from depthlaw.recipes.catalogue import recipe as recipe_named

        model = recipe_named(recipe)
        if arch not in (None, model.arch):
            raise ValueError(f"the recipe {model.name} is of {model.arch} kind, not {arch}")
        shallow, deep = (Network.of_recipe(model, count, d_model, **network) for count in (from_layers, layers))
    else:
        network |= {"scheme": scheme_named(str(scheme)), "arch": arch or "decoder", "d_model": d_model}
        network["has_wide_heads"] = "num_heads" not in network
        shallow, deep = (Network(**sublayers_of(count), **network) for count in (from_layers, layers))
    return compared(shallow, deep, optimizer)


def compared(
    shallow: Network, deep: Network, optimizer: str, advance: Callable[[float], None] = lambda _: None
) -> Advice:
    """The advice for one network at two depths. advance: told how many passes over a sublayer were done."""
    check(shallow, deep, optimizer)
    depths = _TwoDepths(shallow, deep, optimizer, advance)
    if not depths.first.update:
        raise ValueError(
            f"{deep.scheme.name}: a first step of {optimizer} leaves the branch matrices where they are, at any depth"
        )
    factors = _factors(depths.first, depths.last)
    deeper = deep.depth / shallow.depth
    remedies = list(depths.remedies())
    return Advice(
        shallow=shallow,
        deep=deep,
        optimizer=optimizer,
        factors=factors,
        exponents={role: math.log(x) / math.log(deeper) if x > 0 else 0.0 for role, x in factors.items()},
        shares=depths.last.shares,
        matters=_matters(depths.first, depths.last),
        remedies=sorted(remedies, key=lambda remedy: remedy.rank),
        remarks=list(depths.remarks(remedies)),
    )


def num_passes(shallow: Network, deep: Network, optimizer: str) -> int:
    """Passes over a sublayer that ``compared`` does at most."""
    depths = _TwoDepths(shallow, deep, optimizer)
    laws = [depths.is_whole(name, note) for name, note, _ in depths.laws()]
    at_both = sum(laws) * (shallow.depth + deep.depth)
    return 2 * (shallow.depth + deep.depth * (1 + len(laws) + (depths.kept != depths.plain)) + at_both)


def check(shallow: Network, deep: Network, optimizer: str) -> None:
    """ValueError, in one line, for two depths that are one and for an optimizer that a recipe was not made for."""
    if shallow.lengths == deep.lengths:
        raise ValueError(f"both models have {layers_text(deep)} layers: nothing changes between equal depths")
    if (recipe := deep.recipe) is not None and not recipe.is_made_for(optimizer):
        raise ValueError(
            f"the recipe {recipe.name} is made for {' or '.join(recipe.optimizers)}, whose steps scale with other "
            f"things than those of {optimizer}: ask about {recipe.optimizers[0]}, or give the block without a recipe"
        )


# ---------------------------------------------------------------- one network's first step


def _branches(config: ModelConfig, streams: Mapping[str, Sequence[Stream]]) -> float:
    """The root of what the branches of all sublayers have of the last stream's second moment, of the worse side.

    Behind a post-norm the stream has second moment 1, and the sum before the norm is put together from its two parts;
    an attention's is then that of equal tokens. Else the sum is the next stream itself.
    """
    parts = []
    for side, sublayers in config.sides:
        left = 1.0
        for sublayer, x, after in zip(sublayers, streams[side], streams[side][1:], strict=False):
            kept, total = sublayer.residual_weight**2 * x.second_moment, after.second_moment
            if "post" in config.places(sublayer):
                total = kept + sublayer.branch_weight**2 * _branch(config, sublayer)
            left *= min(1.0, kept / total)
        parts.append(math.sqrt(1 - left))
    return min(parts)


def _branch(config: ModelConfig, sublayer: SublayerConfig) -> float:
    """E F^2 of a branch whose input has second moment 1."""
    if "branch" in config.places(sublayer):
        return 1.0
    kind = KIND_OF[sublayer.kind]
    gains = [sublayer.gains.get(role, 1.0) for role in SCALED_ROLES[kind]]
    gate = 1.0
    if kind is SublayerKind.FFN:
        gate = sublayer.gains.get("fc3", 1.0) ** 2
    else:
        for index, role in enumerate(SCALED_ROLES[kind]):
            rows, columns = config.shape(role)
            gains[index] *= math.sqrt(2 * columns / (rows + columns))  # fan-in times Xavier's variance
    return gate * branch_second(kind, sublayer.input_scale * gains[0], gains[1], config)


def _factors(first: Outlook, last: Outlook) -> dict[str, float]:
    """By role and of "update": the last over the first."""
    pairs = {role: (first.roles[role], value) for role, value in last.roles.items() if role in first.roles}
    return {
        role: after / before if before else (1.0 if after == before else math.inf)
        for role, (before, after) in {"update": (first.update, last.update), **pairs}.items()
    }


def _matters(*outlooks: Outlook) -> list[str]:
    roles = dict.fromkeys(role for outlook in outlooks for role in outlook.roles)
    return [role for role in roles if any(outlook.shares.get(role, 0.0) >= MATTERS for outlook in outlooks)]


# ---------------------------------------------------------------- laws, of derived rules and of schemes


def placement(config: ModelConfig) -> str:
    """Where norms stand, as ``theory.rules`` knows it: behind the sum, inside of the branch, before it, or nowhere."""
    places = frozenset[str]().union(*(config.places(sublayer) for _, side in config.sides for sublayer in side))
    if "post" in places and "pre" not in places:
        return "post"
    if "inner" in places:
        return "sub"
    return "pre" if places - {"post"} else "none"


def known_as(member: Member, norm: str, optimizer: str) -> str | None:
    """The scheme that people use whose law this member of a derived family is, up to a constant; of one stack."""
    if member.init_gain is None:
        return None
    few, many = ({N: layers, M: layers, L: 2 * layers} for layers in (12, 96))
    return _scheme_with(_laws_of_members([member], norm, few, many), norm, optimizer, few, many)


def _scheme_with(laws: tuple[Law, ...], norm: str, optimizer: str, first: Depth, last: Depth) -> str | None:
    """The name of the scheme that has this law, on each side, from the first depth to the last."""
    wanted = [law.key for law in laws]
    for name in (*_PEOPLE_USE[norm], *_ALSO_NAMED.get(norm, ())):
        if len(laws) == 1 or name in COUPLED:
            found = _laws_of_scheme(name, optimizer, len(laws), first, last)
            if [law.key for law in found] == wanted:
                return name
    return None


def _law(
    first: Depth | None,
    last: Depth,
    residual_weight: Expr,
    branch_weight: Expr,
    gains: tuple[Expr, Expr],
    learning_rate: Expr,
) -> Law:
    """The numbers at the last depth over those at the first; the numbers themselves if that is None. gains: of the two
    matrices of a branch's value path."""

    def ratio(law: Expr) -> float:
        return float(evaluate(law, last, 17) / (1 if first is None else evaluate(law, first, 17)))

    ratios = [ratio(gain) for gain in gains]
    return Law(
        residual_weight=ratio(residual_weight),
        branch_weight=ratio(branch_weight),
        gains={role: gain for roles in SCALED_ROLES.values() for role, gain in zip(roles, ratios, strict=True)},
        learning_rate=ratio(learning_rate),
    )


def _laws_of_members(members: Sequence[Member], norm: str, first: Depth | None, last: Depth) -> tuple[Law, ...]:
    """Of each side. Sub-LN's rule leaves the gains of a cross-attention at 1."""
    laws = []
    for member in members:
        assert member.init_gain is not None
        gains = member.init_gain, member.init_gain
        law = _law(first, last, member.residual_weight, member.branch_weight, gains, member.lr_multiplier)
        left = SCALED_ROLES[SublayerKind.CROSS] if norm == "sub" and len(members) > 1 else ()
        laws.append(replace(law, gains={role: gain for role, gain in law.gains.items() if role not in left}))
    return tuple(laws)


def _laws_of_scheme(name: str, optimizer: str, num_sides: int, first: Depth | None, last: Depth) -> tuple[Law, ...]:
    """Of each side; of two for a scheme in ``COUPLED`` alone, by the rule that its source derives for both."""
    if num_sides > 1:
        norm, select = COUPLED[name]
        rule = solve_rule(norm, "sgd", "encoder-decoder", select, with_alternatives=False)
        return _laws_of_members([side.member for side in rule.sides], norm, first, last)
    scheme = SCHEMES[name]
    stack, gains = scheme.stack, (scheme.stack.gain_in, scheme.stack.gain_out)
    assert stack.residual_weight is not None and not any(gain.has(l) for gain in gains)
    rate = scheme.lr_multiplier_under(optimizer_named(optimizer))
    return (_law(first, last, stack.residual_weight, stack.branch_weight, gains, rate),)


_LETTERS = ("residual_weight", "branch_weight", "input_scale", "gain_in", "gain_out", "embedding_scale")


def _unscaled(network: Network) -> Network:
    """With norms where they are, and no weight and no gain."""
    letters = dict.fromkeys(_LETTERS, S.One)
    stack = replace(network.scheme.stack, trains_branch_weight=False, **letters)
    name = network.scheme.name if network.scheme.name == "normformer" else "unscaled"  # lowering knows some by name
    return replace(network, laws={}, scheme=replace(network.scheme, name=name, stack=stack, lr_multiplier=S.One))


def _changed(config: ModelConfig, laws: Sequence[Law]) -> ModelConfig:
    """The network with each side's numbers times a law."""
    encoder, *decoder = (
        tuple(law.on(sublayer, config) for sublayer in side) for (_, side), law in zip(config.sides, laws, strict=True)
    )
    return replace(config, encoder=encoder, decoder=decoder[0] if decoder else ())


def _with_sublayers(scheme: Scheme, num_sublayers: int) -> Scheme:
    """The scheme whose laws of L are read at that L, whatever the depth."""
    laws = {name: law.subs(L, num_sublayers) for name in _LETTERS if (law := getattr(scheme.stack, name)) is not None}
    rate = scheme.lr_multiplier.subs(L, num_sublayers)
    return replace(scheme, stack=replace(scheme.stack, **laws), lr_multiplier=rate)


# ---------------------------------------------------------------- the remedies


class _TwoDepths:
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
        if deep.recipe is not None:
            first = shallow.num_layers[0] if shallow.num_layers else shallow.num_sublayers // 2
            self.kept = replace(deep, recipe=deep.recipe.with_layers(first)).config(optimizer)
        elif deep.num_layers is None:
            scheme = _with_sublayers(deep.scheme, shallow.num_sublayers)
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

    def outlook(self, config: ModelConfig) -> Outlook:
        """NoTheoryError for what the kernel rung does not know."""
        answer = self.deep.kernel_update(self.optimizer, self.advance, config, replicates=REPLICATES)
        units = {role: unit_power(self.optimizer, role) for role in answer.roles}
        by_role = shares([{"update": answer.update, "roles": answer.roles}], units, config.d_model)
        return Outlook(
            update=answer.update,
            roles=answer.roles,
            shares={role: share or 0.0 for role, (share,) in by_role.items()},
            branches=_branches(config, answer.streams),
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
        for name, plain_name in _SELECTIONS.items():
            members = [of_side[name] for of_side in of_sides if name in of_side]
            if len(members) == len(of_sides) and all(member.init_gain is not None for member in members):
                laws = partial(_laws_of_members, members, self.norm)
                asked = self.norm, self.optimizer, self.few, self.many
                if known := _scheme_with(laws(self.few, self.many), *asked):
                    laws = partial(_laws_of_scheme, known, self.optimizer, self.num_sides)
                yield known or plain_name, f"{_DERIVED} {self.optimizer}: {members[0].note}", laws

    def _used(self) -> Iterator[tuple[str, str, Laws]]:
        """What people use with norms in that place, whichever optimizer it was derived for."""
        for name in _PEOPLE_USE[self.norm]:
            if self.num_sides == 1 or name in COUPLED:
                laws = partial(_laws_of_scheme, name, self.optimizer, self.num_sides)
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
        own_rates = own_rates or {}
        factors = _factors(first, outlook)
        leaves = {role: factor * own_rates.get(role, 1.0) for role, factor in factors.items() if role != "update"}
        before_all, after_all = (
            look.update * sum(share * rates.get(role, 1.0) for role, share in look.shares.items())
            for look, rates in ((first, {}), (outlook, own_rates))
        )
        matters = _matters(first, self.last)
        rates, eps, relative_update = {}, {}, {}
        degrees = optimizer_named(self.optimizer)
        p, t = float(degrees.gradient_degree), float(degrees.parameter_degree)
        for role, left in leaves.items():
            means = (
                [_mean(one, _every(one), role, of) for one in (config, tuned)] for of in ("lr_multipliers", "gains")
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
            keeps_forward=_weights(config) == _weights(self.plain),
            **rest,
        )

    def remedies(self) -> Iterator[Remedy]:
        deep, plain, kept, last = self.deep, self.plain, self.kept, self.last
        own = None if deep.recipe is not None else self._record(deep.scheme.name)
        yield self.remedy(
            "nothing", [], "the model as its scheme or recipe has it at this depth", plain, last, record=own
        )
        factors, matters = _factors(self.first, last), _matters(self.first, last)
        # A role that hardly counts and goes the other way, as behind a cross-attention whose tokens become alike, is
        # left: its rate would be beyond all bounds.
        rates = {
            role: 1 / x
            for role, x in factors.items()
            if role != "update" and 0 < x < math.inf and _moves(x)
            if role in matters or (x > 1) == (factors["update"] > 1)
        }
        if any(role in rates for role in matters):
            note = "each role's learning rate over the factor by which its update grows"
            yield self.remedy("learning-rates", _rate_lines(rates), note, plain, last, own_rates=rates)
        if _moves(factors["update"]):
            branches = [role for role in (*BRANCH_ROLES, *_VECTORS) if role in last.roles]
            rate = 1 / factors["update"]
            note = "one learning rate for all parameters of the branches, over the factor of the whole update"
            changes = [f"learning rate of all parameters of the branches x {rate:.3g}"]
            yield self.remedy("learning-rate", changes, note, plain, last, own_rates=dict.fromkeys(branches, rate))
        few = layers_text(self.shallow)
        unscaled = [f"init as in the model of {few} layers, not scaled further"] if kept != plain else []
        has_twice = False
        for name, note, laws_of in self.laws():
            laws = laws_of(self.few, self.many)
            changed, changes = _changed(kept, laws), list(_law_lines(kept, laws))
            if _key(changed) == _key(plain):
                continue  # what the scheme itself does
            record = self._record(name)
            remedy = self.remedy(name, [*changes, *unscaled], note, changed, self.outlook(changed), record=record)
            yield remedy
            if remedy.worst > HELD and self.is_whole(name, note):
                yield self._at_both(name, note, laws_of)
            if unscaled and not has_twice and any(law.branch_weight < 1 for law in laws):
                has_twice, twice = True, _changed(plain, laws)
                warning = f"it does the job twice: {deep.scheme.name} scales with the number of layers by itself, too"
                beside = f"{name} beside what {deep.scheme.name} itself changes with depth"
                yield self.remedy(f"{name} on top", changes, beside, twice, self.outlook(twice), warnings=[warning])

    def is_whole(self, name: str, note: str) -> bool:
        """Whether a law is worth a remedy of its own at both depths: derived for this optimizer, and in use."""
        return note.startswith(_DERIVED) and (self.num_sides > 1 or name in _PEOPLE_USE[self.norm])

    def _record(self, name: str) -> dict[str, Any] | None:
        return record_of(name, self.optimizer, num_sides=self.num_sides)

    def _at_both(self, name: str, note: str, laws: Laws) -> Remedy:
        """The law's own numbers at either depth: the tuned model is changed, too, and is to be tuned anew."""
        networks = (self.shallow, self.deep)
        if self.deep.recipe is None:
            plain = [_unscaled(network).config(self.optimizer) for network in networks]
        else:
            plain = [self.tuned, self.kept]
        first, last = (
            _changed(config, laws(None, at)) for config, at in zip(plain, (self.few, self.many), strict=True)
        )
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
        now, before = self.plain.encoder[-1], self.kept.encoder[-1]
        least = 1 - 1e-9
        if now.branch_weight < before.branch_weight * least and any(
            now.gains.get(role, 1.0) < before.gains.get(role, 1.0) * least for role in ("fc2", "out")
        ):
            yield (
                f"{name} does the same job twice: deeper models have smaller output matrices and a smaller branch "
                "weight"
            )
        for remedy in remedies:
            if remedy.warnings:
                yield (
                    f"the numbers of {name} change with the depth, so {remedy.name} does the job twice and does not "
                    f"hold the update: x {remedy.leaves[remedy.worst_role]:.3g} in {remedy.worst_role}"
                )
        by_name = {remedy.name: remedy for remedy in remedies}
        by_name.setdefault(name, by_name["nothing"])
        members = ("su-adam", "su-lamb") if self.num_sides == 1 else ("residual-weight", "init-gain")
        member = members[self.optimizer == "lamb"] if optimizer_named(self.optimizer).is_sign_type else ""
        if member in by_name and "deepnorm" in by_name:
            own, other = (
                f"x {by_name[row].leaves[by_name[row].worst_role]:.3g} in {by_name[row].worst_role}"
                for row in (member, "deepnorm")
            )
            yield (
                f"of the two members of the family, {member} is derived for {self.optimizer} and leaves {own}; "
                f"deepnorm is derived for SGD and leaves {other}"
            )
        unprinted = [one for one in _PEOPLE_USE[self.norm] if one not in COUPLED]
        if self.num_sides > 1 and unprinted:
            derived = [remedy.name for remedy in remedies if remedy.keeps_tuned and remedy.note.startswith(_DERIVED)]
            yield (
                f"no source prints {', '.join(unprinted)} for two sides; derived here for {self.optimizer}, by side: "
                f"{', '.join(derived) or 'nothing'}"
            )
        yield f"at infinite width; the relative correction is of order L/d, {deep.depth / deep.d_model:.2g} here"
        yield "a flat first step does not promise better training: `depthlaw explain S3-49`"


def _key(config: ModelConfig) -> list[tuple[float, ...]]:
    """Two networks of one shape and one key are one, but for rounding."""
    return [
        tuple(
            float(f"{number:.9g}")
            for number in (
                *(sublayer.residual_weight, sublayer.branch_weight),
                *(sublayer.gains.get(role, 1.0) for role in BRANCH_ROLES),
                *(sublayer.lr_multipliers.get(role, 1.0) for role in (*BRANCH_ROLES, *_VECTORS)),
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
    return sum(numbers) / len(numbers) if numbers else 1.0


def _away(factor: float) -> float:
    """From 1: a factor of at least 1."""
    return max(factor, 1 / factor) if factor > 0 else math.inf


def _moves(factor: float) -> bool:
    return _away(factor) > HELD**0.5


def _weights(config: ModelConfig) -> list[tuple[float, ...]]:
    """What stands in the forward pass; a trained vector on the branch (LayerScale) is only initialised."""
    return [
        (round(one.residual_weight, 9), one.has_layer_scale or round(one.branch_weight, 9)) for one in _every(config)
    ]


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
            yield f"learning rate of all parameters{of or ' of the branches'} x {law.learning_rate:.4g}"


# ---------------------------------------------------------------- what the record of training runs has


def record_of(scheme: str, optimizer: str, num_sides: int = 1) -> dict[str, Any] | None:
    """The project's training runs of a named scheme under that optimizer; None where there are none.

    num_sides: 2 for those of encoder-decoders.
    largest_rate: by layers, the largest learning rate at which a run trained. Adam and AdamW without decay are one.
    """
    names = _FAMILIES if optimizer in _FAMILIES else (optimizer,)
    runs = [
        run
        for run in training_runs(TRAINING_RECORDS)
        if run["scheme"] == scheme and run["optimizer"] in names and run["num_sides"] == num_sides
    ]
    if not runs:
        return None
    trained = [run for run in runs if run["outcome"] == "trained"]
    layers = sorted({run["num_layers"] for run in trained})
    return {
        "scheme": scheme,
        "optimizers": sorted({run["optimizer"] for run in runs}),
        "blocks": sorted({f"{run['activation']}, {run['norm_kind']}" for run in runs}),
        "layers": sorted({run["num_layers"] for run in runs}),
        "num_runs": len(runs),
        "num_trained": len(trained),
        "largest_rate": {
            str(count): max(run["learning_rate"] for run in trained if run["num_layers"] == count) for count in layers
        },
    }


@cache
def training_runs(records: Path) -> tuple[dict[str, Any], ...]:
    """Every run of a folder of records: what it was of, and its outcome."""
    names = ("scheme", "optimizer", "activation", "norm_kind", "num_layers", "learning_rate")
    lines = (
        json.loads(line)
        for path in sorted(records.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    )
    return tuple(
        {name: row["config"][name] for name in names}
        | {"num_sides": 2 if row["config"]["num_decoder_layers"] else 1, "outcome": row["result"]["outcome"]}
        for row in lines
    )
