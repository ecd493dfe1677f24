"""The `planner` group: commands loaded when used, suggestions for mistyped names, one meaning per exit code.

Exit codes: 0 yes; 1 the answer is no; 2 bad input or an illegal strategy, standard output empty; 3 internal
error; 130 interrupted; 143 terminated.
"""

import errno
import os
import sys
from importlib import import_module
from typing import Any

import click

from planner.cli.answer import (
    BAD_INPUT,
    BROKEN_PIPE,
    INTERNAL_ERROR,
    INTERRUPTED,
    TERMINATED,
    Answer,
    print_answer,
)
from planner.cli.examples import epilog
from planner.cli.termination import Terminated, die_of_sigterm, ended_by_sigterm

COMMANDS = (
    "plan",
    "size",
    "sweep",
    "evaluate",
    "explain",
    "compare",
    "probe",
    "check",
    "baseline",
    "simulate",
    "export",
    "run",
    "checkpoint",
    "plans",
    "inspect",
    "catalog",
    "validate",
    "calibrate",
    "profile",
    "loop",
    "doctor",
)
DEBUG_VARIABLE = "PLANNER_DEBUG"
MAX_LINE = 1000


class PlannerGroup(click.Group):
    """A group whose commands live in `planner.cli.commands`, one module and one `command` each."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order of the documentation."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module and take its command; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"planner.cli.commands.{cmd_name}").command
        if not isinstance(command, click.Command):
            return None
        command.epilog = command.epilog or epilog(cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the first argument; an unknown one is refused with the nearest known name."""
        name = args[0]
        if not name.startswith("-") and name not in COMMANDS:
            raise click.UsageError(_unknown_command(name), ctx=ctx)
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command line (click's arguments) and exit with its code; no traceback reaches a user."""
        extra = {"prog_name": "planner"} | extra | {"standalone_mode": False}
        try:
            with ended_by_sigterm():
                answer = super().main(*args, **extra)
                if isinstance(answer, Answer):
                    print_answer(answer)
            code = answer.exit_code if isinstance(answer, Answer) else int(answer or 0)
        except (click.Abort, KeyboardInterrupt):
            _complain("interrupted")
            code = INTERRUPTED
        except Terminated:
            _complain("terminated")
            die_of_sigterm()
            code = TERMINATED
        except OSError as error:
            code = _on_os_error(error)
        except Exception as error:
            code = _on_error(error)
        sys.exit(code)


def _unknown_command(name: str) -> str:
    from cost_models.suggest import did_you_mean

    hint = did_you_mean(name, COMMANDS)
    return f"no command {_short(name)}; {hint}commands of this version: {', '.join(COMMANDS)}"


def _on_error(error: Exception) -> int:
    """Say what is wrong on standard error; the exit code."""
    from cost_models.errors import BadInput, IllegalStrategy

    if isinstance(error, click.ClickException):
        _complain(error.format_message())
        return BAD_INPUT
    if isinstance(error, IllegalStrategy):
        for violation in error.violations:
            source = f" ({violation.source})" if violation.source else ""
            _complain(f"illegal strategy: {violation.rule}: {violation.sentence()}{source}")
        return BAD_INPUT
    if isinstance(error, BadInput):
        _complain(error.detail)
        return BAD_INPUT
    return _on_bug(error)


def _on_os_error(error: OSError) -> int:
    """A reader that went away is no error of ours; everything else is."""
    if error.errno != errno.EPIPE:
        return _on_bug(error)
    # The interpreter flushes standard output at exit and would complain there.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE


def _on_bug(error: Exception) -> int:
    if os.environ.get(DEBUG_VARIABLE):
        import traceback

        traceback.print_exception(error)
    what = " ".join(str(error).split())[:300]
    _complain(
        f"internal error: {type(error).__name__}: {what}; this is a bug of the planner, "
        f"set {DEBUG_VARIABLE}=1 for the traceback"
    )
    return INTERNAL_ERROR


def _complain(message: str) -> None:
    """One message on standard error, with control characters made harmless."""
    lines = (_printable(line) for line in message.splitlines() or [""])
    click.echo("planner: " + "\n  ".join(lines), err=True)


def _printable(line: str) -> str:
    cut = line if len(line) <= MAX_LINE else line[: MAX_LINE - 3] + "..."
    return "".join(c if c.isprintable() else "?" for c in cut).encode("utf-8", "replace").decode("utf-8")


def _short(text: str) -> str:
    return repr(text[:40])


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from planner.version import planner_version

        click.echo(f"planner {planner_version()}")
        ctx.exit()


@click.group(
    cls=PlannerGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    invoke_without_command=True,
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version.",
)
@click.pass_context
def planner(ctx: click.Context) -> None:
    """From a model's config and a cluster to a proved parallel training plan.

    Exit code 0: yes; 1: the answer is no; 2: bad input or an illegal strategy; 3: internal error.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
