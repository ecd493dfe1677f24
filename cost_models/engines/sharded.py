"""Engines on plain torch.distributed: ddp, fsdp2, and torch (this project's own executor, every axis)."""

from typing import ClassVar, cast

import numpy as np

from cost_models.engines.base import DTYPE_BYTES, Engine, OverlapPolicy, StateBytes, SyncPlan, moment_bytes
from cost_models.engines.options import EngineOptions, TorchOptions
from cost_models.engines.rules import Rule, divides, fixed, only
from cost_models.engines.space import Space, selective_bases
from cost_models.mesh import MeshBatch
from cost_models.operators.base import ParameterGroup, Style
from cost_models.specs.job import Job
from cost_models.specs.model import ModelSpec
from cost_models.units import Num


class TorchFamily(Engine):
    """Shared by the engines on torch.distributed: fp32 parameters, compute-dtype copies, fp32 reduction."""

    options_type: ClassVar[type[EngineOptions]] = TorchOptions

    @property
    def settings(self) -> TorchOptions:
        """The typed options."""
        return cast(TorchOptions, self.options)

    def style(self, job: Job, cp_kind: str) -> Style:
        """Eager torch keeps activation intermediates and the gathered inputs of column-parallel linears."""
        options = self.settings
        return Style(
            flash_attention=options.attention != "unfused",
            softmax_fp32_copy=options.attention == "unfused",
            fused_activation=options.compile,
            fused_rope=options.compile,
            fused_cross_entropy=options.fused_cross_entropy,
            cross_entropy_chunks=options.cross_entropy_chunks,
            sp_saves_shard=False,
            router_fp32=False,
            compute_bytes=job.precision.activation_bytes,
            dispatch_bytes=1.0 if job.options.moe_dispatch_dtype == "fp8" else job.precision.activation_bytes,
            deduplicated_dispatch=job.options.moe_dispatcher != "alltoall",
            expert_capacity_factor=job.options.moe_capacity_factor,
            cp_kind=cp_kind,
            aux_loss_one_hot=options.router_aux_loss,
            dropout=options.dropout,
        )

    def recompute_bases(self, model: ModelSpec) -> tuple[tuple[str, ...], ...]:
        """Selective scopes to try; core attention only where its scores are kept at all."""
        return selective_bases(model, (self.default_scopes,) if self.settings.attention == "unfused" else ())

    def _parameter_bytes(self) -> float:
        return DTYPE_BYTES[self.settings.param_dtype]

    def _gradient_bytes(self) -> float:
        pure = self.settings.param_dtype == "bf16"
        return DTYPE_BYTES["bf16" if pure else self.settings.grad_dtype]

    def _moment_bytes(self, job: Job) -> float:
        pure = self.settings.param_dtype == "bf16" and self.settings.moment_dtype == "fp32"
        return moment_bytes(job.optimizer, "bf16" if pure else self.settings.moment_dtype)

    def state_bytes(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> StateBytes:
        """Bytes by ZeRO stage.

        0 and 1 keep a compute-dtype copy beside the master parameters; 2 and 3 shard everything at rest, and 2 also
        keeps the gathered parameters from forward to backward. foreach optimizers make one more copy of the shard.
        """
        zero, ways = meshes.zero, _ways(group, meshes)
        stored, gradient, moments = self._parameter_bytes(), self._gradient_bytes(), self._moment_bytes(job)
        weight = min(job.precision.activation_bytes, stored)
        master = stored if weight < stored else 0.0
        shard = np.where(zero >= 1, ways, 1.0)
        at_rest = zero >= 2
        weights = np.where(at_rest, stored / ways + np.where(zero == 2, weight, 0.0), weight)
        optimizer = np.where(at_rest, moments / ways, (master + moments) / shard)
        gradients = np.where(at_rest, gradient / ways, gradient)
        traffic = 2.0 * (stored + moments) / shard + 2.0 * gradient / shard + weight
        return StateBytes(weights, gradients, optimizer, stored / shard, traffic)

    def sync_plan(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> SyncPlan:
        """Traffic by ZeRO stage.

        0: all-reduce once a step; 1: reduce-scatter and gather; 2 and 3: gathers and reductions per micro-batch, and
        for replicated shards (HSDP) an all-reduce of the shard once a step.
        """
        gradient, zero = self._gradient_bytes(), meshes.zero
        weight = min(job.precision.activation_bytes, self._parameter_bytes())
        return SyncPlan(
            reduce_scatter=np.where(zero == 1, gradient, 0.0),
            all_reduce=np.where(zero == 0, gradient, 0.0),
            all_gather=np.where(zero == 1, weight, 0.0),
            forward_gather=np.where(zero >= 2, weight, 0.0),
            backward_gather=np.where(zero == 3, weight, 0.0),
            micro_reduce=np.where(zero >= 2, gradient, 0.0),
        )

    def gathered_units(self, meshes: MeshBatch) -> Num:
        """The running layer and the prefetched one under ZeRO-3; the gradient's unsharded layer under 2."""
        return np.select([meshes.zero == 3, meshes.zero == 2], [2.0, 1.0], 0.0)

    def overlap(self) -> OverlapPolicy:
        """[Empirical] typical shares of bucketed reduction and prefetch."""
        on = self.settings.overlap
        return OverlapPolicy(
            hidden={
                "tp_gemm": 0.0,
                "tp_wgrad_gather": 0.0,
                "tp_wgrad": 0.5,
                "ep_dispatch": 0.0,
                "cp_ring": 0.7,
            },
            sync_overlap=0.7 if on else 0.0,
            sync_exposed_min=0.05 if on else 1.0,
            gather_exposed=1.0,
            micro_overlap=0.8 if on else 0.0,
            send_shown=0.5,
        )

    def rules(self) -> tuple[Rule, ...]:
        """DTensor shards key/value heads whole."""
        source = "torch.distributed.tensor: attention heads are divided whole"
        return (
            *super().rules(),
            divides("kv_heads_tp", "tp", "num_key_value_heads", lambda f: f.kv_heads, source),
        )


class Torch(TorchFamily):
    """This project's own executor: every axis, ZeRO 0 to 3, per-stage recompute."""

    name = "torch"
    versions = ("2.13",)
    default_zero = 1

    def space(self, model: ModelSpec, job: Job) -> Space:
        """All axes; vision models are cut in data and pipeline only."""
        tokens = not model.is_vision
        return Space(
            zero=(0, 1, 2, 3),
            schedules=("gpipe", "1f1b", "interleaved"),
            scopes=self.recompute_bases(model),
            tensor=tokens,
            context=tokens,
            expert=model.is_moe,
            uniform_full=False,
        )

    def rules(self) -> tuple[Rule, ...]:
        """Sharded parameters under a pipeline would be gathered for every micro-batch of every stage."""
        mixed = fixed(
            "zero_pipeline",
            "torch.distributed.fsdp with pipelining: reshard_after_forward under several micro-batches in flight",
            lambda facts, meshes: (meshes.zero == 3) & (meshes.pp > 1),
            "zero 3 with pp {pp} gathers every stage's parameters for every micro-batch",
            ("zero 0, 1 or 2", "pp 1"),
        )
        replicas = fixed(
            "replicas_sharded",
            "HSDP: replicas of sharded states need ZeRO 2 or 3",
            lambda facts, meshes: (meshes.dp_replicate > 1) & (meshes.zero < 2),
            "dp_replicate {dp_replicate} with zero {zero} has no shard group to replicate",
            ("zero 2 or 3", "dp_replicate 1"),
        )
        return (*super().rules(), mixed, replicas)


class Fsdp2(TorchFamily):
    """Fully sharded data parallel (FSDP2) with tensor parallel inside; no pipeline."""

    name = "fsdp2"
    versions = ("2.6", "2.13")
    default_zero = 3

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
    default_zero = 0

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
        )

    def state_bytes(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> StateBytes:
        """Parameters, gradients (views of the buckets), moments; autocast keeps weight copies until backward."""
        stored, gradient, moments = self._parameter_bytes(), self._gradient_bytes(), self._moment_bytes(job)
        compute = job.precision.activation_bytes
        cast_copy = compute if compute < stored else 0.0
        full = np.ones(meshes.size)
        traffic = (2.0 * stored + 2.0 * moments + gradient) * full
        return StateBytes(
            (stored + cast_copy) * full, gradient * full, moments * full, stored * full, traffic
        )

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


def _ways(group: ParameterGroup, meshes: MeshBatch) -> Num:
    """Ranks that share a group's sharded states."""
    ranks: Num = (meshes.expert_ranks if group.is_expert else meshes.dp_shard * meshes.cp).astype(float)
    return ranks
