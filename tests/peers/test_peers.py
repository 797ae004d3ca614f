"""What is pinned of other packages' models: `make test-peers` looks at them anew."""

from __future__ import annotations

import pytest

from tests.peers.__main__ import ENVIRONMENTS, main, pinned

C_PROJ = ["init-law fc2 encoder", "init-law out encoder"]


def test_each_environment_is_pinned() -> None:
    assert list(pinned()) == list(ENVIRONMENTS)


@pytest.mark.parametrize(("version", "faults"), [("4.57.6", []), ("5.14.1", C_PROJ), ("5.15.0", [])])
def test_hugging_face_lost_the_rule_of_gpt2_in_some_versions(version: str, faults: list[str]) -> None:
    """huggingface/transformers #47458. All else that is looked at there is right in each version."""
    found = dict(pinned()[f"transformers-{version}"])
    assert found.pop("gpt2") == faults
    assert not any(found.values())


@pytest.mark.parametrize(("version", "faults"), [("1.0.20", []), ("1.0.21", ["branch-weight encoder"]), ("1.0.22", [])])
def test_timm_started_layer_scale_at_1_in_one_version(version: str, faults: list[str]) -> None:
    """huggingface/pytorch-image-models #2605. CaiT has 1e-5 at 36 layers in each, as in its authors' code."""
    assert pinned()[f"timm-{version}"] == {
        "vit": [],
        "vit, init_values=1e-5": faults,
        "cait": [],
        "cait, XXS36": ["branch-weight encoder"],
    }


def test_an_unknown_environment_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timm-0.1"]) == 2
    assert "no environment 'timm-0.1' (there are: timm-1.0.20, " in capsys.readouterr().err
