"""The statements that each experiment is to decide: what its command answers and what claims are checked by."""

from __future__ import annotations

from dataclasses import replace

from depthlaw.network.trials import POST_LN_INIT
from depthlaw.paper_checks.experiments import best_rates, stable_rates, warmup
from depthlaw.paper_checks.experiments.stable_rates import bert, gpt, wide
from depthlaw.paper_checks.experiments.thousand_layers import LAYERS as DEPTHS
from depthlaw.paper_checks.experiments.thousand_layers import arm_name
from depthlaw.paper_checks.experiments.warmup import plain, warmed
from depthlaw.paper_checks.routes.training.arms import (
    Answered,
    LargerGradients,
    LargerRate,
    LowerLoss,
    MoreTrain,
    middle,
)
from depthlaw.paper_checks.routes.training.best_rates import FollowsUpdate, NearerThanNoMove
from depthlaw.paper_checks.routes.training.stable_rates import RanksFall, SmallerIsStabler

GPT_ORDER = {
    (other, layers): LargerRate(names=(gpt("sub-ln-gamma", layers), gpt(other, layers)))
    for layers in stable_rates.LAYERS[1:]
    for other in ("pre-ln", "normformer")
}
"""S3-40: Magneto's largest rate is above Pre-LN's and NormFormer's."""
GPT_HALF = {other: LargerRate(names=("sub-ln-gamma", other), look="half") for other in ("pre-ln", "normformer")}
BERT_PRE_POST = LargerRate(names=(bert("pre-ln"), bert("post-ln")))
BERT_OURS_PRE = LargerRate(names=(bert("sub-ln-gamma"), bert("pre-ln")))
WITHIN_POST = {scheme: LargerRate(names=(middle(scheme), middle("post-ln"))) for scheme in ("deepnorm", "su-adam")}
"""Of networks that norm the sum of stream and branch, those with the smaller update have the larger rate."""
PRE_EASIER = LargerRate(names=(middle("pre-ln"), middle("post-ln")))
SMALLER = {look: SmallerIsStabler(looks=(look,)) for look in ("trains", "half")}
SHALLOW = {
    scheme: LargerRate(names=(wide(scheme), gpt(scheme, stable_rates.LAYERS[-1]))) for scheme in stable_rates.AXIS
}
"""At equal parameters, shallow and wide has the larger stable rate than deep and narrow."""

TRANSLATION = MoreTrain(more=tuple(map(plain, ("pre-ln", "normformer", "sub-ln-gamma"))), fewer=(plain("post-ln"),))
INIT = MoreTrain(more=(plain(POST_LN_INIT),), fewer=(plain("post-ln"),))
OTHERS = MoreTrain(more=(plain("deepnorm"), plain("admin")), fewer=(plain("post-ln"),))
DEEPER = MoreTrain(more=(plain("post-ln", warmup.DEPTHS[0]),), fewer=(plain("post-ln"),))
WARMED = {layers: MoreTrain(more=(warmed(layers),), fewer=(plain("post-ln", layers),)) for layers in warmup.DEPTHS[1:]}
WARMED_NOT_SLOWED = MoreTrain(more=(warmed(warmup.EDGE),), fewer=(warmup.SAME_SUM,))
"""That it is the warm-up, not the smaller sum of the rates."""
WARMED_LOSS = {
    layers: LowerLoss(first=warmed(layers), second=plain("post-ln", layers), family=6) for layers in warmup.DEPTHS
}
"""Of six pairs that the experiment has, with and without warm-up."""
GRADIENTS = LargerGradients(first=plain(POST_LN_INIT), second=plain("post-ln"))
GRADIENTS_AT_START = LargerGradients(first=plain(POST_LN_INIT), second=plain("post-ln"), first_look=0, last_look=0)
LOWER_LOSS = {
    scheme: LowerLoss(first=plain("sub-ln-gamma"), second=plain(scheme)) for scheme in ("pre-ln", "normformer")
}

DEEP_TRAINS = {
    scheme: MoreTrain(
        more=(arm_name(scheme, DEPTHS[-1]),), fewer=(arm_name("post-ln", DEPTHS[-1]),), of="thousand-layers"
    )
    for scheme in ("deepnorm", "sub-ln-gamma", "su-adam", "pre-ln")
}

FOLLOWS = {scheme: FollowsUpdate(scheme=scheme) for scheme in best_rates.SCHEMES}
NEARER = NearerThanNoMove()

QUESTIONS: dict[str, tuple[Answered, ...]] = {
    "stable-rates": (
        *GPT_ORDER.values(),
        *GPT_HALF.values(),
        PRE_EASIER,
        BERT_PRE_POST,
        BERT_OURS_PRE,
        *SMALLER.values(),
        *(RanksFall(num_layers=layers) for layers in stable_rates.LAYERS),
        RanksFall(num_layers=stable_rates.MIDDLE, look="half"),
        *SHALLOW.values(),
        *WITHIN_POST.values(),
        LargerRate(names=(middle("su-adam"), middle("deepnorm"))),
    ),
    "warmup": (
        TRANSLATION,
        INIT,
        OTHERS,
        DEEPER,
        *WARMED.values(),
        WARMED_NOT_SLOWED,
        *WARMED_LOSS.values(),
        *(
            MoreTrain(more=(warmed(layers, rate),), fewer=(plain("post-ln", layers, rate),))
            for layers, rate in ((warmup.DEPTHS[1], warmup.LARGE_RATE), (warmup.DEEP, warmup.SMALL_RATE))
        ),
        GRADIENTS_AT_START,
        GRADIENTS,
        *LOWER_LOSS.values(),
    ),
    "thousand-layers": tuple(DEEP_TRAINS.values()),
    "best-rates": (*FOLLOWS.values(), NEARER),
    "after-start": (),
    "transfer": (),
    "elsewhere": (),
}


def questions(name: str, scale: str) -> tuple[Answered, ...]:
    """What an experiment is asked. At another scale only those of best-rates have an answer."""
    of_scale = (FollowsUpdate, NearerThanNoMove)
    return tuple(replace(asked, scale=scale) if isinstance(asked, of_scale) else asked for asked in QUESTIONS[name])
