"""What a training framework does with a strategy: defaults, legality, state bytes, kernel style, overlap.

The same strategy costs different memory under different frameworks, and different things are legal. One engine a
file; everything here is shared.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cost_models.engines.common_rules import common_rules
from cost_models.engines.context_rules import context_rules
from cost_models.engines.group_rules import usable_groups
from cost_models.engines.offload_rules import offload_rules
from cost_models.engines.options import EngineOptions
from cost_models.engines.overlap_policy import OverlapPolicy
from cost_models.engines.precision import check_dispatcher, check_precision
from cost_models.engines.rules import Facts, Rule
from cost_models.engines.space import Space
from cost_models.engines.stage_rules import stage_violations
from cost_models.errors import IllegalStrategy, InvalidJob, Violation
from cost_models.mesh import MeshBatch, batch_of, mesh_key
from cost_models.operators.base import ParameterGroup, Style
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.job import Job, parse_options
from cost_models.specs.model import ModelSpec
from cost_models.specs.strategy import Strategy
from cost_models.units import MIB, Num

COPY_OVERLAP = 0.8
"""[Empirical] share of a block's kernels that copies on streams of their own hide behind: assumed as FSDP's prefetch,
which is issued the same way; to be measured."""


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Bytes per element on the rank that a parameter group leaves there, and seconds-relevant traffic.

    `weights`, `gradients`, `optimizer` are bytes per element of the group's local (tensor-, expert-parallel) shard;
    `step_transient` lives only in the optimizer step; `step_traffic` is what the optimizer step reads and writes.
    With offload, `host` bytes rest in the host's memory, whose optimizer step reads and writes `host_traffic` and
    moves `host_link` bytes between host and device.
    """

    weights: Num
    gradients: Num
    optimizer: Num
    step_transient: Num
    step_traffic: Num
    host: Num = 0.0
    host_traffic: Num = 0.0
    host_link: Num = 0.0


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """How gradients and parameters travel over data-parallel ranks, in bytes per local element.

    Once a step: `reduce_scatter`, `all_reduce`, `all_gather`. Once a micro-batch (sharded engines): all-gathers of
    `forward_gather` and `backward_gather` bytes and one reduce-scatter of `micro_reduce` bytes; `near_gather` bytes are
    gathered before the backward among the engine's `near_ranks` alone; with offloaded parameters `forward_link` and
    `backward_link` bytes between host and device. A parameter server takes `server` bytes from every worker and sends
    as many back.
    """

    reduce_scatter: Num = 0.0
    all_reduce: Num = 0.0
    all_gather: Num = 0.0
    forward_gather: Num = 0.0
    backward_gather: Num = 0.0
    near_gather: Num = 0.0
    micro_reduce: Num = 0.0
    forward_link: Num = 0.0
    backward_link: Num = 0.0
    server: Num = 0.0


@dataclass(frozen=True, slots=True)
class RowInstants:
    """Parameters of every row on one rank, and what lives beside states and activations; arrays (rows, B).

    `elements` are local elements, `trained` those that are trained, `gathered` the bytes that a row gathers and
    reduces while it runs, `stepping` the bytes that live only in the optimizer step; `layers` is the row of every
    layer, embedding and head included. Gradients that wait whole for their reduction come with the
    backward pass: a row's `own`, and at most `waiting` of all rows.
    """

    elements: NDArray[np.float64]
    gathered: NDArray[np.float64]
    stepping: NDArray[np.float64]
    layers: tuple[int, ...]
    trained: NDArray[np.float64]
    own: Num = 0.0
    waiting: Num = 0.0

    @property
    def whole(self) -> NDArray[np.float64]:
        """Local elements of all layers together, (B,)."""
        total: NDArray[np.float64] = self.elements[list(self.layers)].sum(0)
        return total


class Engine(ABC):
    """One training framework at one version with its options."""

    name: ClassVar[str]
    versions: ClassVar[tuple[str, ...]]
    options_type: ClassVar[type[EngineOptions]] = EngineOptions
    default_zero: ClassVar[int] = 0
    default_scopes: ClassVar[tuple[str, ...]] = ("core_attn",)
    default_cp_kind: ClassVar[str] = "ring"
    batch_source: ClassVar[str] = (
        "loops divide the loss by the number of micro-batches and data parallel averages over ranks, so that sequences "
        "of a smaller micro-batch would weigh more"
    )
    """Why the engine takes micro-batches of one size alone."""
    degree_source: ClassVar[str] = "every rank of a degree holds an equal part"
    """Where the engine divides devices, heads, experts and layers by its degrees."""
    workspace_bytes: ClassVar[float] = 64 * MIB
    """[Empirical] GEMM workspaces and small buffers of a rank: Megatron-Core CI runs (profiles/published) keep 30 to
    100 MiB beside their states."""

    def __init__(self, job: Job) -> None:
        self.version = job.engine_version or self.versions[-1]
        if self.version not in self.versions:
            raise InvalidJob(
                f"engine {self.name} has no version {self.version:.40}; use {' or '.join(self.versions)}",
                pointer="/job/engine",
                allowed=tuple(f"{self.name}@{v}" for v in self.versions),
            )
        self.options = parse_options(self.options_type, job.engine_options, prefix="engine")

    def check_job(self, model: ModelSpec, cluster: ClusterSpec, job: Job) -> None:
        """Refuse jobs that no strategy of this engine could run; raises InvalidJob."""
        if not usable_groups(cluster, job.precision.value):
            check_precision(cluster.device, job.precision)
        check_dispatcher(cluster.device, job)
        if job.global_batch < 1:
            raise InvalidJob(f"global batch {job.global_batch}; give at least 1", pointer="/job/global_batch")

    def staged(self, model: ModelSpec) -> ModelSpec:
        """The model as the engine's stages count it: every block, and prediction layers with the head."""
        if model.mtp_in_stages or model.towers_with_embedding:
            return model.model_copy(update={"mtp_in_stages": False, "towers_with_embedding": False})
        return model

    @abstractmethod
    def space(self, model: ModelSpec, job: Job) -> Space:
        """What the search may try."""

    @abstractmethod
    def state_bytes(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> StateBytes:
        """Bytes per local element of a parameter group."""

    @abstractmethod
    def sync_plan(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> SyncPlan:
        """Data-parallel traffic of a parameter group."""

    def group_bytes(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> StateBytes:
        """Bytes per local element of a group, frozen or trained."""
        return (self.frozen_bytes if group.frozen else self.state_bytes)(group, meshes, job)

    def group_plan(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> SyncPlan:
        """Data-parallel traffic of a group, frozen or trained."""
        return (self.frozen_plan if group.frozen else self.sync_plan)(group, meshes, job)

    def frozen_bytes(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> StateBytes:
        """A frozen group keeps its weights in the compute dtype or quantised, whole over data-parallel ranks."""
        none = np.zeros(meshes.size)
        weight = group.storage_bytes or job.precision.activation_bytes
        return StateBytes(none + weight, none, none, none, none)

    def frozen_plan(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> SyncPlan:
        """Frozen weights that every rank holds whole do not travel."""
        return SyncPlan()

    @abstractmethod
    def style(self, job: Job, cp_kind: str) -> Style:
        """How operators run."""

    @abstractmethod
    def overlap(self) -> OverlapPolicy:
        """What hides behind what."""

    def rules(self) -> tuple[Rule, ...]:
        """Legality rules of this engine, the common ones first."""
        common = common_rules(self.batch_source, self.degree_source)
        return (*common, *offload_rules(self.space), *context_rules(self.space))

    def can_sequence_parallel(self, model: ModelSpec) -> bool:
        """Whether sequence parallelism is on by default with tensor parallelism."""
        return not model.is_vision

    def gathered_units(self, meshes: MeshBatch) -> Num:
        """How many layers' unsharded parameters a rank holds while it runs (sharded engines); 0 for the others."""
        return np.zeros(meshes.size)

    shards_by_unit: ClassVar[bool] = False
    """Whether layers are gathered and reduced one by one as `unit_instants` says, instead of by `gathered_units`."""
    stops_early: bool = False
    """Whether a full recompute ends with the last saved tensor of a layer (checkpoints without re-entrance)."""
    contiguous_states: ClassVar[bool] = False
    """Whether weights and gradients lie in a few buffers made once, which leave the allocator nothing to fragment."""
    keeps_stage_outputs: ClassVar[bool] = False
    """Whether a pipeline stage keeps what it sent until the backward of the micro-batch."""
    late_gradients: ClassVar[bool] = True
    """Whether shards of gradients that do not exist yet are left out before a step's only backward pass."""
    states_by_micro_batches: ClassVar[bool] = False
    """Whether the traffic of parameter states tells two micro-batches from three."""
    keeps_head: ClassVar[bool] = False
    """Whether the head's gathered weights stay through the loss, up to its backward."""

    @property
    def keeps_logits(self) -> bool:
        """Whether logits stay to the end of the last stage's backward."""
        return False

    @property
    def copy_overlap(self) -> float:
        """Share of a block's kernels that copies of its offloaded activations hide behind."""
        return COPY_OVERLAP

    @property
    def launches_by_module(self) -> bool:
        """Whether every operator is a Python module, whose launch costs the host its time (roofline's `module_s`)."""
        return False

    def step_seconds(self, meshes: MeshBatch) -> Num:
        """Seconds that a step spends outside its schedule on the engine's own account, (B,)."""
        return np.zeros(meshes.size)

    def accumulation_bytes(self, job: Job) -> float:
        """Bytes that adding one element's gradient to those of earlier micro-batches moves, where no product does it:
        the new one and the sum are read, the sum is written."""
        return 0.0

    def flat_copy_bytes(self, group: ParameterGroup, plan: SyncPlan, meshes: MeshBatch) -> Num:
        """Bytes that one element moves in a micro-batch between its parameter and flat messages, beside the products;
        none where messages are views of the parameters."""
        return 0.0

    def instants(self, rows: RowInstants, meshes: MeshBatch) -> RowInstants:
        """What lives beside states and activations; engines add buffers and units that outlive their row."""
        return rows

    def built_bytes(self, group: ParameterGroup, job: Job) -> float:
        """Bytes of an element as the model is built and as a checkpoint holds it."""
        return group.storage_bytes or job.precision.activation_bytes

    @property
    def near_ranks(self) -> int:
        """Ranks near each other that hold a copy of all parameters together; 1 where there is no such copy."""
        return 1

    def host_buffer_bytes(self, elements: Num, meshes: MeshBatch) -> Num:
        """Bytes of host memory beside offloaded states, of a rank whose model has so many local elements, (B,)."""
        return np.zeros(meshes.size)

    def usual_zero(self, pp: int) -> int:
        """The ZeRO stage of a strategy that names none."""
        return self.default_zero

    def constant_bytes(
        self, architecture: str, model: ModelSpec, job: Job, meshes: MeshBatch
    ) -> NDArray[np.float64]:
        """Bytes that a rank allocates beside its tensors, whatever its layers, (B,)."""
        return np.full(meshes.size, float(self.workspace_bytes))

    def send_ways(self, meshes: MeshBatch) -> Num:
        """Ways in which a boundary tensor is divided for its way to the next stage, and gathered there."""
        return np.ones(meshes.size)

    def violations(self, facts: Facts, strategy: Strategy) -> tuple[Violation, ...]:
        """Broken rules of one complete strategy, each with the numbers and the nearest legal values."""
        meshes = batch_of([strategy], mesh_key(strategy))
        rules, mesh = self.rules(), meshes.row(0)
        if (
            len(strategy.stages) == strategy.pp * strategy.vpp
            and sum(strategy.stages) == facts.model.num_blocks
        ):
            rules = tuple(rule for rule in rules if rule.name != "layers_stages")  # `stages_empty` knows more
        found = [r.explain(facts, mesh, strategy, rules) for r in rules if r.broken(facts, meshes)[0]]
        behind = stage_violations(facts, strategy, self.space(facts.model, facts.job))
        return _without_echoes((*found, *behind))

    def check_strategy(self, facts: Facts, strategy: Strategy) -> None:
        """Raise IllegalStrategy where a rule is broken."""
        broken = self.violations(facts, strategy)
        if broken:
            raise IllegalStrategy(broken)


_ECHOES = {
    "layers_stages": ("stages_count",),
    "batch": ("schedule", "torchtitan_micro_batches"),
    "device_groups": ("world_size",),
    "experts_need_moe": ("expert_ranks",),
    "expert_ranks": ("torchtitan_expert_shards",),
    "deepspeed_vpp": ("schedule", "deepspeed_schedule"),
    **dict.fromkeys(("fsdp1_pp", "fsdp1_vpp", "fsdp2_pp", "ddp_pp", "ddp_vpp"), ("schedule",)),
}
"""A broken rule and those that then break for the same reason, with a misleading sentence."""


def _without_echoes(found: tuple[Violation, ...]) -> tuple[Violation, ...]:
    """Violations without those that only repeat another one."""
    names = {violation.rule for violation in found}
    echoes = {echo for rule in names for echo in _ECHOES.get(rule, ())}
    return tuple(violation for violation in found if violation.rule not in echoes)


def option_values(engine: Engine, job: Job) -> dict[str, Any]:
    """Every option with its effective value, as echoed in answers."""
    engine_options = {f"engine.{k}": v for k, v in engine.options.model_dump().items()}
    return {f"job.{k}": v for k, v in job.options.model_dump().items()} | engine_options
