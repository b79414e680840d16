"""A cache entry is there whole or not at all, whatever happens to the process that fills it."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ddtree.models.download_cache import MANIFEST, CacheError, cache_folder, corruption, get_or_create, sha256
from platformdirs import user_cache_path
from safetensors import SafetensorError
from wording import names, tells

# Both processes are ready before either fills, and a fill takes a while, so that they do meet.
FILL_SLOWLY = """
import os, sys, time
from pathlib import Path
from ddtree.models.download_cache import get_or_create
meeting, me = Path(sys.argv[1]), sys.argv[2]
def fill(folder):
    with (meeting / "fills").open("a") as log:
        log.write(me + "\\n")
    time.sleep(0.5)
    (folder / "weights").write_text("all of them")
(meeting / me).touch()
while not all((meeting / name).exists() for name in "ab"):
    time.sleep(0.01)
print((get_or_create("model", fill) / "weights").read_text())
"""
DIE_FILLING = """
import os, signal
from ddtree.models.download_cache import get_or_create
def fill(folder):
    (folder / "weights").write_text("half of th")
    os.kill(os.getpid(), signal.SIGKILL)
get_or_create("model", fill)
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
    entry = get_or_create("model", write)
    assert entry == root / "model"
    assert get_or_create("model", never) == entry
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
        get_or_create("model", fail)
    assert entries(root) == []
    assert (get_or_create("model", write) / "weights").read_text() == "all of them"


def test_killed_fill_leaves_no_entry_and_no_lock(root: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", DIE_FILLING], env=os.environ, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not (root / "model").exists()
    assert (get_or_create("model", write) / "weights").read_text() == "all of them"


def test_root_that_cannot_be_written_names_the_variable(root: Path) -> None:
    root.write_text("a file where the folder should be")  # a read-only folder would not stop the root user
    with pytest.raises(OSError, match=names("DDTREE_CACHE")) as caught:
        get_or_create("model", never)
    assert tells(caught.value, str(root))


def test_failure_of_the_source_is_not_blamed_on_the_cache(root: Path, tmp_path: Path) -> None:
    failures = [
        ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
        FileNotFoundError(errno.ENOENT, "No such file or directory", str(tmp_path / "source")),
        PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "source")),
    ]
    for failure in failures:

        def fail(folder: Path, failure: OSError = failure) -> None:
            raise failure

        with pytest.raises(type(failure)) as caught:
            get_or_create("model", fail)
        assert caught.value is failure


@pytest.mark.parametrize("full", [OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EROFS, "Read-only")])
def test_full_or_read_only_disk_during_a_fill_is_named(root: Path, full: OSError) -> None:
    def fail(folder: Path) -> None:
        raise full

    with pytest.raises(CacheError, match=names(f"{root} {full.strerror}")):
        get_or_create("model", fail)
    assert entries(root) == []


def test_full_disk_told_by_safetensors_is_a_full_disk(root: Path) -> None:
    def fail(folder: Path) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    with pytest.raises(CacheError, match=names("DDTREE_CACHE")):
        get_or_create("model", fail)


# Damage


def test_manifest_holds_size_and_digest_of_every_file(root: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "sub").mkdir()
        (folder / "sub" / "abc").write_text("abc")

    manifest = json.loads((get_or_create("model", fill) / MANIFEST).read_text())
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert manifest == {"files": {"sub/abc": {"size": 3, "sha256": digest}}}


@pytest.mark.parametrize(
    ("named", "spoil"),
    [
        ("weights 4 11", lambda entry: (entry / "weights").write_text("half")),
        ("weights", lambda entry: (entry / "weights").unlink()),
        ("manifest", lambda entry: (entry / MANIFEST).unlink()),
        ("manifest", lambda entry: (entry / MANIFEST).write_text('{"files": {"weights": 3}}')),
    ],
)
def test_damaged_entry_is_said_and_filled_again(
    root: Path, named: str, spoil: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    entry = get_or_create("model", write)
    spoil(entry)
    assert get_or_create("model", write) == entry
    assert tells(capsys.readouterr().out, f"{entry} {named}")
    assert (entry / "weights").read_text() == "all of them"
    assert corruption(entry, hashes=True) is None
    assert entries(root) == ["model"]
    assert get_or_create("model", never) == entry


def test_other_contents_of_the_same_size_are_found_by_hashes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = get_or_create("model", write)
    (entry / "weights").write_text("none of 'em")
    assert get_or_create("model", never) == entry, "sizes alone are compared at a load"
    get_or_create("model", write, hashes=True)
    assert (entry / "weights").read_text() == "all of them"
    assert tells(capsys.readouterr().out, "weights sha256")


def test_damaged_entry_stays_until_its_fill_succeeds(root: Path) -> None:
    entry = get_or_create("model", write)
    (entry / "weights").write_text("half")

    def fail(folder: Path) -> None:
        raise RuntimeError("the network went away")

    with pytest.raises(RuntimeError, match="the network went away"):
        get_or_create("model", fail)
    assert tells(corruption(entry), "weights 4 11"), "still known as damaged"
    assert entries(root) == ["model"]


def test_two_processes_at_once_refill_once(root: Path, tmp_path: Path) -> None:
    (get_or_create("model", write) / "weights").write_text("half")
    both = [
        subprocess.Popen([sys.executable, "-c", FILL_SLOWLY, str(tmp_path), me], stdout=subprocess.PIPE, text=True)
        for me in "ab"
    ]
    printed = [process.communicate(timeout=60)[0] for process in both]
    assert [text.splitlines()[-1] for text in printed] == ["all of them"] * 2
    assert sum("damaged" in text for text in printed) == 1
    assert len((tmp_path / "fills").read_text().split()) == 1
    assert entries(root) == ["model"]


def test_what_a_killed_fill_left_is_gone_after_the_next(root: Path) -> None:
    subprocess.run([sys.executable, "-c", DIE_FILLING], env=os.environ, check=False)
    (root / ".model-2.01234567.tmp").mkdir()
    assert len(entries(root)) == 2
    get_or_create("model", write)
    assert entries(root) == [".model-2.01234567.tmp", "model"], "another entry's fill may be under way"


def test_others_may_read_an_entry_as_the_umask_says(root: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "weights").touch(mode=0o600)

    before = os.umask(0o027)
    try:
        entry = get_or_create("model", fill)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (entry, entry / "weights", entry / MANIFEST)}
    assert modes == {"model": 0o750, "weights": 0o640, MANIFEST: 0o640}


def test_sha256_is_the_standard_s_example(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, appendix B.1
    assert sha256(tmp_path / "abc") == digest
