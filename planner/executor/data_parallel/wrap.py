"""Chooses how copies are kept in step, by engine and ZeRO stage."""

from collections.abc import Sequence

from torch import nn

from cost_models.errors import BadInput
from cost_models.specs.strategy import Strategy
from planner.executor.data_parallel.base import DataParallel, DataParallelSettings
from planner.executor.data_parallel.buckets import FlatDataParallel
from planner.executor.data_parallel.ddp import Replicated
from planner.executor.data_parallel.fsdp import FullySharded
from planner.executor.data_parallel.server import ParameterServer
from planner.executor.mesh import Meshes


def wrap(
    chunks: Sequence[nn.Module], strategy: Strategy, meshes: Meshes, settings: DataParallelSettings
) -> DataParallel:
    """Chunks of fp32 parameters, equal on all data ranks -> the data parallelism of the strategy's engine.

    Collective over the mesh. The chunks' parameters are moved or replaced: use `modules` of what is returned.
    """
    engine, zero = settings.engine, strategy.zero
    if engine == "ddp" and zero == 0:
        return Replicated(chunks, meshes, settings)
    if engine == "torch" and zero <= 1:
        return FlatDataParallel(chunks, meshes, settings, shared=zero == 1, offload=strategy.offload)
    if engine == "parameter_server" and zero == 0:
        return ParameterServer(chunks, meshes, settings)
    if engine in ("torch", "fsdp2") and zero >= 2:
        return FullySharded(chunks, meshes, settings, reshard=zero == 3, offload=strategy.offload)
    raise BadInput(
        f"engine {engine} with zero {zero} is not run by this executor; make the plan with --engine torch"
    )
