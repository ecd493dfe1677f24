"""Shell scripts as they start training: their commands, with their own variables, arrays and branches followed."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from cost_models.errors import BadInput
from planner.formats.shell_values import bare, expanded, is_true, matches_case

_ASSIGNMENT: Final = re.compile(
    r"""(?:(?:export|local|readonly|declare|typeset)\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)(\+?)=(
        \([^\x00]*\)\s*$                                   # an array to the end of the line
        | (?:"(?:\\.|[^"\\])*" | '[^']*'
           | \$\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)     # $( … ) and $(( … ))
           | `[^`]*` | [^\s"'`])*
    )(?:\s+|$)""",
    re.VERBOSE,
)
_HERE_DOCUMENT: Final = re.compile(r"<<-?\s*(['\"]?)(\w+)\1([^\n]*)\n.*?^\s*\2\s*$", re.DOTALL | re.MULTILINE)
_CONTINUED: Final = re.compile(r"\\[ \t]*\r?\n")
_END: Final = re.compile(r"\||&|\d?>{1,2}.*|&>.*|<.*")
"""Words at which a command's own arguments end: pipes and redirections."""
_PATTERN: Final = re.compile(r"\s*\(?([^()\"'$=]*)\)(.*)", re.DOTALL)


def shell_words(text: str) -> list[str]:
    """Words of everything that a script runs."""
    return [word for command in shell_commands(text) for word in command]


def shell_commands(text: str) -> list[list[str]]:
    """Commands that a script runs, each as its words; raises BadInput for quotation or arrays left open."""
    script = _Script()
    for line in _logical_lines(_HERE_DOCUMENT.sub(r"\3", _CONTINUED.sub(" ", text))):
        script.run(line)
    return script.commands


@dataclass(slots=True)
class _Branch:
    """An `if` or a `case`: whether this branch runs, and whether one has run already."""

    runs: bool
    done: bool
    word: str = ""


@dataclass(slots=True)
class _Script:
    """What a script has set and run so far."""

    variables: dict[str, str] = field(default_factory=dict)
    commands: list[list[str]] = field(default_factory=list)
    branches: list[_Branch] = field(default_factory=list)
    held: bool | None = None
    """How the last test ended; None after anything else."""
    skips: bool = False
    """Whether `&&` or `||` leaves the next command out."""

    def run(self, line: str) -> None:
        """Follow one logical line."""
        if line in ("&&", "||"):
            self.skips = self.held is False if line == "&&" else self.held is not False
            return
        word, _, rest = line.partition(" ")
        if word in ("then", "do", "else", "elif", "fi", "if", "case", "esac", ";;"):
            self._branch(word, rest.strip())
            return
        inner = self.branches[-1] if self.branches else None
        pattern = _PATTERN.fullmatch(line) if inner and inner.word else None
        if inner and pattern:
            fits = not inner.done and matches_case(inner.word, pattern[1], self.variables)
            inner.runs, inner.done = fits, inner.done or fits
            line = pattern[2].strip()
        if all(branch.runs for branch in self.branches) and not self.skips and line:
            self._command(line)
        self.skips = False

    def _branch(self, word: str, rest: str) -> None:
        """`if … then … elif … else … fi` and `case … in … esac`."""
        last = self.branches[-1] if self.branches else _Branch(True, True)
        if word == "if":
            holds = is_true(rest, self.variables)
            self.branches.append(_Branch(holds, holds))
        elif word == "case":
            self.branches.append(_Branch(False, False, rest.removesuffix("in").strip()))
        elif word == "elif":
            last.runs = not last.done and is_true(rest, self.variables)
            last.done = last.done or last.runs
        elif word == "else":
            last.runs = not last.done
        elif word == ";;":
            last.runs = False
        elif word in ("fi", "esac") and self.branches:
            self.branches.pop()
        if word in ("then", "do", "else") and rest:
            self.run(rest)

    def _command(self, line: str) -> None:
        """Assignments at the start of a line, then the words of what it runs."""
        self.held = None
        if line.startswith(("[", "test ")):
            self.held = is_true(line, self.variables)
            return
        found = _ASSIGNMENT.match(line)
        while found:
            self._assign(found[1], bool(found[2]), found[3])
            line = line[found.end() :]
            found = _ASSIGNMENT.match(line)
        words = _split(expanded(line, self.variables))
        end = next((index for index, word in enumerate(words) if _END.fullmatch(word)), len(words))
        if words[:end]:
            self.commands.append(words[:end])

    def _assign(self, name: str, adds: bool, value: str) -> None:
        """Keep a value as it stands now; arrays keep their words' quotation."""
        is_array = value.startswith("(")
        text = value.strip()[1:-1].strip() if is_array else bare(value)
        if text in (f"${name}", f"${{{name}}}"):  # what a script is started with
            return
        if not value.startswith("'"):
            text = expanded(text, {name: "", **self.variables})
        if adds and name in self.variables:
            text = f"{self.variables[name]}{' ' if is_array else ''}{text}"
        self.variables[name] = text


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise BadInput(f"the script cannot be read: {error}; close the quotation") from error


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments; quotations and arrays over several lines are one, `;`, `&&` and `||` end one."""
    kept: list[str] = []
    quote, depth, index = "", 0, 0
    while index < len(text):
        char = text[index]
        before = kept[-1] if kept else " "
        if not quote and char == "#" and before.isspace():
            end = text.find("\n", index)
            index = end if end >= 0 else len(text)
            continue
        ends = "" if quote or depth else _end(text[index : index + 2], kept)
        if ends:
            yield from _line(kept, ends)
            kept = []
            index += len(ends)
            continue
        if char in "\"'" and before != "\\" and quote in ("", char):
            quote = "" if quote else char
        elif not quote and char in "()":
            depth = depth + 1 if char == "(" and (depth or before in "$=") else max(depth - (char == ")"), 0)
        kept.append(" " if char in "\r\n" else char)
        index += 1
    if quote or depth:
        _left_open("".join(kept), quote)
    yield from _line(kept, "")


def _end(pair: str, kept: list[str]) -> str:
    """What ends a line here, if anything does; inside [[ … ]] `&&` and `||` belong to the test."""
    if pair in ("&&", "||"):
        line = "".join(kept)
        return "" if line.count("[[") > line.count("]]") else pair
    return pair if pair == ";;" else pair[0] if pair[0] in "\n;" else ""


def _line(kept: list[str], ends: str) -> Iterator[str]:
    """The line, and after it what joins it to the next."""
    line = "".join(kept).strip()
    if line:
        yield line
    if len(ends) > 1:
        yield ends


def _left_open(line: str, quote: str) -> None:
    """Raise BadInput for the last line, whose quotation or array has no end."""
    array = re.match(r"\s*(?:\w+\s+)*([A-Za-z_]\w*)\+?=\(", line)
    if array:
        raise BadInput(f"the array {array[1][:60]} is never closed; add )")
    what = "quotation" if quote else "parenthesis"
    raise BadInput(f"the script cannot be read: a {what} in {line.strip()[:60]!r} has no end; close it")
