"""One process alone, or the processes of a torch.distributed group, that measure side by side."""

from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True, slots=True)
class Alone:
    """One process."""

    size: int = 1

    def agree(self, number: int) -> int:
        """See Team."""
        return number


@dataclass(frozen=True, slots=True)
class Group:
    """The default process group; `device` is what its backend sends from."""

    device: torch.device

    @property
    def size(self) -> int:
        """Processes."""
        return dist.get_world_size()

    def agree(self, number: int) -> int:
        """See Team. A sum to which the first alone adds: nobody has it before all have come."""
        own = number if dist.get_rank() == 0 else 0
        total = torch.tensor([own], dtype=torch.int64, device=self.device)
        dist.all_reduce(total)
        return int(total.item())
