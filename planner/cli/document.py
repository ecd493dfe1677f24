"""A file that holds a question, read once: a plan file, or a planner.yaml. Standard input can be read only once."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cost_models.errors import BadInput
from planner.cli.inputs import STANDARD_INPUT, read_json, read_text, shown

SCRIPTS: Final = (".sh", ".bash", ".py")


@dataclass(frozen=True, slots=True)
class Document:
    """What a file holds; relative paths in it start in its folder."""

    name: str
    values: dict[str, Any]
    is_json: bool

    @property
    def folder(self) -> Path:
        """Where the file lies; the present folder for standard input."""
        return Path() if self.name == STANDARD_INPUT else Path(self.name).parent

    @property
    def is_plan(self) -> bool:
        """Whether it is a plan file."""
        return "request" in self.values and "result" in self.values

    @property
    def plan_id(self) -> str:
        """The plan's id; empty for anything else."""
        return str(self.values.get("id", ""))[:80] if self.is_json else ""

    def unsolved(self) -> Mapping[str, Any] | None:
        """The result of a plan file that found no plan; None for anything else."""
        result = self.values.get("result")
        if "request" not in self.values or not isinstance(result, Mapping):
            return None
        return result if result.get("best") is None else None


def read_document(name: str) -> Document:
    """JSON or YAML of a file; raises BadInput in one sentence."""
    text = read_text(name, "file")
    if text.startswith("#!") or Path(name).suffix in SCRIPTS:
        raise BadInput(
            f"file {shown(name)} is a script, no plan; give it as --settings {shown(name)} to evaluate or check"
        )
    if text.lstrip().startswith("{"):
        return Document(name, read_json(text, name, "file"), is_json=True)
    from planner.strict_yaml import parse_yaml

    return Document(name, parse_yaml(text, shown(name)), is_json=False)
