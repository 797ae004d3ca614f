"""The audit as an assertion in a test of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from depthlaw.auditing.audit import audit
from depthlaw.testing.baseline import Baseline
from depthlaw.testing.outcome import Outcome
from depthlaw.testing.reports import lines


def assert_depth_law(
    build: Callable[..., nn.Module],
    *,
    scheme: str | None = None,
    recipe: str | None = None,
    layers: Sequence[int] | int = (2, 4),
    optimizer: str = "adamw",
    inputs: Callable[[nn.Module], Any] | None = None,
    groups: Callable[[nn.Module], Any] | None = None,
    visits: Sequence[int] | int = 1,
    ignore: Mapping[str, str] | None = None,
    baseline: str | Path | None = None,
    seed: int = 0,
) -> None:
    """Assert that a model is built as its scheme or recipe says, in seconds: nothing is trained or measured.

    build, layers, scheme, recipe, optimizer, inputs, groups, visits, seed: as ``depthlaw.audit`` takes them; the model
    is built once at each number of layers. ignore: by the kind of a fault, why it does not count. baseline: the file
    that ``depthlaw audit --baseline FILE --accept`` has written; the assertion fails where the initialisation has
    changed since.

    AssertionError, with what the audit says of each fault. ValueError, in one line, for what cannot be audited.

    >>> from torch import nn
    >>> from depthlaw.testing import assert_depth_law
    >>> def build(num_layers):
    ...     layer = nn.TransformerEncoderLayer(64, 4, 256, norm_first=True, batch_first=True)
    ...     return nn.TransformerEncoder(layer, num_layers, nn.LayerNorm(64), enable_nested_tensor=False)
    >>> assert_depth_law(build, scheme="pre-ln", ignore={"identical-layers": "they are drawn anew by our init"})
    """
    answer = audit(
        build,
        layers,
        scheme=scheme,
        recipe=recipe,
        optimizer=optimizer,
        inputs=inputs,
        groups=groups,
        visits=visits,
        seed=seed,
        measures=False,
    )
    accepted = None if baseline is None else Baseline.read(Path(baseline))
    outcome = Outcome.of(answer, ignore=ignore, baseline=accepted)
    if not outcome.is_fine:
        raise AssertionError("\n".join(lines(outcome)))
