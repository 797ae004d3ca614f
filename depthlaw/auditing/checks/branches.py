"""Branches that can never learn, or start as nothing, and outputs that are no numbers."""

from __future__ import annotations

import math

from depthlaw.auditing.faults import Fault, Faults, Remark, distinct
from depthlaw.auditing.fixes import Edit, anew
from depthlaw.auditing.models import Models, norms_ahead
from depthlaw.auditing.reading.look import Sublayer


def dead_branches(models: Models) -> Faults:
    """A branch that starts at 0 in two factors at once, whose gradients are 0 for ever."""
    dead = [w.name for sub in models.last.built.sublayers if _is_dead(sub) for w in sub.weights]
    if dead:
        yield Fault(
            kind="dead-branch",
            says="A branch starts at zero in two factors at once, so that neither ever gets a gradient.",
            where=distinct(dead),
            amount="0 in two of branch weight, output matrix and the one before it, or in a fixed branch weight",
            asked="at most one of them 0",
            program=(Edit("nn.init.xavier_uniform_(branch.output.weight)  # or a branch weight other than 0"),),
        )


def _is_dead(sub: Sublayer) -> bool:
    outs, inner = ([w for w in sub.weights if w.role in roles] for roles in (_OUT, ("v", "cross_v", "fc1")))
    has_zero = bool(outs) and all(not w.parameter.any() for w in outs)
    has_zero_inside = bool(inner) and all(not w.of(w.parameter).any() for w in inner)
    is_off = sub.branch_weight == 0
    return (is_off and (sub.trained is None or has_zero)) or (has_zero and has_zero_inside)


_OUT = ("out", "cross_out", "fc2")


def unfed_branches(models: Models) -> Faults:
    """A gated FFN whose input is 0, as behind a norm of gain 0: its gradients and the gain's are 0 for ever."""
    built = models.last.built
    unfed = [sub for sub in built.sublayers if sub.input_rms == 0 and "fc3" in sub.roles]
    names = distinct(n for sub in unfed for n in norms_ahead(built, [sub]) or [w.name for w in sub.weights])
    if names:
        yield Fault(
            kind="dead-branch",
            says="A gated FFN is given zeros alone, so that neither it nor what gives them ever gets a gradient.",
            where=names,
            amount="root mean square 0, of what the branch is given, as behind a norm whose gain is 0",
            asked="root mean square 1",
            program=anew(names),
        )


def still_branches(models: Models) -> Faults:
    """Sublayers that are the identity at the start, and learn."""
    every = models.last.built.sublayers
    still = 0
    for sub in every:
        outs = [w for w in sub.weights if w.role in _OUT]
        is_still = sub.branch_weight == 0 or (bool(outs) and all(not w.parameter.any() for w in outs))
        still += is_still and not _is_dead(sub)
    if still:
        yield Remark(f"{still} of {len(every)} sublayers are the identity at the start")


def outputs_not_finite(models: Models) -> Faults:
    """Outputs that are no numbers, at the shallowest depth that has such."""
    for depth in models.depths:
        built = depth.built
        if built.flow.output.isfinite().all():
            continue
        where = next((sub for sub in built.sublayers if not math.isfinite(sub.second_moment)), None)
        kind = str(built.flow.output.dtype).removeprefix("torch.")
        yield Fault(
            kind="not-finite",
            says=f"At {depth.asked} layers the output is not finite in {kind}.",
            where=distinct(w.name for w in where.weights) if where else (),
            amount="inf or nan",
            asked="numbers",
            program=(Edit("model = model.bfloat16()  # or a smaller stream: normalise it, or scale branches down"),),
        )
        return


def parameters_not_finite(models: Models) -> Faults:
    """Parameters that are no numbers, of which nothing else can be said."""
    for depth in models.depths:
        if wrong := depth.built.not_finite:
            yield Fault(
                kind="not-finite",
                says=f"At {depth.asked} layers parameters start at numbers that are not finite.",
                where=tuple(wrong),
                amount="inf or nan",
                asked="numbers",
                program=(Edit("torch.nn.init.normal_(parameter, std=0.02)  # whatever its initialisation is to be"),),
            )
            return
