"""Shell scripts as they start training: their words, with their own variables and arrays put in."""

import re
import shlex
from collections.abc import Mapping
from typing import Final

from cost_models.errors import BadInput

_ASSIGNMENT: Final = re.compile(r"^\s*(?:export\s+)?([A-Za-z_][A-Za-z_0-9]*)=(.*)$")
_VARIABLE: Final = re.compile(
    r"\$\{([A-Za-z_][A-Za-z_0-9]*)(?:\[@\])?(?::-([^}]*))?\}|\$([A-Za-z_][A-Za-z_0-9]*)"
)
_QUOTED_ARRAY: Final = re.compile(r'"(\$\{[A-Za-z_][A-Za-z_0-9]*\[@\]\})"')
"""An array in quotes stands for its words, each quoted as it was."""
_ROUNDS: Final = 8
"""Variables that stand for variables are followed this far."""


def shell_words(text: str) -> list[str]:
    """Shell words of what a script runs, with its own variables and arrays put in."""
    variables, rest = _assignments(_QUOTED_ARRAY.sub(r"\1", re.sub(r"\\\r?\n", " ", text)))
    for _ in range(_ROUNDS):
        replaced = _VARIABLE.sub(lambda match: _value(match, variables), rest)
        if replaced == rest:
            break
        rest = replaced
    try:
        return shlex.split(rest, comments=True)
    except ValueError as error:
        raise BadInput(f"the script cannot be read: {error}; close the quotation") from error


def _value(match: re.Match[str], variables: Mapping[str, str]) -> str:
    """A variable's value, its default, or the reference itself where the script does not set it."""
    name = match[1] or match[3]
    return variables.get(name, match[2] if match[2] is not None else match[0])


def _assignments(text: str) -> tuple[dict[str, str], str]:
    """Assignments of scalars and of arrays over several lines, and the lines that are none."""
    variables: dict[str, str] = {}
    others: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        found = _ASSIGNMENT.match(line)
        if not found:
            others.append(line)
            continue
        value = _bare(found[2])
        if value.startswith("("):
            while not value.endswith(")"):
                following = next(lines, None)
                if following is None:
                    raise BadInput(f"the array {found[1]} is never closed; add )")
                value += " " + _bare(following)
            variables[found[1]] = value.removeprefix("(").removesuffix(")").strip()
            continue
        variables[found[1]] = value.strip("\"'")
    return variables, "\n".join(others)


def _bare(line: str) -> str:
    """A line without its comment and the blanks around it."""
    return re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip()
