"""What is pinned of other packages' models: `make test-peers` looks at them anew."""

from __future__ import annotations

import pytest

from tests.peers.__main__ import ENVIRONMENTS, main, pinned


def test_each_environment_is_pinned() -> None:
    assert list(pinned()) == list(ENVIRONMENTS)


def test_an_unknown_environment_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timm-0.1"]) == 2
    assert "no environment 'timm-0.1' (there are: timm-1.0.20, " in capsys.readouterr().err
