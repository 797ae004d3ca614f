"""A small plain Transformer with a place for every mistake: what the gallery's models are made of.

Written as people write theirs, and independent of depthlaw: modules with the usual names, formulas by hand. A ``Shape``
says what is built; a ``Law`` says the standard deviation of each matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NUM_TOKENS_AT_MOST, VOCABULARY, NUM_HEADS = 64, 64, 2
_PATCH, _NUM_PATCHES = 8, 16


@dataclass(frozen=True, kw_only=True)
class At:
    """Where a sublayer stands. kind: attention, cross or ffn. layer: from 1. num_layers: of its side."""

    side: str
    kind: str
    layer: int
    num_layers: int


Weight = Callable[[At], float]
Build = Callable[[int], nn.Module]


def one(_: At) -> float:
    return 1.0


def everywhere(*places: str) -> Callable[[At], frozenset[str]]:
    """Norms at these places of every sublayer; "q" and "k" of an attention alone."""
    own = frozenset(places)
    return lambda at: own - {"q", "k"} if at.kind == "ffn" else own


PRE = everywhere("pre")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What is built.

    norms: places, of pre, q, k, inner, branch and post. trained: None, "scalar" or "vector", where the branch weight is
    a parameter. inputs: "ids" or "images". sublayer: the class of the sublayers, a place for mistakes. linear: makes a
    matrix with a bias. ffn_widths: where FFNs are not all as wide. kinds: of the sublayers of a layer, where these are
    not the usual ones. attend: is called with queries, keys and values, and ``is_causal`` and ``scale``. model: the
    class of the whole, where it is none of those below.
    """

    arch: str = "decoder"
    d_model: int = 32
    ffn_width: int = 128
    ffn_widths: Callable[[At], int] | None = None
    norms: Callable[[At], frozenset[str]] = PRE
    norm: Callable[..., nn.Module] = nn.LayerNorm
    eps: float = 1e-5
    has_final: bool = True
    has_embedding_norm: bool = False
    has_bias: bool = True
    is_gated: bool = False
    is_fused: bool = False
    is_tied: bool = False
    is_rotary: bool = False
    has_positions: bool = False
    activation: Callable[[Tensor], Tensor] = F.gelu
    attention_scale: float | None = None
    residual_weight: Weight = one
    branch_weight: Weight = one
    input_scale: Weight = one
    trained: str | None = None
    embedding_multiplier: float = 1.0
    inputs: str = "ids"
    sublayer: type[Sublayer] | None = None
    linear: Callable[..., nn.Module] = nn.Linear
    kinds: tuple[str, ...] = ()
    attend: Callable[..., Tensor] = F.scaled_dot_product_attention
    model: Callable[[Shape, int], nn.Module] | None = None


class Attention(nn.Module):
    def __init__(self, shape: Shape, at: At, norms: frozenset[str]) -> None:
        super().__init__()
        width, bias = shape.d_model, shape.has_bias
        self.shape, self.is_causal = shape, shape.arch != "encoder" and at.side == "decoder" and at.kind == "attention"
        if shape.is_fused:
            self.qkv_proj = shape.linear(width, 3 * width, bias)
        else:
            self.q_proj, self.k_proj, self.v_proj = (shape.linear(width, width, bias) for _ in "qkv")
        self.q_norm = shape.norm(width, eps=shape.eps) if "q" in norms else nn.Identity()
        self.k_norm = shape.norm(width, eps=shape.eps) if "k" in norms else nn.Identity()
        self.inner_norm = shape.norm(width, eps=shape.eps) if "inner" in norms else nn.Identity()
        self.out_proj = shape.linear(width, width, bias)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        source = x if memory is None else memory
        if self.shape.is_fused:
            q, k, v = self.qkv_proj(x).chunk(3, dim=-1)
        else:
            q, k, v = self.q_proj(x), self.k_proj(source), self.v_proj(source)
        q, k, v = (_heads(part) for part in (self.q_norm(q), self.k_norm(k), v))
        if self.shape.is_rotary:
            q, k = _rotated(q), _rotated(k)
        y = self.shape.attend(q, k, v, is_causal=self.is_causal, scale=self.shape.attention_scale)
        return self.out_proj(self.inner_norm(y.transpose(1, 2).flatten(2)))


def _heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (NUM_HEADS, -1)).transpose(1, 2)


def _rotated(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    speeds = 10_000.0 ** (-torch.arange(half, device=x.device) / half)
    angles = torch.arange(x.shape[-2], device=x.device)[:, None] * speeds
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()), -1)


class FeedForward(nn.Module):
    def __init__(self, shape: Shape, at: At, norms: frozenset[str]) -> None:
        super().__init__()
        width = shape.ffn_width if shape.ffn_widths is None else shape.ffn_widths(at)
        self.activation = shape.activation
        self.gate_proj = shape.linear(shape.d_model, width, shape.has_bias) if shape.is_gated else None
        self.up_proj = shape.linear(shape.d_model, width, shape.has_bias)
        self.inner_norm = shape.norm(width, eps=shape.eps) if "inner" in norms else nn.Identity()
        self.down_proj = shape.linear(width, shape.d_model, shape.has_bias)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        up = self.up_proj(x)
        hidden = self.activation(up) if self.gate_proj is None else self.activation(self.gate_proj(x)) * up
        return self.down_proj(self.inner_norm(hidden))


class Sublayer(nn.Module):
    """post( a x + b branch_norm( F( c pre(x) ) ) )"""

    pre_norm: nn.Module | None
    branch_norm: nn.Module | None
    post_norm: nn.Module | None
    input_scale: Any

    def __init__(self, shape: Shape, at: At) -> None:
        super().__init__()
        norms = shape.norms(at)
        self.at, self.places = at, norms
        self.branch = FeedForward(shape, at, norms) if at.kind == "ffn" else Attention(shape, at, norms)
        for place in ("pre", "branch", "post"):
            self.add_module(f"{place}_norm", shape.norm(shape.d_model, eps=shape.eps) if place in norms else None)
        self.residual_weight, self.input_scale = shape.residual_weight(at), shape.input_scale(at)
        start = shape.branch_weight(at)
        size = {None: None, "scalar": 1, "vector": shape.d_model}[shape.trained]
        self.branch_weight: Any = start if size is None else nn.Parameter(torch.full((size,), start))

    def pre(self, x: Tensor) -> Tensor:
        return self.input_scale * (x if self.pre_norm is None else self.pre_norm(x))

    def added(self, x: Tensor, memory: Tensor | None) -> Tensor:
        y = self.branch(self.pre(x), memory)
        return self.branch_weight * (y if self.branch_norm is None else self.branch_norm(y))

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        y = self.residual_weight * x + self.added(x, memory)
        return y if self.post_norm is None else self.post_norm(y)


class Block(nn.Module):
    def __init__(self, shape: Shape, side: str, layer: int, num_layers: int) -> None:
        super().__init__()
        kinds = [*shape.kinds] or ["attention", "ffn"]
        if shape.arch == "encoder-decoder" and side == "decoder":
            kinds.insert(1, "cross")
        make = shape.sublayer or Sublayer
        for kind in kinds:
            name = f"{kind}_{len(self._modules)}" if kind in self._modules else kind
            self.add_module(name, make(shape, At(side=side, kind=kind, layer=layer, num_layers=num_layers)))

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        for sublayer in self.children():
            assert isinstance(sublayer, Sublayer)
            x = sublayer(x, memory if sublayer.at.kind == "cross" else None)
        return x


class Stack(nn.Module):
    """Embedding, blocks and, where there is one, the final norm."""

    def __init__(self, shape: Shape, side: str, num_layers: int) -> None:
        super().__init__()
        self.shape = shape
        width = shape.d_model
        if shape.inputs == "images":
            self.patches = nn.Conv2d(3, width, _PATCH, stride=_PATCH)
        else:
            self.embedding = nn.Embedding(VOCABULARY, width)
        num_positions = _NUM_PATCHES if shape.inputs == "images" else NUM_TOKENS_AT_MOST
        self.positions = nn.Embedding(num_positions, width) if shape.has_positions else None
        self.embedding_norm = shape.norm(width, eps=shape.eps) if shape.has_embedding_norm else nn.Identity()
        self.blocks = nn.ModuleList(Block(shape, side, layer, num_layers) for layer in range(1, num_layers + 1))
        self.final_norm = shape.norm(width, eps=shape.eps) if shape.has_final else nn.Identity()

    def forward(self, inputs: Tensor, memory: Tensor | None = None) -> Tensor:
        if self.shape.inputs == "images":
            x = self.patches(inputs).flatten(2).transpose(1, 2)
        else:
            x = self.embedding(inputs) * self.shape.embedding_multiplier
        if self.positions is not None:
            x = x + self.positions(torch.arange(x.shape[1], device=x.device))
        x = self.embedding_norm(x)
        for block in self.blocks:
            x = block(x, memory)
        return self.final_norm(x)


class LanguageModel(nn.Module):
    """One stack and a head."""

    def __init__(self, shape: Shape, num_layers: int) -> None:
        super().__init__()
        self.stack = Stack(shape, "encoder" if shape.arch == "encoder" else "decoder", num_layers)
        self.lm_head = nn.Linear(shape.d_model, VOCABULARY, bias=False)
        if shape.is_tied:
            self.lm_head.weight = self.stack.embedding.weight

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.lm_head(self.stack(input_ids))


class ImageModel(nn.Module):
    """The same on images."""

    def __init__(self, shape: Shape, num_layers: int) -> None:
        super().__init__()
        self.stack = Stack(shape, "encoder", num_layers)
        self.lm_head = nn.Linear(shape.d_model, VOCABULARY)

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.lm_head(self.stack(pixel_values))


class Translator(nn.Module):
    """An encoder and a decoder that reads it."""

    def __init__(self, shape: Shape, num_layers: int) -> None:
        super().__init__()
        self.encoder, self.decoder = (Stack(shape, side, num_layers) for side in ("encoder", "decoder"))
        self.lm_head = nn.Linear(shape.d_model, VOCABULARY, bias=False)

    def forward(self, input_ids: Tensor, decoder_input_ids: Tensor) -> Tensor:
        return self.lm_head(self.decoder(decoder_input_ids, self.encoder(input_ids)))


# ---------------------------------------------------------------- how it starts


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """A matrix, or the rows of a fused one that have this role. at: None of an embedding and of the head. num_layers:
    of the model."""

    role: str
    at: At | None
    weight: Tensor
    num_layers: int = 0

    @property
    def place(self) -> At:
        if self.at is None:
            raise ValueError(f"{self.role} is in no sublayer")
        return self.at


Law = Callable[[Matrix], float]


def matrices(model: Any) -> Iterator[Matrix]:
    """All of them; those of an attention to the encoder have roles that begin with cross_."""
    num_layers = next(module.at.num_layers for module in model.modules() if isinstance(module, Sublayer))
    for module in model.modules():
        if isinstance(module, Sublayer):
            for role, weight in _of_branch(module.branch):
                yield Matrix(role=f"cross_{role}" if module.at.kind == "cross" else role, at=module.at, weight=weight)
        elif isinstance(module, Stack):
            if module.shape.inputs == "ids":
                weight = module.embedding.weight.detach()
                yield Matrix(role="embedding", at=None, weight=weight, num_layers=num_layers)
            if module.positions is not None:
                yield Matrix(role="position", at=None, weight=module.positions.weight.detach())
    if not any(isinstance(module, Stack) and module.shape.is_tied for module in model.modules()):
        yield Matrix(role="head", at=None, weight=model.lm_head.weight.detach())


def _of_branch(branch: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(branch, FeedForward):
        names: Mapping[str, Any] = (
            {"fc1": branch.up_proj, "fc2": branch.down_proj}
            if branch.gate_proj is None
            else {"fc1": branch.gate_proj, "fc3": branch.up_proj, "fc2": branch.down_proj}
        )
        yield from ((role, linear.weight.detach()) for role, linear in names.items() if linear is not None)
        return
    if branch.shape.is_fused:
        yield from zip("qkv", branch.qkv_proj.weight.detach().chunk(3), strict=True)
    else:
        yield from ((role, branch.get_submodule(f"{role}_proj").weight.detach()) for role in "qkv")
    if branch.out_proj is not None:
        yield "out", branch.out_proj.weight.detach()


def start(model: nn.Module, law: Law, cut: float | None = None) -> None:
    """Draw each matrix from a normal of the law's standard deviation, cut at so many of them. Biases of linear layers
    start at 0; the convolution of patches is left as torch draws it."""
    for matrix in matrices(model):
        std = law(matrix)
        if cut is None or std == 0:
            nn.init.normal_(matrix.weight, std=std)
        else:
            nn.init.trunc_normal_(matrix.weight, std=std, a=-cut * std, b=cut * std)
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


def transformer(shape: Shape, law: Law, *edits: Callable[[nn.Module], Any], cut: float | None = None) -> Build:
    """A builder: the model of that shape, started by the law, with what is done to it afterwards."""
    usual = {"encoder-decoder": Translator}.get(shape.arch, ImageModel if shape.inputs == "images" else LanguageModel)

    def build(num_layers: int) -> nn.Module:
        model = (shape.model or usual)(shape, num_layers)
        start(model, law, cut)
        for edit in edits:
            edit(model)
        return model

    return build


def xavier(matrix: Matrix) -> float:
    """Of a matrix by itself; embeddings have variance 1."""
    if matrix.role == "embedding":
        return 1.0
    if matrix.role == "head":
        return matrix.weight.shape[-1] ** -0.5
    return math.sqrt(2 / sum(matrix.weight.shape))


# ---------------------------------------------------------------- the same model under other names


def renamed(build: Build) -> Build:
    """The builder's models with every class and parameter under a name that says nothing: Block7, m0.m3.p1."""
    return lambda num_layers: _rename(build(num_layers), {})


def _rename(module: nn.Module, classes: dict[type, type]) -> nn.Module:
    if "_old_names" in module.__dict__:
        return module  # shared by two
    for child in module.children():
        _rename(child, classes)
    kind = type(module)
    if kind not in classes:
        classes[kind] = type(f"Block{len(classes)}", (kind,), {"__getattr__": _by_old_name})
    old_names = {}
    kinds: list[tuple[str, Any]] = [("m", module._modules), ("p", module._parameters), ("b", module._buffers)]
    for letter, own in kinds:
        for number, (name, value) in enumerate(list(own.items())):
            del own[name]
            old_names[name] = f"{letter}{number}"
            own[f"{letter}{number}"] = value
    module.__dict__["_old_names"] = old_names
    module.__class__ = classes[kind]
    return module


def _by_old_name(module: nn.Module, name: str) -> Any:
    return nn.Module.__getattr__(module, module.__dict__["_old_names"].get(name, name))
