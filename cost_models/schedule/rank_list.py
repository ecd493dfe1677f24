"""Writes one rank's operation list, numbering the micro-batches of every chunk as they come."""

from enum import IntEnum
from typing import NamedTuple


class Phase(IntEnum):
    """What an operation does to its micro-batch.

    BACKWARD is input and weight gradient in one; schedules that split it run INPUT_GRADIENT, which hands the
    gradient on to the stage before, and later WEIGHT_GRADIENT, which nobody waits for.
    """

    FORWARD = 0
    BACKWARD = 1
    INPUT_GRADIENT = 2
    WEIGHT_GRADIENT = 3


class Operation(NamedTuple):
    """One pass of one micro-batch through one chunk of a rank."""

    phase: Phase
    micro_batch: int
    chunk: int


class RankList:
    """Operations of one rank in program order; every chunk takes its micro-batches in the order 0, 1, 2, ..."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.forwards = [0, 0]
        self.backwards = [0, 0]
        self._pending: list[tuple[int, int]] = []

    def forward(self, chunk: int) -> None:
        """Next micro-batch forward."""
        self.operations.append(Operation(Phase.FORWARD, self.forwards[chunk], chunk))
        self.forwards[chunk] += 1

    def backward(self, chunk: int) -> None:
        """Next micro-batch backward, input and weight gradient at once."""
        self._back(Phase.BACKWARD, chunk)

    def input_gradient(self, chunk: int) -> None:
        """Next micro-batch's input gradient; its weight gradient waits."""
        self._pending.append((chunk, self.backwards[chunk]))
        self._back(Phase.INPUT_GRADIENT, chunk)

    def weight_gradient(self, chunk: int | None = None) -> None:
        """The weight gradient that has waited longest, of one chunk where it is given."""
        waiting = next(entry for entry in self._pending if chunk is None or entry[0] == chunk)
        self._pending.remove(waiting)
        self.operations.append(Operation(Phase.WEIGHT_GRADIENT, waiting[1], waiting[0]))

    def weight_gradients(self, chunk: int) -> None:
        """All weight gradients of a chunk that wait."""
        for _ in [entry for entry in self._pending if entry[0] == chunk]:
            self.weight_gradient(chunk)

    def joined(self, chunk: int) -> list[Operation]:
        """The list with every adjacent pair of a chunk's input and weight gradient as one backward.

        For the model's first stage, whose input gradient nobody waits for: the times stay the same, and nothing is
        held between the two.
        """
        found: list[Operation] = []
        for operation in self.operations:
            last = found[-1] if found else None
            pair = (Phase.INPUT_GRADIENT, *operation[1:])
            if operation.phase is Phase.WEIGHT_GRADIENT and operation.chunk == chunk and last == pair:
                found[-1] = Operation(Phase.BACKWARD, *operation[1:])
            else:
                found.append(operation)
        return found

    def _back(self, phase: Phase, chunk: int) -> None:
        self.operations.append(Operation(phase, self.backwards[chunk], chunk))
        self.backwards[chunk] += 1
