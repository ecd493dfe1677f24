"""States of a run and the moves between them; a final state never changes."""

from collections.abc import Mapping
from typing import Final

from api.store.moves import MovingState


class RunState(MovingState):
    """Where a run is."""

    QUEUED = "queued"
    LAUNCHING = "launching"
    RUNNING = "running"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @classmethod
    def moves(cls) -> "Mapping[RunState, frozenset[RunState]]":
        """What may follow each state; after a final one no process of the run is left."""
        return LEGAL_MOVES


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
