"""A cache entry is there whole or not at all, whatever happens to the process that fills it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ddtree.models.cache_folder import cache_folder, filled, sha256
from platformdirs import user_cache_path

# Both processes are ready before either fills, and a fill takes a while, so that they do meet.
FILL_SLOWLY = """
import os, sys, time
from pathlib import Path
from ddtree.models.cache_folder import filled
meeting, me = Path(sys.argv[1]), sys.argv[2]
def fill(folder):
    with (meeting / "fills").open("a") as log:
        log.write(me + "\\n")
    time.sleep(0.5)
    (folder / "weights").write_text("all of them")
(meeting / me).touch()
while not all((meeting / name).exists() for name in "ab"):
    time.sleep(0.01)
print((filled("model", fill) / "weights").read_text())
"""
DIE_FILLING = """
import os, signal
from ddtree.models.cache_folder import filled
def fill(folder):
    (folder / "weights").write_text("half of th")
    os.kill(os.getpid(), signal.SIGKILL)
filled("model", fill)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of this test alone; it does not exist yet."""
    monkeypatch.setenv("DDTREE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write(folder: Path) -> None:
    assert not list(folder.iterdir()), "a fill starts from nothing"
    (folder / "weights").write_text("all of them")


def never(folder: Path) -> None:
    raise AssertionError("the entry is there already")


def entries(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.is_dir())


def test_folder_is_the_variable_s_else_the_user_s(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == root
    monkeypatch.setenv("DDTREE_CACHE", "")
    assert cache_folder() == user_cache_path("ddtree")
    monkeypatch.delenv("DDTREE_CACHE")
    assert cache_folder() == user_cache_path("ddtree")


def test_entry_is_filled_once(root: Path) -> None:
    entry = filled("model", write)
    assert entry == root / "model"
    assert filled("model", never) == entry
    assert (entry / "weights").read_text() == "all of them"
    assert entries(root) == ["model"]


def test_two_processes_at_once_fill_once(root: Path, tmp_path: Path) -> None:
    both = [
        subprocess.Popen([sys.executable, "-c", FILL_SLOWLY, str(tmp_path), me], stdout=subprocess.PIPE, text=True)
        for me in "ab"
    ]
    assert [process.communicate(timeout=60)[0] for process in both] == ["all of them\n"] * 2
    assert len((tmp_path / "fills").read_text().split()) == 1
    assert entries(root) == ["model"]


def test_failed_fill_leaves_nothing_and_can_be_repeated(root: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "weights").write_text("half of th")
        raise RuntimeError("the network went away")

    with pytest.raises(RuntimeError, match="the network went away"):
        filled("model", fail)
    assert entries(root) == []
    assert (filled("model", write) / "weights").read_text() == "all of them"


def test_killed_fill_leaves_no_entry_and_no_lock(root: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", DIE_FILLING], env=os.environ, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not (root / "model").exists()
    assert (filled("model", write) / "weights").read_text() == "all of them"


def test_root_that_cannot_be_written_names_the_variable(root: Path) -> None:
    root.write_text("a file where the folder should be")  # a read-only folder would not stop the root user
    with pytest.raises(OSError, match="set DDTREE_CACHE to another folder") as caught:
        filled("model", never)
    assert str(caught.value).startswith(f"the model cache {root} cannot be written (")


def test_sha256_is_the_standard_s_example(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, appendix B.1
    assert sha256(tmp_path / "abc") == digest
