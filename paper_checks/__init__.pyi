from .audit.initialise import Initialised, initialise
from .claims.claim import Claim, Evidence, Verdict, judge
from .lowering.advice import Advice, Remedy, advise
from .lowering.lower import lower_encoder_decoder, lower_ffn, lower_transformer
from .lowering.measuring import Kept, measure
from .lowering.networks import Network, NoTheoryError
from .lowering.trials import Trial, execute
from .papers.registry import claim

__all__ = [
    "Advice",
    "Claim",
    "Evidence",
    "Initialised",
    "Kept",
    "Network",
    "NoTheoryError",
    "Remedy",
    "Trial",
    "Verdict",
    "advise",
    "claim",
    "execute",
    "initialise",
    "judge",
    "lower_encoder_decoder",
    "lower_ffn",
    "lower_transformer",
    "measure",
]
