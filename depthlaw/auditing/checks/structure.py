"""Of which kinds the sublayers are."""

from __future__ import annotations

from depthlaw.auditing.faults import Fault, Faults, Remark, distinct, few
from depthlaw.auditing.fixes import Edit
from depthlaw.auditing.models import Beside
from depthlaw.auditing.reading.look import pattern_of


def kinds_of_sublayers(beside: Beside) -> Faults:
    """Sublayers of other kinds than the claim's: attention and FFN beside one another, or one of them alone."""
    built, asked = beside.last.built, beside.asked[-1]
    for side, wanted in zip(built.sides, (asked.encoder, asked.decoder), strict=False):
        kinds = {sub.kind for sub in wanted}
        there = {sub.kind for sub in built.sides[side] if not sub.is_unknown} or kinds
        if unknown := [sub for sub in built.sides[side] if sub.is_unknown]:
            names = distinct(pattern_of(sub.called) for sub in unknown)
            makers = distinct(sub.found or "its branches differ" for sub in unknown)
            yield Remark(
                f"{few(names)}: neither attention nor FFN ({few(makers)}), so that its sum, the norms around it and a "
                f"single matrix that writes to the stream are compared with {beside.name}, and no more"
            )
            there |= kinds
        if not built.has_decoder and "attention" in kinds:
            there = {"attention" if kind == "cross" else kind for kind in there}
        if there != kinds:
            yield Fault(
                kind="structure",
                says=f"The sublayers are of other kinds than those of {beside.name}.",
                amount=", ".join(sorted(there)),
                asked=", ".join(sorted(kinds)),
                program=(Edit("# parallel: x = x + attention(norm(x)) + ffn(norm(x))"),),
                side=side,
            )
