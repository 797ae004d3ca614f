"""``depthlaw rule``, asked without a process of its own."""

import json
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from paper_checks.commands import rule as command


def answer(norm: str, optimizer: str, arch: str, layers: int, **more: Any) -> dict[str, Any]:
    """Its document."""
    return json.loads(_out(norm, optimizer, arch, layers, as_json=True, **more))


def printed(norm: str, optimizer: str, arch: str, layers: int, decoder_layers: str | None = None, **more: Any) -> str:
    """What it prints for people."""
    return _out(norm, optimizer, arch, layers, decoder_layers, as_json=False, **more)


def _out(norm: str, optimizer: str, arch: str, layers: int, decoder_layers: str | None = None, **more: Any) -> str:
    with redirect_stdout(StringIO()) as out:
        command.run(norm, optimizer, arch, str(layers), decoder_layers, None, **more)
    return out.getvalue()
