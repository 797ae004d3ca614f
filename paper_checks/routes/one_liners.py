"""Commands of one line that show a counterexample with nothing of this project: Python, or Python and torch.

Each fits ``python -c``, and prints numbers that a test holds against what the claim says it found.
"""

from __future__ import annotations

from collections.abc import Sequence

_XAVIER = "import torch; W = torch.nn.init.xavier_normal_(torch.empty(512, 512)); A = W @ W.T; "


def _python(code: str) -> str:
    return f'python -c "{code}"'


XAVIER_GAIN = _python(_XAVIER + "print('lambda', (A.square().sum() / A.trace()).sqrt().item(), 'at gain 1')")
"""S1-07: the least distance of W W^T/lambda^2 from the identity is at sum A^2/tr A, A = W W^T."""
XAVIER_DISTANCE = _python(
    _XAVIER + "k = A.square().sum() / A.trace(); I = torch.eye(512); print('distance', ((A / k - I).norm() / I.norm())"
    ".item())"
)
"""S1-08."""
HIDDEN_PROBE = _python(
    "import torch; x, W = torch.randn(64), torch.randn(64, 64).requires_grad_(); s = torch.ones(1, requires_grad=True);"
    " y = torch.layer_norm((s * W @ x).relu(), (64,), eps=0); g = torch.autograd.grad(y[0], (s, W));"
    " print('dL/dlambda', g[0].item(), 'norm of dL/dW', g[1].norm().item())"
)
"""S1-10: the norm behind the activation, as Sub-LN has it, hides the scale of W."""
OPPOSITE_TOKENS = _python(
    "import torch; x = torch.tensor([1.0, -1.0]); p = torch.zeros(2).softmax(0);"
    " print('token', x.norm().item(), 'average', (p @ torch.stack([x, -x])).norm().item())"
)
"""DN-01."""
SCALAR_NETWORK = _python(
    "import torch; N = 18; a, b = (2 * N) ** 0.25, (8 * N) ** -0.25; t = torch.full((2 * N, 2), b, requires_grad=True);"
    " p = t.prod(1); F = ((a + p) / (a * a + p * p).sqrt()).prod(); g = torch.autograd.grad(F, t)[0];"
    " print('over the bound', g[0].norm().item() / (2**0.5 * b / a))"
)
"""DN-02: DeepNet's scalar model at its own alpha and beta, and how far theta_1 moves it."""
PRODUCT_OF_SLOPES = _python(
    "N = 230; a, p = (2 * N) ** 0.25, (8 * N) ** -0.5;"
    " print('product of the slopes', ((a + p) / (a * a + p * p) ** 0.5) ** (2 * N))"
)
"""DN-08."""
ENCODER_SHARE = _python("print('share', *(M * (12 * M) ** -0.5 / (3 * M) ** 0.25 for M in (432, 433, 10**6)))")
"""DN-07: c = M v_d w_d/alpha_d at DeepNet's alpha and beta of the decoder."""
VANILLA_STEP = _python(
    "s = lambda p: (1 + p) / (1 + p * p) ** 0.5;"
    " print('over the bound', *(abs(s(0.81) - s(1)) * s(1) ** (L - 1) / 0.2 for L in (2, 6, 12, 40)))"
)
"""DN-09: v_1 and w_1 lowered by 0.1, all else 1."""
NORM_GRADIENT = _python(
    "import torch; x = torch.randn(8); f = lambda x: torch.layer_norm(x, (8,), eps=0);"
    " J = torch.autograd.functional.jacobian;"
    " print('over the bound', *(torch.linalg.matrix_norm(J(f, x + m), 2).item() * (x + m).norm().item() / 8**0.5"
    " for m in (0, 10, 1000)))"
)
"""DN-15: a mean that all entries share makes ||x|| large and leaves the gradient where it is."""


def printed_bounds(v: Sequence[str], w: Sequence[str]) -> str:
    """S2-17, S3-03, S3-09: bound (10) of Pre-LN beside (12) of Magneto, without eta d, at these gains.

    >>> from paper_checks.routes.one_liners import printed_bounds
    >>> printed_bounds(["1", "1"], ["100", "1"]).partition("; ")[0]
    'python -c "v, w = [1, 1], [100, 1]'
    """
    return _python(
        f"v, w = [{', '.join(v)}], [{', '.join(w)}]; "
        "c = lambda a: (1 + sum(a[k] / sum(a[:k]) for k in range(1, len(a)))) / sum(a); z = list(zip(v, w));"
        " print('Pre-LN', sum(x * x + y * y for x, y in z) * c([(x * y) ** 2 for x, y in z]),"
        " 'Magneto', sum(1 + (x / y) ** 2 for x, y in z) * c([x * x for x in v]))"
    )


def adam_step(gradients: Sequence[str]) -> str:
    """S1-30: Adam's step in units of eta after these gradients of an entry.

    >>> from paper_checks.routes.one_liners import adam_step
    >>> adam_step(["1", "-1/2"]).partition("; ")[0]
    'python -c "g = [1, -1/2]'
    """
    return _python(
        f"g = [{', '.join(gradients)}]; m = lambda b, a: sum(b ** (len(a) - 1 - i) * x for i, x in enumerate(a))"
        " / sum(b**i for i in range(len(a))); print('step', -m(0.9, g) / m(0.999, [x * x for x in g]) ** 0.5)"
    )
