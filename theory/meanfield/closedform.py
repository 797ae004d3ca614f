"""The mean field as an expression in L, wherever the product of the layers telescopes.

post-norm        every layer multiplies the gradient by the same rho:  sum of a geometric series
pre-norm, a = 1  the stream grows by beta a layer, q_l = 1 + l beta, and the gradient by 1 + kappa beta / q_{l-1}:
                 D_l = beta^{-1} Gamma(L+eps+kappa)/Gamma(L+1+eps) * Gamma(l+eps)/Gamma(l+eps+kappa), eps = 1/beta
no norm          q_l D_l is the same at every layer for a positively homogeneous activation

kappa, the ratio of what a branch adds to the gradient to what it adds to the signal, decides everything: it is 1 for
a positively homogeneous activation, (E phi'^2) s^2 / E phi^2 in general, (E phi'^2) s^2 / Var phi behind a LayerNorm.
"""

from __future__ import annotations

from dataclasses import dataclass

from sympy import Expr, RisingFactorial, S, cancel, pi, sqrt, zeta

from depthlaw.theory.asymptotics.special import GaussianMoment, GrowthSum, RootRatioSum
from depthlaw.theory.meanfield.setting import MOMENT_KINDS, Setting, degree, of_matrices, role_values
from depthlaw.theory.moments import Activation, Kind, exact
from depthlaw.theory.stack import NO_NORM, PRE, BranchMoments, Placement, Transfer, transfer
from depthlaw.theory.symbols import L


@dataclass(frozen=True, kw_only=True)
class ClosedForm:
    """The update of a stack as expressions in L.

    roles: the update by role; fc1 and fc2 add up to ``update``. why: the telescoping that gives them.

    >>> from depthlaw.theory.meanfield.closedform import closed_form
    >>> from depthlaw.theory.meanfield.setting import Setting
    >>> form = closed_form(Setting.of("post-ln", "sgd"))
    >>> form.roles["fc1"], form.update
    (L/3, 2*L/3)
    """

    roles: dict[str, Expr]
    why: str

    @property
    def update(self) -> Expr:
        return of_matrices(self.roles)


def symbolic_moments(act: Activation, scale: Expr) -> BranchMoments:
    """The moments at a symbolic scale: closed where the activation is homogeneous, else ``GaussianMoment``."""

    def moment(kind: Kind) -> Expr:
        form = exact(act, kind, scale) if act.is_homogeneous else None
        return GaussianMoment.of(act.name, kind, scale) if form is None else form

    return BranchMoments(*(moment(kind) for kind in MOMENT_KINDS))


def _tidy(expr: Expr) -> Expr:
    """The expression over one denominator, without common factors; so it shows exactly whether rho or kappa is 1."""
    return cancel(expr)


def _symbolic_transfer(setting: Setting, placement: Placement, residual_weight: Expr) -> Transfer:
    stack = setting.scheme.stack
    scale = stack.gain_in * stack.input_scale
    return transfer(
        placement,
        setting.norm_kind,
        symbolic_moments(setting.activation, scale),
        stream=S.One,
        residual_weight=residual_weight,
        branch_weight=stack.branch_weight,
        input_scale=stack.input_scale,
        gain_in=stack.gain_in,
        gain_out=stack.gain_out,
        sqrt=sqrt,
        two_over_pi=2 / pi if setting.gated else None,
    )


def closed_form(setting: Setting) -> ClosedForm | None:
    """The update by role as expressions in L, or None where the product over the layers does not telescope.

    >>> from depthlaw.theory.meanfield.closedform import closed_form
    >>> from depthlaw.theory.meanfield.setting import Setting
    >>> form = closed_form(Setting.of("pre-ln", "sgd"))
    >>> form.update
    2*polygamma(0, L + 3) - 3 + 2*EulerGamma
    >>> form.why
    'kappa = 1: D_l = 1/q_l, a harmonic sum'
    >>> closed_form(Setting.of("ln-scaling", "sgd")) is None
    True
    """
    stack = setting.scheme.stack
    if not stack.is_uniform or stack.norm_function or stack.has_second_stream:
        return None
    if stack.embedding_scale != 1 and stack.placement != NO_NORM:
        return None  # the first norm forgets it, and what is added to the stream does not
    admin = stack.residual_weight is None
    placement = PRE if admin else stack.placement
    residual_weight = S.One if stack.residual_weight is None else stack.residual_weight
    t = _symbolic_transfer(setting, placement, residual_weight)
    units = role_values(setting.functional, t, stack.gain_in, stack.gain_out, sqrt, 2 / pi)
    summed = _layer_sum(setting, placement, residual_weight, t)
    if summed is None:
        return None
    total, why = summed
    roles = {role: unit * total * setting.lr_multiplier for role, unit in units.items()}
    return ClosedForm(roles=roles, why="Admin is Pre-LN at one input: " + why if admin else why)


def _layer_sum(setting: Setting, placement: Placement, residual_weight: Expr, t: Transfer) -> tuple[Expr, str] | None:
    """sum_l (D_l times what the unit leaves out)^p in closed form, with the reason it telescopes."""
    p = degree(setting.functional)
    if placement.post:
        rho = _tidy(t.gradient_ratio)
        if rho == 1:
            return L, "the gradient has the same norm at every layer (rho = 1): L equal terms"
        return (rho ** (p * L) - 1) / (rho**p - 1), "geometric series in rho = D_{l-1}/D_l"
    if not placement.has_pre and placement.branch:
        # The branch is as long whatever reaches it, so the stream grows as in pre-norm; kappa is 1 at every layer.
        if residual_weight != 1 or not setting.is_homogeneous:
            return None
        return growing_stream_sum(_tidy(1 / t.increment), _tidy((t.gradient_ratio - 1) / t.increment), p)
    if not placement.has_pre:
        silent = t.increment == 0
        if not (silent or setting.is_homogeneous):
            return None
        growth, start = _tidy(t.gradient_ratio), setting.scheme.stack.embedding_scale ** (2 * p)
        if growth == 1:
            return L * start, "the branches are silent at init, signal and gradient pass unchanged: L equal terms"
        reason = "no norm, homogeneous activation: q_{l-1} D_l is the same at every layer"
        return start * L * growth ** (p * (L - 1)), reason
    if residual_weight != 1:
        return None
    beta = t.increment
    eps = _tidy(1 / beta)
    kappa = _tidy((t.gradient_ratio - 1) / beta)
    return growing_stream_sum(eps, kappa, p)


def growing_stream_sum(eps: Expr, kappa: Expr, p: Expr) -> tuple[Expr, str]:
    """sum_l D_l^p for q_l = 1 + l/eps and D_{l-1} = D_l (1 + kappa/(eps q_{l-1})), D_L = 1/q_L.

    p = 1: with r(l) = Gamma(l+eps)/Gamma(l+eps+kappa-1), r(l) - r(l+1) = (kappa-1) Gamma(l+eps)/Gamma(l+eps+kappa).
    """
    if p == 1:
        total = eps * GrowthSum(L + 1 + eps, 1 + eps, kappa - 1)
        same = kappa == 1
        return total, "kappa = 1: D_l = 1/q_l, a harmonic sum" if same else "kappa != 1: gamma ratios that telescope"
    if kappa == 1:
        hurwitz = zeta(S.Half, 1 + eps) - zeta(S.Half, L + 1 + eps)
        return sqrt(eps) * hurwitz, "kappa = 1: D_l = 1/q_l, its roots add to a Hurwitz zeta"
    top = RisingFactorial(L + 1 + eps, kappa - 1)
    return sqrt(eps * top) * RootRatioSum(L, eps, kappa), "kappa != 1: roots of gamma ratios"
