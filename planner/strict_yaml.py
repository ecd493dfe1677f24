"""YAML of files: plain values only, no key twice, one sentence for what is wrong."""

from typing import Any

import yaml  # type: ignore[import-untyped]

from cost_models.errors import BadInput


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """A safe loader that refuses a second value under one key."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping, after looking at its keys."""
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = getattr(key_node, "value", None)
            if isinstance(key, str) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key[:80]!r} stands twice", key_node.start_mark
                )
            seen.add(key if isinstance(key, str) else id(key_node))
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


def parse_yaml(text: str, name: str, what: str = "file") -> dict[str, Any]:
    """The mapping of a YAML text; raises BadInput with line and column."""
    try:
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" at line {mark.line + 1} column {mark.column + 1}" if mark else ""
        raise BadInput(f"{what} {name} is not YAML: {error.problem}{where}; correct it") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())[:120]
        raise BadInput(f"{what} {name} is not YAML: {reason}; correct it") from None
    if not isinstance(value, dict):
        raise BadInput(f"{what} {name} holds a {type(value).__name__}; give keys and values")
    return value
