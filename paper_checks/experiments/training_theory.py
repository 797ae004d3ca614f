"""What the kernel rung predicts of the networks that are trained, before their first step: kept, as its other answers.

    python -m paper_checks.experiments.kernel_laws   # what kernel-training.json and the others of results lack

Decoders on bytes, as the experiments begin with them: 32 tokens, causal, heads of 16, one logit at the last one. The
theory knows tokens of one correlation; real ones are the same byte or not. So its correlation is the mean over the
pairs of the sequence that the update is measured on: 1/2, the share of x_0's variance that comes from the table of
bytes, where two bytes are equal, else 0. Left out: the 1e-5 in the norms.
"""

from __future__ import annotations

from paper_checks.experiments import stable_rates
from paper_checks.experiments.kernel_kept import Question, questions, read
from paper_checks.experiments.scale import HEAD_SIZE, SMALL
from paper_checks.lowering.networks import Network
from paper_checks.system.places import RESULTS
from theory.schemes import scheme

PATH = RESULTS / "kernel-training.json"
CORRELATION = 0.054
"""Of the sequence that looks are at, in Python 3.11.7's library, to its last digit: ``probe_correlation``."""
OPTIMIZER = "adam"
CASES = tuple((name, layers) for layers in stable_rates.LAYERS for name in stable_rates.SCHEMES)
"""(scheme, layers)."""


def probe_correlation() -> float:
    """Of this machine's data."""
    from sims.training.data import DataConfig, load

    tokens_T = load(DataConfig(name="causal", num_tokens=SMALL.num_tokens)).held_out(1).inputs[0]
    same_TT = (tokens_T[:, None] == tokens_T[None, :]).double()
    num = len(tokens_T)
    return float((same_TT.sum() - num) / (num * (num - 1)) / 2)


def network(name: str, num_layers: int) -> Network:
    return Network(
        scheme=scheme(name),
        arch="decoder",
        is_causal=True,
        num_sublayers=2 * num_layers,
        d_model=SMALL.d_model,
        num_heads=SMALL.d_model // HEAD_SIZE,
        num_tokens=SMALL.num_tokens,
        correlation=CORRELATION,
    )


def predicted(name: str, num_layers: int) -> float:
    """U at initialisation under Adam. LookupError where it is not kept."""
    found = read(PATH).find(network(name, num_layers), OPTIMIZER)
    return found.by_optimizer[OPTIMIZER]["update"].value


def of_training() -> list[Question]:
    return questions([network(*case) for case in CASES], (OPTIMIZER,))
