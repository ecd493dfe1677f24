"""The command line `planner`: commands that turn options into a request and an answer into text or JSON.

    group.py      the group: commands loaded when used, did-you-mean, exit codes
    options.py    the options that commands share, and what they come to (a Question)
    inputs.py     reads files and standard input, with one sentence for everything that can be wrong
    commands/     one file a command; each returns an Answer

Only click is imported here; pydantic, numpy, the solver and rich are loaded by the command that needs them.
"""

from typing import NoReturn


def main() -> NoReturn:
    """Console entry point: runs the command line of this process and exits."""
    from planner.cli.group import planner

    planner.main()
    raise SystemExit(0)
