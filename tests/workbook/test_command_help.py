"""Every command says what it does by examples that name it, and the exit codes stand in one place."""

import re
from importlib.metadata import version

import click
import pytest
import typer
from ddtree.workbook import cli
from ddtree.workbook.cli import app
from typer.testing import CliRunner

GROUP = typer.main.get_command(app)
NAMES = sorted(GROUP.commands)  # type: ignore[attr-defined]


def help_of(*command: str) -> str:
    done = CliRunner().invoke(app, [*command, "--help"])
    assert done.exit_code == 0, done.output
    return done.output


def codes(text: str) -> set[int]:
    """The exit codes that a help text lists."""
    return {int(code) for code in re.findall(r"^ +(\d+)  \S", text, re.MULTILINE)}


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_calls_of_this_command_with_options_it_has(name: str) -> None:
    text = help_of(name)
    _, _, rest = text.partition("Example")
    examples = re.findall(r"^ +(ddtree .*)$", rest, re.MULTILINE)
    assert examples, f"ddtree {name} --help has no example"
    command: click.Command = GROUP.commands[name]  # type: ignore[attr-defined]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    for example in examples:
        words = re.split(r"\s{2,}|\s\|", example)[0].split()
        assert words[:2] == ["ddtree", name]
        assert {word.partition("=")[0] for word in words if re.match(r"-{1,2}[a-z]", word)} <= known


@pytest.mark.parametrize("name", NAMES)
def test_every_argument_and_option_is_explained(name: str) -> None:
    command: click.Command = GROUP.commands[name]  # type: ignore[attr-defined]
    unexplained = [parameter.name for parameter in command.params if not getattr(parameter, "help", None)]
    assert not unexplained


def test_help_lists_the_commands_and_the_exit_codes() -> None:
    text = help_of()
    assert all(re.search(rf"^  {name} ", text, re.MULTILINE) for name in NAMES)
    assert codes(text) == {0, cli.RUN_FAILED, cli.BAD_PARAMETERS}


@pytest.mark.parametrize("name", NAMES)
def test_no_command_tells_of_exit_codes_of_its_own(name: str) -> None:
    assert codes(help_of(name)) <= {0, cli.RUN_FAILED, cli.BAD_PARAMETERS}


def test_version_is_the_packages() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.output) == (0, f"ddtree {version('ddtree')}\n")


@pytest.mark.parametrize("arguments", [["--versoin"], ["ferch"], ["fetch", "--verfiy"], ["run"], ["doctor", "now"]])
def test_wrong_arguments_have_the_code_of_wrong_arguments(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == cli.BAD_PARAMETERS
    assert "Usage" in done.output
