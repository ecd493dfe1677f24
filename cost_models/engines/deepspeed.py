"""DeepSpeed: ZeRO 0 to 3 with its buckets and live parameters, pipelines at most with stage 1, offload.

Bytes a parameter of 16-bit training with AdamW over N ranks (Rajbhandari et al. 2020, section 5): stage 0 16, stage 1
4 + 12/N, stage 2 2 + 14/N, stage 3 16/N; 7.5B on 64 devices: 120, 31.4, 16.6 and 1.9 GB.
"""

from dataclasses import replace
from typing import ClassVar, cast

import numpy as np

from cost_models.engines.base import RowInstants, StateBytes, SyncPlan
from cost_models.engines.deepspeed_rules import deepspeed_rules, ulysses_rules
from cost_models.engines.group_bytes import DTYPE_BYTES
from cost_models.engines.options import DeepSpeedOptions, EngineOptions
from cost_models.engines.overlap_policy import OverlapPolicy
from cost_models.engines.rules import Rule, replaced
from cost_models.engines.space import Space
from cost_models.engines.torch_family import TorchFamily
from cost_models.host import NODE_STEP_BYTES_PER_S
from cost_models.mesh import MeshBatch
from cost_models.operators.base import ParameterGroup, Style
from cost_models.specs.job import Job
from cost_models.specs.model import ModelSpec
from cost_models.units import Num

FP32 = DTYPE_BYTES["fp32"]

INT8_BYTES = 1.0 + 4.0 / 2048
"""Bytes of a quantised weight on its way, with an fp32 scale for 2,048 (deepspeed/runtime/zero, CUDAQuantizer)."""

INT4_BYTES = 0.5 + 4.0 / 2048
"""Bytes of a quantised gradient on its way (Wang et al. 2023, section 3.3)."""


class DeepSpeed(TorchFamily):
    """The `deepspeed` engine; stage 1 by default, the highest that goes with every other axis."""

    name = "deepspeed"
    versions = ("0.4", "0.14", "0.19")
    stops_early: bool = False  # its checkpoints re-enter
    options_type: ClassVar[type[EngineOptions]] = DeepSpeedOptions
    can_step_early: ClassVar[bool] = False
    batch_source = (
        "deepspeed/runtime/config.py: train_batch_size = train_micro_batch_size_per_gpu x "
        "gradient_accumulation_steps x ranks"
    )
    degree_source = "deepspeed/utils/groups.py and deepspeed/runtime/pipe/topology.py"
    default_cp_kind = "ulysses"
    default_zero = 1
    eager_loss = True
    states_by_micro_batches = True  # stage 2 without overlap reduces after each of them
    keeps_stage_outputs = True  # runtime/pipe/engine.py, pipe_buffers["outputs"]

    @property
    def zero_settings(self) -> DeepSpeedOptions:
        """The typed options."""
        return cast(DeepSpeedOptions, self.options)

    @property
    def keeps_logits(self) -> bool:
        """Megatron-DeepSpeed's models run in the pipeline engine, whose buffers hold the last stage's outputs, fp32
        logits, until the backward has ended (runtime/pipe/engine.py, _exec_forward_pass), beside the softmax, which is
        made of a copy (megatron/mpu/cross_entropy.py)."""
        return self.zero_settings.modules == "megatron"

    @property
    def launches_by_module(self) -> bool:
        """As Megatron-LM's modules."""
        return self.zero_settings.modules == "megatron"

    def space(self, model: ModelSpec, job: Job) -> Space:
        """Stages 0 to 3 (0 and 1 with a pipeline), tensor parallel by the model, experts, 1F1B; whole layers are
        recomputed (gradient_checkpointing), and core attention alone by Megatron-DeepSpeed's modules."""
        apart = self.zero_settings.modules == "megatron" and "core_attn" in model.recompute_scopes
        return Space(
            zero=(0, 1, 2, 3),
            schedules=("1f1b",),
            scopes=((), ("core_attn",)) if apart else ((),),
            whole_layers=True,
            tensor=not model.is_vision,
            context=not model.is_vision,
            cp_kinds=("ulysses",),
            expert=model.is_moe,
            offload=("optimizer", "parameters"),
            act_offload=("checkpoints",),
        )

    def style(self, job: Job, cp_kind: str) -> Style:
        """As the torch engines; `engine.modules=megatron` is Megatron-DeepSpeed's fused kernels."""
        style = super().style(job, cp_kind)
        style = replace(style, checkpoints_divided=self.zero_settings.partition_activations)
        if self.zero_settings.modules != "megatron":
            return style
        return replace(
            style,
            fused_norm=True,
            fused_activation=True,
            fused_rope=True,
            softmax_fp32_copy=False,
            split_keeps_projection=True,
            cross_entropy_in_place=False,
            eager_loss=False,
            vocabulary_multiple=128,
        )

    def state_bytes(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> StateBytes:
        """16-bit weights and gradients, fp32 flat partitions of master weights and moments, by stage.

        Master weights exist under fp32 too (runtime/zero/stage_1_and_2.py, `single_partition_of_fp32_groups`). fp32
        copies of the rank's gradients live only in the step; hpz keeps a second 16-bit copy within a node.
        """
        zero, ways = meshes.zero, self.ways(group, meshes)
        weight = job.precision.activation_bytes
        gradient = self._local_gradient(job)
        moments = self._moment_bytes(group, job)
        narrow = weight < FP32
        master = np.where((zero >= 1) | narrow, FP32, 0.0)
        shard = np.where(zero >= 1, ways, 1.0)
        hpz = self.zero_settings.zero_hpz_partition_size
        second = weight / hpz if hpz > 1 else 0.0
        weights = np.where(zero == 3, weight / ways + second, weight)
        gradients = np.where(zero >= 2, gradient / ways, gradient + self._kept_narrow(job))
        # Stage 0 flattens a list of fp32 copies; 1 and 2 flatten what they average, and copy that.
        averaged = np.select([zero == 3, zero == 0], [0.0, FP32], gradient)
        copied = np.where(gradient < FP32, FP32 + averaged, averaged) / shard
        traffic = 2.0 * (master + moments) / shard + 2.0 * gradient / shard + weight
        resident = StateBytes(weights, gradients, (master + moments) / shard, copied, traffic)
        return self._offloaded(resident, meshes, (gradient, moments), shard)

    def frozen_bytes(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> StateBytes:
        """Stage 3 divides frozen weights, but not quantised ones (their shape and type are not the parameter's)."""
        whole = super(TorchFamily, self).frozen_bytes(group, meshes, job)
        divided = (meshes.zero == 3) & (not group.storage_bytes)
        ways = np.where(divided, self.ways(group, meshes), 1.0)
        if not meshes.key.offload.parameters:
            return replace(whole, weights=whole.weights / ways)
        host = 0.0 if self.zero_settings.offload_device == "nvme" else whole.weights / ways
        left = np.where(divided, 0.0, whole.weights)
        return replace(whole, weights=left, host=np.where(divided, host, 0.0))

    def frozen_plan(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> SyncPlan:
        """Stage 3 gathers divided weights forward and backward."""
        weight = 0.0 if group.storage_bytes else job.precision.activation_bytes
        moved = np.where(meshes.zero == 3, weight, 0.0)
        link = moved / self.ways(group, meshes) if meshes.key.offload.parameters else 0.0
        return SyncPlan(forward_gather=moved, backward_gather=moved, forward_link=link, backward_link=link)

    def built_bytes(self, group: ParameterGroup, job: Job) -> float:
        """In fp32 unless frozen: the engine casts what it gets (runtime/engine.py, _configure_distributed_model)."""
        return super(TorchFamily, self).built_bytes(group, job) if group.frozen else FP32

    def _kept_narrow(self, job: Job) -> float:
        """Bytes of a 16-bit gradient that stays beside its fp32 sum (runtime/bf16_optimizer.py, clear_lp_grads)."""
        narrow = job.precision.activation_bytes
        summed = self._local_gradient(job) > narrow
        return narrow if summed and not self.zero_settings.immediate_grad_update else 0.0

    def accumulation_bytes(self, job: Job) -> float:
        """The new gradient in the compute dtype, and the sum as it is kept."""
        return job.precision.activation_bytes + 2.0 * self._local_gradient(job)

    def _local_gradient(self, job: Job) -> float:
        """Bytes of a stored gradient: the compute dtype, or fp32 accumulation (data_types.grad_accum_dtype)."""
        return max(job.precision.activation_bytes, DTYPE_BYTES[self.settings.grad_dtype])

    def _offloaded(
        self, resident: StateBytes, meshes: MeshBatch, sizes: tuple[float, float], shard: Num
    ) -> StateBytes:
        """States on the host or on NVMe: fp32 master weights, gradients and moments; with `parameters` the rest too.

        From stage 2 gradients leave the device as they are reduced. Ren et al. 2021, section 4; Rajbhandari et al.
        2021, section 5. NVMe keeps nothing in host memory but moves what the step reads and writes at the node's rate.
        """
        offload = meshes.key.offload
        if offload.kind == "none":
            return resident
        gradient, moments = sizes
        share, nvme = offload.optimizer, self.zero_settings.offload_device == "nvme"
        rest = share * (2.0 * FP32 + moments) / shard
        traffic = share * (2.0 * (FP32 + moments) + FP32) / shard
        slower = NODE_STEP_BYTES_PER_S / self.zero_settings.nvme_bytes_per_s if nvme else 1.0
        left = replace(
            resident,
            gradients=resident.gradients * np.where(meshes.zero >= 2, 1.0 - share, 1.0),
            optimizer=resident.optimizer * (1.0 - share),
            step_transient=resident.step_transient * (1.0 - share),
            step_traffic=resident.step_traffic * (1.0 - share),
            host=0.0 * rest if nvme else rest,
            host_traffic=traffic * slower,
        )
        if not offload.parameters:
            return replace(left, host_link=share * (gradient + resident.weights) / shard)
        return replace(
            left,
            weights=0.0 * resident.weights,
            gradients=0.0 * resident.gradients,
            host=left.host + (0.0 if nvme else resident.weights),
        )

    def sync_plan(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> SyncPlan:
        """Stage 0 all-reduces, 1 reduces and gathers once a step; 2 reduces and 3 also gathers every micro-batch."""
        zero, weight = meshes.zero, job.precision.activation_bytes
        gradient, options = self._local_gradient(job), self.zero_settings
        narrow = INT8_BYTES / weight if options.zero_quantized_weights else 1.0
        behind = self._overlaps(stage=2)
        micro = 1.0 if behind else meshes.micro_batches(job.global_batch).astype(float)
        reduced = np.where((zero == 3) | ((zero == 2) & behind), gradient, 0.0)
        shown = np.where((zero == 2) & (not behind), gradient * micro, 0.0)
        plan = SyncPlan(
            reduce_scatter=np.where(zero == 1, gradient, shown),
            all_reduce=np.where(zero == 0, gradient, 0.0),
            all_gather=np.where((zero == 1) | (zero == 2), weight, 0.0),
            forward_gather=np.where(zero == 3, weight * narrow, 0.0),
            backward_gather=np.where((zero == 3) & (self.near_ranks == 1), weight * narrow, 0.0),
            near_gather=np.where((zero == 3) & (self.near_ranks > 1), weight * narrow, 0.0),
            micro_reduce=reduced * (INT4_BYTES / gradient if options.zero_quantized_gradients else 1.0),
        )
        if not meshes.key.offload.parameters:
            return plan
        ways = self.ways(group, meshes)
        return replace(plan, forward_link=weight / ways, backward_link=(weight + gradient) / ways)

    @property
    def near_ranks(self) -> int:
        """Ranks of a hierarchical partition (hpz), among which the backward gathers."""
        return self.zero_settings.zero_hpz_partition_size

    def host_buffer_bytes(self, elements: Num, meshes: MeshBatch) -> Num:
        """Buffers through which an optimizer on NVMe swaps: each holds one state of a sub-group in fp32.

        Source: runtime/swap_tensor/optimizer_utils.py; a sub-group is at most `sub_group_size` of the rank's partition.
        """
        options = self.zero_settings
        if options.offload_device != "nvme" or meshes.key.offload.kind == "none":
            return np.zeros(meshes.size)
        partition = elements / meshes.pp / (meshes.dp_shard * meshes.cp)
        return options.nvme_buffer_count * FP32 * np.minimum(options.sub_group_size, partition)

    def instants(self, rows: RowInstants, meshes: MeshBatch) -> RowInstants:
        """Buckets, live parameters and fp32 gradient copies (docs/engines.md).

        Running: stage 1 and 2 a contiguous gradient bucket, twice with overlap_comm; stage 3 one bucket, the running
        row, what is fetched ahead and what is used again soon: half the reuse distance before the turn from forward to
        backward; at most `stage3_max_live_parameters`, but at least the running row. Stepping: stage 1 and 2 a gather
        bucket; stage 3 copies fp32 gradients one sub-group at a time. Both are flat blocks of gigabytes that the
        caching allocator cannot cut from what activations leave, and it keeps them: they count while running too.
        """
        options, zero = self.zero_settings, meshes.zero
        size = DTYPE_BYTES["bf16"]
        whole = rows.whole / meshes.pp
        bucket = options.reduce_bucket_size * size if options.contiguous_gradients else 0.0
        flat = np.where(meshes.dp > 1, np.minimum(options.reduce_bucket_size, whole) * size, 0.0)
        doubled = bucket * (2.0 if self._overlaps(stage=2) else 1.0)
        # The first stage 1 flattens all gradients before they are scattered (runtime/zero/stage1.py of 0.4).
        first = whole * size if self.version == "0.4" else doubled
        buckets = np.select([zero == 3, zero == 0, zero == 1], [bucket, flat, first], doubled)
        ahead = options.stage3_max_reuse_distance / 2.0 + options.stage3_prefetch_bucket_size
        live = np.minimum(np.minimum(options.stage3_max_live_parameters, rows.elements + ahead), whole)
        held = np.where(zero == 3, np.maximum(rows.elements, live), 0.0) * size
        gradients = np.where(zero >= 2, rows.trained * size, 0.0)
        gather = np.minimum(options.allgather_bucket_size, whole) / np.maximum(whole, 1.0)
        once = np.where(((zero == 1) | (zero == 2)) & (meshes.dp > 1), gather * size, 0.0)
        partition = np.maximum(whole / (meshes.dp_shard * meshes.cp), 1.0)
        sub_group = np.where(zero == 3, np.minimum(options.sub_group_size / partition, 1.0), 1.0)
        stepping = rows.stepping * sub_group + rows.elements * once
        flat_step = stepping[list(rows.layers)].sum(0) / meshes.pp
        return replace(rows, gathered=held + gradients + buckets + flat_step, stepping=stepping)

    def can_sequence_parallel(self, model: ModelSpec) -> bool:
        """Megatron-DeepSpeed's modules shard sequences between products; AutoTP divides the products alone."""
        return self.zero_settings.modules == "megatron" and super().can_sequence_parallel(model)

    def send_ways(self, meshes: MeshBatch) -> Num:
        """Boundaries are divided over tensor-parallel ranks on their way (runtime/pipe/engine.py, pipe_partitioned)."""
        return np.where(meshes.sp == 0, meshes.tp, 1).astype(float)

    def _overlaps(self, stage: int) -> bool:
        """`overlap_comm`; auto is on at stage 3 alone (runtime/zero/config.py)."""
        choice = self.zero_settings.overlap_comm
        return choice == "on" or (choice == "auto" and stage == 3)

    def overlap(self) -> OverlapPolicy:
        """[Empirical] as the torch engines where communication overlaps; else nothing of a reduction hides."""
        policy = super().overlap()
        once, micro = self._overlaps(stage=1), self._overlaps(stage=3)
        return replace(
            policy,
            sync_overlap=policy.sync_overlap if once else 0.0,
            sync_exposed_min=policy.sync_exposed_min if once else 1.0,
            micro_overlap=policy.micro_overlap if micro else 0.0,
            micro_overlap_backward=policy.micro_overlap_backward if micro else 0.0,
        )

    def rules(self) -> tuple[Rule, ...]:
        """DeepSpeed's own refusals beside the common ones."""
        copies = self.zero_settings.modules != "megatron" and self.version == "0.19"
        rules = replaced(super().rules(), *ulysses_rules(copies))
        return (*rules, *deepspeed_rules(self.zero_settings))
