"""What the embedding's scale does to a depth law: some schemes are flat only beside one as large as their branches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from depthlaw.network.network import Network
from depthlaw.sims.config import ModelConfig

PUBLISHED, LARGE = 0.02, 1.0
"""Standard deviations of an embedding's entries: of most published models, and of the papers' inputs."""
_SAME = 1.1
"""What two growths differ by at most, and are told as one; what is so near to 1 is flat."""


@dataclass(frozen=True, kw_only=True)
class OtherEmbedding:
    """std: of the embedding's entries as they reach the first layer, and growth: the update at the deeper network over
    that at the shallower one. other_std, other_growth: beside another embedding."""

    std: float
    growth: float
    other_std: float
    other_growth: float

    @property
    def text(self) -> str:
        """In a sentence; empty where the embedding makes no difference to the growth."""
        if not self.matters:
            return ""
        growth = f"x {self.growth:.3g} with entries of std {self.std:.3g} where they reach the first layer"
        other = f"x {self.other_growth:.3g} with "
        numbers = f"{growth}, {other}{self.other_std:.3g}"
        if _is_flat(self.growth):
            return f"the update is flat only beside an embedding as large as the branches: {numbers}"
        if _is_flat(self.other_growth):
            numbers = f"{growth}, {other}an embedding {self.other_std / self.std:.3g} times as large"
            size = "small" if self.std < self.other_std else "large"
            return f"the update is not flat beside so {size} an embedding: {numbers}"
        return f"how the update grows depends on the embedding: {numbers}"

    @property
    def matters(self) -> bool:
        return not _is_flat(self.other_growth / self.growth)

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "matters": self.matters}


def _is_flat(growth: float) -> bool:
    return 1 / _SAME <= growth <= _SAME


def beside_another(
    few: Network,
    many: Network,
    optimizer: str,
    *,
    configs: tuple[ModelConfig, ModelConfig] | None = None,
    growth: float | None = None,
    advance: Callable[[float], None] = lambda _: None,
    **options: Any,
) -> OtherEmbedding | None:
    """How the update of all branch matrices grows from one depth to another beside another embedding: a small one where
    theirs is large, else a large one. configs: plain numbers in place of these networks'. growth: with their own
    embedding, where it is known. options: of ``Network.kernel_update``. None behind
    post-norms, which forget the embedding's scale in the first sublayer. NoTheoryError for what theory does not know.
    """
    both = configs or (few.config(optimizer), many.config(optimizer))
    if all("post" in config.places(sublayer) for config in both for _, side in config.sides for sublayer in side):
        return None

    def grown(ratio: float) -> float:
        first, last = (
            network.kernel_update(optimizer, advance, _times(config, ratio), **options).update
            for network, config in zip((few, many), both, strict=True)
        )
        return last / first

    std = both[0].embedding_std * both[0].embedding_multiplier
    other = LARGE if std < (PUBLISHED * LARGE) ** 0.5 else PUBLISHED
    return OtherEmbedding(
        std=std, growth=grown(1.0) if growth is None else growth, other_std=other, other_growth=grown(other / std)
    )


def _times(config: ModelConfig, ratio: float) -> ModelConfig:
    other = config.decoder_embedding_std
    return replace(
        config,
        embedding_std=ratio * config.embedding_std,
        decoder_embedding_std=None if other is None else ratio * other,
    )
