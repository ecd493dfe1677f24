"""Assignments to a recipe's fields in Python, read from its syntax tree; no line of it is run."""

import ast
import warnings
from collections.abc import Iterator
from typing import Final

from cost_models.errors import BadInput

CONFIGS: Final = ("Config", "Partial")
"""nemo_run's wrappers, whose first argument is what they stand for."""


def python_fields(text: str, roots: tuple[str, ...], known: frozenset[str]) -> dict[str, str] | None:
    """Dotted fields below the roots and their values as written; None where the text is no Python.

    Keywords of a call that is assigned are fields below it; keywords of the call that makes the recipe are the known
    field of that name. Raises BadInput where a condition decides over a field.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes and numbers of a text that may be no Python
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found: dict[str, str] = {}
    for target, value, decided in _assignments(tree.body, decided=True):
        root, _, field = _dotted(target).partition(".")
        if root not in roots:
            continue
        fields = dict(_fields(field, value)) if field else dict(_made(value, known))
        for name, words in fields.items():
            if not decided and found.get(name) != words:
                raise BadInput(
                    f"{root}.{name[:80]} is set inside a condition that is not followed; set it outside",
                    pointer=f"/{name}",
                )
            found[name] = words
    return found


def _assignments(body: list[ast.stmt], decided: bool) -> Iterator[tuple[ast.expr, ast.expr, bool]]:
    """Targets and values in their order, and whether they hold in any case."""
    for statement in body:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                yield from ((*pair, decided) for pair in _pairs(target, statement.value))
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            yield statement.target, statement.value, decided
        elif isinstance(statement, ast.If):
            is_main = "__name__" in ast.unparse(statement.test)
            yield from _assignments([*statement.body, *statement.orelse], decided and is_main)
        elif isinstance(statement, ast.FunctionDef | ast.With):
            yield from _assignments(statement.body, decided)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """`a, b = 1, 2` one by one."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        yield from zip(target.elts, value.elts, strict=True)
    else:
        yield target, value


def _dotted(node: ast.expr) -> str:
    """`cfg.model.seq_length`; empty for what is no such name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def _fields(field: str, value: ast.expr) -> Iterator[tuple[str, str]]:
    """A field and its value; of a call its keywords, or what it makes where it has none."""
    if not isinstance(value, ast.Call):
        yield field, ast.unparse(value)
        return
    if not value.keywords:
        is_wrapped = _dotted(value.func).rpartition(".")[2] in CONFIGS and value.args
        yield field, ast.unparse(value.args[0] if is_wrapped else value.func)
        return
    for keyword in value.keywords:
        if keyword.arg:
            yield from _fields(f"{field}.{keyword.arg}", keyword.value)


def _made(value: ast.expr, known: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Keywords of the call that makes the recipe, each as the known field that ends in it."""
    for keyword in value.keywords if isinstance(value, ast.Call) else ():
        matches = sorted(name for name in known if name.rpartition(".")[2] == keyword.arg)
        if matches:
            yield matches[0], ast.unparse(keyword.value)
