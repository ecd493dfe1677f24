"""The page's drawing modules as one script: a report is a single file, and imports between inline modules cannot be.

Only what the modules use is understood: named imports from a neighbour, and exported functions, classes and constants.
"""

import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

_IMPORT: Final = re.compile(r'^import \{([^}]*)\} from "\./([a-z_]+)\.js";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export ((?:async )?(?:function|class|const) ([A-Za-z_]\w*))", re.MULTILINE)


def asset(name: str) -> str:
    """The text of one of the report's files."""
    return _folder().joinpath(*name.split("/")).read_text(encoding="utf-8")


def bundle(entry: str) -> str:
    """One script that runs module `entry` after the modules that it needs, each once and in its own scope."""
    done: dict[str, str] = {}
    _collect(entry, done)
    return '"use strict";\nconst modules = {};\n' + "\n".join(done.values()) + "\n"


def _collect(name: str, done: dict[str, str]) -> None:
    """Add a module after those that it imports."""
    if name in done:
        return
    text = asset(f"{name}.js")
    for _, other in _IMPORT.findall(text):
        _collect(other, done)
    exported = ", ".join(found for _, found in _EXPORT.findall(text))
    body = _EXPORT.sub(r"\1", _IMPORT.sub(r"const {\1} = modules.\2;\n", text))
    done[name] = f"modules.{name} = (() => {{\n{body}\nreturn {{ {exported} }};\n}})();"


def _folder() -> Traversable:
    return files("planner.report") / "assets"
