"""Checks: each a small function that gets the models, and gives faults and remarks; and what supersedes what.

A new check is a function in the module of its subject and a name in one of the lists below. It knows nothing of the
others. Its fault and the twins without it stand in the tests' gallery.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, TypeVar

from depthlaw.auditing.checks import (
    attention,
    branches,
    ends,
    groups,
    inits,
    laws,
    layers,
    norms,
    odd,
    structure,
    weights,
)
from depthlaw.auditing.faults import Fault, Faults, Remark
from depthlaw.auditing.models import Beside, Models

Check = Callable[[Models], Faults]
"""Told what was built alone; ``claimed`` says whether something is claimed."""
CheckOfClaim = Callable[[Beside], Faults]
"""Told what is claimed, too."""

NUMBERS: Sequence[Check] = (branches.parameters_not_finite,)
"""Where one of these gives a fault, nothing else can be said."""
ALWAYS: Sequence[Check] = (
    layers.layers_not_run,
    layers.number_of_layers,
    layers.unread,
    layers.no_residual,
    layers.skips,
    layers.conditions,
    layers.mixtures,
    layers.not_trained,
    layers.visits,
    layers.copies,
    branches.dead_branches,
    branches.unfed_branches,
    branches.still_branches,
    branches.outputs_not_finite,
    odd.odd_others,
    ends.heads_at_zero,
)
WITHOUT_CLAIM: Sequence[Check] = (
    laws.lonely_laws,
    laws.partial_laws,
    laws.first_layers,
    odd.odd_norms,
    odd.odd_sizes,
    odd.odd_weights,
    odd.odd_stds,
    norms.unnormed_ends,
    norms.kinds_without_norms,
    weights.growing_branches,
    weights.growing_stream,
)
"""What no model means to have, where it is not said what it is to be."""
OF_EPSILONS: Sequence[Check] = (norms.norms_that_do_not_normalise,)
BESIDE_CLAIM: Sequence[CheckOfClaim] = (
    structure.kinds_of_sublayers,
    norms.norms_of_queries,
    norms.norms_of_stream,
    norms.norms_of_branches,
    norms.final_norm,
    norms.kind_of_norms,
    norms.input_scales,
    weights.residual_weights,
    weights.branch_weights,
    weights.live_gates,
    attention.attention_scales,
    inits.initialisations,
    ends.embeddings,
    ends.norms_of_embeddings,
    ends.heads,
    ends.biases,
)
OF_GROUPS: Sequence[Check] = (groups.ungrouped, groups.grouped_twice, groups.strangers, groups.decayed)
"""Of the user's optimizer, where it is given."""
GROUPS_BESIDE_CLAIM: Sequence[CheckOfClaim] = (groups.rates, groups.between_roles, groups.epsilons)


class Supersedes(NamedTuple):
    """A fault, by its kind and perhaps a role, in whose presence checks tell nothing of their own."""

    kind: str
    role: str | None
    checks: Collection[Check | CheckOfClaim]


SUPERSEDES: Sequence[Supersedes] = (
    # sublayers without a residual connection are read as a part of the stream, and their norms as its norms
    Supersedes(
        "no-residual",
        None,
        (
            *(odd.odd_norms, odd.odd_weights, odd.odd_stds, odd.odd_others, structure.kinds_of_sublayers),
            *(norms.norms_of_stream, norms.final_norm, norms.unnormed_ends, norms.input_scales),
        ),
    ),
    Supersedes("norms", "post", (ends.norms_of_embeddings,)),
    Supersedes("epsilon", None, (odd.odd_sizes,)),  # a larger one makes what its norm gives smaller
)

_Models = TypeVar("_Models", bound=Models)


def collect(
    checks: Iterable[Callable[[_Models], Faults]], models: _Models, faults: Sequence[Fault] = ()
) -> tuple[list[Fault], list[str]]:
    """The faults and remarks of checks, in their order, without what is superseded. faults: those known already."""
    collected, remarks = [*faults], dict[str, None]()
    for check in checks:
        if any(
            fault.kind == rule.kind and rule.role in (None, fault.role)
            for rule in SUPERSEDES
            if check in rule.checks
            for fault in collected
        ):
            continue
        for result in check(models):
            if isinstance(result, Remark):
                remarks[result.text] = None
            else:
                collected.append(result)
    return collected[len(faults) :], list(remarks)
