"""What a remedy is: what the deeper model is given, what that leaves of the growth, and its place among others.

Of two networks' first steps, predicted, it says by which factor each role's update grows, and which roles matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from depthlaw.network.kernel import KIND_OF
from depthlaw.network.lower import branch_second
from depthlaw.network.network import Network, NoTheoryError
from depthlaw.sims.config import ModelConfig, SublayerConfig
from depthlaw.theory.kernel.predict import Stream
from depthlaw.theory.stack import SCALED_ROLES, SublayerKind

MATTERS = 0.05
"""The least share of the update at which a role matters, as in TRANSFORMERS.md. Below it a role counts in ``ALL``."""
ALL = "all"
"""The update of everything that is trained, at the width that was asked about; it stands beside the roles."""
HELD = 1.1
"""A role whose update grows or shrinks by less than this factor is held."""
LATER: Mapping[str, str] = dict.fromkeys(("adam", "adamw"), "aligned")
"""By optimizer, the law of ``theory.kernel.after_start`` that was nearest to what steps moved in training behind the
first few."""
NOT_TOLD = ("muon+adamw",)
"""Optimizers under which the law that was nearest to later steps in training was not told from the first step's own."""
LATER_FAILED = ("depth-mup", "deepnorm", "su-pre-adam")
"""Schemes whose later steps in training the law that ``LATER`` has for their optimizer does not tell."""
_EFFORT = 0.25
IDENTITY = 0.1
"""A model whose branches together are less of the stream than this starts as the identity."""


def no_later(optimizer: str, *, is_post_norm: bool, scheme: str | None = None) -> str:
    """A sentence: why no law of later steps is shown. scheme: the named scheme that the model is, if it is one."""
    if optimizer in NOT_TOLD:
        return f"In training under {optimizer} no law of later steps was told from the first step's own."
    if optimizer not in LATER:
        return f"No law of later steps was held against training under {optimizer}."
    failed = "The law of later steps that is shown of other models failed in training in"
    if scheme in LATER_FAILED:
        return f"{failed} {scheme}, which has these numbers."
    if is_post_norm:
        return f"{failed} deepnorm, the one post-norm that was measured."
    return "No law of later steps is derived for this network."


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
    record: of the runs that trained this law, None where there is none. gain: what it took off the loss in training, as
    ``records.gain_of`` has it, None where nothing like it was trained. keeps_forward: whether residual and branch
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
    gain: Mapping[str, Any] | None = None
    own_rates: Mapping[str, float] = field(default_factory=dict)
    keeps_tuned: bool = True
    keeps_forward: bool = True
    warnings: Sequence[str] = ()

    def __repr__(self) -> str:
        return f"<Remedy: {self.name}, leaves x {self.leaves[self.worst_role]:.3g} in {self.worst_role}>"

    @property
    def worst(self) -> float:
        """The factor, above 1, by which the update of the worst role that matters grows or shrinks."""
        return away(self.leaves[self.worst_role])

    @property
    def worst_role(self) -> str:
        """Of those that matter; ``ALL`` where everything together is worse, or as good, to three digits."""
        return max((ALL, *self.matters), key=lambda role: round(away(self.leaves[role]), 3))

    @property
    def relative(self) -> float:
        """The relative update that has moved furthest, of the matrices that matter."""
        moved = [self.relative_update[role] for role in self.matters if role in self.relative_update]
        return max(moved, key=away, default=1.0)

    @property
    def beaten_by(self) -> Sequence[str]:
        """The remedies that were shown to end at a smaller loss in training."""
        return () if self.gain is None else self.gain["beaten_by"]

    @property
    def shown(self) -> int:
        """Whether training has shown it to gain (1) or to cost (-1); 0 where it does not tell, or was not asked."""
        return 0 if self.gain is None else self.gain["verdict"]

    @property
    def rank(self) -> tuple[Any, ...]:
        """The least is best: no change where none is needed; then what holds every role, then what leaves less in the
        worst one, to a percent. Among equals: whether the model starts as the identity, whether the tuned model and the
        forward pass stay, how far the relative update moves, how many things change, and whether runs have it."""
        if not self.changes and self.worst <= HELD:
            return (-1.0,)
        left = 0.0 if self.worst <= HELD else round(math.log(self.worst), 2)
        stays = self.branches < IDENTITY, not self.keeps_tuned, not self.keeps_forward
        moves = round(math.log(away(self.relative)), 1)
        return left, *stays, moves, len(self.changes), self.record is None


def ranked(remedies: Iterable[Remedy]) -> list[Remedy]:
    """The best one first: no change where none is needed; then what training has shown to gain, then what it has not
    told of, then what it has shown to cost, each by ``rank``. But among those which training has compared none stands
    before one that was shown to beat it. The others keep their places."""
    order = sorted(remedies, key=lambda remedy: (remedy.rank > (-1.0,), -remedy.shown, remedy.rank))
    left, by_training = [remedy for remedy in order if remedy.gain is not None], []
    while left:  # the one of the least mean loss is beaten by none
        names = {remedy.name for remedy in left}
        by_training.append(left.pop(next(at for at, remedy in enumerate(left) if names.isdisjoint(remedy.beaten_by))))
    trained = iter(by_training)
    return [remedy if remedy.gain is None else next(trained) for remedy in order]


def is_post_norm(config: ModelConfig) -> bool:
    """Whether some norm of an encoder or decoder alone stands behind a sum."""
    return any("post" in config.places(sublayer) for sublayer in config.encoder)


def after_start(remedy: Remedy, network: Network, optimizer: str) -> float | None:
    """How far a step moves the deeper model over how far it moves the tuned one by ``LATER``, all branch matrices
    together, once the optimizer has made them as large as Xavier's init is: 1/(rate sqrt(d_model)) steps along one
    direction. None where the law was not held against training, or failed (of post-norms), or is not derived."""
    if optimizer not in LATER or is_post_norm(remedy.config):
        return None

    def moved(config: ModelConfig) -> float:
        rate = config.d_model**-0.5
        asked = {"laws": (LATER[optimizer],), "config": config, "effort": _EFFORT, "replicates": 1}
        return network.after_start(optimizer, rate, 1, **asked)[LATER[optimizer]]

    def at_rates(sublayer: SublayerConfig) -> SublayerConfig:
        multipliers, roles = sublayer.lr_multipliers, remedy.config.roles(sublayer.kind)
        rates = {role: multipliers.get(role, 1.0) * remedy.own_rates.get(role, 1.0) for role in roles}
        return replace(sublayer, lr_multipliers={**multipliers, **rates})

    encoder, decoder = (tuple(map(at_rates, side)) for side in (remedy.config.encoder, remedy.config.decoder))
    try:
        before, after = moved(remedy.tuned), moved(replace(remedy.config, encoder=encoder, decoder=decoder))
    except NoTheoryError:
        return None
    return after / before if before else None


# ---------------------------------------------------------------- one network's first step


def branches_of(config: ModelConfig, streams: Mapping[str, Sequence[Stream]]) -> float:
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


def factors_of(first: Outlook, last: Outlook) -> dict[str, float]:
    """By role and of "update": the last over the first."""
    pairs = {role: (first.roles[role], value) for role, value in last.roles.items() if role in first.roles}
    return {
        role: after / before if before else (1.0 if after == before else math.inf)
        for role, (before, after) in {"update": (first.update, last.update), **pairs}.items()
    }


def matters_of(*outlooks: Outlook) -> list[str]:
    roles = dict.fromkeys(role for outlook in outlooks for role in outlook.roles)
    return [role for role in roles if any(outlook.shares.get(role, 0.0) >= MATTERS for outlook in outlooks)]


def vanished_of(matters: Sequence[str], factors: Mapping[str, float]) -> list[str]:
    """Of the roles that matter, those of whose update so little is left that what is left does not matter."""
    return [role for role in matters if factors.get(role, 1.0) < MATTERS]


def away(factor: float) -> float:
    """From 1: a factor of at least 1."""
    return max(factor, 1 / factor) if factor > 0 else math.inf
