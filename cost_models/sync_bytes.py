"""Bytes of a row that travel over data-parallel ranks, summed over its parameter groups."""

from dataclasses import dataclass

import numpy as np

from cost_models.chunk import Array
from cost_models.engines import SyncPlan
from cost_models.units import Num


@dataclass(slots=True)
class SyncBytes:
    """Bytes (B,) of one row's groups that travel over one kind of data-parallel group."""

    reduce_scatter: Array
    all_reduce: Array
    all_gather: Array
    forward_gather: Array
    backward_gather: Array
    near_gather: Array
    micro_reduce: Array
    forward_link: Array
    backward_link: Array
    server: Array

    @classmethod
    def none(cls, size: int) -> "SyncBytes":
        """No traffic yet."""
        return cls(*(np.zeros(size) for _ in cls.__dataclass_fields__))

    @classmethod
    def stack(cls, rows: "list[SyncBytes]") -> "SyncBytes":
        """One traffic of shape (rows, B)."""
        return cls(*(np.stack([getattr(row, name) for row in rows]) for name in cls.__dataclass_fields__))

    def add(self, elements: Num, plan: SyncPlan) -> None:
        """Add one group's bytes."""
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + elements * getattr(plan, name))
