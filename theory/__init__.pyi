from .asymptotics.orders import Order, cross_check, leading_order
from .bounds.update import derive_bound
from .kernel.predict import predict_kernel
from .meanfield.closedform import closed_form
from .meanfield.growth import update_order
from .meanfield.setting import Prediction, Setting
from .meanfield.update import predict
from .moments import ACTIVATIONS, activation
from .optimizers import OPTIMIZERS, Optimizer, optimizer
from .rules.check import rule_order
from .rules.solve import Rule, solve_rule
from .schemes import SCHEMES, Scheme, custom_scheme, scheme
from .stack import Stack
from .symbols import L, M, N, eta, init_gain, residual_weight

__all__ = [
    "ACTIVATIONS",
    "OPTIMIZERS",
    "SCHEMES",
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
    "scheme",
    "solve_rule",
    "update_order",
]
