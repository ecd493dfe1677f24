"""Chooses how copies are kept in step, by engine and ZeRO stage."""

from collections.abc import Sequence

from torch import nn

from cost_models.errors import BadInput
from cost_models.specs.strategy import Strategy
from planner.executor.data_parallel.base import DataParallel, DataParallelSettings
from planner.executor.mesh import Meshes


def wrap(
    chunks: Sequence[nn.Module], strategy: Strategy, meshes: Meshes, settings: DataParallelSettings
) -> DataParallel:
    """Chunks of fp32 parameters, equal on all data ranks -> the data parallelism of the strategy's engine.

    Collective over the mesh. The chunks' parameters are moved or replaced: use `modules` of what is returned.
    """
    from planner.executor.data_parallel.buckets import FlatDataParallel

    if settings.engine == "torch" and strategy.zero <= 1:
        return FlatDataParallel(chunks, meshes, settings, shared=strategy.zero == 1)
    raise BadInput(
        f"engine {settings.engine} with zero {strategy.zero} is not run by this executor; use --engine torch"
    )
