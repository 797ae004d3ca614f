from .advice.advice import advise
from .auditing.audit import audit
from .auditing.initialise import initialise
from .network.measuring import measure
from .network.network import Network
from .network.predicting import predict
from .network.trials import Trial, execute
from .paper_checks.papers.registry import claim
from .recipes.catalogue import recipe
from .sims.training.train import TrainConfig, train
from .theory.optimizers import optimizer
from .theory.rules.solve import solve_rule
from .theory.schemes import custom_scheme, scheme
from .theory.tables import su_optimizers, su_prenorm
from .watching.watch import watch

__version__: str

__all__ = [
    "Network",
    "TrainConfig",
    "Trial",
    "__version__",
    "advise",
    "audit",
    "claim",
    "custom_scheme",
    "execute",
    "initialise",
    "measure",
    "optimizer",
    "predict",
    "recipe",
    "scheme",
    "solve_rule",
    "su_optimizers",
    "su_prenorm",
    "train",
    "watch",
]
