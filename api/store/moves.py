"""States and the moves between them, of plans and, in api/runs/states.py, of runs; a final state never changes."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Self


class MovingState(StrEnum):
    """A state that says what may follow it and what it may follow."""

    @classmethod
    def moves(cls) -> Mapping[Self, frozenset[Self]]:
        """What may follow each state."""
        raise NotImplementedError(cls.__name__)

    @property
    def is_final(self) -> bool:
        """Whether nothing follows."""
        return not self.moves()[self]

    @property
    def sources(self) -> tuple[str, ...]:
        """States from which one may come here."""
        return tuple(source.value for source, targets in self.moves().items() if self in targets)


class State(MovingState):
    """Where a plan is."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @classmethod
    def moves(cls) -> "Mapping[State, frozenset[State]]":
        """What may follow each state."""
        return LEGAL_MOVES


LEGAL_MOVES: Final[Mapping[State, frozenset[State]]] = {
    State.QUEUED: frozenset({State.RUNNING, State.CANCELLED, State.FAILED}),
    # back to the queue: its server died, stopped, or lost its lease
    State.RUNNING: frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.QUEUED}),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
}
