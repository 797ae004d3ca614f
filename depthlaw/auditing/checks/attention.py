"""What multiplies the logits of attention."""

from __future__ import annotations

from depthlaw.auditing.faults import Amount, Fault, Faults, Remark, distinct
from depthlaw.auditing.fixes import Edit
from depthlaw.auditing.laws import NEAR, is_near
from depthlaw.auditing.models import Beside


def attention_scales(beside: Beside) -> Faults:
    """A recipe says what multiplies the logits, and of a scheme 1/sqrt(head size) is what its source has."""
    asked = beside.asked[-1]
    wrong = [
        (sub, wanted)
        for sub in beside.last.built.sublayers
        if sub.attention_scale is not None and sub.head_size
        for wanted in [sub.head_size**-0.5 if asked.attention_scale is None else asked.attention_scale]
        if not is_near(sub.attention_scale, wanted, NEAR)
    ]
    if not wrong:
        return
    sub, wanted = wrong[-1]
    scale = sub.attention_scale
    assert scale is not None
    if not beside.is_absolute:
        yield Remark(f"the logits of attention are multiplied by {scale:.4g}, and not by {wanted:.4g}")
        return
    yield Fault(
        kind="attention-scale",
        says=f"The logits of attention are multiplied by another number than {beside.name}'s.",
        where=distinct(w.name for sub, _ in wrong for w in sub.weights if w.role.endswith(("q", "k"))),
        amount=Amount("queries times keys, times", scale),
        asked=Amount("queries times keys, times", wanted),
        program=(Edit(f"logits = {wanted:.4g} * queries @ keys.transpose(-2, -1)"),),
        roles=("q",),
        side=sub.side,
    )
