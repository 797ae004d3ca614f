"""What stands before and behind the Transformer when it is trained: tokens, patches or frames in, logits out.

    x_0 = (row of a table of tokens, or projection of a patch or frame) + row of a table of positions

Both parts have variance 1/2 at initialisation, so x_0 of a token, or of standardised features, has the unit variance
that the theory counts with; or the square of the config's ``embedding_std``. With rotary positions there is no table of
them, and the first part is all of x_0. A BERT-, GPT-, NMT-, ViT- or speech-shaped model is one of these with a
``ModelConfig`` and a ``Data`` of its kind. Tables are N(0, 1/2), a projection of F standardised features N(0, 1/(2F)),
the head N(0, 1/D); all of these are trained, with the roles "embedding" and "head". There is no padding mask: a pad is
a token like any other.

Dimensions: B batch, S and T positions of the encoder and of the last side, F features, D d_model, C classes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from sims.ensemble import Ensemble, Member
from sims.model import ModelConfig, Transformer


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


class Network(nn.Module):
    """Front end, Transformer and head.

    core: the Transformer, with the head. ValueError where config and data do not fit: one of them has a decoder or is
    causal and the other not, or the config brings a vocabulary or a head of its own.
    """

    def __init__(
        self,
        config: ModelConfig,
        data: Shape,
        seed: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__()
        if bool(config.decoder) != data.has_decoder:
            has = "a decoder" if config.decoder else "no decoder"
            raise ValueError(f"the model has {has}, and the data {'wants one' if data.has_decoder else 'wants none'}")
        if not data.has_decoder and config.is_causal != data.is_causal:
            raise ValueError(f"is_causal is {config.is_causal} of the model and {data.is_causal} of the data")
        if config.vocab_size or config.num_outputs:
            raise ValueError("vocab_size and num_outputs come from the data: leave them out of the model")
        self.config = replace(config, num_outputs=data.num_classes)
        self.core = _Fused(self.config, seed, dtype=dtype, device=device)
        self._seed = seed
        generator = torch.Generator().manual_seed(_TABLES + seed)

        def table(rows: int, columns: int, variance: float) -> nn.Parameter:
            drawn = torch.randn((rows, columns), generator=generator, dtype=torch.float32) * math.sqrt(variance)
            return nn.Parameter(drawn.to(dtype=dtype, device=device))

        d, has_table = config.d_model, not config.rotary_base
        part = config.embedding_std**2 / (2 if has_table else 1)
        self.tables = nn.ParameterDict({"positions": table(data.num_positions, d, part)} if has_table else {})
        if data.vocab_size:
            self.tables["tokens"] = table(data.vocab_size, d, part)
        else:
            self.tables["projection"] = table(d, data.num_features, part / data.num_features)
        if data.has_decoder:
            if has_table:
                self.tables["decoder_positions"] = table(data.num_decoder_positions, d, part)
            self.tables["decoder_tokens"] = table(data.decoder_vocab_size, d, part)

    def forward(self, inputs: Tensor, decoder_inputs: Tensor | None = None) -> Tensor:
        """(B, T, C): logits at every position of the last side."""
        x_BSD, y_BTD = self.vectors(inputs, decoder_inputs)
        return self.core.logits(self.core(x_BSD, y_BTD))

    def vectors(self, inputs: Tensor, decoder_inputs: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """x_0 of either side: (B, S, D) and, where there is a decoder, (B, T, D)."""
        if "tokens" in self.tables:
            x_BSD = functional.embedding(inputs, self.tables["tokens"])
        else:
            x_BSD = inputs.to(self.tables["projection"].dtype) @ self.tables["projection"].mT
        x_BSD = self._placed(x_BSD, "positions")
        if decoder_inputs is None:
            return x_BSD, None
        y_BTD = functional.embedding(decoder_inputs, self.tables["decoder_tokens"])
        return x_BSD, self._placed(y_BTD, "decoder_positions")

    def _placed(self, x_BTD: Tensor, table: str) -> Tensor:
        return x_BTD + self.tables[table][: x_BTD.shape[1]] if table in self.tables else x_BTD

    def tagged(self) -> list[tuple[str, nn.Parameter, str, float]]:
        """(name, parameter, role, learning-rate multiplier) of every parameter."""
        tables = [(f"tables.{name}", parameter, "embedding", 1.0) for name, parameter in self.tables.items()]
        return [
            *tables,
            *((f"core.{name}", p, role, float(self.core.lr_multipliers[name])) for name, p, role in self.core.tagged()),
        ]

    def as_ensemble(self) -> Ensemble:
        """The Transformer and its head as they are now, alone and in float64: for ``sims.update``."""
        ensemble = Ensemble([Member(self.config, self._seed)], device=next(self.core.parameters()).device)
        there = dict(self.core.named_parameters())
        with torch.no_grad():
            for name, parameter in ensemble.named_parameters():
                parameter.copy_(there[name][None])
        return ensemble


class _Fused(Transformer):
    """The same function, norms and linear maps by torch's own kernels: small models spend their time on calls."""

    def _linear(self, name: str, x_BTD: Tensor) -> Tensor:
        bias = self._weights[f"{name}_bias"] if self.config.has_bias else None
        return functional.linear(x_BTD, self._weights[name], bias)

    def _norm(self, place: str, name: str, x_BTD: Tensor) -> Tensor:
        if place not in self._places[name]:
            return x_BTD
        width = x_BTD.shape[-1:]
        gain = self._weights[f"{name}_{place}_gain"] if self.config.has_affine else None
        if self.config.norm_kind == "rmsnorm":
            x_BTD = x_BTD if gain is None else x_BTD.to(gain.dtype)  # of mixed kinds torch warns, where it autocasts
            return functional.rms_norm(x_BTD, width, gain, self.config.norm_eps)
        bias = self._weights[f"{name}_{place}_bias"] if self.config.has_affine else None
        return functional.layer_norm(x_BTD, width, gain, bias, self.config.norm_eps)
