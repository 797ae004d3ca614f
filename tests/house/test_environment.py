"""What ``make`` installs with: settings of pip that uv gets, and an installer that says nothing, or why it failed."""

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("environment", ROOT / ".ci" / "environment.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PYTHON", Path(sys.executable))
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_", "SSL_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return module


def test_uv_gets_what_pip_is_told(environment: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = "[global]\nfind-links = /wheels\n  /more\nindex-url = https://of.a.file/\n[install]\nconstraint = caps.txt\n"
    (tmp_path / "pip.conf").write_text(said, encoding="utf-8")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_INDEX_URL", "https://of.a.variable/")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://a/ https://b/")
    monkeypatch.setenv("PIP_CERT", "/of/pip")
    monkeypatch.setenv("SSL_CERT_FILE", "/of/the/person")
    told = environment.settings_for_uv()
    assert told["UV_FIND_LINKS"] == "/wheels,/more"
    assert told["UV_DEFAULT_INDEX"] == "https://of.a.variable/"
    assert told["UV_INDEX"] == "https://a/ https://b/" and told["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert told["UV_CONSTRAINT"] == "constraints.txt caps.txt"
    assert told["SSL_CERT_FILE"] == "/of/the/person"


def test_an_installation_that_fails_says_why(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # which uv is to be told
    with pytest.raises(SystemExit, match="could not be installed"):
        environment.packages("no-such-package")
    assert "no-such-package" in capfd.readouterr().out


def test_an_installation_that_hangs_says_what_it_waits_for(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ("Downloading a (1MiB)", "Downloading torch (2GiB)", "Downloaded a")
    says = f"import time; print(*{lines}, sep='\\n', flush=True); time.sleep(1.5)"
    monkeypatch.setattr(environment, "QUIET_S", 0.2)
    monkeypatch.setattr(environment, "SILENT_S", 0.5)
    assert environment.has_succeeded([sys.executable, "-c", says], dict(os.environ))
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("depthlaw: ")]
    assert any("no progress for" in line and "waiting for: torch (2GiB) (Ctrl-C" in line for line in told), told
