"""Optimizers that work on whole tensors, tensor-parallel shards and flat shards alike, or are refused by name."""

from planner.executor.optimizers.support import optimizer_violations

__all__ = ["optimizer_violations"]
