"""What a source of data must offer, and which samples a data-parallel rank takes."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

IGNORED: Final = -100
"""Target of a position that the loss leaves out (the default of torch.nn.functional.cross_entropy)."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Inputs and targets of one micro-batch; token targets may be IGNORED."""

    inputs: Tensor
    targets: Tensor

    def num_valid(self) -> int:
        """Targets that count in the loss."""
        return int((self.targets != IGNORED).sum())


class Source(ABC):
    """Samples by their global index; the same index gives the same sample on every rank and in every run."""

    @abstractmethod
    def sample(self, index: int) -> tuple[Tensor, Tensor]:
        """Input and target of one sample."""


class Sampler:
    """The micro-batches of one data-parallel rank, and the position of the run."""

    def __init__(
        self, source: Source, global_batch: int, part: tuple[int, int], next_sample: int = 0
    ) -> None:
        """`part` is (data-parallel rank, data-parallel size)."""
        self._source = source
        self._global_batch = global_batch
        self._rank, self._size = part
        self.next_sample = next_sample

    def micro_batches(self, count: int) -> list[Batch]:
        """This rank's micro-batches of the next step; the position moves by one global batch."""
        own = self._global_batch // self._size
        first = self.next_sample + self._rank * own
        samples = [self._source.sample(first + offset) for offset in range(own)]
        self.next_sample += self._global_batch
        each = own // count
        return [_stack(samples[start : start + each]) for start in range(0, own, each)]

    def state(self) -> dict[str, int]:
        """The position: all that a run needs to go on with the data where this one stopped."""
        return {"next_sample": self.next_sample}


def _stack(samples: list[tuple[Tensor, Tensor]]) -> Batch:
    return Batch(torch.stack([x for x, _ in samples]), torch.stack([y for _, y in samples]))
