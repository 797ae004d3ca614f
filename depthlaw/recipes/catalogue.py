"""The recipes: each with its source, as it was read in November 2026.

Left out everywhere, as no first step depends on it much: dropout, padding rows of zeros, and the eps of norms, which
``network.block.Block`` can add. What else a recipe leaves out it says itself. A normal that is cut at two standard
deviations has 0.8796 of its standard deviation, at three 0.9866; cut at the absolute values -2 and 2, as torch cuts by
default, it is the normal itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Piecewise, Rational, S, ceiling, floor, sqrt

from depthlaw.recipes.recipe import POST, PRE, SMALL, F, H, K, Law, Norms, Recipe, everywhere
from depthlaw.theory.schemes import SCHEMES, Scheme, nearest
from depthlaw.theory.schemes import scheme as scheme_named
from depthlaw.theory.symbols import N, d, l

_HF = "huggingface/transformers 5.23.0, models"
_MEGATRON = "NVIDIA/Megatron-LM d98e8a6, megatron/core"
_CUT_AT_2, _CUT_AT_3 = Rational(8796, 10_000), Rational(9866, 10_000)
_WIDTH_2 = ceiling(8 * d / 3 / 256) * 256
_WIDTH_3 = Piecewise((ceiling(Rational(13, 10) * floor(8 * d / 3) / 1024) * 1024, d >= 1024), (_WIDTH_2, True))
"""The source's own small model, 256 wide, rounds as Llama 2's do; from which width on the larger rule holds is ours."""
_WIDTH_UNROUNDED = floor(8 * d / 3)


def _outputs(default: Law, output: Law) -> Mapping[str, Law]:
    return everywhere(default, out=output, fc2=output)


_GPT_2 = {"std": _outputs(SMALL, SMALL / sqrt(2 * N)), "position_std": SMALL}
_GATED = {"norm_kind": "rmsnorm", "activation": "swiglu", "has_bias": False, "rotary_base": 10_000.0}
_LLAMA_2 = {**_GATED, "hidden": _WIDTH_2}
_LLAMA_3 = {**_GATED, "hidden": _WIDTH_3, "rotary_base": 500_000.0, "queries_per_key": 4}
_POST = {"norms": (POST,), "has_final": False, "embedding_std": 1}
"""Behind the embedding stands a norm."""
_VIT = {"arch": "encoder", "embedding_std": 1 / sqrt(3), "position_std": SMALL, "head": SMALL}
"""The embedding has torch's default of the patches' convolution, on pixels of variance 1."""
_DIT = {
    "arch": "encoder",
    "layer_scale": 0,
    "std": everywhere(
        sqrt(Rational(2, 5) / d), q=1 / sqrt(2 * d), k=1 / sqrt(2 * d), v=1 / sqrt(2 * d), out=1 / sqrt(d)
    ),
    "position_std": 1 / sqrt(2),
    "head": 1 / sqrt(d),
}
"""Xavier's of whole matrices, of which that of queries, keys and values is one; embeddings in ``embedding_std``."""
_OF_GATES = (
    "the modulation's matrix, which starts at 0: here a gate is its bias, layer_scale, and moves alike for every "
    "condition; the shifts and scales, whose biases are the norms' (norm_bias, norm_gain); and that the head starts at "
    "0, so that the published model's very first step moves nothing but the head"
)

_ALL = (
    Recipe(
        name="gpt2",
        says="the classic pre-norm decoder with learned positions, whose two output matrices per layer start smaller "
        "the deeper the model is, by 1/sqrt(2N)",
        source=f"{_HF}/gpt2/modeling_gpt2.py 431-448",
        **_GPT_2,
        size={"num_layers": 12, "d_model": 768, "num_heads": 12},
    ),
    Recipe(
        name="gpt2-openai",
        says="GPT-2 in the code that OpenAI published, which starts every matrix at 0.02 whatever the depth",
        source="openai/gpt-2 9b63575, src/model.py 50-53, 123-131, 152-155",
        position_std=SMALL / 2,
        size={"num_layers": 12, "d_model": 768, "num_heads": 12},
    ),
    Recipe(
        name="nanogpt",
        says="GPT-2 rebuilt in one file, trained without biases",
        source="karpathy/nanoGPT 3adf61e, model.py 143-145, 162-168; train.py 56",
        **_GPT_2,
        has_bias=False,
        size={"num_layers": 12, "d_model": 768, "num_heads": 12},
    ),
    Recipe(
        name="megatron",
        says="GPT-2's rule as the default of a framework for large models",
        source=f"{_MEGATRON}/transformer/transformer_config.py 394-414, 2568-2612; utils.py 862-871",
        **_GPT_2,
        size={"num_layers": 96, "d_model": 12_288, "num_heads": 96},
    ),
    Recipe(
        name="megatron-mhc",
        says="four copies of the stream that are mixed by trained matrices: at their initial values they are "
        "equal, to a percent, and each is ordinary pre-norm",
        leaves_out="the updates of what mixes the copies",
        source=f"{_MEGATRON}/transformer/hyper_connection.py 66-115, 182-203, 217-285, 498-535",
        **_GPT_2,
        size={"num_layers": 96, "d_model": 12_288, "num_heads": 96},
    ),
    Recipe(
        name="gpt-neox",
        says="attention and FFN read the same point of the stream side by side, each behind a norm of its own, and "
        "output matrices start at 2/(N sqrt d); so do Pythia's up to 2.8B",
        source="EleutherAI/gpt-neox ea7aefd, megatron/model/init_functions.py 146-175, 225-227; transformer.py "
        "383-397, 1063-1116; EleutherAI/pythia a19eecb, models/1.4B",
        is_parallel=True,
        rotary_base=10_000.0,
        rotary_share=0.25,
        std=_outputs(sqrt(Rational(2, 5) / d), 2 / (N * sqrt(d))),
        embedding_std=sqrt(Rational(2, 5) / d),
        head=sqrt(Rational(2, 5) / d),
        size={"num_layers": 24, "d_model": 2048, "num_heads": 16},
    ),
    Recipe(
        name="llama-2",
        says="the standard modern decoder: RMSNorm before each sublayer, a gated FFN, rotary positions, no biases; "
        "initialised at 0.02 everywhere, as Hugging Face's code does (Meta's own start is not published)",
        source=f"{_HF}/llama/modeling_llama.py 52-66, 152-165, 294-312; modeling_utils.py 2295-2343",
        **_LLAMA_2,
        head=SMALL,
        size={"num_layers": 32, "d_model": 4096, "num_heads": 32},
    ),
    Recipe(
        name="llama-3",
        says="Llama 2 with keys and values shared by four heads and slower rotary positions; initialised at 0.02 "
        "everywhere, as Hugging Face's code does (Meta's own start is not published)",
        source=f"{_HF}/llama/modeling_llama.py 52-66, 152-165, 294-312; modeling_utils.py 2295-2343; sizes: "
        "pytorch/torchtitan b5bcd76, models/llama3/__init__.py 148-330",
        **_LLAMA_3,
        head=SMALL,
        size={"num_layers": 32, "d_model": 4096, "num_heads": 32},
    ),
    Recipe(
        name="torchtitan",
        says="Llama 3 whose output matrices, and the up matrix besides, start smaller the later the layer is, by "
        "1/sqrt(2l), and whose embedding starts at variance 1",
        source="pytorch/torchtitan b5bcd76, models/llama3/__init__.py 45-109, 238-268 (8B; at 70B eight heads share "
        "keys and at 405B sixteen, where F is 3.25d); models/common/param_init.py 28-30, feed_forward.py 18-31; that "
        "the up matrix is scaled, too, is reported as a fault in its issue 3334",
        **_LLAMA_3,
        std=everywhere(SMALL, out=SMALL / sqrt(2 * l), fc2=SMALL / sqrt(2 * l), fc3=SMALL / sqrt(2 * l)),
        embedding_std=1,
        head=_CUT_AT_3 / sqrt(d),
        size={"num_layers": 32, "d_model": 4096, "num_heads": 32},
    ),
    Recipe(
        name="mitchell",
        says="a Llama-like model (OLMo 1) whose matrices start at one over the square root of their input width, and "
        "whose output matrices are smaller in later layers, by 1/sqrt(2l)",
        source="allenai/OLMo 59a53e3, olmo/model.py 493-506, 716-726, 1183-1196; initialization.py 8-22; "
        "configs/official-0724/OLMo-7B.yaml 10-37 (its norms train no gain and no bias; OLMo-1B.yaml 10-14 has F = 4d "
        "and ties the head to the embedding)",
        **{**_LLAMA_2, "norm_kind": "layernorm"},
        std=everywhere(_CUT_AT_3 / sqrt(d), out=_CUT_AT_3 / sqrt(2 * d * l), fc2=_CUT_AT_3 / sqrt(2 * F * l)),
        embedding_std=_CUT_AT_3 / sqrt(d),
        head=_CUT_AT_3 / sqrt(d),
        size={"num_layers": 32, "d_model": 4096, "num_heads": 32},
    ),
    Recipe(
        name="olmo-2",
        says="a Llama that normalises what each sublayer gives out in place of what it takes in, and its queries and "
        "keys over all heads at once",
        source="allenai/OLMo 59a53e3, configs/official-1124/OLMo2-7B-stage1.yaml 34-53; olmo/model.py 433-441, "
        f"489-491, 786-828; {_HF}/olmo2/modeling_olmo2.py 213-228, 284-315",
        norms=(Norms(attention=frozenset({"branch", "q", "k"}), ffn=frozenset({"branch"})),),
        **{**_LLAMA_2, "rotary_base": 500_000.0},
        has_wide_norms=True,
        std=everywhere(_CUT_AT_3 * SMALL),
        embedding_std=_CUT_AT_3 * SMALL,
        head=_CUT_AT_3 * SMALL,
        size={"num_layers": 32, "d_model": 4096, "num_heads": 32},
    ),
    Recipe(
        name="gemma-2",
        says="norms before and behind every sublayer, caps on attention scores and logits, and an embedding that is "
        "multiplied by sqrt(d)",
        leaves_out="the cap of 30 on the logits",
        source=f"{_HF}/gemma2/modeling_gemma2.py 48-81, 195-221, 290-325, 366-385, 518-521; google/gemma_pytorch "
        "014acb7, gemma/config.py 119-174 (2B and 9B; 27B has F = 8d, heads of 128 and a scale of its own)",
        norms=(Norms(attention=frozenset({"pre", "branch"}), ffn=frozenset({"pre", "branch"})),),
        **{**_GATED, "activation": "geglu"},
        hidden=4 * d,
        head_size=256,
        queries_per_key=2,
        attention_scale=S(256) ** Rational(-1, 2),
        logit_softcap=50.0,
        embedding_multiplier=sqrt(d),
        size={"num_layers": 26, "d_model": 2304, "num_heads": 8},
    ),
    Recipe(
        name="qwen-3",
        says="Llama with a norm on every head of queries and keys, and a head size that does not follow from the width",
        source=f"{_HF}/qwen3/modeling_qwen3.py 48-82, 229-249, 283-315; pytorch/torchtitan b5bcd76, "
        "models/qwen3/__init__.py 52-58, 106-127, 253-325 (0.6B and 1.7B; from 4B on, 328-430, four and five heads "
        "share keys, and F is 3d to 3.8d; Qwen's own start is not published)",
        norms=(Norms(attention=frozenset({"pre", "q", "k"}), ffn=frozenset({"pre"})),),
        **{**_GATED, "rotary_base": 1_000_000.0},
        hidden=3 * d,
        head_size=128,
        queries_per_key=2,
        size={"num_layers": 28, "d_model": 1024, "num_heads": 16},
    ),
    Recipe(
        name="t5",
        says="an encoder-decoder whose weights start at one over the square root of their input width, and whose "
        "attention has no 1/sqrt(K), as the query matrix starts smaller instead",
        leaves_out="relative positions, a trained number that each head adds to its scores, which starts at a standard "
        "deviation of 1/sqrt(d) in Hugging Face's code and of sqrt(2/(H + 32)) in its authors', beside scores of about "
        "1",
        source="tensorflow/mesh da90793, mesh_tensorflow/transformer/attention.py 436-443, layers.py 241-245, 333-362, "
        "2062-2063, transformer.py 493-515, 2171-2174, transformer_layers.py 317-341, ops.py 4193-4197; "
        f"{_HF}/t5/modeling_t5.py 50-102, 196-197, 562-616",
        arch="encoder-decoder",
        norm_kind="rmsnorm",
        activation="relu",
        has_bias=False,
        head_size=64,
        attention_scale=1,
        std=everywhere(
            1 / sqrt(d),
            q=1 / sqrt(d * K),
            out=1 / sqrt(H * K),
            fc1=_CUT_AT_2 / sqrt(d),
            fc2=_CUT_AT_2 / sqrt(F),
        ),
        embedding_std=1,
        head=1 / sqrt(d),
        optimizers=("adafactor",),
        size={"num_layers": 12, "d_model": 768, "num_heads": 12},
    ),
    Recipe(
        name="bert",
        says="the classic post-norm encoder: every sum is normalised before the next sublayer",
        leaves_out="what stands in front of the head: one more dense layer with GELU, and a norm",
        source="google-research/bert eedf571, modeling.py 264-277, 375-377, 412, 520, 671-687, 856-880; "
        "run_pretraining.py 246-265; optimization.py 59-65; Hugging Face's code does not cut its normals",
        arch="encoder",
        **_POST,
        std=everywhere(_CUT_AT_2 * SMALL),
        head=_CUT_AT_2 * SMALL,
        size={"num_layers": 12, "d_model": 768, "num_heads": 12},
    ),
    Recipe(
        name="bart",
        says="BERT's encoder with a GPT-like decoder, post-norm, every matrix at 0.02",
        source="facebookresearch/fairseq 3d262bb, fairseq/models/bart/model.py 43, 326-376; "
        f"{_HF}/bart/modeling_bart.py 260-388, 498, 524",
        arch="encoder-decoder",
        **_POST,
        head=SMALL,
        size={"num_layers": 12, "d_model": 1024, "num_heads": 16},
    ),
    Recipe(
        name="vit",
        says="a pre-norm encoder on image patches, every linear layer at 0.02",
        source="huggingface/pytorch-image-models 1.0.31, timm/models/vision_transformer.py 166-250, 959-977, "
        "1355-1370; "
        f"{_HF}/vit/modeling_vit.py 261-348",
        **_VIT,
        size={"num_layers": 12, "d_model": 768, "num_heads": 12},
    ),
    Recipe(
        name="cait",
        says="a deep ViT in which each branch starts multiplied by a trained vector, 0.1 up to 18 layers, 1e-5 up to "
        "24 and 1e-6 beyond",
        leaves_out="the talking heads, whose mixing matrices start at 0.02 and make what attention puts out about "
        "0.02 sqrt(H) as large; and the two layers of the class token, through which the head reads all others, and "
        "whose own tiny vector multiplies every update once more",
        source="huggingface/pytorch-image-models 1.0.31, timm/models/cait.py 207-231, 331-342, 578-643; "
        "facebookresearch/deit 7e160fe, cait_models.py 259-464 (24 layers and more; the XXS model of 36 layers has "
        "1e-5); arXiv 2103.17239, section 2 (0.1 until 18 layers)",
        **_VIT,
        layer_scale=Piecewise((Rational(1, 10), N <= 18), (Rational(1, 10**5), N <= 24), (Rational(1, 10**6), True)),
        size={"num_layers": 36, "d_model": 384, "num_heads": 8},
    ),
    Recipe(
        name="dit",
        says="a diffusion model (adaLN-Zero): a pre-norm encoder each of whose branches is multiplied by a gate that "
        "is made of the time and the class, and starts at 0 for all of them, so that every layer starts as "
        "the identity",
        leaves_out=_OF_GATES,
        source="facebookresearch/DiT ed81ce2, models.py 101-122, 129-142, 182-216, 240-247; train.py 155",
        **_DIT,
        embedding_std=sqrt(32 / (16 + d)),
        size={"num_layers": 28, "d_model": 1152, "num_heads": 16},
    ),
    Recipe(
        name="sd3",
        says="Stable Diffusion 3 (MM-DiT): image and text are two streams with matrices, norms and gates of their own, "
        "which share each attention; gates start at 0, as DiT's",
        leaves_out="the stream of the text, which a first step does not move: all that it gives the image's is "
        f"multiplied by gates of 0, so that one stream with the tokens of both moves as far; {_OF_GATES}",
        source="arXiv 2403.03206; Stability-AI/sd3.5 fbf8f48, mmditx.py 387-520, 591-690, 743-813, which is for images "
        "alone and does not say how training starts; as DiT in kohya-ss/sd-scripts 48d368f, library/sd3_models.py "
        "931-975, and in another MM-DiT, hkchengrex/MMAudio 974010a, mmaudio/model/networks.py 176-208; "
        "huggingface/diffusers 58eb52c, models/transformers/transformer_sd3.py, starts all as torch does, gates too",
        **_DIT,
        num_streams=2,
        embedding_std=sqrt(128 / (64 + d)),
        size={"num_layers": 24, "d_model": 1536, "num_heads": 24},
    ),
    Recipe(
        name="minicpm",
        says="a Llama whose branches are multiplied by 1.4 over the square root of the number of layers, with "
        "initialisation and learning rates scaled by the width",
        leaves_out="its learning rates by width: each matrix and the embedding have 256/d of that of the norms, and "
        "here all have one",
        source="OpenBMB/MiniCPM 5977a63, model/modeling_minicpm.py 773, 818-825, 869-878, 1040, 1214, which starts "
        "matrices at one number whatever the width, 0.02 by default; arXiv 2404.06395, Table 7, as "
        "scottsuk0306/lingua, apps/mup/README.md has it; "
        "365-443 of minicpm3/modeling_minicpm3.py in transformers, which starts matrices at 0.1 whatever the width",
        **_GATED,
        hidden=Rational(5, 2) * d,
        branch_weight=Rational(14, 10) / sqrt(N),
        std=everywhere(Rational(1, 10) / sqrt(d / 256)),
        embedding_std=Rational(1, 10) / sqrt(d / 256),
        embedding_multiplier=12,
        head=Rational(1, 10) / sqrt(d / 256) * 256 / d,
        size={"num_layers": 40, "d_model": 2304, "num_heads": 36},
    ),
    Recipe(
        name="completep",
        says="each branch divided by the depth relative to a model of two layers, and muP for the width, so that one "
        "learning rate serves all depths",
        leaves_out="its learning rates by width: the branch matrices have 256/d of that of all else, and here all have "
        "one; and Adam's eps by width, where what it has by depth is in the code that `advise` prints",
        source="EleutherAI/nanoGPT-mup 6f8bc3b, branch completep, model.py 63-68, 113-140, 170-177, 331-362; "
        "completep_examples/coord_check_shakespeare_char/depth_alpha_1_aka_completep/run.sh 1-50 (with biases, which "
        "train.py 61 leaves out by default)",
        attention_scale=1 / K,
        branch_weight=2 / N,
        std=everywhere(SMALL / sqrt(d / 256)),
        position_std=SMALL,
        head=SMALL * 256 / d,
        size={"num_layers": 64, "d_model": 256, "num_heads": 4},
    ),
    Recipe(
        name="keel",
        says="post-norm, with a pre-norm besides, in which the stream is multiplied by the number of sublayers before "
        "each sum; the first layer is plain pre-norm",
        source="arXiv 2601.19895, second-hand: four implementations by others agree on LN(2N x + F(LN x)), and not on "
        "the first layer's FFN",
        norms=(
            Norms(attention=PRE.attention, ffn=PRE.ffn, up_to=1 / N),
            Norms(attention=frozenset({"pre", "post"}), ffn=frozenset({"pre", "post"})),
        ),
        **_GATED,
        hidden=3 * d,
        queries_per_key=2,
        residual_weight=Piecewise((S.One, l < 2), (2 * N, True)),
        size={"num_layers": 256, "d_model": 1024, "num_heads": 16},
    ),
    Recipe(
        name="ln-scaling",
        says="pre-norm where the input of each sublayer is made smaller, by one over the square root of its layer's "
        "number",
        source="lmsdss/LayerNorm-Scaling 3ac54dd, peft_pretraining/modeling_llama.py 292-294, 427-455, 857-876 (265 "
        "and 403 make the name LNS of its scripts lower case, so that this commit never comes to these lines and its "
        "layers are the identity); configs/llama_130m.json, llama_1b.json",
        **_GATED,
        hidden=_WIDTH_UNROUNDED,
        input_scale=1 / sqrt(l),
        head=SMALL,
        size={"num_layers": 12, "d_model": 768, "num_heads": 12},
    ),
    Recipe(
        name="mix-ln",
        says="the first quarter of the layers is post-norm, the rest pre-norm",
        source="pixeli99/MixLN ff45826, peft_pretraining/modeling_llama.py 325-333, 565-600, 818-837, 929; "
        "configs/llama_130m.json, llama_1b.json; README.md 91-92 (the first 3 of 12 layers and the first 6 of 24)",
        norms=(Norms(attention=POST.attention, ffn=POST.ffn, up_to=Rational(1, 4)), PRE),
        **_GATED,
        hidden=_WIDTH_UNROUNDED,
        embedding_std=sqrt(Rational(2, 5)),
        head=SMALL,
        size={"num_layers": 24, "d_model": 2048, "num_heads": 32},
    ),
    Recipe(
        name="hybrid-norm",
        says="attention normalises its queries, keys and values instead of its input, and the stream is normalised "
        "once per layer, between attention and FFN",
        source="BryceZhuo/HybridNorm f0dd605, dense_model/olmo/model.py 433-466, 553-561, 868-892; "
        "configs/exps/1.2B-dense-HybriedNorm.yaml",
        norms=(Norms(attention=frozenset({"q", "k", "v", "post"}), ffn=frozenset()),),
        **{**_GATED, "rotary_base": 500_000.0},
        hidden=4 * d,
        queries_per_key=4,
        std=_outputs(_CUT_AT_3 * sqrt(Rational(2, 5) / d), _CUT_AT_3 * sqrt(Rational(2, 5) / d) / sqrt(2 * N)),
        embedding_std=_CUT_AT_3 * sqrt(Rational(2, 5) / d),
        size={"num_layers": 16, "d_model": 2048, "num_heads": 32},
    ),
)

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _ALL}


def recipe(name: str) -> Recipe:
    """The recipe of that name; ValueError with the nearest names otherwise.

    >>> from depthlaw import recipe
    >>> recipe("gpt2").activation
    'gelu'
    """
    if name not in RECIPES:
        if name in SCHEMES:
            raise ValueError(
                f'{name} is a scheme, no published model: write --scheme {name} (in Python scheme="{name}")'
            )
        raise ValueError(nearest(name, list(RECIPES), "recipe"))
    return RECIPES[name]


def scheme(name: str) -> Scheme:
    """The scheme of that name; ValueError otherwise, with the nearest names, or where it is a recipe's.

    >>> from depthlaw.recipes.catalogue import scheme
    >>> scheme("llama-2")
    Traceback (most recent call last):
        ...
    ValueError: llama-2 is a recipe, a published model: write --recipe llama-2 (in Python recipe="llama-2")
    """
    if name in RECIPES and name not in SCHEMES:
        raise ValueError(f'{name} is a recipe, a published model: write --recipe {name} (in Python recipe="{name}")')
    return scheme_named(name)
