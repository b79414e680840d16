"""Model cache, drafter, outputs, space and kernelspec, each in folders that are really in that state."""

import errno
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import pytest
from ddtree.models.download_cache import get_or_create
from ddtree.models.zoo import ASSETS, ZOO
from ddtree.workbook.doctor.machine_checks import (
    asset_problem,
    check_disk,
    check_drafter,
    check_kernelspec,
    check_memory,
    check_outputs,
    check_target,
    free_disk_gib,
    this_kernelspec,
)
from wording import tells

MODEL = "smollm2-135m"
ASSET = ASSETS / ZOO[MODEL].drafter_asset


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DDTREE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fill(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"weights")


def test_model_that_was_never_fetched(cache: Path) -> None:
    result = check_target(MODEL)
    assert (result.state, result.fix) == ("missing", f"ddtree fetch {MODEL}")


def test_whole_model(cache: Path) -> None:
    get_or_create(MODEL, fill)
    assert check_target(MODEL).state == "ok"


@pytest.mark.parametrize(("contents", "words"), [(b"weigh", "5 7"), (b"wEights", "sha256")])
def test_damaged_model_asks_for_verify(cache: Path, contents: bytes, words: str) -> None:
    (get_or_create(MODEL, fill) / "model.safetensors").write_bytes(contents)
    result = check_target(MODEL)
    assert (result.state, result.fix) == ("missing", f"ddtree fetch --verify {MODEL}")
    assert tells(result.detail, words)


def test_drafter_that_ships_is_whole_without_a_cache(cache: Path) -> None:
    result = check_drafter(MODEL, ASSET)
    assert (result.state, "restored" in result.detail) == ("ok", False)


def test_damaged_restored_drafter_asks_for_verify(cache: Path) -> None:
    name = f"{MODEL}-dflash-0123456789ab"
    (get_or_create(name, fill) / "model.safetensors").unlink()
    get_or_create(f"{MODEL}-dflash", fill)  # an entry of another kind is not looked at
    result = check_drafter(MODEL, ASSET)
    assert name in result.detail
    assert (result.state, result.fix) == ("missing", f"ddtree fetch --verify {MODEL}")


@pytest.mark.parametrize("act", ["truncate", "remove weights", "remove config", "remove all"])
def test_broken_asset_is_named(tmp_path: Path, act: str) -> None:
    asset = tmp_path / "asset"
    shutil.copytree(ASSET, asset)
    assert asset_problem(asset) is None
    (weights,) = asset.glob("*.safetensors")
    if act == "truncate":
        weights.write_bytes(weights.read_bytes()[:-1000])
    elif act == "remove weights":
        weights.unlink()
    elif act == "remove config":
        (asset / "config.json").unlink()
    else:
        shutil.rmtree(asset)
    result = check_drafter(MODEL, asset)
    assert result.state == "missing"
    assert str(asset_problem(asset)) in result.detail


def test_outputs_may_be_made_later_and_are_not_made_now(tmp_path: Path) -> None:
    assert check_outputs(tmp_path / "outputs" / "deep", "outputs/").state == "ok"
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_outputs(tmp_path: Path) -> None:
    (tmp_path / "outputs").write_text("")
    result = check_outputs(tmp_path / "outputs", "outputs/")
    assert result.state == "missing"
    assert "outputs/" in result.detail


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_outputs_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Faked, since root writes where others may not."""

    def refuse(**_options: Any) -> NoReturn:
        raise OSError(code, "refused by the test")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    result = check_outputs(tmp_path, "outputs/")
    assert result.state == "missing"
    assert "refused by the test" in result.detail


def test_little_room_is_a_warning(tmp_path: Path) -> None:
    assert [check_memory(gib).state for gib in (2.9, 3.0)] == ["warning", "ok"]
    assert [check_disk(gib, "cache").state for gib in (0.5, 1.0)] == ["warning", "ok"]
    assert free_disk_gib(tmp_path / "not" / "yet") == pytest.approx(free_disk_gib(tmp_path), abs=1.0)


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of kernelspecs that goes before all others."""
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    return tmp_path / "kernels"


def kernel(kernels: Path, program: str) -> None:
    (kernels / "python3").mkdir(parents=True)
    spec = {"argv": [program, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "Python 3"}
    (kernels / "python3" / "kernel.json").write_text(json.dumps(spec))


def test_kernelspec_of_another_interpreter(kernels: Path) -> None:
    kernel(kernels, "/elsewhere/bin/python")
    result = check_kernelspec(*this_kernelspec(), sys.executable, "pip")
    assert result.state == "missing"
    assert "/elsewhere/bin/python" in result.detail
    assert result.fix == f"remove the folder {kernels / 'python3'}"


@pytest.mark.parametrize(
    "program", ["python", "python3", sys.executable, str(Path(sys.executable).with_name("python3"))]
)
def test_kernelspec_of_this_interpreter(kernels: Path, program: str) -> None:
    kernel(kernels, program)
    assert check_kernelspec(*this_kernelspec(), sys.executable, "pip").state == "ok"


def test_linked_environments_are_told_apart(tmp_path: Path) -> None:
    """Two virtual environments are links to one python, and yet have packages of their own."""
    programs = [tmp_path / name / "bin" / "python" for name in ("one", "two")]
    for program in programs:
        program.parent.mkdir(parents=True)
        program.symlink_to(sys.executable)
    one, two = map(str, programs)
    assert check_kernelspec(one, "", one, "pip").state == "ok"
    assert check_kernelspec(one, "", two, "pip").state == "missing"


def test_no_kernelspec_at_all() -> None:
    result = check_kernelspec("", "", sys.executable, "pip")
    assert (result.state, result.fix) == ("missing", "pip install ipykernel")
