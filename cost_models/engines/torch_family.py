"""What the engines on plain torch.distributed share: fp32 parameters, compute-dtype copies, fp32 reduction."""

from dataclasses import replace
from typing import ClassVar, Final, cast

import numpy as np

from cost_models.engines.base import Engine, RowInstants, StateBytes, SyncPlan
from cost_models.engines.group_bytes import DTYPE_BYTES, moment_bytes
from cost_models.engines.options import EngineOptions, TorchOptions
from cost_models.engines.overlap_policy import OverlapPolicy
from cost_models.engines.rules import Rule, divides, fixed
from cost_models.engines.space import selective_bases
from cost_models.errors import InvalidJob
from cost_models.mesh import MeshBatch
from cost_models.operators.base import ParameterGroup, Style
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.job import Job, Optimizer
from cost_models.specs.model import ModelSpec
from cost_models.specs.offload import Offload
from cost_models.units import Num

PLAIN: Final = ("reference", "transformers")
"""Modules whose loss is torch.nn.functional.cross_entropy over fp32 logits."""


class TorchFamily(Engine):
    """Shared by the engines on torch.distributed: fp32 parameters, compute-dtype copies, fp32 reduction."""

    options_type: ClassVar[type[EngineOptions]] = TorchOptions
    eager_loss: ClassVar[bool] = False
    """Whether an unfused loss runs out of place, as torch.nn.functional.cross_entropy over fp32 logits does."""
    stops_early: bool = True
    can_step_early: ClassVar[bool] = True
    """Whether the optimizer can run inside the backward pass."""
    runs_experts_again: ClassVar[bool] = False
    """Whether activations of experts keep their inputs alone and compute the function again in backward."""
    copies_in_step: ClassVar[bool] = True
    """Whether the optimizer makes one more copy of its shard, as foreach optimizers do and fused ones do not."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.optimizer = job.optimizer

    def accumulation_bytes(self, job: Job) -> float:
        """The new gradient comes in the compute dtype; the sum has its own."""
        return job.precision.activation_bytes + 2.0 * self._gradient_bytes()

    def flat_copy_bytes(self, group: ParameterGroup, plan: SyncPlan, meshes: MeshBatch) -> Num:
        """FSDP2 copies a unit's shards into the message of a gather and the parameters out of it, the gradients, cast,
        into that of their reduction, and adds the reduced shard to those before
        (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py); copies run on the stream that computes. DeepSpeed
        does likewise (runtime/zero/partition_parameters.py, AllGatherCoalescedHandle, and stage3.py's buckets)."""
        ways = self.ways(group, meshes)
        gathered = np.asarray(plan.forward_gather) + plan.backward_gather
        reduced = np.where(np.asarray(plan.micro_reduce) > 0.0, plan.forward_gather + plan.micro_reduce, 0.0)
        copied_in = np.where(ways > 1, 1.0 / ways, 0.0)
        moved = 2.0 * gathered * (1.0 + copied_in) + reduced + 3.0 * plan.micro_reduce / ways
        return np.where(meshes.zero >= 2, moved, 0.0)

    @property
    def settings(self) -> TorchOptions:
        """The typed options."""
        return cast(TorchOptions, self.options)

    def style(self, job: Job, cp_kind: str) -> Style:
        """Eager torch keeps activation intermediates and the gathered inputs of column-parallel linears.

        An fp32 softmax is a copy only where the activations are narrower; compiled, all modules are
        fused.
        """
        options = self.settings
        library = options.modules == "transformers" and not options.compile
        plain = options.modules == "reference" and not options.compile
        narrow = job.precision.activation_bytes < DTYPE_BYTES["fp32"]
        return Style(
            flash_attention=options.attention != "unfused",
            softmax_fp32_copy=options.attention == "unfused" and narrow,
            fused_norm=not (library or plain),
            library=library,
            repeated_keys=plain,
            experts_run_again=self.runs_experts_again and options.modules == "fused",
            grouped_experts=library and options.grouped_experts,
            fused_activation=options.compile,
            fused_rope=options.compile,
            fused_cross_entropy=options.fused_cross_entropy,
            cross_entropy_chunks=options.cross_entropy_chunks,
            compiled_loss=options.compile,
            channels_first=not options.channels_last,
            shifted_logits=options.shifted_logits,
            logit_metrics=options.logit_metrics,
            logits_fp32=options.logits_fp32,
            eager_loss=(self.eager_loss or options.modules in PLAIN) and not options.fused_cross_entropy,
            sp_saves_shard=False,
            router_fp32=False,
            compute_bytes=job.precision.activation_bytes,
            dispatch_bytes=1.0 if job.options.moe_dispatch_dtype == "fp8" else job.precision.activation_bytes,
            deduplicated_dispatch=job.options.moe_dispatcher != "alltoall",
            expert_capacity_factor=job.options.moe_capacity_factor,
            cp_kind=cp_kind,
            aux_loss_one_hot=options.router_aux_loss,
            dropout=options.dropout,
            checkpoints_on_host=options.offload_checkpoints,
        )

    def built_bytes(self, group: ParameterGroup, job: Job) -> float:
        """Trained parameters are built as they are stored, frozen ones in the compute dtype or quantised."""
        return super().built_bytes(group, job) if group.frozen else self._parameter_bytes()

    def recompute_bases(self, model: ModelSpec) -> tuple[tuple[str, ...], ...]:
        """Selective scopes to try; core attention only where its scores are kept at all."""
        return selective_bases(model, (self.default_scopes,) if self.settings.attention == "unfused" else ())

    @property
    def steps_early(self) -> bool:
        """Whether every parameter is stepped as soon as its gradient is there."""
        return self.settings.optimizer_impl == "in_backward"

    @property
    def makes_copies(self) -> bool:
        """Whether the step makes one more copy of the optimizer's shard (torch/optim/adam.py, _multi_tensor_adam)."""
        choice = self.settings.optimizer_impl
        return self.copies_in_step if choice == "auto" else choice == "foreach"

    def check_job(self, model: ModelSpec, cluster: ClusterSpec, job: Job) -> None:
        """Engines that cannot step in backward refuse to."""
        super().check_job(model, cluster, job)
        if self.steps_early and not self.can_step_early:
            raise InvalidJob(
                f"engine.optimizer_impl=in_backward under {self.name}, which steps after the last backward; "
                "use auto or the fsdp2 engine",
                pointer="/job/options/engine.optimizer_impl",
            )

    def instants(self, rows: RowInstants, meshes: MeshBatch) -> RowInstants:
        """A row's own gradient where nothing else of the gradients stays, and what steps a table.

        A table is one parameter: beside its gradient stand two tensors of its size under AdamW (torch/optim/adam.py,
        _single_tensor_adam: the root of the second moment, and the same corrected), none in the kernel of 8-bit Adam.
        """
        if not self.steps_early:
            return rows
        own = np.where(meshes.zero >= 2, 0.0, self._gradient_bytes())
        gathered = rows.gathered + rows.trained * own
        if self.optimizer is Optimizer.ADAMW:
            edges = [0, -2, -1]
            each = np.where(meshes.zero >= 2, 0.0, 2.0 * self._parameter_bytes())
            gathered[edges] += rows.trained[edges] * each
        return replace(rows, gathered=gathered)

    def ways(self, group: ParameterGroup, meshes: MeshBatch) -> Num:
        """Ranks that share a group's sharded states."""
        ranks: Num = (meshes.expert_ranks if group.is_expert else meshes.dp_shard * meshes.cp).astype(float)
        return ranks

    def _parameter_bytes(self) -> float:
        return DTYPE_BYTES[self.settings.param_dtype]

    def _gradient_bytes(self) -> float:
        pure = self.settings.param_dtype == "bf16"
        return DTYPE_BYTES["bf16" if pure else self.settings.grad_dtype]

    def _moment_bytes(self, group: ParameterGroup, job: Job) -> float:
        pure = self.settings.param_dtype == "bf16" and self.settings.moment_dtype == "fp32"
        return moment_bytes(group, job.optimizer, "bf16" if pure else self.settings.moment_dtype)

    def state_bytes(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> StateBytes:
        """Bytes by ZeRO stage.

        0 and 1 keep a compute-dtype copy beside the master parameters; 2 and 3 shard everything at rest, and 2 also
        keeps the gathered parameters from forward to backward.
        """
        zero, ways = meshes.zero, self.ways(group, meshes)
        stored, gradient = self._parameter_bytes(), self._gradient_bytes()
        moments = self._moment_bytes(group, job)
        weight = min(job.precision.activation_bytes, stored)
        master = stored if weight < stored else 0.0
        shard = np.where(zero >= 1, ways, 1.0)
        at_rest = zero >= 2
        weights = np.where(at_rest, stored / ways + np.where(zero == 2, weight, 0.0), weight)
        optimizer = np.where(at_rest, moments / ways, (master + moments) / shard)
        gradients = np.where(at_rest, gradient / ways, gradient)
        traffic = 2.0 * (stored + moments) / shard + 2.0 * gradient / shard + weight
        # A tied table's gradient waits for its second half, from the head's backward to the embedding's.
        gradients = gradients * (0.0 if self.steps_early and not group.tie else 1.0)
        copied = stored / shard if self.makes_copies else 0.0 * shard
        resident = StateBytes(weights, gradients, optimizer, copied, traffic)
        offload = meshes.key.offload
        if offload.kind == "none":
            return resident
        returned = np.where(at_rest, stored, weight)
        return _offloaded(resident, offload, (stored, gradient, moments), shard, returned)

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
            **self._links(group, meshes),
        )

    def frozen_bytes(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> StateBytes:
        """ZeRO 2 and 3 divide frozen weights; quantised ones where they are stored as the compute dtype."""
        whole = super().frozen_bytes(group, meshes, job)
        divided = (meshes.zero >= 2) & _divides(group, job)
        shard = whole.weights / np.where(divided, self.ways(group, meshes), 1.0)
        kept = np.where(divided & (meshes.zero == 2), whole.weights, 0.0)
        if not meshes.key.offload.parameters:
            return replace(whole, weights=shard + kept)
        return replace(whole, weights=np.where(divided, kept, shard), host=np.where(divided, shard, 0.0))

    def frozen_plan(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> SyncPlan:
        """Divided frozen weights are gathered as they are stored."""
        weight = (group.storage_bytes or job.precision.activation_bytes) * _divides(group, job)
        plan = SyncPlan(
            forward_gather=np.where(meshes.zero >= 2, weight, 0.0),
            backward_gather=np.where(meshes.zero == 3, weight, 0.0),
        )
        if not meshes.key.offload.parameters:
            return plan
        ways = self.ways(group, meshes)
        return replace(
            plan, forward_link=plan.forward_gather / ways, backward_link=plan.backward_gather / ways
        )

    def _links(self, group: ParameterGroup, meshes: MeshBatch) -> dict[str, Num]:
        """Offloaded parameters come to the device before every gather, and gradients leave it after every reduction."""
        if not meshes.key.offload.parameters:
            return {}
        ways, stored = self.ways(group, meshes), self._parameter_bytes()
        again = np.where(meshes.zero == 3, stored, 0.0)
        return {"forward_link": stored / ways, "backward_link": (again + self._gradient_bytes()) / ways}

    def gathered_units(self, meshes: MeshBatch) -> Num:
        """The running layer and the prefetched one under ZeRO-3; the gradient's unsharded layer under 2."""
        return np.select([meshes.zero == 3, meshes.zero == 2], [2.0, 1.0], 0.0)

    @property
    def copy_overlap(self) -> float:
        """Nothing where the copies wait."""
        return super().copy_overlap if self.settings.offload_streams else 0.0

    def overlap(self) -> OverlapPolicy:
        """[Empirical] typical shares of bucketed reduction and prefetch."""
        on = self.settings.overlap
        return OverlapPolicy(
            hidden={
                "tp_gemm": 0.0,
                "tp_wgrad_gather": 0.0,
                "tp_wgrad": 0.0,  # autograd makes both gradients of a product before it hands one on
                "ep_dispatch": 0.0,
                "cp_ring": 0.7,
            },
            sync_overlap=0.7 if on else 0.0,
            sync_exposed_min=0.05 if on else 1.0,
            gather_overlap=0.0,
            gather_exposed_min=1.0,
            micro_overlap=0.8 if on else 0.0,
            micro_overlap_backward=0.8 if on else 0.0,
            send_shown=0.5,
        )

    def rules(self) -> tuple[Rule, ...]:
        """DTensor shards key/value heads whole."""
        source = "torch.distributed.tensor: attention heads are divided whole"
        heads = divides("kv_heads_tp", "tp", "num_key_value_heads", lambda f: f.kv_heads, source)
        kept = fixed(
            "offload_checkpoints_pp",
            "several micro-batches in flight share the host's buffers, which is not modelled",
            lambda facts, meshes: (meshes.pp > 1) & self.settings.offload_checkpoints,
            "engine.offload_checkpoints with pp {pp}",
            ("pp 1", "engine.offload_checkpoints=false"),
        )
        if not self.steps_early:
            return (*super().rules(), heads, kept)
        early = fixed(
            "optimizer_in_backward",
            "torch.distributed.optim._apply_optimizer_in_backward: gradients cannot be accumulated",
            lambda facts, meshes: meshes.micro_batches(facts.job.global_batch) > 1,
            "engine.optimizer_impl=in_backward with mbs {mbs} and dp {dp} takes several micro-batches a step",
            ("one micro-batch a step: global batch mbs x dp", "engine.optimizer_impl=auto"),
        )
        return (*super().rules(), heads, kept, early)


def _divides(group: ParameterGroup, job: Job) -> bool:
    """Whether FSDP can divide a frozen group: quantised weights only in a storage type that matches the others'."""
    return not group.storage_bytes or job.trainable.storage == "compute"


def _offloaded(
    resident: StateBytes, offload: Offload, sizes: tuple[float, float, float], shard: Num, returned: Num
) -> StateBytes:
    """The same states with a share on the host, which then does the optimizer step for that share.

    The host keeps fp32 parameters, gradients and moments of its share (Ren et al. 2021, section 4.1: gradients go down
    and updated parameters come back once a step). With `parameters` the device holds only what is gathered, and nothing
    moves at the step.
    """
    stored, gradient, moments = sizes
    share = offload.optimizer
    host = share * (stored + gradient + moments) / shard
    traffic = share * (2.0 * (stored + moments) + gradient) / shard
    left = replace(
        resident,
        optimizer=resident.optimizer * (1.0 - share),
        step_transient=resident.step_transient * (1.0 - share),
        step_traffic=resident.step_traffic * (1.0 - share),
        host=host,
        host_traffic=traffic,
    )
    if not offload.parameters:
        return replace(left, host_link=share * (gradient + returned) / shard)
    weights = resident.weights - stored / shard
    return replace(left, weights=weights, gradients=0.0 * resident.gradients)
