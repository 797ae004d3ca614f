"""What the mean field is asked about, what it answers, and the update of one sublayer under an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sympy import Expr, S, erf, sqrt

from depthlaw.theory.moments import GATED, Activation, Kind, activation
from depthlaw.theory.optimizers import Functional, Optimizer, optimizer
from depthlaw.theory.schemes import Scheme, nearest, scheme
from depthlaw.theory.stack import NormKind, Transfer
from depthlaw.theory.symbols import u

MOMENT_KINDS = (
    Kind.SECOND,
    Kind.VARIANCE,
    Kind.ABS_MEAN,
    Kind.ABS_CENTRED,
    Kind.SLOPE_SECOND,
    Kind.SLOPE_ABS,
)
"""The moments that ``BranchMoments`` holds, in its order."""


@dataclass(frozen=True)
class NormFunction:
    """A function of each entry in a norm's place: ``function`` of ``scale`` times the entry."""

    function: Activation
    scale: Expr


_ERF = erf(u / sqrt(2))  # as gelu has it, so that its moments have closed forms
_NORM_FUNCTIONS = {
    "dyt": NormFunction(activation("tanh"), S.Half),
    "derf": NormFunction(Activation(name="erf", positive=_ERF, negative=_ERF), sqrt(2) / 2),
}
"""tanh(x/2) and erf(x/2), as both are published."""

HOLDS = "infinite width, one Gaussian input; at width d the relative correction is of order L/d"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is predicted: the update of a scheme under an optimizer, with an activation and a kind of norm.

    gated: the name of a gated FFN, whose phi the activation is; empty of others.

    >>> from depthlaw.theory.meanfield.setting import Setting
    >>> setting = Setting.of("depth-mup", "adam")
    >>> setting.functional.value, setting.lr_multiplier
    ('||g||_1', 1/sqrt(L))
    >>> Setting.of("pre-ln", "adam", "gleu")
    Traceback (most recent call last):
        ...
    ValueError: unknown activation 'gleu' (did you mean gelu...
    """

    scheme: Scheme
    optimizer: Optimizer
    activation: Activation
    norm_kind: NormKind
    gated: str = ""

    @staticmethod
    def of(
        scheme_: str | Scheme, optimizer_: str | Optimizer, activation_: str = "relu", norm_kind: str = "layernorm"
    ) -> Setting:
        """Make a setting from names, or from schemes of one's own. ValueError names what is near an unknown name."""
        chosen = scheme(scheme_) if isinstance(scheme_, str) else scheme_
        if norm_kind == chosen.stack.norm_function:  # which stands in the place of either kind
            norm_kind = NormKind.LAYERNORM.value
        kinds = [kind.value for kind in NormKind]
        if norm_kind not in kinds:
            raise ValueError(nearest(norm_kind, kinds, "norm kind"))
        return Setting(
            scheme=chosen,
            optimizer=optimizer(optimizer_) if isinstance(optimizer_, str) else optimizer_,
            activation=activation(GATED.get(activation_, activation_)),
            norm_kind=NormKind(norm_kind),
            gated=activation_ if activation_ in GATED else "",
        )

    @property
    def is_homogeneous(self) -> bool:
        """Whether a branch is as many times as large as its input."""
        return self.activation.is_homogeneous and not self.gated

    @property
    def norm_function(self) -> NormFunction | None:
        """What stands in every norm's place; None of a real norm."""
        name = self.scheme.stack.norm_function
        return _NORM_FUNCTIONS[name] if name else None

    @property
    def functional(self) -> Functional:
        functional = self.optimizer.functional
        if functional is None:
            raise ValueError(f"the mean field knows no update functional for optimizer {self.optimizer.name!r}")
        return functional

    @property
    def lr_multiplier(self) -> Expr:
        return self.scheme.lr_multiplier_under(self.optimizer)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The update at one depth.

    update: sum over the branch matrices, in the normalisation of its optimizer that is O(1) in the width; the scheme's
    learning-rate multiplier is inside. roles: the same by role (fc1, fc2; branch_weight, where it is trained, stands
    beside and is not in ``update``). log10_update: also where ``update`` overflows to infinity. holds: what it assumes,
    in words.

    >>> from depthlaw.theory.meanfield.update import predict
    >>> found = predict("post-ln", "sgd", 10**6, activation="gelu")
    >>> found.update, round(found.log10_update)
    (inf, 9236)
    >>> found.holds
    'infinite width, one Gaussian input; at width d the relative correction is of order L/d'
    """

    num_sublayers: int
    update: float
    roles: dict[str, float]
    log10_update: float
    holds: str = HOLDS

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.num_sublayers} sublayers, update {self.update:.6g}>"


def role_values(
    functional: Functional, t: Transfer, gain_in: Any, gain_out: Any, root: Callable[[Any], Any], two_over_pi: Any
) -> dict[str, Any]:
    """The update of one sublayer by role, per unit of D_l (of sqrt(D_l) where the functional is of degree 1).

    branch_weight is the scalar b: df/db has variance D E(F^2) and is Gaussian, F being the branch before b.
    """
    branch_square = t.branch_second
    has_gate = t.fc3_square is not None
    if functional is Functional.FROBENIUS_SQUARED:
        gate = {"fc3": t.fc3_square} if has_gate else {}
        return {"fc1": t.fc1_square, "fc2": t.fc2_square, **gate, "branch_weight": branch_square}
    if functional in (Functional.L1, Functional.RMS_L1):
        fc1 = two_over_pi * t.fc1_abs_over_gaussian
        fc2 = root(two_over_pi) * t.fc2_abs_over_gaussian
        gate = {"fc3": two_over_pi * t.fc3_abs_over_gaussian} if has_gate else {}
    else:
        fc1, fc2 = root(t.fc1_square), root(t.fc2_square)
        gate = {"fc3": root(t.fc3_square)} if has_gate else {}
    scalar = root(two_over_pi * branch_square)  # its mean absolute value: one number has no norm that averages
    if functional in (Functional.RMS_L1, Functional.FROBENIUS_PRODUCT):
        return {"fc1": gain_in * fc1, "fc2": gain_out * fc2, **gate, "branch_weight": t.branch_weight * scalar}
    return {"fc1": fc1, "fc2": fc2, **gate, "branch_weight": scalar}


def of_matrices(roles: Mapping[str, Any]) -> Any:
    """The update, of all its roles: that of a trained branch weight stands beside it."""
    return sum(value for role, value in roles.items() if role != "branch_weight")


def degree(functional: Functional) -> Expr:
    """Power of D_l in the update of a sublayer: 1 where the gradient enters squared, 1/2 where once."""
    return S.One if functional is Functional.FROBENIUS_SQUARED else S.Half
