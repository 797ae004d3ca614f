"""Laws of two depths: what a tuned model's numbers are multiplied by in a deeper one.

The laws are those of the derived rules (``theory.rules``) and of schemes that people use (``theory.schemes``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sympy import Expr, S

from depthlaw.network.lower import COUPLED
from depthlaw.network.network import Network
from depthlaw.sims.config import BRANCH_ROLES, ModelConfig, SublayerConfig
from depthlaw.theory.asymptotics.evaluate import evaluate
from depthlaw.theory.optimizers import optimizer as optimizer_named
from depthlaw.theory.rules.selection import Member
from depthlaw.theory.rules.solve import solve_rule
from depthlaw.theory.schemes import SCHEMES, Scheme
from depthlaw.theory.stack import SCALED_ROLES, SublayerKind
from depthlaw.theory.symbols import L, M, N, l

SELECTIONS: Mapping[str, str] = {
    "symmetric": "residual-weight",
    "alpha-one": "init-gain",
    "branch-weight": "branch-weight",
    "depth-mup": "depth-mup",
    "leading-log": "init-gain",
}
"""Members of a derived family that people use, ``theory.rules.selection`` says what each is; and the remedy's name."""
PEOPLE_USE: Mapping[str, tuple[str, ...]] = {
    "post": ("deepnorm", "su-adam", "su-lamb"),
    "pre": ("completep", "depth-mup", "gpt2"),
    "sub": ("sub-ln-gamma", "completep", "depth-mup"),
    "none": ("depth-mup",),
}
"""Schemes whose laws are tried, by where norms stand in the user's model."""
_ALSO_NAMED = {"post": ("su-sgd",), "pre": ("su-pre-sgd", "su-pre-adam", "su-pre-lamb")}
"""Further schemes that a derived law may turn out to be."""
VECTORS = ("bias", "norm_gain", "norm_bias", "layer_scale")
"""Roles of what is trained in a branch beside its matrices."""


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
        rates = {role: sublayer.lr_multipliers.get(role, 1.0) * self.learning_rate for role in (*roles, *VECTORS)}
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
    return scheme_with(laws_of_members([member], norm, few, many), norm, optimizer, few, many)


def scheme_with(laws: tuple[Law, ...], norm: str, optimizer: str, first: Depth, last: Depth) -> str | None:
    """The name of the scheme that has this law, on each side, from the first depth to the last."""
    wanted = [law.key for law in laws]
    for name in (*PEOPLE_USE[norm], *_ALSO_NAMED.get(norm, ())):
        if len(laws) == 1 or name in COUPLED:
            laws_there = laws_of_scheme(name, optimizer, len(laws), first, last)
            if [law.key for law in laws_there] == wanted:
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


def laws_of_members(members: Sequence[Member], norm: str, first: Depth | None, last: Depth) -> tuple[Law, ...]:
    """Of each side. Sub-LN's rule leaves the gains of a cross-attention at 1."""
    laws = []
    for member in members:
        assert member.init_gain is not None
        gains = member.init_gain, member.init_gain
        law = _law(first, last, member.residual_weight, member.branch_weight, gains, member.lr_multiplier)
        left = SCALED_ROLES[SublayerKind.CROSS] if norm == "sub" and len(members) > 1 else ()
        laws.append(replace(law, gains={role: gain for role, gain in law.gains.items() if role not in left}))
    return tuple(laws)


def laws_of_scheme(name: str, optimizer: str, num_sides: int, first: Depth | None, last: Depth) -> tuple[Law, ...]:
    """Of each side; of two for a scheme in ``COUPLED`` alone, by the rule that its source derives for both."""
    if num_sides > 1:
        norm, select = COUPLED[name]
        rule = solve_rule(norm, "sgd", "encoder-decoder", select, with_alternatives=False)
        return laws_of_members([side.member for side in rule.sides], norm, first, last)
    scheme = SCHEMES[name]
    stack, gains = scheme.stack, (scheme.stack.gain_in, scheme.stack.gain_out)
    assert stack.residual_weight is not None and not any(gain.has(l) for gain in gains)
    rate = scheme.lr_multiplier_under(optimizer_named(optimizer))
    return (_law(first, last, stack.residual_weight, stack.branch_weight, gains, rate),)


_LETTERS = ("residual_weight", "branch_weight", "input_scale", "gain_in", "gain_out", "embedding_scale")


def unscaled(network: Network) -> Network:
    """With norms where they are, and no weight and no gain."""
    letters = dict.fromkeys(_LETTERS, S.One)
    stack = replace(network.scheme.stack, trains_branch_weight=False, **letters)
    name = network.scheme.name if network.scheme.name == "normformer" else "unscaled"  # lowering knows some by name
    return replace(network, laws={}, scheme=replace(network.scheme, name=name, stack=stack, lr_multiplier=S.One))


def changed(config: ModelConfig, laws: Sequence[Law]) -> ModelConfig:
    """The network with each side's numbers times a law."""
    encoder, *decoder = (
        tuple(law.on(sublayer, config) for sublayer in side) for (_, side), law in zip(config.sides, laws, strict=True)
    )
    return replace(config, encoder=encoder, decoder=decoder[0] if decoder else ())


def with_sublayers(scheme: Scheme, num_sublayers: int) -> Scheme:
    """The scheme whose laws of L are read at that L, whatever the depth."""
    laws = {name: law.subs(L, num_sublayers) for name in _LETTERS if (law := getattr(scheme.stack, name)) is not None}
    rate = scheme.lr_multiplier.subs(L, num_sublayers)
    return replace(scheme, stack=replace(scheme.stack, **laws), lr_multiplier=rate)
