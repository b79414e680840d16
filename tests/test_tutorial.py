"""The tutorial says nothing that does not run: its blocks print what stands there, its commands are valid ones."""

import contextlib
import io
import re
import shlex
import tomllib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest
import typer
from ddtree.models import zoo
from ddtree.models.zoo import Pair
from ddtree.workbook import runner as run_module
from ddtree.workbook.cli import app
from ddtree.workbook.params import PARAMS, NotebookParams
from ddtree.workbook.paths import project_root
from ddtree.workbook.runner import RunOutcome
from ddtree.workbook.sweep.grid import read_grid
from loops import for_each
from tiny import DigitTokenizer
from tiny_pair import Tokenizer, tiny_pair
from typer.testing import CliRunner

ROOT = project_root()
TUTORIAL = ROOT / "docs" / "tutorial.md"
TEXT = TUTORIAL.read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PARTS = re.split(r"^## (?=\d)", TEXT, flags=re.MULTILINE)[1:]
VOCABULARY = 64


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block, and the text block right below it, which is what it prints."""

    line: int
    language: str
    source: str
    output: str | None


def blocks(text: str) -> list[Block]:
    fence = re.compile(
        r"^(?P<indent> *)```(?P<language>python|sh)\n(?P<source>.*?)^ *```\n(?:\n```text\n(?P<output>.*?)^```\n)?",
        re.M | re.S,
    )
    return [
        Block(
            text.count("\n", 0, found.start()) + 1,
            found["language"],
            re.sub(rf"^{found['indent']}", "", found["source"], flags=re.MULTILINE),
            found["output"],
        )
        for found in fence.finditer(text)
    ]


def test_every_fence_is_read() -> None:
    """A block in another language, or an output that belongs to no block, would be checked by nothing."""
    outputs = sum(block.output is not None for block in blocks(TEXT))
    assert len(re.findall(r"^ *```", TEXT, re.MULTILINE)) == 2 * (len(blocks(TEXT)) + outputs)


# What is printed


class WordTokenizer(DigitTokenizer):
    """Words as ids of a small vocabulary, so that a tiny model can be asked in English."""

    def __call__(self, message: str) -> dict[str, list[int]]:
        return {"input_ids": [zlib.crc32(word.encode()) % VOCABULARY for word in message.split()]}

    decode = Tokenizer.decode


def small_pair(*arguments: object, **options: object) -> Pair:
    pair = tiny_pair(VOCABULARY)
    pair.target.tokenizer = WordTokenizer()
    return pair


def run_blocks(found: list[Block]) -> None:
    """Run them in order in one namespace. Raises AssertionError, naming the line, where a text differs."""
    namespace: dict[str, Any] = {}
    for block in found:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * block.line + block.source, str(TUTORIAL), "exec"), namespace)
        if block.output is not None:
            assert printed.getvalue() == block.output, f"the block at line {block.line} prints something else"


def test_blocks_print_what_stands_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoo, "load_pair", small_pair)
    run_blocks([block for block in blocks(TEXT) if block.language == "python"])


def test_a_wrong_number_is_seen() -> None:
    with pytest.raises(AssertionError, match="line 1 prints something else"):
        run_blocks(blocks("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n"))


def quotes(text: str) -> Iterator[str]:
    for found in re.findall(r"measured: ([^\]\n]+)", text):
        yield from found.split(", ")


def test_numbers_quoted_from_the_records_are_in_them() -> None:
    pages = (ROOT / "docs" / name for name in ("results.md", "exactness.md"))
    written = " ".join(" ".join(page.read_text(encoding="utf-8") for page in pages).replace("*", "").split())
    found = list(quotes(TEXT))
    assert len(found) > 5
    assert [quote for quote in found if not re.search(rf"(?<![\d.]){re.escape(quote)}(?!\.?\d)", written)] == []


# What is to be typed


def commands(text: str = TEXT) -> list[str]:
    return [line for block in blocks(text) if block.language == "sh" for line in block.source.splitlines() if line]


WRITTEN_INLINE = re.findall(r"`((?:make|pytest|\.venv/bin/\w+) [^`]+)`", CONTRIBUTING)
MARKERS = {
    line.partition(":")[0]
    for line in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"][
        "markers"
    ]
}


def check(command: str) -> None:
    """Raises for a command that the project does not have, or that would be refused. Nothing is run."""
    program, *arguments = shlex.split(command, comments=True)
    name = Path(program).name
    if name == "make":
        make_file = (ROOT / "Makefile").read_text(encoding="utf-8")
        goals = [word for word in arguments if "=" not in word]
        assert [goal for goal in goals if not re.search(rf"^{goal}:", make_file, re.MULTILINE)] == []
    elif name == "ddtree":
        check_parsed(arguments)
        if arguments[0] == "run":
            check_run(arguments)
        for word in arguments:
            assert not word.startswith("params/") or (ROOT / word).is_file(), f"there is no {word}"
    elif name == "pytest":
        words = re.findall(r"\w+", arguments[arguments.index("-m") + 1]) if "-m" in arguments else []
        assert set(words) - {"not", "and", "or"} <= MARKERS, f"{words} names a marker that pytest does not know"
    elif name == "papermill":
        notebook, _, option, file = arguments
        assert option == "-f"
        assert (ROOT / notebook).is_file()
        PARAMS[Path(notebook).stem].from_yaml(ROOT / file)
    elif name == "pre-commit":
        assert arguments == ["install"]
    else:
        raise AssertionError(f"{program} is no program that these documents may use")


def check_parsed(arguments: list[str]) -> None:
    """Any command of `ddtree` as far as its arguments go: what it would do is left out."""
    group: Any = typer.main.get_command(app)
    for command in group.commands.values():
        command.callback = lambda **_: None
    with pytest.raises(SystemExit) as stop:
        group.main(arguments, prog_name="ddtree")
    assert not stop.value.code, f"ddtree has no such command or option: {arguments}"


def check_run(arguments: list[str]) -> None:
    """`ddtree run` as it is, up to the moment when it would start the notebook."""
    started: list[NotebookParams] = []

    def start(path: Path, params: NotebookParams, out_dir: Path, **_: object) -> RunOutcome:
        started.append(params)
        return RunOutcome(out_dir / "a", out_dir / "b", out_dir / "c", "")

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setattr(run_module, "run_notebook", start)
        result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert len(started) == 1


@for_each("command", [*commands(), *commands(README), *commands(CONTRIBUTING), *WRITTEN_INLINE])
def test_command_is_valid(command: str) -> None:
    check(command)


@pytest.mark.parametrize(
    "command",
    [
        "make absent",
        "rm -r outputs",
        "pytest -m modle",
        "ddtree absent",
        "ddtree fetch --absent",
        "ddtree run 03_live -p budgte=4",
        "ddtree run 03_live -p budget=-1",
        "ddtree run 09_absent",
        "ddtree run 03_live -f params/live/absent.yaml",
    ],
)
def test_a_wrong_command_is_seen(command: str) -> None:
    with pytest.raises(AssertionError):
        check(command)


PROFILES = [path for path in sorted(ROOT.glob("params/*/*.yaml")) if path.parent.name != "sweeps"]


@for_each("path", PROFILES)
def test_profile_is_valid(path: Path) -> None:
    (model,) = (model for stem, model in PARAMS.items() if stem.partition("_")[2] == path.parent.name)
    model.from_yaml(path)


@for_each("path", sorted(ROOT.glob("params/sweeps/*.yaml")))
def test_sweep_is_valid(path: Path) -> None:
    assert len(read_grid(path).points) > 1


def test_folders_of_results_differ() -> None:
    folders = re.findall(r"-o (\S+)", "\n".join(commands()))
    assert len(folders) == len(set(folders)) > 5


# Where the reader is sent


def headings(notebook: str) -> set[str]:
    cells = nbformat.read(ROOT / "notebooks" / f"{notebook}.ipynb", as_version=4).cells
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return {re.sub(r"^[\d.]+ ", "", line) for line in re.findall(r"^#+ (.+)$", prose, re.MULTILINE)}


@for_each("part", PARTS[:-1])
def test_part_opens_sections_that_exist(part: str) -> None:
    opened = re.search(r"^\*\*Open\*\* (.+?)\n\n", part, re.MULTILINE | re.DOTALL)
    assert opened
    sections = re.findall(r"\[`(\w+)`\]\(../notebooks/(\w+)\.ipynb\),\s\"([^\"]+)\"", opened[1])
    assert sections
    for shown, linked, title in sections:
        assert shown == linked
        assert title in headings(linked), f"{linked} has no section called {title}"


def test_sliders_named_are_on_the_notebook() -> None:
    found = re.findall(r"slider `([^`]+)`", TEXT)
    cells = nbformat.read(ROOT / "notebooks" / "01_tree.ipynb", as_version=4).cells
    source = "\n".join(cell.source for cell in cells)
    assert len(found) >= 4
    assert [name for name in found if f'description="{name}"' not in source] == []
