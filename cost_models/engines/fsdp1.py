"""FullyShardedDataParallel of torch 1.12 to 2.x (FSDP1): one flat parameter a block, the rest in the root's.

States of bf16 mixed precision with AdamW are 16 bytes a parameter over the shard group (Zhao et al. 2023, section 3.2):
fp32 flat parameters, their gradients and two moments. The compute-dtype copy exists only where a unit is gathered.
"""

from dataclasses import replace
from typing import ClassVar, cast

import numpy as np

from cost_models.engines.base import RowInstants, StateBytes, SyncPlan
from cost_models.engines.group_bytes import DTYPE_BYTES
from cost_models.engines.options import EngineOptions, Fsdp1Options
from cost_models.engines.overlap_policy import OverlapPolicy
from cost_models.engines.rules import Rule, fixed, only
from cost_models.engines.space import Space
from cost_models.engines.torch_family import TorchFamily
from cost_models.mesh import MeshBatch
from cost_models.operators.base import ParameterGroup
from cost_models.specs.job import Job
from cost_models.specs.model import ModelSpec
from cost_models.units import Num

SOURCE = "torch.distributed.fsdp.FullyShardedDataParallel"

LIMITED_UNITS = 2.0
"""Units whose gathers are in flight under `limit_all_gathers` (torch/distributed/fsdp/_limiter_utils.py)."""

UNLIMITED_UNITS = 4.0
"""[Empirical] units gathered ahead where the host is not held back: assumed, it grows with how far the host runs on."""


class Fsdp1(TorchFamily):
    """Flat units per block: ZeRO 3 (FULL_SHARD), 2 (SHARD_GRAD_OP) and their hybrids by dp_replicate."""

    name = "fsdp1"
    versions = ("2.0", "2.6")
    options_type: ClassVar[type[EngineOptions]] = Fsdp1Options
    can_step_early: ClassVar[bool] = False
    default_zero = 3
    eager_loss = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.stops_early = (
            self.version != "2.0"
        )  # torch/utils/checkpoint.py, set_checkpoint_early_stop, since 2.1

    @property
    def flat(self) -> Fsdp1Options:
        """The typed options."""
        return cast(Fsdp1Options, self.options)

    def space(self, model: ModelSpec, job: Job) -> Space:
        """Data parallel: FULL_SHARD, SHARD_GRAD_OP, HYBRID_SHARD; checkpoints are of whole layers."""
        return Space(
            zero=(2, 3),
            schedules=("1f1b",),
            scopes=((),),
            whole_layers=True,
            pipeline=False,
            tensor=False,
            context=False,
            expert=False,
            offload=("parameters",),
            act_offload=("checkpoints", "blocks"),
        )

    def state_bytes(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> StateBytes:
        """Gradients are reduced in `grad_dtype` and stored in the parameters' dtype (torch/distributed/fsdp,
        `_cast_grad_to_param_dtype`)."""
        state = super().state_bytes(group, meshes, job)
        wider = self._parameter_bytes() / self._gradient_bytes()
        return replace(state, gradients=state.gradients * wider)

    def sync_plan(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> SyncPlan:
        """Gathers and reductions of every micro-batch; without them, one reduction a step (no_sync)."""
        plan = super().sync_plan(group, meshes, job)
        if self.flat.sync_every_micro_batch:
            return plan
        return replace(plan, micro_reduce=0.0, reduce_scatter=plan.micro_reduce)

    def flat_copy_bytes(self, group: ParameterGroup, plan: SyncPlan, meshes: MeshBatch) -> Num:
        """Parameters are views of the flat one; their gradients are concatenated into its own (the backward of
        torch.split), which is cast where the reduction has another dtype. The shard is cast before every gather; what
        was reduced is cast and added to the gradient's shard (torch/distributed/fsdp/_runtime_utils.py)."""
        compute, stored, ways = self._gathered_bytes(), self._parameter_bytes(), self.ways(group, meshes)
        gathers = (np.asarray(plan.forward_gather) > 0.0) + 1.0 * (np.asarray(plan.backward_gather) > 0.0)
        moved: Num = gathers * (compute + stored if compute != stored else 0.0) / ways
        if group.frozen:
            return moved
        reduce = np.asarray(plan.micro_reduce)
        wide = np.where((reduce > 0.0) & (reduce != compute), compute + reduce, 0.0)
        added = np.where(reduce > 0.0, reduce + 4.0 * stored, 0.0) / ways
        return moved + 2.0 * compute + wide + added

    def instants(self, rows: RowInstants, meshes: MeshBatch) -> RowInstants:
        """Gathered units in flight, the running unit's gradient, and the root's unit.

        The root holds the embedding, the head and what stands outside blocks. It is not resharded after forward, and
        its gradient is whole until the last backward. A gradient that is reduced in another dtype is copied first.
        """
        compute, reduce = self._gathered_bytes(), self._gradient_bytes()
        cast_copy = reduce if reduce != compute else 0.0
        units = LIMITED_UNITS if self.flat.limit_all_gathers else UNLIMITED_UNITS
        if self.flat.backward_prefetch == "none":
            units = 1.0
        resharded = np.where(meshes.zero == 3, 1.0, 0.0)
        blocks = rows.elements[1:-2]
        largest = blocks.max(axis=0) if len(blocks) else np.zeros(meshes.size)
        root, trained_root = (each[0] + each[-1] for each in (rows.elements, rows.trained))
        held = root * compute * resharded + trained_root * compute
        gathered = rows.elements * compute * units * resharded + rows.trained * (compute + cast_copy) + held
        edge = largest * compute * (units - 1.0) * resharded + held + trained_root * cast_copy
        gathered[0] = gathered[-1] = gathered[-2] = edge
        if not self.flat.sync_every_micro_batch:  # no_sync keeps whole gradients
            gathered = gathered + rows.trained[list(rows.layers)].sum(0) * compute
        return replace(rows, gathered=gathered)

    def overlap(self) -> OverlapPolicy:
        """[Empirical] as the torch engines; backward gathers hide only as far as they are asked for ahead of time."""
        ahead = {"backward_pre": 1.0, "backward_post": 0.5, "none": 0.0}[self.flat.backward_prefetch]
        policy = super().overlap()
        return replace(policy, micro_overlap_backward=ahead * policy.micro_overlap_backward)

    def _gathered_bytes(self) -> float:
        """Bytes of an element of a gathered unit: two under mixed precision and pure bf16."""
        return min(DTYPE_BYTES["bf16"], self._parameter_bytes())

    def rules(self) -> tuple[Rule, ...]:
        """Always sharded, data parallel only."""
        axes = ("tp", "cp", "pp", "vpp", "ep", "etp")
        why = "does not exist under fsdp1: use the fsdp2, torchtitan or megatron engine"
        zero = only("fsdp1_zero", "zero", (2, 3), "is not sharded: use the ddp engine", SOURCE)
        single = fixed(
            "fsdp1_replicas",
            f"{SOURCE}, HYBRID_SHARD",
            lambda facts, meshes: (meshes.dp_replicate > 1) & (meshes.dp_shard == 1),
            "dp_replicate {dp_replicate} with dp_shard 1 shards nothing",
            ("dp_shard 2 or more", "the ddp engine"),
        )
        return (
            *super().rules(),
            zero,
            single,
            *(only(f"fsdp1_{axis}", axis, (1,), why, SOURCE) for axis in axes),
        )
