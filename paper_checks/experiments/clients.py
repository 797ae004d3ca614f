"""Other people's models beside the prediction of their recipe: Hugging Face's, torch's own and x-transformers'.

    python -m depthlaw.paper_checks.experiments.clients  # what clients.jsonl and kernel-clients.json lack

Models are built from configurations, nothing is downloaded, and keep the weights that their own code gave them; or get
Xavier's, by role. A model is given ``NUM_TOKENS`` tokens; read is one logit at the last of them, by a head of our own
with the recipe's standard deviation. Needs the extra ``peers``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from sympy import sqrt

from depthlaw.network.network import Network
from depthlaw.paper_checks.experiments import kernel_kept
from depthlaw.recipes.catalogue import recipe
from depthlaw.recipes.recipe import POST, PRE, SMALL, F, H, K, Recipe, everywhere
from depthlaw.sims.config import BRANCH_ROLES
from depthlaw.sims.records import record
from depthlaw.system.places import RECORDS, RESULTS
from depthlaw.theory.symbols import d

if TYPE_CHECKING:
    import torch
    from torch import nn

PATH, PREDICTED = RECORDS / "clients.jsonl", RESULTS / "kernel-clients.json"
NUM_TOKENS = 8
HEAD_SIZE = 16
"""Many heads at a small width: with few, v and k under Muon have fewer singular values than are predicted."""
VOCABULARY = 64
OPTIMIZERS = ("sgd", "adam", "muon+adamw")
OWN, XAVIER = "own", "xavier"
"""Which weights a model starts with: those that its own code draws, or Xavier's normal ones."""

Built = tuple["torch.nn.Module", Callable[["torch.Tensor"], "torch.Tensor"]]
"""A model, and what makes of token ids (1, T) the hidden states (1, T, D) that its head would read."""


@dataclass(frozen=True)
class Client:
    """A model that is not ours. build: of a number of layers, a width and a number of heads. roles: by the end of a
    matrix's name, its role, or those that are stacked in it. inits: the starts that its recipe knows. package: whose
    version a record names."""

    name: str
    recipe: Recipe
    build: Callable[[int, int, int], Built]
    roles: Mapping[str, tuple[str, ...]]
    inits: tuple[str, ...] = (OWN, XAVIER)
    package: str = "transformers"


def with_xavier(of: Recipe) -> Recipe:
    """The same model with Xavier's standard deviations, an embedding of variance 1 and a head of norm 1."""
    wide, narrow = sqrt(2 / (d + H * K)), sqrt(2 / (d + H * K / of.queries_per_key))
    std = everywhere(sqrt(2 / (d + F)), q=wide, k=narrow, v=narrow, out=wide)
    return replace(of, std=std, embedding_std=1, position_std=0, embedding_multiplier=1, head=1 / sqrt(d))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A client at one size, with one start."""

    client: Client
    init: str
    num_layers: int
    d_model: int

    @property
    def network(self) -> Network:
        """Its recipe with these weights, which has the prediction."""
        recipe = self.client.recipe if self.init == OWN else with_xavier(self.client.recipe)
        recipe = replace(recipe, name=f"{self.client.name}, {self.init} weights, {self.d_model} wide")
        heads = self.d_model // HEAD_SIZE
        return Network.of_recipe(recipe, self.num_layers, self.d_model, num_heads=heads, num_tokens=NUM_TOKENS)

    def sizes(self, optimizer: str) -> dict[str, Any]:
        """What tells it from the others."""
        names = {"client": self.client.name, "init": self.init, "num_layers": self.num_layers, "d_model": self.d_model}
        return names | {"num_heads": self.d_model // HEAD_SIZE, "num_tokens": NUM_TOKENS, "optimizer": optimizer}

    def about(self, optimizer: str) -> dict[str, Any]:
        """What a record says of it: with the package that is here."""
        release = version(self.client.package).partition("+")[0]
        return {**self.sizes(optimizer), "package": f"{self.client.package} {release}"}


# ---------------------------------------------------------------- the models


def _roles(text: str) -> dict[str, tuple[str, ...]]:
    """By the end of a name: "end:role,role end:role"."""
    return {end: tuple(roles.split(",")) for end, roles in (pair.split(":") for pair in text.split())}


_LLAMA = _roles("q_proj:q k_proj:k v_proj:v o_proj:out gate_proj:fc1 up_proj:fc3 down_proj:fc2 embed_tokens:embedding")
_GPT_2 = _roles("attn.c_attn:q,k,v attn.c_proj:out mlp.c_fc:fc1 mlp.c_proj:fc2 wte:embedding wpe:positions")
_BERT = _roles("query:q key:k value:v attention.output.dense:out intermediate.dense:fc1 output.dense:fc2")
_VIT = _roles("q_proj:q k_proj:k v_proj:v o_proj:out mlp.fc1:fc1 mlp.fc2:fc2")
_T5 = _roles(
    "Attention.q:q Attention.k:k Attention.v:v Attention.o:out EncDecAttention.q:cross_q EncDecAttention.k:cross_k "
    "EncDecAttention.v:cross_v EncDecAttention.o:cross_out wi:fc1 wo:fc2 shared:embedding "
    "relative_attention_bias:positions"
)
_TORCH = _roles("in_proj_weight:q,k,v out_proj:out linear1:fc1 linear2:fc2")
_X = _roles("to_q:q to_k:k to_v:v to_out:out ff.0.proj:fc3,fc1 ff.2:fc2")


def _hugging_face(name: str, num_layers: int, d_model: int, num_heads: int, **options: Any) -> tuple[Any, Any]:
    """The class of a model, and its configuration."""
    import transformers

    options |= {"num_hidden_layers": num_layers, "hidden_size": d_model, "num_attention_heads": num_heads}
    config = getattr(transformers, f"{name}Config")(attn_implementation="eager", **options)
    return getattr(transformers, f"{name}Model"), config


def _decoder(
    name: str, num_layers: int, d_model: int, num_heads: int, *, is_grouped: bool = False, **options: Any
) -> Built:
    options |= dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id")) | {"vocab_size": VOCABULARY}
    options |= {"intermediate_size": 3 * d_model} if name != "GPT2" else {}
    options |= {"num_key_value_heads": num_heads // 2} if is_grouped else {}
    make, config = _hugging_face(name, num_layers, d_model, num_heads, **options)
    model = make(config).double().eval()
    return model, lambda ids: model(input_ids=ids, use_cache=False).last_hidden_state


def _encoder(name: str, num_layers: int, d_model: int, num_heads: int) -> Built:
    """It gets vectors of our own where it would have pixels, or an embedding and its norm."""
    make, config = _hugging_face(name, num_layers, d_model, num_heads, intermediate_size=4 * d_model)
    whole = make(config, add_pooling_layer=False).double().eval()
    layers = whole.layers if hasattr(whole, "layers") else whole.encoder.layer
    return _of_vectors([*layers, *([whole.layernorm] if hasattr(whole, "layernorm") else [])], d_model)


def _of_vectors(parts: Sequence[Any], d_model: int) -> Built:
    """Modules one behind the other, of which the first reads rows of a table of our own."""
    from torch import nn

    inputs, behind = nn.Embedding(VOCABULARY, d_model).double(), nn.ModuleList(parts).double()

    def forward(ids: torch.Tensor) -> torch.Tensor:
        x = inputs(ids)
        for part in behind:
            x = part(x)
            x = x[0] if isinstance(x, tuple) else x
        return x

    return nn.ModuleDict({"inputs": inputs, "parts": behind}), forward


def _t5(num_layers: int, d_model: int, num_heads: int) -> Built:
    from transformers import T5Config, T5Model

    sizes = {"d_model": d_model, "d_kv": HEAD_SIZE, "d_ff": 4 * d_model, "vocab_size": VOCABULARY}
    rest: dict[str, Any] = {"dropout_rate": 0.0, "attn_implementation": "eager"}
    config = T5Config(**sizes, num_layers=num_layers, num_heads=num_heads, **rest)
    model = T5Model(config).double().eval()

    def forward(ids: torch.Tensor) -> torch.Tensor:
        sides = {"input_ids": ids[:, :NUM_TOKENS], "decoder_input_ids": ids[:, NUM_TOKENS:]}
        return model(**sides, use_cache=False).last_hidden_state

    return model, forward


def _torch(num_layers: int, d_model: int, num_heads: int, *, is_post: bool) -> Built:
    from torch import nn

    options: dict[str, Any] = {"dropout": 0.0, "norm_first": not is_post, "batch_first": True}
    layers = [nn.TransformerEncoderLayer(d_model, num_heads, 4 * d_model, **options) for _ in range(num_layers)]
    return _of_vectors([*layers, *([] if is_post else [nn.LayerNorm(d_model)])], d_model)


def _x_transformers(num_layers: int, d_model: int, num_heads: int) -> Built:
    from x_transformers import Decoder

    heads = {"heads": num_heads, "attn_dim_head": HEAD_SIZE, "rotary_pos_emb": True, "rotary_emb_dim": HEAD_SIZE}
    ffn = {"ff_swish": True, "ff_glu": True, "ff_no_bias": True}
    return _of_vectors([Decoder(dim=d_model, depth=num_layers, use_rmsnorm=True, **heads, **ffn)], d_model)


_PLAIN = everywhere(SMALL)
"""Hugging Face draws whole normals where the original code cuts them."""
_TORCHS = Recipe(
    name="torch.nn.TransformerEncoder",
    says="torch's own encoder",
    source="pytorch 2.13, torch/nn/modules/transformer.py",
    arch="encoder",
    norms=(POST,),
    has_final=False,
    activation="relu",
)
_LLAMA_2 = replace(recipe("llama-2"), hidden=3 * d)
_QWEN_3 = replace(recipe("qwen-3"), head_size=HEAD_SIZE, rotary_base=10_000.0)
_OLMO_2 = replace(recipe("olmo-2"), std=_PLAIN, embedding_std=SMALL, head=SMALL, rotary_base=10_000.0, hidden=3 * d)
_GEMMA_2 = replace(recipe("gemma-2"), hidden=3 * d, head_size=HEAD_SIZE)
_BERTS = replace(recipe("bert"), std=_PLAIN, head=SMALL)
_T5S = replace(recipe("t5"), head_size=HEAD_SIZE, std={**recipe("t5").std, "fc1": 1 / sqrt(d), "fc2": 1 / sqrt(F)})
_ALL = (
    Client(
        "GPT-2", recipe("gpt2"), partial(_decoder, "GPT2"), _GPT_2, (OWN,)
    ),  # with two tables, tokens' and positions'
    Client("Llama", _LLAMA_2, partial(_decoder, "Llama"), _LLAMA),
    Client(
        "Llama, grouped heads",
        replace(_LLAMA_2, queries_per_key=2),
        partial(_decoder, "Llama", is_grouped=True),
        _LLAMA,
    ),
    Client("Qwen3", _QWEN_3, partial(_decoder, "Qwen3", is_grouped=True, head_dim=HEAD_SIZE), _LLAMA),
    # Its norms stand behind branches of a small network at 0.02, whose outputs are as small as its own eps; recipes are
    # predicted without one unless ``Block.norm_eps`` says it, as tests/depthlaw/network/test_clients.py does.
    Client("OLMo 2", _OLMO_2, partial(_decoder, "Olmo2", rms_norm_eps=1e-12), _LLAMA),
    # Its embedding's multiplier belongs to its own weights.
    Client("Gemma 2", _GEMMA_2, partial(_decoder, "Gemma2", is_grouped=True, head_dim=HEAD_SIZE), _LLAMA, (OWN,)),
    Client("BERT", _BERTS, partial(_encoder, "Bert"), _BERT),
    Client("ViT", recipe("vit"), partial(_encoder, "ViT"), _VIT),
    # Its attention has no 1/sqrt(K), so Xavier's queries would make it one of single tokens.
    Client("T5", _T5S, _t5, _T5, (OWN,)),
    Client("torch, post-norm", _TORCHS, partial(_torch, is_post=True), _TORCH, (XAVIER,), "torch"),
    Client(
        "torch, pre-norm",
        replace(_TORCHS, norms=(PRE,), has_final=True),
        partial(_torch, is_post=False),
        _TORCH,
        (XAVIER,),
        "torch",
    ),
    Client("x-transformers", replace(_LLAMA_2, hidden=4 * d), _x_transformers, _X, (XAVIER,), "x-transformers"),
)
CLIENTS = {client.name: client for client in _ALL}

# ---------------------------------------------------------------- measuring


def updates(case: Case, seed: int) -> dict[str, float]:
    """By optimizer/role, in the units of ``sims.optim.NORMALISATION``, of one network."""
    import torch

    from depthlaw.sims.config import NORMALISATION
    from depthlaw.sims.update import Norms

    torch.manual_seed(seed)
    model, forward = case.client.build(case.num_layers, case.d_model, case.d_model // HEAD_SIZE)
    config = case.network.config("sgd")
    _start(case, model, config.embedding_std)
    head = torch.randn(case.d_model, dtype=torch.float64) * config.head_gain / math.sqrt(case.d_model)
    num_ids = NUM_TOKENS * (2 if config.decoder else 1)
    (forward(torch.randperm(VOCABULARY)[None, :num_ids])[0, -1] @ head).backward()
    sums: dict[str, float] = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            continue
        roles = roles_of(case.client, model, name)
        for role, weight, grad in zip(
            roles, split(parameter, len(roles)), split(parameter.grad, len(roles)), strict=True
        ):
            is_branch = role in BRANCH_ROLES
            norms = Norms(grad[None], weight.detach()[None], grad.ndim, is_branch, rank=num_ids)
            for optimizer in OPTIMIZERS:
                value = norms.alignment(optimizer).item() / case.d_model ** NORMALISATION[optimizer].power
                for key in (role, "update") if is_branch else (role,):
                    sums[f"{optimizer}/{key}"] = sums.get(f"{optimizer}/{key}", 0.0) + value
    return sums


def _start(case: Case, model: nn.Module, embedding_std: float) -> None:
    """Weights that the model's own code did not draw: the table of our own, and everything where they are Xavier's."""
    from torch import nn

    for name, parameter in model.named_parameters():
        is_ours = name.startswith("inputs")
        if not is_ours and case.init == OWN:
            continue
        roles = roles_of(case.client, model, name)
        for role, part in zip(roles, split(parameter.data, len(roles)), strict=True):
            if role == "bias":
                nn.init.zeros_(part)
            elif part.ndim == 2:
                nn.init.normal_(part, std=embedding_std if role == "embedding" else math.sqrt(2 / sum(part.shape)))


def roles_of(client: Client, model: nn.Module, name: str) -> tuple[str, ...]:
    """Of a parameter; several of a matrix that is stacked. LookupError of a matrix that no role is known of."""
    module, _, leaf = name.rpartition(".")
    parameter = model.get_parameter(name)
    if parameter.ndim > 1:
        ends = [end for end in client.roles if name.removesuffix(".weight").endswith(end)]
        if not ends and not name.startswith("inputs"):
            raise LookupError(f"{client.name} has a matrix {name} whose role is not known")
        return client.roles[max(ends, key=len)] if ends else ("embedding",)
    is_of_norm = getattr(getattr(model.get_submodule(module), "weight", parameter), "ndim", 1) == 1
    if leaf.endswith("bias"):
        return ("norm_bias",) if is_of_norm and leaf == "bias" else ("bias",)
    return ("norm_gain",)


def split(matrix: torch.Tensor, count: int) -> Sequence[torch.Tensor]:
    """A stacked matrix along its longer side; some libraries keep it transposed."""
    return matrix.chunk(count, dim=0 if matrix.shape[0] >= matrix.shape[-1] else -1)


# ---------------------------------------------------------------- the record


def cases() -> list[Case]:
    """Cheap ones first."""
    sizes = [(2, 256), (8, 256), (32, 256), (2, 512), (8, 512), (32, 512)]
    return [
        Case(client=client, init=init, num_layers=num_layers, d_model=d_model)
        for num_layers, d_model in sizes
        for client in CLIENTS.values()
        for init in client.inits
    ]


def num_seeds(case: Case) -> int:
    """More where a network is small: a mean over many matrices scatters less."""
    seeds = {(2, 256): 64, (8, 256): 32, (2, 512): 32, (32, 256): 12, (8, 512): 12, (32, 512): 12}
    return seeds[case.num_layers, case.d_model]


def collect(path: Path, asked: Sequence[Case], seeds: Callable[[Case], int] = num_seeds) -> Generator[Case, None, None]:
    """Measure the seeds that the record lacks, and keep each case once it is whole. Yields after each that was
    measured."""
    there = record.read(path) if path.exists() else []
    for case in asked:
        configs = {name: case.about(name) for name in OPTIMIZERS}
        known = set.intersection(*(set(record.find(there, config).seeds) for config in configs.values()))
        chosen, start = [seed for seed in range(seeds(case)) if seed not in known], time.perf_counter()
        if not chosen:
            continue
        several = [updates(case, seed) for seed in chosen]
        seconds = time.perf_counter() - start
        for optimizer, config in configs.items():
            prefix = f"{optimizer}/"
            names = [name for name in several[0] if name.startswith(prefix)]
            values = {name.removeprefix(prefix): [result[name] for result in several] for name in names}
            made = record.make(config, chosen, values, device="cpu", dtype="float64", seconds=seconds / len(OPTIMIZERS))
            record.append(path, made)
        yield case


def predictions() -> list[kernel_kept.Question]:
    """Of all cases."""
    return kernel_kept.questions([case.network for case in cases()], OPTIMIZERS)


def run(processes: Annotated[int, typer.Option(help="At once, of the predictions.")] = 2) -> None:
    """Measure and predict what is lacking; one that was stopped goes on."""
    from rich.progress import track

    for _ in track(collect(PATH, cases()), total=len(cases()), description=PATH.name):
        pass
    asked = predictions()
    with ProcessPoolExecutor(processes) as pool:
        steps = kernel_kept.collect(PREDICTED, asked, pool)
        for _ in track(steps, total=len(asked), description=PREDICTED.name):
            pass


if __name__ == "__main__":
    typer.run(run)
