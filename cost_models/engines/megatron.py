"""Megatron-LM / Megatron-Core: distributed optimizer, fp32 main gradients, tensor and sequence parallel, interleaving.

State bytes of bf16 training (megatron/training/theoretical_memory_usage.py): 18 a parameter, or 6 + 12 / D with the
distributed optimizer, D the data-parallel ranks (times cp) that share the group's states.
"""

from dataclasses import replace
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from cost_models.engines.base import Engine, RowInstants, StateBytes, SyncPlan
from cost_models.engines.group_bytes import DTYPE_BYTES
from cost_models.engines.megatron_dummies import empty_gradient_bytes
from cost_models.engines.megatron_fsdp import fsdp_instants, fsdp_plan, fsdp_states
from cost_models.engines.megatron_rules import (
    check_predictions,
    fp8_rules,
    kv_divides,
    kv_replication,
    offloaded_modules_rules,
    offloads_layers,
    plain_sends,
    predictions_in_stages,
    replica_rules,
    shards_precision_aware,
    whole_encoder_decoder,
)
from cost_models.engines.megatron_states import (
    NARROW_WEIGHT_BYTES,
    gathered_bytes,
    is_precision_aware,
    optimizer_bytes,
    stepping_bytes,
    weight_bytes,
    wide_bytes,
)
from cost_models.engines.megatron_workspaces import (
    overlap_buffer_bytes,
    score_buffer_bytes,
    workspace_bytes,
)
from cost_models.engines.options import EngineOptions, MegatronOptions
from cost_models.engines.overlap_policy import OverlapPolicy
from cost_models.engines.rules import Rule, fixed, only, runs
from cost_models.engines.space import Space, offloaded_modules, selective_bases
from cost_models.errors import InvalidJob
from cost_models.mesh import MeshBatch
from cost_models.operators.base import ParameterGroup, Style
from cost_models.schedule.names import ScheduleName
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.job import Job, Optimizer
from cost_models.specs.model import ModelSpec
from cost_models.units import Num

KV_REPLICATION_SINCE = "0.16"
MTP_STAGES_SINCE = "0.16"
MODULES_SINCE = "0.16"
SCHEDULES_RUN = (ScheduleName.ONE_F_ONE_B, ScheduleName.INTERLEAVED)
PAIR_SCHEDULES = frozenset(SCHEDULES_RUN)
"""Whose steady state merges a forward with the backward of another micro-batch (combined_1f1b.py)."""

BROADCAST_S = 2.6e-3
"""[Empirical] what one rank's broadcast of its parameters costs: InternEvo's steps on 128 to 1,024 A100, with and
without shards over all ranks (profiles/published, intern), differ by 2.6 ms a rank."""


class Megatron(Engine):
    """The `megatron` engine."""

    name = "megatron"
    versions = ("0.12", "0.14", "0.15", "0.16", "0.19")
    options_type: ClassVar[type[EngineOptions]] = MegatronOptions
    default_zero = 1
    batch_source = "megatron/core/num_microbatches_calculator.py"
    degree_source = "megatron/core/transformer/transformer_config.py and megatron/core/parallel_state.py"
    contiguous_states = True

    @property
    def settings(self) -> MegatronOptions:
        """The typed options."""
        return cast(MegatronOptions, self.options)

    def space(self, model: ModelSpec, job: Job) -> Space:
        """Distributed optimizer on; 1F1B and interleaving; one number of fully recomputed layers for all stages."""
        scopes = selective_bases(model, (self.default_scopes,))
        sharded = self.settings.megatron_fsdp
        return Space(
            zero=(1, 2, 3) if sharded else (0, 1),
            schedules=("1f1b", "interleaved"),
            scopes=scopes,
            offload=() if sharded else ("optimizer",),
            act_offload=self._act_offload(),
            offload_modules=offloaded_modules(model),
            most_offloaded=model.num_blocks - 1,
            full_recompute=not self.settings.ep_overlap,
            replicate_zero=1,
            lone_ends=True,
            hierarchical=True,
        )

    def _act_offload(self) -> tuple[str, ...]:
        """Whole layers, and since core 0.16 single modules, which no CUDA graph may hold."""
        if self.settings.transformer_impl != "transformer_engine":
            return ()
        single = _at_least(self.version, MODULES_SINCE) and not self.settings.cuda_graphs
        return ("blocks", "modules") if single else ("blocks",)

    def check_job(self, model: ModelSpec, cluster: ClusterSpec, job: Job) -> None:
        """Narrow optimizer states are Adam's."""
        super().check_job(model, cluster, job)
        if is_precision_aware(self.settings) and job.optimizer is not Optimizer.ADAMW:
            raise InvalidJob(
                f"optimizer {job.optimizer.value} with narrow optimizer states; --use-precision-aware-optimizer takes "
                "adamw alone, use fp32 engine.moment_dtype and engine.master_dtype",
                pointer="/job/optimizer",
            )
        if self.settings.mtp_in_stages:
            check_predictions(model, job, self.version, since=_at_least(self.version, MTP_STAGES_SINCE))

    def staged(self, model: ModelSpec) -> ModelSpec:
        """With vision towers whole on the first stage (examples/multimodal, add_encoder of the first rank alone), and
        prediction layers among the blocks where they are asked to be."""
        towers = bool(model.towers)
        return model.model_copy(
            update={"mtp_in_stages": self.settings.mtp_in_stages, "towers_with_embedding": towers}
        )

    def usual_zero(self, pp: int) -> int:
        """The distributed optimizer; optim_grads_params under Megatron-FSDP, as its argument's default is."""
        return 3 if self.settings.megatron_fsdp else self.default_zero

    def style(self, job: Job, cp_kind: str) -> Style:
        """Transformer Engine's fused kernels; the logits go to fp32 unless the loss is fused."""
        options = self.settings
        return Style(
            flash_attention=options.attention != "unfused",
            fused_cross_entropy=options.fused_cross_entropy,
            cross_entropy_in_place=options.cross_entropy_impl == "te",
            split_keeps_projection=True,
            cross_entropy_chunks=options.cross_entropy_chunks,
            router_fp32=options.router_fp32,
            compute_bytes=wide_bytes(job, self.settings),
            narrow_bytes=NARROW_WEIGHT_BYTES.get(job.precision, 0.0),
            gathered_bytes=NARROW_WEIGHT_BYTES.get(job.precision, 0.0),
            dispatch_bytes=1.0 if job.options.moe_dispatch_dtype == "fp8" else wide_bytes(job, self.settings),
            expert_capacity_factor=job.options.moe_capacity_factor,
            deduplicated_dispatch=options.deduplicated_dispatch or job.options.moe_dispatcher != "alltoall",
            cp_kind=cp_kind,
            vocabulary_multiple=options.vocabulary_multiple,
            dropout=options.dropout,
            softmax_fp32_copy=not options.softmax_fusion,
            cross_entropy_overwrites=True,
            cross_entropy_copy=options.cross_entropy_impl == "native",
            deferred_head_batches=options.deferred_head_batches,
            head_gradient_beside=not options.megatron_fsdp,
            weighted_experts=options.weighted_experts,
            fused_scan=True,
        )

    def constant_bytes(
        self, architecture: str, model: ModelSpec, job: Job, meshes: MeshBatch
    ) -> NDArray[np.float64]:
        """Workspaces of the GEMM libraries; the local implementation's buffer of scores."""
        options = self.settings
        workspaces = np.full(meshes.size, float(workspace_bytes(architecture, model, options)))
        if options.transformer_impl == "local" and options.attention == "unfused":
            each = wide_bytes(job, self.settings)
            workspaces = workspaces + score_buffer_bytes(model, job.seq_len or 0, each, meshes)
        if options.gradient_accumulation_fusion and options.transformer_impl == "transformer_engine":
            workspaces = workspaces + empty_gradient_bytes(model, job, meshes)
        if options.tp_comm_overlap:
            each = wide_bytes(job, self.settings)
            workspaces = workspaces + overlap_buffer_bytes(model, job.seq_len or 0, each, meshes)
        return workspaces

    def _shard_ways(self, group: ParameterGroup, meshes: MeshBatch) -> Num:
        """Ranks that share a group's optimizer states under the distributed optimizer."""
        ranks = meshes.expert_ranks // meshes.dp_replicate if group.is_expert else meshes.dp_shard * meshes.cp
        return np.where(meshes.zero >= 1, ranks, 1).astype(float)

    def state_bytes(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> StateBytes:
        """Weights in the compute dtype, main gradients, and master copy + moments over the shard ranks."""
        options, ways = self.settings, self._shard_ways(group, meshes)
        weight = weight_bytes(group, job, options)
        gradient = DTYPE_BYTES[options.grad_dtype]
        optimizer = optimizer_bytes(group, job, options) / ways
        traffic = 2.0 * optimizer + (gradient + weight) / ways + gradient
        stepping = stepping_bytes(group, job, options, meshes, ways)
        resident = StateBytes(weight, gradient, optimizer, stepping, traffic)
        if options.megatron_fsdp:
            return fsdp_states(resident, ways, meshes)
        share = meshes.key.offload.optimizer
        return self._offloaded(resident, share, weight, ways) if share else resident

    def _offloaded(self, resident: StateBytes, share: float, weight: float, ways: Num) -> StateBytes:
        """--optimizer-cpu-offload: the host keeps a share of master weights and moments and a gradient on its way.

        Gradients go down and weights come back once a step (core/optimizer/cpu_offloading/hybrid_optimizer.py).
        """
        left, gone = 1.0 - share, share * resident.optimizer
        gradient = DTYPE_BYTES["fp32"]
        return replace(
            resident,
            optimizer=resident.optimizer * left,
            step_traffic=resident.step_traffic * left,
            host=gone + share * gradient / ways,
            host_traffic=2.0 * gone + share * gradient / ways,
            host_link=share * (gradient + weight) / ways,
        )

    def sync_plan(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> SyncPlan:
        """Distributed optimizer: reduce-scatter gradients, gather parameters; without it: all-reduce."""
        gradient = DTYPE_BYTES[self.settings.grad_dtype]
        weight = gathered_bytes(group, job, self.settings)
        sharded = meshes.zero >= 1
        plan = SyncPlan(
            reduce_scatter=np.where(sharded, gradient, 0.0),
            all_reduce=np.where(sharded, 0.0, gradient),
            all_gather=np.where(sharded, weight, 0.0),
        )
        return fsdp_plan(plan, weight, gradient, meshes) if self.settings.megatron_fsdp else plan

    def instants(self, rows: RowInstants, meshes: MeshBatch) -> RowInstants:
        """Communication units of Megatron-FSDP; nothing comes and goes without it."""
        options = self.settings
        if not options.megatron_fsdp:
            return rows
        return fsdp_instants(rows, DTYPE_BYTES[options.grad_dtype], options, meshes)

    def gathered_units(self, meshes: MeshBatch) -> Num:
        """A row's own weights under Megatron-FSDP; `instants` adds what runs ahead."""
        return np.full(meshes.size, float(self.settings.megatron_fsdp))

    def send_ways(self, meshes: MeshBatch) -> Num:
        """All tensor-parallel ranks where the boundary is scattered for the way."""
        scatters = self.settings.scatter_gather_p2p and (meshes.sp == 0)
        return np.where(scatters, meshes.tp, 1).astype(float)

    @property
    def launches_by_module(self) -> bool:
        """Unless CUDA graphs replay them."""
        return not self.settings.cuda_graphs

    def step_seconds(self, meshes: MeshBatch) -> Num:
        """Broadcasts of parameters, one a rank that holds a shard of the optimizer."""
        return meshes.dp_shard.astype(float) * (BROADCAST_S if self.settings.broadcast_params else 0.0)

    def accumulation_bytes(self, job: Job) -> float:
        """Nothing where the product adds to the main gradient itself; else the new gradient and the sum."""
        if self.settings.gradient_accumulation_fusion:
            return 0.0
        return job.precision.activation_bytes + 2.0 * DTYPE_BYTES[self.settings.grad_dtype]

    def overlap(self) -> OverlapPolicy:
        """[Empirical] typical shares hidden by Megatron's options; refitted by `calibrate`."""
        options = self.settings
        tensor = 0.7 if options.tp_comm_overlap else 0.0
        micro = 0.8 if options.megatron_fsdp and options.overlap_param_gather else 0.0
        return OverlapPolicy(
            hidden={
                "tp_gemm": tensor,
                "tp_wgrad_gather": 0.8,  # linear_with_grad_accumulation gathers beside the input-gradient GEMM
                "tp_wgrad": 0.8,  # the input gradient's all-reduce runs beside the weight-gradient GEMM
                "ep_dispatch": 0.0,  # beside another micro-batch's pass, see pair_overlap
                "cp_ring": 0.8,
            },
            sync_overlap=0.7 if options.overlap_grad_reduce else 0.0,
            sync_exposed_min=0.05 if options.overlap_grad_reduce else 1.0,
            gather_overlap=0.7 if options.overlap_param_gather else 0.0,
            gather_exposed_min=0.15 if options.overlap_param_gather else 1.0,
            micro_overlap=micro,
            micro_overlap_backward=micro,
            send_shown=0.3 if options.overlap_p2p else 1.0,
            pair_schedules=PAIR_SCHEDULES if options.ep_overlap else frozenset(),
            pair_overlap=0.8 if options.ep_overlap else 0.0,
        )

    def rules(self) -> tuple[Rule, ...]:
        """Megatron's own refusals beside the common ones."""
        arguments = "megatron/training/arguments.py"
        stages = (0, 1, 2, 3) if self.settings.megatron_fsdp else (0, 1)
        why = "needs Megatron-FSDP: set engine.megatron_fsdp=true"
        rules: tuple[Rule, ...] = (
            only("megatron_zero", "zero", stages, why, arguments),
            runs("megatron_schedule", SCHEDULES_RUN, "megatron/core/pipeline_parallel/schedules.py"),
            *replica_rules(),
            fixed(
                "moe_needs_sp",
                "megatron/core/transformer/moe/moe_layer.py",
                lambda facts, meshes: (meshes.tp > 1) & (meshes.sp == 0) & facts.model.is_moe,
                "experts with tp {tp} need sequence parallelism during training",
                ("sp=true", "tp 1"),
            ),
        )
        aware = shards_precision_aware(is_precision_aware(self.settings))
        rules = (
            *rules,
            *offloads_layers(),
            *offloaded_modules_rules(),
            aware,
            whole_encoder_decoder(),
        )
        if self.settings.ep_overlap:
            rules = (*rules, _overlapped_experts())
        if not self.settings.overlap_p2p:
            rules = (*rules, plain_sends())
        if self.settings.mtp_in_stages:
            rules = (*rules, predictions_in_stages())
        if self.settings.transformer_impl == "transformer_engine":
            rules = (*rules, *fp8_rules())
        kv_rule = kv_replication() if _at_least(self.version, KV_REPLICATION_SINCE) else kv_divides()
        return (*super().rules(), kv_rule, *rules)


def _overlapped_experts() -> Rule:
    return fixed(
        "megatron_ep_overlap",
        "megatron/core/transformer/transformer_config.py: overlap_moe_expert_parallel_comm",
        lambda facts, meshes: meshes.ep == 1,
        "engine.ep_overlap with ep {ep}: there is no exchange of experts to overlap",
        ("engine.ep_overlap=false", "ep 2 or more"),
    )


def _at_least(version: str, other: str) -> bool:
    return tuple(map(int, version.split("."))) >= tuple(map(int, other.split(".")))
