"""The recursion at 10^9 sublayers in milliseconds, where no closed form exists: Euler-Maclaurin on a Chebyshev grid.

Where the coefficients move slowly with the layer (LayerNorm Scaling), or the signal itself moves slowly (no norm, a
small branch), every quantity of the recursion is a smooth function of the layer. Its running sum is then an integral
plus end corrections,

    sum_{j=m+1}^{k} f(j) = int_m^k f + (f(k) - f(m))/2 + (f'(k) - f'(m))/12 + O(f''' / 720),

on panels [m, 2m], [2m, 4m], ... of the logarithm of the layer. The first START layers are summed one by one, so the
term left out is below START^-3 / 720 of the summand there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

START = 1024
"""How many blocks the caller must have summed one by one."""
ROUNDS = 60
_NODES = 14


def _lobatto() -> tuple[list[float], list[list[float]], list[list[float]]]:
    """Chebyshev-Lobatto points on [-1, 1], with the matrices that integrate from -1 and differentiate there.

    Both act on the Chebyshev coefficients of the interpolant: T_j integrates to T_{j+1}/(2(j+1)) - T_{j-1}/(2(j-1)).
    """
    n = _NODES - 1
    points = [-math.cos(math.pi * i / n) for i in range(_NODES)]
    ends = [0.5 if i in (0, n) else 1.0 for i in range(_NODES)]
    # values -> coefficients
    to_coefficients = [
        [2 / n * ends[j] * ends[i] * math.cos(j * math.acos(max(-1.0, min(1.0, points[i])))) for i in range(_NODES)]
        for j in range(_NODES)
    ]

    def chebyshev(j: int, x: float) -> float:
        return math.cos(j * math.acos(max(-1.0, min(1.0, x))))

    def antiderivative(j: int, x: float) -> float:
        if j == 0:
            return x
        if j == 1:
            return x * x / 2
        return chebyshev(j + 1, x) / (2 * (j + 1)) - chebyshev(j - 1, x) / (2 * (j - 1))

    def derivative(j: int, x: float) -> float:
        if abs(x) == 1:
            return j * j * x ** (j + 1)
        angle = math.acos(x)
        return j * math.sin(j * angle) / math.sin(angle)

    integrate = [
        [
            sum((antiderivative(j, x) - antiderivative(j, -1.0)) * to_coefficients[j][i] for j in range(_NODES))
            for i in range(_NODES)
        ]
        for x in points
    ]
    differentiate = [
        [sum(derivative(j, x) * to_coefficients[j][i] for j in range(_NODES)) for i in range(_NODES)] for x in points
    ]
    points[0], points[-1] = -1.0, 1.0
    return points, integrate, differentiate


_POINTS, _INTEGRATE, _DIFFERENTIATE = _lobatto()


class Grid:
    """Nodes of the block index k on octave panels from ``start`` to ``stop``; functions are lists of values there."""

    def __init__(self, start: int, stop: int) -> None:
        self.logs: list[tuple[float, float]] = []
        low, top = math.log(start), math.log(stop)
        count = max(1, math.ceil((top - low) / math.log(2)))
        for i in range(count):
            self.logs.append((low + (top - low) * i / count, low + (top - low) * (i + 1) / count))
        self.nodes = [math.exp(a + (b - a) * (x + 1) / 2) for a, b in self.logs for x in _POINTS]

    def running_sum(self, values: Sequence[float]) -> list[float]:
        """sum_{start < j <= k} f(j) at every node k, given f at the nodes."""
        out: list[float] = []
        base, first, first_slope = 0.0, values[0], math.nan
        for panel, (a, b) in enumerate(self.logs):
            part = values[panel * _NODES : (panel + 1) * _NODES]
            nodes = self.nodes[panel * _NODES : (panel + 1) * _NODES]
            half = (b - a) / 2
            weighted = [f * k * half for f, k in zip(part, nodes, strict=True)]  # dk = k dt, t = log k
            for i, k in enumerate(nodes):
                integral = base + sum(m * f for m, f in zip(_INTEGRATE[i], weighted, strict=True))
                slope = sum(m * f for m, f in zip(_DIFFERENTIATE[i], part, strict=True)) / (half * k)
                if math.isnan(first_slope):
                    first_slope = slope
                out.append(integral + (part[i] - first) / 2 + (slope - first_slope) / 12)
            base += sum(m * f for m, f in zip(_INTEGRATE[-1], weighted, strict=True))
        return out


Block = Callable[[float, float], tuple[float, float, dict[str, float]]]
"""(block index, stream before it) -> (growth of the stream, log of the gradient ratio^p, unit by role)."""


def carry(
    block: Block, start: int, stop: int, stream: float, totals: dict[str, float]
) -> tuple[float, dict[str, float], float]:
    """Continue U_k = U_{k-1} e^{g_k} + unit_k from block ``start`` to ``stop``.

    Returns the stream after ``stop``, the totals divided by e^{G}, and G, the log of the whole gradient ratio.
    The stream solves q_k = q_start + sum growth(j, q_{j-1}); it is found by iteration, which converges because a
    block changes it by little. ArithmeticError if it has not settled after ``ROUNDS`` rounds.
    """
    grid = Grid(start, stop)
    before = [stream] * len(grid.nodes)
    for _ in range(ROUNDS):
        blocks = [block(k, q) for k, q in zip(grid.nodes, before, strict=True)]
        after = [stream + grown for grown in grid.running_sum([growth for growth, _, _ in blocks])]
        new = [q - growth for q, (growth, _, _) in zip(after, blocks, strict=True)]
        settled = all(abs(x - y) <= 1e-14 * abs(x) for x, y in zip(new, before, strict=True))
        before = new
        if settled:
            break
    else:
        raise ArithmeticError("the stream did not settle: the coefficients move too fast for a smooth sum")
    logs = grid.running_sum([g for _, g, _ in blocks])
    out = {}
    for role, total in totals.items():
        weighted = [units[role] * math.exp(-g) for (_, _, units), g in zip(blocks, logs, strict=True)]
        out[role] = total + grid.running_sum(weighted)[-1]
    return after[-1], out, logs[-1]
