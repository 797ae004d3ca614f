"""What stands before and behind the Transformer when it is trained: tokens, patches or frames in, logits out.

    x_0 = (row of a table of tokens, or projection of a patch or frame) + row of a table of positions

Both parts have variance 1/2 at initialisation, so x_0 of a token, or of standardised features, has the unit variance
that the theory counts with; or the square of the config's ``embedding_std``. With rotary positions there is no table of
them, and the first part is all of x_0. A BERT-, GPT-, NMT-, ViT- or speech-shaped model is one of these with a
``ModelConfig`` and a ``Data`` of its kind. Tables are N(0, 1/2), a projection of F standardised features N(0, 1/(2F)),
the head N(0, 1/D); all of these are trained, with the roles "embedding" and "head". There is no padding mask: a pad is
a token like any other.

Several networks stand in one, as in ``sims.ensemble``: members of one shape, each with its own seed and numbers.

Dimensions: E members, B batch, S and T positions of the encoder and of the last side, F features, D d_model, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from depthlaw.sims.config import ModelConfig
from depthlaw.sims.ensemble import Ensemble, Member


class Shape(Protocol):
    """What of the data decides a network: ``sims.training.data.Data`` is one."""

    @property
    def is_causal(self) -> bool: ...
    @property
    def has_decoder(self) -> bool: ...
    @property
    def num_positions(self) -> int: ...
    @property
    def num_decoder_positions(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def decoder_vocab_size(self) -> int: ...
    @property
    def num_features(self) -> int: ...
    @property
    def num_classes(self) -> int: ...


_TABLES = 2_000_003
"""Tables are drawn from other seeds than matrices are, and than inputs (``sims.update``)."""


_FEW = 64
"""The most tokens for which a sublayer is one piece on a CPU. Measured, at 16 and 32 tokens that took 0.9 of the time
that torch's own attention takes in pieces of their own, at 128 tokens 1.05 times it."""


class Network(nn.Module):
    """Front end, Transformer and head of each member, whose parameters have a leading dimension E.

    members: the networks, each without vocabulary and head, which come from the data. core: the Transformers, with
    their heads. ValueError where config and data do not fit: one of them has a decoder or is causal and the other not,
    or the config brings a vocabulary or a head of its own; and where members differ in shape.
    """

    def __init__(
        self,
        members: Sequence[Member],
        data: Shape,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__()
        for config in (member.config for member in members):
            if bool(config.decoder) != data.has_decoder:
                has = "a decoder" if config.decoder else "no decoder"
                raise ValueError(
                    f"the model has {has}, and the data {'wants one' if data.has_decoder else 'wants none'}"
                )
            if not data.has_decoder and config.is_causal != data.is_causal:
                raise ValueError(f"is_causal is {config.is_causal} of the model and {data.is_causal} of the data")
            if config.vocab_size or config.num_outputs:
                raise ValueError("vocab_size and num_outputs come from the data: leave them out of the model")
        self.members = [Member(replace(member.config, num_outputs=data.num_classes), member.seed) for member in members]
        self.core = self._make_core(data, dtype, device)
        self.config = self.core.config
        self.tables = nn.ParameterDict(self._make_tables(data, dtype, device))

    def _make_core(self, data: Shape, dtype: torch.dtype, device: torch.device | str) -> Ensemble:
        is_short = max(data.num_positions, data.num_decoder_positions) <= _FEW and torch.device(device).type == "cpu"
        return (Ensemble if is_short else Fused)(self.members, dtype=dtype, device=device)

    def _make_tables(self, data: Shape, dtype: torch.dtype, device: torch.device | str) -> dict[str, Tensor]:
        tables = [dict(tables_at_start(member, data)) for member in self.members]
        return {
            name: torch.stack([table[name] for table in tables]).to(dtype=dtype, device=device) for name in tables[0]
        }

    def forward(self, inputs: Tensor, decoder_inputs: Tensor | None = None) -> Tensor:
        """(E, B, T, C): logits at every position of the last side. inputs: (E, B, S) or (E, B, S, F)."""
        x_BSD, y_BTD = self.vectors(inputs, decoder_inputs)
        return self.core.logits(self.core(x_BSD, y_BTD))

    def vectors(self, inputs: Tensor, decoder_inputs: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """x_0 of either side: (E, B, S, D) and, where there is a decoder, (E, B, T, D)."""
        if "tokens" in self.tables:
            x_BSD = _rows(self.tables["tokens"], inputs)
        else:
            projection = self.tables["projection"]
            x_BSD = (inputs.to(projection.dtype).flatten(1, 2) @ projection.mT).unflatten(1, inputs.shape[1:3])
        x_BSD = self._placed(x_BSD, "positions")
        if decoder_inputs is None:
            return x_BSD, None
        return x_BSD, self._placed(_rows(self.tables["decoder_tokens"], decoder_inputs), "decoder_positions")

    def _placed(self, x_BTD: Tensor, table: str) -> Tensor:
        return x_BTD + self.tables[table][:, None, : x_BTD.shape[2]] if table in self.tables else x_BTD

    def tagged(self) -> list[tuple[str, nn.Parameter, str, Tensor]]:
        """(name, parameter, role, learning-rate multipliers (E,)) of every parameter."""
        ones = torch.ones(len(self.members))
        tables = [(f"tables.{name}", parameter, "embedding", ones) for name, parameter in self.tables.items()]
        return [
            *tables,
            *((f"core.{name}", p, role, self.core.lr_multiplier(name, 0)) for name, p, role in self.core.tagged()),
        ]

    def keep(self, kept: Sequence[int]) -> None:
        """Drop all members but these from everything but the parameters, whose holder does that."""
        self.members = [self.members[index] for index in kept]
        self.core.keep(kept)

    def gathered(self) -> AbstractContextManager[None]:
        """Within this, ``vectors`` can be called."""
        return nullcontext()

    def as_ensemble(self, dtype: torch.dtype = torch.float64) -> Ensemble:
        """The Transformers and their heads as they are now, alone: for ``sims.update``."""
        ensemble = Ensemble(self.members, dtype=dtype, device=next(self.core.parameters()).device)
        there = dict(self.core.named_parameters())
        with torch.no_grad():
            for name, parameter in ensemble.named_parameters():
                parameter.copy_(there[name])
        return ensemble


def tables_of(config: ModelConfig, data: Shape) -> dict[str, tuple[tuple[int, int], float]]:
    """(rows, columns) of each table, and the standard deviation of its entries, in the order in which it is drawn."""
    d, has_positions = config.d_model, not config.rotary_base
    part = config.embedding_std**2 / (2 if has_positions else 1)
    std = math.sqrt(part)
    decoder_std = std * config.embedding_std_of("decoder") / config.embedding_std
    tables = {"positions": ((data.num_positions, d), std)} if has_positions else {}
    if data.vocab_size:
        tables["tokens"] = ((data.vocab_size, d), std)
    else:
        tables["projection"] = ((d, data.num_features), math.sqrt(part / data.num_features))
    if data.has_decoder:
        if has_positions:
            tables["decoder_positions"] = ((data.num_decoder_positions, d), decoder_std)
        tables["decoder_tokens"] = ((data.decoder_vocab_size, d), decoder_std)
    return tables


def tables_at_start(member: Member, data: Shape) -> Iterator[tuple[str, Tensor]]:
    """The tables of one member, in float32, each drawn when it is asked for."""
    generator = torch.Generator().manual_seed(_TABLES + member.seed)
    for name, (shape, std) in tables_of(member.config, data).items():
        yield name, torch.randn(shape, generator=generator, dtype=torch.float32) * std


def _rows(table_EVD: Tensor, tokens_EBT: Tensor) -> Tensor:
    """The rows of each member's own table. One table of all, since the gradient of an index is slow."""
    first_E = table_EVD.shape[1] * torch.arange(len(table_EVD), device=tokens_EBT.device)
    return functional.embedding(tokens_EBT + first_E[:, None, None], table_EVD.flatten(0, 1))


class Fused(Ensemble):
    """The same function with torch's own attention, which keeps no scores. It has no forward-mode derivative, and its
    sublayers are several pieces."""

    is_traced = False

    def _mixed(self, q_BTD: Tensor, k_BSD: Tensor, v_BSD: Tensor, is_causal: bool) -> Tensor:
        if self.config.logit_softcap:
            return super()._mixed(q_BTD, k_BSD, v_BSD, is_causal)
        size = (-1, self.config.size_of_head)
        q, k, v = (x.flatten(0, 1).unflatten(-1, size).transpose(1, 2) for x in (q_BTD, k_BSD, v_BSD))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=self._scale)
        return mixed.transpose(1, 2).flatten(-2).unflatten(0, q_BTD.shape[:2])
