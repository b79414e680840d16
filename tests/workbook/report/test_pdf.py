"""Which browser prints, and what is said when it cannot; the printing itself is tests/browser's business."""

import os
from pathlib import Path

import pytest
from ddtree.workbook.report import pdf
from ddtree.workbook.report.pdf import PdfError, find_browser, print_pdf


def program(folder: Path, name: str, script: str = "exit 0") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH of one empty folder, and no CHROME."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CHROME", raising=False)
    return folder


def test_named_browser_wins_over_the_variable_and_that_over_path(
    tmp_path: Path, empty_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    google = program(empty_path, "google-chrome")
    assert find_browser() == str(google)
    chromium = program(empty_path, "chromium")
    assert find_browser() == str(chromium)
    of_variable = program(tmp_path, "mine")
    monkeypatch.setenv("CHROME", str(of_variable))
    assert find_browser() == str(of_variable)
    named = program(tmp_path, "other")
    assert find_browser(str(named)) == str(named)


def test_no_browser_is_a_sentence(empty_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PdfError, match="none of chromium, chromium-browser, google-chrome is on PATH"):
        find_browser()
    monkeypatch.setenv("CHROME", "/absent/chrome")
    with pytest.raises(PdfError, match="/absent/chrome of the variable CHROME cannot be started"):
        find_browser()
    with pytest.raises(PdfError, match="lynx of --browser cannot be started"):
        find_browser("lynx")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo first >&2; echo last words >&2; exit 7", r"exit code 7\): last words"),
        ("exit 0", r"exit code 0\): it said nothing"),
        ("exec sleep 60", r"did not print .*report\.html within 0\.2 s"),
    ],
)
def test_browser_that_prints_nothing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    monkeypatch.setattr(pdf, "TIME_LIMIT_S", 0.2 if "sleep" in script else 60)
    (tmp_path / "report.html").write_text("")
    (tmp_path / "report.pdf").write_text("the one before")
    with pytest.raises(PdfError, match=reason):
        print_pdf(tmp_path / "report.html", tmp_path / "report.pdf", str(program(tmp_path, "browser", script)))
    assert (tmp_path / "report.pdf").read_text() == "the one before"


def test_browser_gets_a_profile_that_is_gone_afterwards(tmp_path: Path) -> None:
    said = tmp_path / "said"
    prints = 'for a in "$@"; do case $a in --print-to-pdf=*) echo %PDF > "${a#*=}";; esac; done'
    script = f'printf "%s\\n" "$@" > {said}\n{prints}'
    (tmp_path / "re port.html").write_text("")
    made = print_pdf(tmp_path / "re port.html", tmp_path / "out.pdf", str(program(tmp_path, "browser", script)))
    assert made.read_text() == "%PDF\n"
    arguments = said.read_text().splitlines()
    assert arguments[-1] == (tmp_path / "re port.html").as_uri()
    assert ("--no-sandbox" in arguments) == (os.geteuid() == 0)
    (profile,) = [argument.partition("=")[2] for argument in arguments if argument.startswith("--user-data-dir=")]
    assert not Path(profile).parent.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["browser", "out.pdf", "re port.html", "said"]
