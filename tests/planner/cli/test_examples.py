"""The examples that help ends with are shown, and name options that there are."""

import shlex

import click
import pytest
from click.testing import CliRunner

from planner.cli.examples import EXAMPLES
from planner.cli.group import COMMANDS, planner

LINES = [(name, line) for name, lines in EXAMPLES.items() for line in lines]


@pytest.mark.parametrize(("name", "line"), LINES)
def test_an_example_parses(name: str, line: str) -> None:
    words = shlex.split(line)
    assert words[:2] == ["planner", name]
    command = planner.get_command(click.Context(planner), name)
    assert command is not None
    context = command.make_context(name, words[2:])  # reads every option, runs nothing
    assert context.params


def test_help_ends_with_the_examples() -> None:
    shown = CliRunner().invoke(planner, ["plan", "--help"]).stdout
    assert "Examples:\n    planner plan --model config.json" in shown


def test_every_command_has_one_but_those_that_need_none() -> None:
    assert set(COMMANDS) - set(EXAMPLES) == {"checkpoint", "plans", "doctor"}
