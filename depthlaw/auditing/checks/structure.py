"""Of which kinds the sublayers are."""

from __future__ import annotations

from depthlaw.auditing.faults import Fault, Faults
from depthlaw.auditing.fixes import Edit
from depthlaw.auditing.models import Beside


def kinds_of_sublayers(beside: Beside) -> Faults:
    """Sublayers of other kinds than the claim's: attention and FFN beside one another, or one of them alone."""
    built, asked = beside.last.built, beside.asked[-1]
    for side, wanted in zip(built.sides, (asked.encoder, asked.decoder), strict=False):
        there, kinds = ({sub.kind for sub in sublayers} for sublayers in (built.sides[side], wanted))
        if there != kinds:
            yield Fault(
                kind="structure",
                says=f"The sublayers are of other kinds than those of {beside.name}.",
                amount=", ".join(sorted(there)),
                asked=", ".join(sorted(kinds)),
                program=(Edit("# parallel: x = x + attention(norm(x)) + ffn(norm(x))"),),
                side=side,
            )
