from .config import ModelConfig, SublayerConfig, Task, alternating, decoder_layers
from .ensemble import Ensemble, Member
from .measure import Question, Result, choose_device, run
from .model import Transformer
from .optim import first_step
from .stats import LEVEL, Estimate, estimate, fit_exponent, ratio, ratio_to_exact
from .training.data import DataConfig
from .training.train import TrainConfig, train
from .update import draw_inputs, first_order, roles_of

__all__ = [
    "LEVEL",
    "DataConfig",
    "Ensemble",
    "Estimate",
    "Member",
    "ModelConfig",
    "Question",
    "Result",
    "SublayerConfig",
    "Task",
    "TrainConfig",
    "Transformer",
    "alternating",
    "choose_device",
    "decoder_layers",
    "draw_inputs",
    "estimate",
    "first_order",
    "first_step",
    "fit_exponent",
    "ratio",
    "ratio_to_exact",
    "roles_of",
    "run",
    "train",
]
