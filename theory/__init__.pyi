from .asymptotics.orders import Order, cross_check, leading_order
from .bounds.scalar_model import scalar_sensitivity, scalar_slope
from .bounds.update import derive_bound
from .kernel.predict import predict_kernel
from .meanfield.closedform import closed_form
from .meanfield.growth import update_order
from .meanfield.setting import Prediction, Setting
from .meanfield.update import predict
from .moments import ACTIVATIONS, activation
from .optimizers import OPTIMIZERS, Optimizer, optimizer
from .rules.check import rule_order, rule_scheme
from .rules.magnitude import compact
from .rules.solve import Rule, solve_rule, update_under
from .schemes import SCHEMES, Scheme, custom_scheme, scheme
from .stack import POST, PRE, SUB, Stack, transfer
from .symbols import L, M, N, eta, init_gain, residual_weight
from .tables import su_optimizers, su_prenorm

__all__ = [
    "ACTIVATIONS",
    "OPTIMIZERS",
    "POST",
    "PRE",
    "SCHEMES",
    "SUB",
    "L",
    "M",
    "N",
    "Optimizer",
    "Order",
    "Prediction",
    "Rule",
    "Scheme",
    "Setting",
    "Stack",
    "activation",
    "closed_form",
    "compact",
    "cross_check",
    "custom_scheme",
    "derive_bound",
    "eta",
    "init_gain",
    "leading_order",
    "optimizer",
    "predict",
    "predict_kernel",
    "residual_weight",
    "rule_order",
    "rule_scheme",
    "scalar_sensitivity",
    "scalar_slope",
    "scheme",
    "solve_rule",
    "su_optimizers",
    "su_prenorm",
    "transfer",
    "update_order",
    "update_under",
]
