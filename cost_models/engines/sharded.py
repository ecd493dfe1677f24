"""Engines on plain torch.distributed: ddp, fsdp2, and torch (this project's own executor, every axis)."""

from typing import ClassVar, cast

import numpy as np

from cost_models.engines.base import StateBytes, SyncPlan
from cost_models.engines.options import DdpOptions, EngineOptions
from cost_models.engines.rules import Rule, fixed, only, runs
from cost_models.engines.space import Space
from cost_models.engines.torch_family import TorchFamily
from cost_models.mesh import MeshBatch
from cost_models.operators.base import ParameterGroup
from cost_models.schedule.names import ScheduleName
from cost_models.specs.job import Job
from cost_models.specs.model import ModelSpec

SCHEDULES_RUN = tuple(schedule for schedule in ScheduleName if schedule.is_modelled)


class Torch(TorchFamily):
    """This project's own executor: every axis, ZeRO 0 to 3, per-stage recompute, fused optimizers."""

    name = "torch"
    versions = ("2.13",)
    default_zero = 1
    copies_in_step = False
    runs_experts_again = True
    shards_by_unit = True

    def space(self, model: ModelSpec, job: Job) -> Space:
        """All axes; vision models are cut in data and pipeline only."""
        tokens = not model.is_vision
        return Space(
            zero=(0, 1, 2, 3),
            schedules=tuple(schedule.value for schedule in SCHEDULES_RUN),
            scopes=self.recompute_bases(model),
            tensor=tokens,
            context=tokens,
            expert=model.is_moe,
            uniform_full=False,
            offload=("optimizer", "parameters"),
            act_offload=("checkpoints", "blocks"),
        )

    def rules(self) -> tuple[Rule, ...]:
        """Replicas belong to sharded states."""
        replicas = fixed(
            "replicas_sharded",
            "HSDP: replicas of sharded states need ZeRO 2 or 3",
            lambda facts, meshes: (meshes.dp_replicate > 1) & (meshes.zero < 2),
            "dp_replicate {dp_replicate} with zero {zero} has no shard group to replicate",
            ("zero 2 or 3", "dp_replicate 1"),
        )
        runnable = runs("torch_schedule", SCHEDULES_RUN, "torch.distributed.pipelining.schedules")
        return (*super().rules(), replicas, runnable)


class Fsdp2(TorchFamily):
    """Fully sharded data parallel (FSDP2) with tensor parallel inside; no pipeline."""

    name = "fsdp2"
    versions = ("2.6", "2.13")
    default_zero = 3
    eager_loss = True
    shards_by_unit = True

    def space(self, model: ModelSpec, job: Job) -> Space:
        """Resharding after forward or not; HSDP by dp_shard x dp_replicate."""
        return Space(
            zero=(2, 3),
            schedules=("1f1b",),
            scopes=self.recompute_bases(model),
            pipeline=False,
            tensor=not model.is_vision,
            context=not model.is_vision,
            expert=False,
            offload=("optimizer", "parameters"),
            act_offload=("checkpoints", "blocks"),
        )

    def rules(self) -> tuple[Rule, ...]:
        """Always sharded; pipelines belong to the torch engine."""
        return (
            *super().rules(),
            only(
                "fsdp2_zero",
                "zero",
                (2, 3),
                "is not sharded: use the ddp or torch engine",
                "torch.distributed.fsdp",
            ),
            only("fsdp2_pp", "pp", (1,), "needs the torch engine", "torch.distributed.fsdp"),
            only("fsdp2_ep", "ep", (1,), "needs the torch engine", "torch.distributed.fsdp"),
            only("fsdp2_etp", "etp", (1,), "needs the torch engine", "torch.distributed.fsdp"),
        )


class Ddp(TorchFamily):
    """DistributedDataParallel: full copies, ring all-reduce in buckets that are views of the gradients.

    Parameters stay in fp32 and autocast makes compute-dtype copies of the running layer's weights (Micikevicius et al.
    2018), so states are 16 bytes a parameter with AdamW.
    """

    name = "ddp"
    versions = ("2.6", "2.13")
    options_type: ClassVar[type[EngineOptions]] = DdpOptions
    default_zero = 0
    eager_loss = True

    def space(self, model: ModelSpec, job: Job) -> Space:
        """Data parallel only."""
        return Space(
            (0,),
            ("1f1b",),
            self.recompute_bases(model),
            pipeline=False,
            tensor=False,
            context=False,
            expert=False,
            act_offload=("checkpoints", "blocks"),
        )

    def state_bytes(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> StateBytes:
        """Parameters, gradients (views of the buckets), moments; autocast keeps weight copies until backward."""
        stored, gradient = self._parameter_bytes(), self._gradient_bytes()
        moments = self._moment_bytes(group, job)
        compute = job.precision.activation_bytes
        cast_copy = compute if compute < stored else 0.0
        full = np.ones(meshes.size)
        traffic = (2.0 * stored + 2.0 * moments + gradient) * full
        kept = np.where(meshes.dp > 1, gradient, 0.0) if self.copies_into_buckets else 0.0
        kept = kept + (0.0 if self.steps_early else gradient)
        copied = stored if self.makes_copies else 0.0
        return StateBytes((stored + cast_copy) * full, kept * full, moments * full, copied * full, traffic)

    @property
    def copies_into_buckets(self) -> bool:
        """Whether gradients stand beside the buckets that are reduced."""
        return not cast(DdpOptions, self.options).gradient_as_bucket_view

    def sync_plan(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> SyncPlan:
        """One all-reduce of the gradients a step."""
        return SyncPlan(all_reduce=np.full(meshes.size, self._gradient_bytes()))

    def rules(self) -> tuple[Rule, ...]:
        """Every axis but data parallel is 1."""
        source = "torch.nn.parallel.DistributedDataParallel"
        why = "does not exist under ddp: use the torch, fsdp2 or megatron engine"
        axes = ("tp", "cp", "pp", "vpp", "ep", "etp", "dp_replicate")
        return (
            *super().rules(),
            only("ddp_zero", "zero", (0,), "shards states, which ddp does not", source),
            *(only(f"ddp_{axis}", axis, (1,), why, source) for axis in axes),
        )
