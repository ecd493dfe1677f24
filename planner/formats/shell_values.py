"""Values inside a shell script: variables, arrays, defaults, whole-number arithmetic, tests of conditions."""

import ast
import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Final

_REFERENCE: Final = re.compile(
    r"\$\{([A-Za-z_]\w*|[0-9@*])(?:\[[@*]\])?(?:(:?[-=])([^{}]*))?\}|\$([A-Za-z_]\w*|[@*])"
)
_UNSET: Final = re.compile(r"\$\w+|\$\{\w+\}")
"""A value that stands for another, which the script does not set."""
_ARITHMETIC: Final = re.compile(r"\$\(\(((?:[^()]|\([^()]*\))*)\)\)")
_NAME: Final = re.compile(r"\$?\b([A-Za-z_]\w*)\b")
_QUOTED_ARRAY: Final = re.compile(r'"(\$\{[A-Za-z_]\w*\[[@*]\]\}|\$\{?[@*]\}?)"')
"""An array in quotes stands for its words, each quoted as it was."""
_ROUNDS: Final = 8
"""Variables that stand for variables are followed this far."""
_LONGEST: Final = 1_000_000
"""A script that grows beyond this many characters while its variables are put in is left as it is."""

_OPERATIONS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: int.__add__,
    ast.Sub: int.__sub__,
    ast.Mult: int.__mul__,
    ast.Div: int.__floordiv__,
    ast.Mod: int.__mod__,
}
_NUMBERS: Final = {
    "-eq": int.__eq__,
    "-ne": int.__ne__,
    "-gt": int.__gt__,
    "-ge": int.__ge__,
    "-lt": int.__lt__,
    "-le": int.__le__,
}


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """A text with variables, arrays, defaults and sums put in; what the script does not set stays as it is written."""
    text = _QUOTED_ARRAY.sub(r"\1", text)
    for _ in range(_ROUNDS):
        found = _ARITHMETIC.sub(lambda match: _sum(match, variables), text)
        found = _REFERENCE.sub(lambda match: _value(match, variables), found)
        if found == text or len(found) > _LONGEST:
            break
        text = found
    return text


def _value(match: re.Match[str], variables: Mapping[str, str]) -> str:
    """A variable's value, its default, or the reference itself; a script is read without arguments of its own."""
    name, default = match[1] or match[4], match[3]
    value = variables.get(name)
    unset = value is None or (match[2] in (":-", ":=") and (not value or _UNSET.fullmatch(value)))
    if value is not None and not unset:
        return value
    if default is not None:
        return bare(default)
    return "" if name in "@*" else match[0]


def _sum(match: re.Match[str], variables: Mapping[str, str]) -> str:
    """The value of $(( … )) over whole numbers; the text itself where it is anything else."""
    inner = _NAME.sub(lambda name: variables.get(name[1], name[0]), expanded(match[1], variables))
    try:
        return str(_whole(ast.parse(inner.strip()[:500], mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return match[0]


def _whole(node: ast.expr) -> int:
    """Sums, products and quotients of whole numbers as a shell counts them."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_whole(node.operand)
    if not isinstance(node, ast.BinOp):
        raise ValueError("no whole number")
    left, right = _whole(node.left), _whole(node.right)
    if max(abs(left), abs(right)) > 10**18:
        raise ValueError("too large")
    operation = _OPERATIONS.get(type(node.op))
    if operation is None:
        raise ValueError("no whole number")
    return operation(left, right)


def bare(text: str) -> str:
    """A value without the quotation around all of it."""
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'" and text[0] not in text[1:-1]:
        return text[1:-1]
    return text if " " in text else text.replace('"', "").replace("'", "")


def is_true(condition: str, variables: Mapping[str, str]) -> bool:
    """Whether a test such as `[ $PP -gt 1 ]` holds; variables that are not set are empty, files are not there."""
    text = condition.strip().removeprefix("test ")
    text = text.removeprefix("[[").removeprefix("[").removesuffix("]]").removesuffix("]")
    if "||" in text:
        return any(is_true(part, variables) for part in text.split("||"))
    if "&&" in text:
        return all(is_true(part, variables) for part in text.split("&&"))
    words = [_word(word, variables) for word in re.findall(r'"[^"]*"|\'[^\']*\'|\S+', text)]
    negated = words[:1] == ["!"]
    return _holds(words[negated:]) is not negated


def _word(text: str, variables: Mapping[str, str]) -> str:
    """One word of a test, empty where it names a variable that is not set."""
    found = expanded(bare(text), variables)
    return "" if found.startswith("$") else bare(found)


def _holds(words: list[str]) -> bool:
    """One comparison, one test of emptiness, or one word."""
    if len(words) == 3 and words[1] in ("=", "==", "!="):
        return fnmatchcase(words[0], words[2]) is not (words[1] == "!=")
    if len(words) == 3 and words[1] in _NUMBERS:
        both = [int(each) for each in (words[0], words[2]) if re.fullmatch(r"-?\d{1,18}", each)]
        return len(both) == 2 and bool(_NUMBERS[words[1]](both[0], both[1]))
    if len(words) == 2 and words[0] in ("-n", "-z"):
        return bool(words[1]) is (words[0] == "-n")
    return len(words) == 1 and words[0] not in ("", "false")


def matches_case(value: str, patterns: str, variables: Mapping[str, str]) -> bool:
    """Whether a word of `case` is one of `7B | 13B`."""
    found = _word(value, variables)
    return any(fnmatchcase(found, bare(pattern)) for pattern in patterns.split("|"))
