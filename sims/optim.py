r"""Twelve optimizers, and Muon beside AdamW: the direction of each one's first step, and the real optimizer itself.

``first_step`` is a formula, for many models at once; ``make`` is what trains: torch.optim's own where torch has it, and
for signsgd, lion, lars, lamb and sophia a class that follows the published algorithm line by line. Muon is torch's, on
all matrices of one shape at once. Their norms, like
those of torch's Adafactor and Muon, are over one parameter tensor, so ``make`` takes the parameters of one model.

Where torch departs from what is published:

- Adafactor (arXiv:1804.04235): ``lr`` is the paper's cap on the relative step, rho_t = min(lr, 1/sqrt(t)) with 0.01 for
  lr, so an lr above 1 steps like 1. The first eps is a floor under the second moment, not added to squares. ``make``
  sets the second eps, the least RMS of a parameter, to nothing (the paper: 0.001): what is 0 stays 0. The rest agrees.
- Muon: five Newton-Schulz steps in bfloat16 are not the polar factor U V^T that ``first_step`` takes. A singular value
  s of the gradient (as a share of its Frobenius norm) becomes 0.68 to 1.20 instead of 1 if s > 0.002, and is multiplied
  by at most 485 below. Of a gradient of rank one it becomes 0.696, and so does the ratio of <grad, step> to the polar
  factor's. Directions in which the gradient is 0 fill with amplified rounding of bfloat16: the cosine between the step
  and U V^T is 0.98 at full rank, but 0.53 at rank one and width 64. torch multiplies the step of an (m, n) matrix by
  sqrt(max(1, m/n)), which the post's algorithm does not; ``make`` takes that out. Vectors and scalars go by AdamW, as
  the post says. "muon+adamw" is what people run: Muon for the matrices of branches, each step ``MATCHED``
  sqrt(max(m, n)) times the polar factor (torch's adjust_lr_fn="match_rms_adamw"), AdamW for all else, embeddings and
  head among it, with the same learning rate.
- SGD, momentum, Adam, RMSprop and, as published, LARS add weight decay to the gradient; the others decay the parameter.

``first_step`` is -(theta_1 - theta_0) / lr of an optimizer's first step, as a formula; ``make`` is the optimizer
itself, torch's or, where torch has none, as published. The last argument of ``first_step`` says how many of the last
dimensions are the tensor's own; those before are ensemble members.

>>> import torch
>>> from depthlaw.sims.optim import first_step, make
>>> grad, weight = torch.tensor([[3.0, -4.0]]), torch.ones(1, 2)
>>> [first_step(name, grad, weight, 2).tolist() for name in ("sgd", "adam")]
[[[3.0, -4.0]], [[1.0, -1.0]]]
>>> leaf = torch.nn.Parameter(weight.clone())
>>> leaf.grad = grad
>>> make("signsgd", [leaf], lr=0.5).step()
>>> leaf.tolist()
[[0.5, 1.5]]
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, Protocol, overload

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adafactor, Adam, AdamW, Optimizer, RMSprop

from depthlaw.sims.config import MATCHED, MIXED, NORMALISATION, OPTIMIZERS, RMSPROP_SMOOTHING


def _check_name(name: str) -> None:
    if name not in NORMALISATION:
        near = get_close_matches(name.lower(), OPTIMIZERS, n=3)
        hint = f" (did you mean {' or '.join(near)}?)" if near else ""
        raise ValueError(f"unknown optimizer {name!r}{hint}; allowed: {', '.join(OPTIMIZERS)}")


# --- pieces of both halves. NaN stays NaN in each, so that a run that diverged is seen: torch.sign(NaN) is 0.


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """numerator / denominator, and 0 where the denominator is 0."""
    return torch.where(denominator == 0, 0, numerator / denominator)


def _sign(x: Tensor) -> Tensor:
    return torch.where(x.isnan(), x, x.sign())


def _norm(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Euclidean norm over ``dims``, kept as 1. Scaled first: squares of entries below 1e-162 underflow in float64."""
    if not dims:
        return x.abs()
    largest = x.abs().amax(dims, keepdim=True)
    return largest * torch.linalg.vector_norm(_ratio(x, largest), dim=dims, keepdim=True)


class Cut(Protocol):
    """How parameters are cut over processes, each of which has a part of every parameter; in a group of ``make``."""

    def norm(self, x: Tensor) -> Tensor:
        """The Euclidean norm of the whole of x, which is cut as the parameters are."""
        ...

    def whole(self, x: Tensor) -> Tensor: ...

    def part_of(self, whole: Tensor, theta: Tensor) -> Tensor:
        """What this process has of it, cut as theta is."""
        ...


def _own_norm(x: Tensor, group: Mapping[str, Any]) -> Tensor:
    """The Euclidean norm of a parameter; of one that is several tensors of these "sizes", one behind the other, that of
    each, at each of its entries.
    """
    if (cut := group.get("cut")) is not None:
        return cut.norm(x)
    if (sizes := group.get("sizes")) is None:
        return _norm(x, tuple(range(x.ndim)))
    lengths = torch.tensor(sizes, device=x.device)
    largest = torch.stack([part.abs().amax() for part in x.split(sizes)]).repeat_interleave(lengths)
    norms = torch.stack([torch.linalg.vector_norm(part) for part in _ratio(x, largest).split(sizes)])
    return largest * norms.repeat_interleave(lengths)


def _rms(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Root mean square over ``dims``, kept as 1."""
    return _norm(x, dims) / math.sqrt(math.prod(x.shape[dim] for dim in dims))


# --- the first step


def first_step(name: str, grad: Tensor, weight: Tensor, num_dims: int, *, is_branch: bool = True) -> Tensor:
    """-(theta_1 - theta_0) / lr of the optimizer's first step from zero state, no weight decay, in the limit eps -> 0.

    ``grad`` and ``weight``: any leading dimensions (ensemble members), then the parameter's own ``num_dims``: 2 of a
    matrix, 1 of a vector, 0 of a scalar. Norms and factored moments are per parameter and never cross the leading ones.
    <grad, first_step> is how fast the loss falls per unit learning rate. An entry whose gradient is 0 does not move;
    hence lamb's trust ratio counts the other entries only: ||W|| sign(g) / sqrt(number of nonzero g).

    rmsprop: alpha = 0.99. sophia: before any estimate of the Hessian, when every entry is clipped. muon: U V^T over the
    nonzero singular values of a matrix; sign(g) of a vector or scalar, which AdamW moves. lars, lamb and adafactor move
    no parameter that is 0. Where the gradient is NaN the step is NaN. is_branch: whether the parameter is a matrix of a
    branch, where the name is that of two optimizers. Raises ValueError for an unknown name or another
    number of dimensions.
    """
    _check_name(name)
    if num_dims not in (0, 1, 2):
        raise ValueError(f"a parameter has 0, 1 or 2 dimensions of its own, not {num_dims}")
    dims = tuple(range(-num_dims, 0))
    if name == MIXED:
        length = step_length(grad, num_dims, is_branch=is_branch)
        return _sign(grad) if length is None else length * _polar(grad)
    if name in ("sgd", "momentum"):
        return grad.clone()
    if name == "lars":
        return _norm(weight, dims) * _ratio(grad, _norm(grad, dims))
    if name == "lamb":
        direction = _sign(grad)
        return _ratio(_norm(weight, dims), _norm(direction, dims)) * direction
    if name == "adafactor":
        direction = _unfactored(grad) if num_dims == 2 else _sign(grad)
        return _rms(weight, dims) * direction / _rms(direction, dims).clamp(min=1)
    if name == "muon" and num_dims == 2:
        return _polar(grad)
    return _sign(grad) * (NORMALISATION[name].constant if name == "rmsprop" else 1)


def group_options(name: str, *, is_branch: bool) -> dict[str, Any]:
    """What a parameter group of ``make`` says besides its parameters and their learning rate."""
    return {"is_branch": False} if name == MIXED and not is_branch else {}


def step_length(grad: Tensor, num_dims: int, *, is_branch: bool) -> float | None:
    """Under Muon beside AdamW: what multiplies the polar factor of a gradient; None of what AdamW moves."""
    return MATCHED * math.sqrt(max(grad.shape[-2:])) if num_dims == 2 and is_branch else None


def _unfactored(grad: Tensor) -> Tensor:
    """grad / sqrt(V), V = (mean of squares of the row) (of the column) / (of the matrix)."""
    return _ratio(_ratio(grad, _rms(grad, (-1,))), _rms(grad, (-2,))) * _rms(grad, (-2, -1))


def _polar(matrix: Tensor) -> Tensor:
    """U V^T over the singular values that are not 0 to rounding; NaN where the matrix is not finite."""
    finite = matrix.isfinite().all(-1, keepdim=True).all(-2, keepdim=True)
    u, s, vh = torch.linalg.svd(torch.where(finite, matrix, 0), full_matrices=False)
    rounding = max(matrix.shape[-2:]) * torch.finfo(matrix.dtype).eps * s[..., :1]
    return torch.where(finite, (u * (s > rounding).unsqueeze(-2)) @ vh, math.nan)


# --- the published algorithms that torch.optim lacks


class _Stepping(Optimizer, ABC):
    """``step`` without its boilerplate. Raises ValueError for an lr, weight decay or decay rate out of range."""

    def __init__(self, params: Iterable[Any], lr: float, *, weight_decay: float, **rest: Any) -> None:
        if not (lr >= 0 and weight_decay >= 0):
            raise ValueError(f"lr and weight_decay must be at least 0, not {lr} and {weight_decay}")
        if not all(0 <= decay < 1 for decay in (rest.get("momentum", 0.0), *rest.get("betas", ()))):
            raise ValueError(f"momentum and betas must lie in [0, 1): {rest}")
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, **rest})

    @abstractmethod
    def step_group(self, group: dict[str, Any]) -> None:
        """Moves the parameters of one group that have a gradient."""

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self.step_group(group)
        return loss


class _Published(_Stepping):
    """theta <- theta - lr * direction, parameter by parameter."""

    @abstractmethod
    def direction(self, theta: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        """What the learning rate multiplies, weight decay included. ``state`` is empty at the first step."""

    def step_group(self, group: dict[str, Any]) -> None:
        for theta in group["params"]:
            if theta.grad is not None:
                theta.sub_(self.direction(theta, theta.grad, self.state[theta], group), alpha=group["lr"])


def _average(state: dict[str, Any], key: str, decay: float, new: Tensor) -> Tensor:
    """The moving average that ``state`` keeps under ``key``, from 0, after one more step. Not a copy."""
    if key not in state:
        state[key] = torch.zeros_like(new)
    return state[key].mul_(decay).add_(new, alpha=1 - decay)


class SignSGD(_Published):
    """arXiv:1802.04434, Algorithms 1 and, with momentum, 2 (Signum). Weight decay as in arXiv:1810.05291.

    m = momentum m + (1 - momentum) g; theta -= lr (sign(m) + weight_decay theta).
    """

    def __init__(self, params: Iterable[Any], lr: float, *, momentum: float = 0.0, weight_decay: float = 0.0) -> None:
        super().__init__(params, lr, momentum=momentum, weight_decay=weight_decay)

    def direction(self, theta: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        return _sign(_average(state, "momentum", group["momentum"], grad)) + group["weight_decay"] * theta


class Lion(_Published):
    """arXiv:2302.06675, Algorithm 2.

    c = beta1 m + (1 - beta1) g; theta -= lr (sign(c) + weight_decay theta); then m = beta2 m + (1 - beta2) g.
    """

    def __init__(
        self, params: Iterable[Any], lr: float, *, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, lr, betas=betas, weight_decay=weight_decay)

    def direction(self, theta: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        beta1, beta2 = group["betas"]
        interpolated = (1 - beta1) * grad
        if "momentum" in state:
            interpolated += beta1 * state["momentum"]
        _average(state, "momentum", beta2, grad)
        return _sign(interpolated) + group["weight_decay"] * theta


class LARS(_Published):
    """arXiv:1904.00962, Algorithm 1 with phi the identity, for each parameter tensor.

    m = momentum m + (1 - momentum) (g + weight_decay theta); theta -= lr ||theta|| m / ||m||. The trust coefficient of
    arXiv:1708.03888 is part of lr. No step where theta or m is 0.
    """

    def __init__(self, params: Iterable[Any], lr: float, *, momentum: float = 0.9, weight_decay: float = 0.0) -> None:
        super().__init__(params, lr, momentum=momentum, weight_decay=weight_decay)

    def direction(self, theta: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        m = _average(state, "momentum", group["momentum"], grad + group["weight_decay"] * theta)
        return _own_norm(theta, group) * _ratio(m, _own_norm(m, group))


class LAMB(_Published):
    """arXiv:1904.00962, Algorithm 2 with phi the identity and its bias correction, for each parameter tensor.

    r = m_hat / (sqrt(v_hat) + eps) as in Adam; theta -= lr ||theta|| / ||r + weight_decay theta|| (r + weight_decay
    theta). No step where theta is 0 or where r + weight_decay theta is.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def direction(self, theta: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        beta1, beta2 = group["betas"]
        state["step"] = step = state.get("step", 0) + 1
        m_hat = _average(state, "momentum", beta1, grad) / (1 - beta1**step)
        v_hat = _average(state, "second_moment", beta2, grad * grad) / (1 - beta2**step)
        direction = m_hat / (v_hat.sqrt() + group["eps"]) + group["weight_decay"] * theta
        return _ratio(_own_norm(theta, group), _own_norm(direction, group)) * direction


class Sophia(_Published):
    """arXiv:2305.14342, Algorithm 3, with the Gauss-Newton-Bartlett estimate (Sophia-G, Algorithm 2).

    m = beta1 m + (1 - beta1) g; theta -= lr (clip(m / max(gamma h, eps), 1) + weight_decay theta), where h is 0 until
    ``update_hessian`` is called, as the paper does every ten steps. While it is 0 every entry of m above eps is
    clipped, and the step is sign(m). The paper decays theta first and then steps from there, which is the same sum.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        betas: tuple[float, float] = (0.96, 0.99),
        gamma: float = 0.05,
        eps: float = 1e-12,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, betas=betas, gamma=gamma, eps=eps, weight_decay=weight_decay)

    @torch.no_grad()
    def update_hessian(self, num_examples: int) -> None:
        """h = beta2 h + (1 - beta2) num_examples g^2.

        Each ``.grad`` then holds the gradient g of the loss's mean over ``num_examples`` examples (a language model's
        tokens) with labels drawn from the model's own output, not the data's; clear it before the next step.
        """
        for group in self.param_groups:
            for theta in group["params"]:
                if theta.grad is not None:
                    _average(self.state[theta], "hessian", group["betas"][1], num_examples * theta.grad**2)

    def direction(self, theta: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        m = _average(state, "momentum", group["betas"][0], grad)
        curvature = group["gamma"] * state["hessian"] if "hessian" in state else torch.zeros_like(theta)
        return (m / curvature.clamp(min=group["eps"])).clamp(-1, 1) + group["weight_decay"] * theta


_AT_HAND = 2**15
"""How many numbers of matrices Muon multiplies at once on a CPU: what a processor has at hand."""


class MuonWithAdamW(_Stepping):
    """torch.optim.Muon for matrices without its factor for the shape, torch.optim.AdamW for the others.

    Every matrix goes by Muon but those of a group with ``is_branch`` False, which the post would have for embeddings
    and the head. is_matched: with torch's factor sqrt(max(rows, columns)) / 5 instead. betas, eps: AdamW's. Muon's own
    eps, the least Frobenius norm of a gradient that is brought to 1, is as small as bfloat16 allows: about 1e-19.
    Newton-Schulz runs on all matrices of one shape at once, with the same numbers as torch's, which runs on one.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        ns_steps: int = 5,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        is_matched: bool = False,
    ) -> None:
        muon = {"momentum": momentum, "nesterov": nesterov, "ns_coefficients": ns_coefficients, "ns_steps": ns_steps}
        whose = {"is_matched": is_matched, "is_branch": True}
        super().__init__(params, lr, weight_decay=weight_decay, betas=betas, eps=eps, **muon, **whose)

    def step_group(self, group: dict[str, Any]) -> None:
        lr, weight_decay = group["lr"], group["weight_decay"]
        rest: list[Tensor] = []
        by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
        for theta in group["params"]:
            if theta.ndim != 2 or not group["is_branch"]:
                rest.append(theta)
            elif theta.grad is not None:
                by_shape[theta.shape].append(theta)
        if rest:
            # Of a CPU's many small vectors, one call in place of a dozen each; elsewhere torch chooses.
            is_fused = rest[0].device.type == "cpu" and group.get("cut") is None
            _step_as(self, AdamW(rest, lr, group["betas"], group["eps"], weight_decay, fused=is_fused or None))
        for shape, matrices in by_shape.items():
            length = MATCHED * math.sqrt(max(shape)) if group["is_matched"] else 1.0
            for theta, step in self._orthogonal(matrices, group):
                theta.mul_(1 - lr * weight_decay).add_(step, alpha=-lr * length)

    def _orthogonal(self, matrices: Sequence[Tensor], group: Mapping[str, Any]) -> Iterator[tuple[Tensor, Tensor]]:
        """Each matrix of one shape with its step. One that is cut over processes is made whole on each, by itself."""
        how = group["ns_coefficients"], group["ns_steps"]
        if (cut := group.get("cut")) is None:
            few = max(1, _AT_HAND // matrices[0].numel()) if matrices[0].device.type == "cpu" else len(matrices)
            for first in range(0, len(matrices), few):
                several = matrices[first : first + few]
                towards = torch.stack([self._momentum(theta, group) for theta in several])
                yield from zip(several, _newton_schulz(towards, *how), strict=True)
            return
        for theta in matrices:
            (step,) = _newton_schulz(cut.whole(self._momentum(theta, group))[None], *how)
            yield theta, cut.part_of(step, theta)

    def _momentum(self, theta: Tensor, group: Mapping[str, Any]) -> Tensor:
        """What stands in the gradient's place."""
        assert theta.grad is not None
        buffer = _average(self.state[theta], "momentum_buffer", group["momentum"], theta.grad)
        return theta.grad.lerp(buffer, group["momentum"]) if group["nesterov"] else buffer


class AdafactorOfWhole(_Stepping):
    """torch.optim.Adafactor where parameters are cut: each is made whole for its step, by itself."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        weight_decay: float = 0.0,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
    ) -> None:
        super().__init__(params, lr, weight_decay=weight_decay, beta2_decay=beta2_decay, eps=eps, d=d)

    def step_group(self, group: dict[str, Any]) -> None:
        cut, options = group["cut"], {name: group[name] for name in self.defaults}
        for theta in group["params"]:
            if theta.grad is not None:
                leaf = nn.Parameter(cut.whole(theta))
                leaf.grad = cut.whole(theta.grad)
                part = Adafactor([leaf], **options)
                part.state[leaf] = self.state[theta]
                part.step()
                theta.copy_(cut.part_of(leaf.detach(), theta))


def _newton_schulz(matrices: Tensor, coefficients: tuple[float, float, float], num_steps: int) -> Tensor:
    """Near the polar factor of each matrix (N, rows, columns), in bfloat16: x <- a x + (b G + c G^2) x, G = x x^T.

    On a CPU the products are float32's, rounded to bfloat16 each: most processors have none in bfloat16, and take ten
    times as long to do without.
    """
    a, b, c = coefficients
    is_tall, is_on_cpu = matrices.shape[-2] > matrices.shape[-1], matrices.device.type == "cpu"

    def rounded(product: Tensor) -> Tensor:
        return product.copy_(product.bfloat16()) if is_on_cpu else product

    x = matrices.bfloat16().mT if is_tall else matrices.bfloat16()
    x = x / torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True).clamp(min=_small(torch.bfloat16))
    x = x.float() if is_on_cpu else x
    for _ in range(num_steps):
        gram = rounded(x @ x.mT)
        inner = rounded(torch.baddbmm(gram, gram, gram, beta=b, alpha=c))
        x = rounded(torch.baddbmm(x, inner, x, beta=a))
    return (x.mT if is_tall else x).bfloat16()


def _step_as(whole: Optimizer, part: Optimizer) -> None:
    """One step of ``part``, which has some of the parameters of ``whole``, with the state that ``whole`` keeps."""
    part.state = whole.state
    part.step()


# --- by name


def _small(dtype: torch.dtype) -> float:
    """The square root of the least normal number: about 1e-154 in float64, 1e-19 in float32."""
    return math.sqrt(torch.finfo(dtype).tiny)


_CLASSES: Mapping[str, Callable[..., Optimizer]] = {
    "sgd": SGD,
    "momentum": SGD,
    "adam": Adam,
    "adamw": AdamW,
    "rmsprop": RMSprop,
    "signsgd": SignSGD,
    "lion": Lion,
    "adafactor": Adafactor,
    "lars": LARS,
    "lamb": LAMB,
    "muon": MuonWithAdamW,
    "sophia": Sophia,
    MIXED: partial(MuonWithAdamW, is_matched=True),
}


def make(name: str, parameters: Iterable[Tensor] | Iterable[dict[str, Any]], lr: float, **options: Any) -> Optimizer:
    """The optimizer ``name`` of one model's parameters, or of torch's parameter groups, each with an "lr" of its own.

    A learning-rate multiplier of a role is a group with lr times it. What is no matrix of a branch stands, under
    "muon+adamw", in a group with "is_branch" False. Several tensors of lars or lamb may be one vector, in a group with
    their "sizes" and no other parameter. Parameters that are cut over processes stand in groups with a "cut".
    ``options`` are the class's own and replace these defaults: no
    weight decay; momentum 0.9 for "momentum"; eps so small that no float64 gradient above 1e-138 and no float32 one
    above 1e-11 feels it, yet with a square that can be stored: a smaller one would make huge steps of gradients whose
    squares underflow. Raises ValueError for an unknown name, an lr below 0 or no parameters, TypeError for an option
    that the class lacks.
    """
    _check_name(name)
    given: list[Any] = list(parameters)
    are_groups = any(isinstance(item, dict) for item in given)
    groups = [{**group, "params": list(group["params"])} for group in given] if are_groups else [{"params": given}]
    if not any(group["params"] for group in groups):
        raise ValueError(f"{name} was given no parameters")
    defaults: dict[str, Any] = {"weight_decay": 0.0}
    if name == "momentum":
        defaults["momentum"] = 0.9
    if name == "rmsprop":
        defaults["alpha"] = RMSPROP_SMOOTHING
    if name in ("adam", "adamw", "rmsprop", "adafactor", "lamb", "muon", "sophia", MIXED):
        eps = max(_small(theta.dtype) for group in groups for theta in group["params"])
        defaults["eps"] = (eps, eps) if name == "adafactor" else eps
    is_cut = any("cut" in group for group in groups)
    kind = AdafactorOfWhole if name == "adafactor" and is_cut else _CLASSES[name]
    return kind(groups, lr=lr, **{**defaults, **options})
