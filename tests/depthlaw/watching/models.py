"""A small GPT as people write it: a fused matrix of queries, keys and values, a tied head, a loss where it is asked."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

VOCAB, WIDTH = 17, 16


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, -1))
        return self.c_proj(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.ln_1(x))
        return x + self.c_out(functional.gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    """checkpoints: None, or use_reentrant of torch's activation checkpoints."""

    def __init__(
        self, num_layers: int = 2, dropout: float = 0.1, checkpoints: bool | None = None, width: int = WIDTH
    ) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(VOCAB, width), nn.Embedding(8, width)
        self.drop, self.blocks = nn.Dropout(dropout), nn.ModuleList(Block(width) for _ in range(num_layers))
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, VOCAB, bias=False)
        self.head.weight = self.table.weight
        self.checkpoints = checkpoints
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                is_output = name.endswith(("c_proj.weight", "c_out.weight"))
                nn.init.normal_(parameter, std=0.2 / (num_layers if is_output else 1))

    def forward(self, ids: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        x = self.drop(self.table(ids) + self.places.weight[: ids.shape[1]])
        for block in self.blocks:
            x = block(x) if self.checkpoints is None else checkpoint(block, x, use_reentrant=self.checkpoints)
        logits = self.head(self.ln_f(x))
        return logits, None if targets is None else functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def batch(seed: int, size: int = 4) -> tuple[Tensor, Tensor]:
    ids = torch.randint(0, VOCAB, (size, 9), generator=torch.Generator().manual_seed(seed))
    return ids[:, :-1], ids[:, 1:]
