"""Errors a user can cause, each with what is wrong, the numbers, and what to change.

PlannerError
└── BadInput                 exit 2, HTTP 422
    ├── InvalidModel         a config or layers file that contradicts itself
    │   └── UnknownModelFamily   a family no reader knows, with the ways out
    ├── InvalidCluster
    ├── InvalidJob           batch, sequence, precision, options
    └── IllegalStrategy      one or more broken rules of the engine, with the nearest legal values
"""

from dataclasses import dataclass
from typing import ClassVar


class PlannerError(Exception):
    """Base of every error this project raises on purpose."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken legality rule: its name, the sentence with the numbers, the nearest legal values, the source."""

    rule: str
    detail: str
    nearest: tuple[str, ...] = ()
    source: str = ""

    def sentence(self) -> str:
        """The detail with the nearest legal values, as shown to a user."""
        return f"{self.detail}; use {' or '.join(self.nearest)}" if self.nearest else self.detail


class BadInput(PlannerError):
    """Input that cannot be used; `pointer` is a JSON pointer to the value, `allowed` the legal values."""

    code: ClassVar[str] = "invalid_request"

    def __init__(self, detail: str, *, pointer: str = "", allowed: tuple[str, ...] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.pointer = pointer
        self.allowed = allowed


class InvalidModel(BadInput):
    """A model description that contradicts itself or lacks something."""


class UnknownModelFamily(InvalidModel):
    """A model family that no reader knows."""

    code: ClassVar[str] = "unknown_model_family"


class InvalidCluster(BadInput):
    """A cluster that cannot exist."""


class InvalidJob(BadInput):
    """A training job that contradicts itself, its model or its devices."""


class IllegalStrategy(BadInput):
    """A strategy that the engine would refuse or silently change."""

    code: ClassVar[str] = "illegal_strategy"

    def __init__(self, violations: tuple[Violation, ...]) -> None:
        super().__init__("\n".join(f"{v.rule}: {v.sentence()}" for v in violations), pointer="/strategy")
        self.violations = violations
