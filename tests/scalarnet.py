"""A second mean field that shares no line with the first: plain lists forward, a loop over stored numbers backward.

Written from the design's text, with its table of schemes typed again and the moments of an activation by quadrature of
the activation itself. Nothing here reads `theory`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, ndtr

OPTIMIZERS = ("sgd", "adam", "lamb", "lars", "muon")
ACTIVATIONS = ("relu", "gelu", "identity", "silu", "tanh")
NORM_KINDS = ("layernorm", "rmsnorm")
ELSEWHERE = ("mix-ln", "hybrid-norm", "dyt", "derf", "residual")
"""Schemes whose norms are not of this one form; ``tests/theory/test_block_schemes.py`` has them."""

X, WEIGHT = np.polynomial.legendre.leggauss(20)
PHI: dict[str, tuple[Callable, Callable]] = {  # phi, phi'
    "identity": (lambda u: u, np.ones_like),
    "relu": (lambda u: np.maximum(u, 0.0), lambda u: np.where(u > 0, 1.0, 0.0)),
    "gelu": (lambda u: u * ndtr(u), lambda u: ndtr(u) + u * np.exp(-(u**2) / 2) / math.sqrt(2 * math.pi)),
    "silu": (lambda u: u * expit(u), lambda u: expit(u) * (1 + u * expit(-u))),
    "tanh": (np.tanh, lambda u: np.cosh(np.minimum(np.abs(u), 300.0)) ** -2.0),
}


@lru_cache(maxsize=100_000)
def moments(name: str, s: float) -> dict[str, float]:
    """Of phi(s z), z ~ N(0, 1), by Gauss-Legendre on panels that end at 0 and wherever an absolute value bends."""
    half = np.geomspace(min(1.0, 1 / s) / 4, 10.0, 40 + int(3 * math.log2(max(1.0, s))))
    ends = np.concatenate([-half[::-1], [0.0], half])
    phi, slope = (lambda z, f=f: f(s * np.asarray(z, dtype=float)) for f in PHI[name])

    def mean_of(g: Callable, cuts: list[float]) -> float:
        at = np.unique(np.concatenate([ends, cuts]))
        middle, reach = (at[1:] + at[:-1])[:, None] / 2, (at[1:] - at[:-1])[:, None] / 2
        z = middle + reach * X
        return float(np.sum(reach * WEIGHT * np.exp(-(z**2) / 2) * g(z))) / math.sqrt(2 * math.pi)

    def mean_abs(g: Callable) -> float:
        values = g(ends)
        bends = [i for i in range(len(ends) - 1) if values[i] * values[i + 1] < 0]
        return mean_of(lambda z: abs(g(z)), [brentq(g, ends[i], ends[i + 1], xtol=1e-300) for i in bends])

    mean = mean_of(phi, [])
    return {
        "second": mean_of(lambda z: phi(z) ** 2, []),
        "variance": mean_of(lambda z: (phi(z) - mean) ** 2, []),
        "abs": mean_abs(phi),
        "abs_centred": mean_abs(lambda z: phi(z) - mean),
        "slope_second": mean_of(lambda z: slope(z) ** 2, []),
        "slope_abs": mean_abs(slope),
    }


@dataclass
class Net:
    """The one form of all schemes as lists of numbers, sublayer l at index l - 1; a None is Admin's residual weight."""

    norms: str  # any of "pre inner branch post final"
    a: list | None
    b: list
    c: list
    w: list
    v: list
    lr: float = 1.0  # under optimizers whose steps forget the gradient's length
    start: float = 1.0  # the second moment of x_0


def net(name: str, L: int) -> Net:
    """The table of schemes."""
    N, ones = L / 2, [1.0] * L
    post, pre = Net("post", ones, ones, ones, ones, ones), Net("pre final", ones, ones, ones, ones, ones)

    def gains(base: Net, w: float, v: float, a: float = 1.0, **others) -> Net:
        return Net(**{**vars(base), "w": [w] * L, "v": [v] * L, "a": [a] * L, **others})

    sub, bare = gains(pre, 1, 1, norms="pre inner final"), gains(pre, 1, 1, norms="")
    made = {
        "post-ln": lambda: post,
        "pre-ln": lambda: pre,
        "sub-ln": lambda: sub,
        "normformer": lambda: sub,
        "peri-ln": lambda: gains(pre, 1, 1, norms="pre branch final"),
        "deepnorm": lambda: gains(post, (8 * N) ** -0.25, (8 * N) ** -0.25, (2 * N) ** 0.25),
        "su-sgd": lambda: gains(post, (2 * N) ** -0.25, (2 * N) ** -0.25, (2 * N) ** 0.25),
        "su-adam": lambda: gains(post, (2 * N) ** -0.5, (2 * N) ** -0.5, (2 * N) ** 0.5),
        "su-lamb": lambda: gains(post, (2 * N) ** -0.5, (2 * N) ** -0.5),
        "su-pre-sgd": lambda: gains(pre, (2 * N) ** -0.5, (2 * N) ** -0.5),
        "su-pre-adam": lambda: gains(pre, 1 / (2 * N), 1 / (2 * N)),
        "su-pre-lamb": lambda: gains(pre, (2 * N) ** -0.5, (2 * N) ** -0.5),
        "sub-ln-gamma": lambda: gains(sub, math.log(L) ** 0.5, math.log(L) ** 0.5),
        "admin": lambda: gains(post, 1, 1),  # its a is filled in on the way forward
        "gpt2": lambda: gains(pre, 1, L**-0.5),
        "fixup": lambda: gains(bare, L**-0.5, 0.0),
        "t-fixup": lambda: gains(bare, 0.67 * N**-0.25, 0.67 * N**-0.25, start=(9 * N) ** -0.5),
        "rezero": lambda: gains(bare, 1, 1, b=[0.0] * L),
        "skipinit": lambda: gains(bare, 1, 1, b=[0.0] * L),
        "depth-mup": lambda: gains(pre, 1, 1, b=[L**-0.5] * L, lr=L**-0.5),
        "completep": lambda: gains(pre, 1, 1, b=[1 / N] * L),
        "ln-scaling": lambda: gains(pre, 1, 1, c=[math.ceil(i / 2) ** -0.5 for i in range(1, L + 1)]),
        "branch-ln": lambda: gains(pre, 1, 1, norms="branch final"),
        "keel": lambda: gains(post, 1, 1, float(L), norms="pre post"),
        "mitchell": lambda: replace(pre, v=[(2 * math.ceil(i / 2)) ** -0.5 for i in range(1, L + 1)]),
    }[name]()
    return made if name != "admin" else Net(**{**vars(made), "a": None})


def reference(of: Net, act: str, kind: str) -> dict[str, dict[str, float]]:
    """{optimizer: {role: update}}: everything stored on the way forward, gradients by hand on the way back."""
    inner, pre, post, branch = (name in of.norms.split() for name in ("inner", "pre", "post", "branch"))
    q, ms, total, admin = [of.start], [], [], 1.0
    for i in range(len(of.w)):
        into = of.c[i] ** 2 * (1.0 if pre else q[i])
        m = moments(act, of.w[i] * math.sqrt(into))
        size = m["variance"] if kind == "layernorm" else m["second"]  # what the inner norm divides by, squared
        out = of.v[i] ** 2 * (1.0 if inner else m["second"])
        a2 = admin if of.a is None else of.a[i] ** 2
        added = of.b[i] ** 2 * (1.0 if branch else out)
        admin += added
        ms.append((m, size, into, out, a2))
        total.append(a2 * q[i] + added)
        q.append(1.0 if post else total[i])
    roles: dict[str, dict[str, float]] = {o: {"fc1": 0.0, "fc2": 0.0, "branch_weight": 0.0} for o in OPTIMIZERS}
    D = 1 / q[-1] if "final" in of.norms else 1.0  # ||df/dx_L||^2
    for i in reversed(range(len(of.w))):
        m, size, into, out, a2 = ms[i]
        at_sum = D / total[i] if post else D
        at_out = at_sum * of.b[i] ** 2 / (out if branch else 1.0)  # at W2 h
        at_hidden = at_out * of.v[i] ** 2 / (size if inner else 1.0)  # at phi(W1 x)
        at_pre = at_hidden * m["slope_second"]  # at W1 x
        hidden2 = 1.0 if inner else m["second"]
        centred = inner and kind == "layernorm"
        hidden1 = m["abs_centred" if centred else "abs"] / (math.sqrt(size) if inner else 1.0)
        square = {"fc1": at_pre * into, "fc2": at_out * hidden2}
        ones = {
            "fc1": m["slope_abs"] * math.sqrt(at_hidden * into) * 2 / math.pi,
            "fc2": hidden1 * math.sqrt(at_out * 2 / math.pi),
        }
        gain = {"fc1": of.w[i], "fc2": of.v[i]}
        for role in ("fc1", "fc2"):
            roles["sgd"][role] += square[role]
            roles["adam"][role] += ones[role] * of.lr
            roles["lamb"][role] += ones[role] * gain[role] * of.lr
            roles["lars"][role] += math.sqrt(square[role]) * gain[role] * of.lr
            roles["muon"][role] += math.sqrt(square[role]) * of.lr
        b_square = at_sum * (1.0 if branch else out)  # E (df/db)^2
        roles["sgd"]["branch_weight"] += b_square
        roles["adam"]["branch_weight"] += math.sqrt(b_square * 2 / math.pi)
        through = at_pre * of.w[i] ** 2 * of.c[i] ** 2 / (q[i] if pre else 1.0)
        D = a2 * at_sum + through
    return roles
