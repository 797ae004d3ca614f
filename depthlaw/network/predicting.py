"""The update of a named network at one depth, a stack of FFNs or a Transformer, from Python as on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from depthlaw.network import ANY_WIDTH, EFFORT
from depthlaw.network.network import Network, check_words, sublayers_of
from depthlaw.recipes.catalogue import RECIPES
from depthlaw.recipes.catalogue import recipe as recipe_named
from depthlaw.recipes.catalogue import scheme as scheme_named
from depthlaw.theory.schemes import Scheme

if TYPE_CHECKING:
    from depthlaw.theory.meanfield.setting import Prediction


def predict(
    scheme: str | Scheme | None = None,
    optimizer: str | None = None,
    num_sublayers: int | None = None,
    *,
    recipe: str | None = None,
    layers: int | tuple[int, int] | None = None,
    width: int | None = None,
    arch: str | None = None,
    activation: str = "relu",
    norm_kind: str = "layernorm",
    w: Sequence[float] | None = None,
    v: Sequence[float] | None = None,
    is_precise: bool = False,
    **network: Any,
) -> Prediction:
    """Predict the update in one optimizer step, per unit learning rate, as ``depthlaw predict`` does for one depth.

    With a scheme and ``num_sublayers`` alone, the network is a stack of FFNs at infinite width, and the answer exact.
    With layers, arch (encoder, decoder or encoder-decoder) or a recipe it is a Transformer; an encoder-decoder takes
    the layers of both sides. width: d_model of a Transformer; if left out, that of the recipe, or infinite. w, v:
    the gains of each sublayer. is_precise: whether the averages of a Transformer take four times the quasi-random
    points. network: further fields of ``Network``, such as num_heads, num_tokens or block; with visits, layers and
    num_sublayers count each layer once. ValueError, in one line, for
    a question that has no answer.

    >>> from depthlaw import predict
    >>> predict("pre-ln", "adam", 48)
    <Prediction: 48 sublayers, update 9.94423>
    >>> predict("pre-ln", "adam", layers=2, num_tokens=4)
    <KernelPrediction: 4 sublayers, update 4.69951>
    >>> predict(recipe="gpt2", optimizer="adamw", layers=2, width=64).roles["fc2"] > 0
    True
    """
    if optimizer is None:
        raise ValueError("optimizer is wanted, such as adamw")
    if (scheme is None) == (recipe is None):
        raise ValueError("give one of scheme and recipe")
    check_words("predict", network)
    visits = network.get("visits", 1)
    layers = tuple(visits * number for number in layers) if isinstance(layers, tuple) else layers and visits * layers
    num_sublayers = num_sublayers and visits * num_sublayers
    effort = 1.0 if is_precise else EFFORT[network.get("loss", "logit")]
    if recipe is not None:
        model = recipe_named(recipe)
        if layers is None:
            raise ValueError(f"layers is wanted, the number of layers of {model.name}")
        if arch not in (None, model.arch):
            raise ValueError(f"the recipe {model.name} is of {model.arch} kind, not {arch}")
        given = {"num_sublayers": num_sublayers, "w": w, "v": v}
        given |= {"activation": activation != "relu", "norm_kind": norm_kind != "layernorm"}
        if options := [name for name, value in given.items() if value]:
            raise ValueError(f"{options[0]} does not go with a recipe, which says it itself")
        published = Network.of_recipe(model, layers, width or model.size["d_model"], **network)
        return published.theory(optimizer, effort=effort)
    assert scheme is not None
    chosen = scheme_named(scheme) if isinstance(scheme, str) else scheme
    if (layers is None) == (num_sublayers is None):
        raise ValueError("give one of layers and num_sublayers")
    if layers is None and arch is None:
        if width is not None or network.keys() - {"visits"}:
            given = "width" if width is not None else next(iter(network))
            published = f"; recipe={chosen.name!r} is the published model" if chosen.name in RECIPES else ""
            raise ValueError(f"{given} is of a Transformer: give layers, or arch{published}")
        from depthlaw.theory.meanfield.update import predict as predict_stack

        assert num_sublayers is not None
        if visits > 1:
            given = {"activation": activation, "norm_kind": norm_kind, "visits": visits}
            given |= {name: tuple(gains) * visits for name, gains in (("w", w), ("v", v)) if gains is not None}
            return Network(scheme=chosen, num_sublayers=num_sublayers, **given).theory(optimizer, effort=effort)
        return predict_stack(chosen, optimizer, num_sublayers, activation=activation, norm_kind=norm_kind, w=w, v=v)
    gains = {name: tuple(values) for name, values in (("w", w), ("v", v)) if values is not None}
    depth = {"num_sublayers": num_sublayers} if layers is None else sublayers_of(layers)
    kind = arch or ("encoder-decoder" if isinstance(layers, tuple) else "encoder")
    if kind == "encoder-decoder" and isinstance(layers, int):
        depth = sublayers_of((layers, layers))
    asked = Network(
        scheme=chosen,
        arch=kind,
        d_model=width or ANY_WIDTH,
        activation=activation,
        norm_kind=norm_kind,
        has_wide_heads="num_heads" not in network,
        **gains,
        **depth,
        **network,
    )
    return asked.theory(optimizer, effort=effort)
