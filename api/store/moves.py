"""States of a plan and the moves between them; a final state never changes."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a plan is."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether nothing follows."""
        return not LEGAL_MOVES[self]

    @property
    def sources(self) -> tuple[str, ...]:
        """States from which a plan may come here."""
        return tuple(source.value for source, targets in LEGAL_MOVES.items() if self in targets)


LEGAL_MOVES: Final[Mapping[State, frozenset[State]]] = {
    State.QUEUED: frozenset({State.RUNNING, State.CANCELLED, State.FAILED}),
    # back to the queue: its server died, stopped, or lost its lease
    State.RUNNING: frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.QUEUED}),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
}
