"""How large an experiment is: two cores in tens of minutes, the same twice as wide, or a GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

HEAD_SIZE = 16


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Of every run of an experiment. more: times as many steps."""

    name: str
    d_model: int
    num_tokens: int
    batch_size: int
    more: int = 1
    precision: str = "float32"

    def shared(self, num_steps: int, *, warmup: float = 0.0, narrower: int = 1) -> dict[str, Any]:
        """Fields of ``Trial``. warmup: share of the steps. narrower: d_model over this."""
        steps = num_steps * self.more
        d = self.d_model // narrower
        return {
            "d_model": d,
            "num_heads": max(1, d // HEAD_SIZE),
            "activation": "relu",
            "num_tokens": self.num_tokens,
            "batch_size": self.batch_size,
            "num_steps": steps,
            "warmup_steps": round(warmup * steps),
            "evaluate_every": max(1, steps // 3),
            "precision": self.precision,
        }


SMALL = Scale(name="small", d_model=32, num_tokens=32, batch_size=16)
WIDE = replace(SMALL, name="wide", d_model=2 * SMALL.d_model)
LARGE = Scale(name="large", d_model=512, num_tokens=128, batch_size=64, more=20, precision="bfloat16")
SCALES = {scale.name: scale for scale in (SMALL, WIDE, LARGE)}
