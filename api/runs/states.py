"""States of a run and the moves between them; a final state never changes."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class RunState(StrEnum):
    """Where a run is."""

    QUEUED = "queued"
    LAUNCHING = "launching"
    RUNNING = "running"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether nothing follows, and no process of the run is left."""
        return not LEGAL_MOVES[self]

    @property
    def sources(self) -> tuple[str, ...]:
        """States from which a run may come here."""
        return tuple(source.value for source, targets in LEGAL_MOVES.items() if self in targets)


LEGAL_MOVES: Final[Mapping[RunState, frozenset[RunState]]] = {
    RunState.QUEUED: frozenset({RunState.LAUNCHING, RunState.CANCELLED, RunState.FAILED}),
    RunState.LAUNCHING: frozenset({RunState.RUNNING, RunState.CANCELLING, RunState.FAILED}),
    RunState.RUNNING: frozenset({RunState.SUCCEEDED, RunState.CANCELLING, RunState.FAILED}),
    RunState.CANCELLING: frozenset({RunState.CANCELLED, RunState.FAILED}),
    RunState.SUCCEEDED: frozenset(),
    RunState.FAILED: frozenset(),
    RunState.CANCELLED: frozenset(),
}
LIVE: Final = tuple(state.value for state, targets in LEGAL_MOVES.items() if targets)
