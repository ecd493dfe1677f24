"""torchtitan: FSDP2 with tensor, context, pipeline and expert parallelism (Liang et al. 2024).

Without a pipeline its states are FSDP2's. Under a pipeline, only the last micro-batch reshards and reduces
(torch/distributed/pipelining/stage.py, `backward_maybe_with_nosync`), so gathered parameters and whole gradients in the
reduction's dtype stay until then: 6 + 12 / D bytes a parameter with AdamW. Reduced gradients come when whole ones go.
"""

from dataclasses import replace
from typing import ClassVar, cast

import numpy as np

from cost_models.dropped import PER_OP
from cost_models.engines.base import StateBytes, SyncPlan
from cost_models.engines.batch_rules import sequence_rule
from cost_models.engines.options import EngineOptions, TorchtitanOptions
from cost_models.engines.overlap_policy import OverlapPolicy
from cost_models.engines.rules import Facts, Rule, fixed, nearest_values, only, replaced, runs
from cost_models.engines.space import Space
from cost_models.engines.torch_family import TorchFamily
from cost_models.errors import InvalidJob
from cost_models.mesh import SCHEDULES, Bool, MeshBatch
from cost_models.operators.base import ParameterGroup, Style
from cost_models.schedule.names import ScheduleName
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.job import Job, Precision
from cost_models.specs.model import ModelSpec
from cost_models.specs.strategy import Strategy, divisors
from cost_models.units import Num

SOURCE = "torchtitan/distributed/parallel_dims.py"
PIPELINING = (
    "torch/distributed/pipelining/schedules.py Schedule1F1B: at least as many micro-batches as stages"
)

PLAIN_SCHEDULES = (ScheduleName.ONE_F_ONE_B, ScheduleName.INTERLEAVED, ScheduleName.GPIPE, ScheduleName.ZB_V)


class Torchtitan(TorchFamily):
    """The `torchtitan` engine; `selective` recompute is operator by operator."""

    name = "torchtitan"
    batch_source = (
        "torchtitan/trainer.py: the global batch is a multiple of local batch size x data-parallel degree"
    )
    degree_source = SOURCE
    versions = ("0.1", "0.2", "0.3")
    stops_early: bool = False  # activation_checkpoint.early_stop is off by default
    options_type: ClassVar[type[EngineOptions]] = TorchtitanOptions
    default_zero = 3
    shards_by_unit = True
    copies_in_step = False  # optimizer.implementation is fused by default
    keeps_head = True
    late_gradients = (
        False  # reserved figures of its users hold them: they are allocated in a stream of their own
    )
    eager_loss = True
    default_scopes = (PER_OP,)
    default_cp_kind = "allgather"  # torch's own default, and what 0.3 leaves it at

    @property
    def titan(self) -> TorchtitanOptions:
        """The typed options."""
        return cast(TorchtitanOptions, self.options)

    @property
    def schedules(self) -> tuple[ScheduleName, ...]:
        """Schedules of the version: DualPipeV came with 0.2."""
        return PLAIN_SCHEDULES if self.version == "0.1" else (*PLAIN_SCHEDULES, ScheduleName.DUALPIPE_V)

    def check_job(self, model: ModelSpec, cluster: ClusterSpec, job: Job) -> None:
        """Options that need each other; raises InvalidJob."""
        super().check_job(model, cluster, job)
        if self.titan.async_tp and not self.titan.compile:
            raise InvalidJob(
                "engine.async_tp=true without compilation: the compiler makes it; set engine.compile=true",
                pointer="/job/options/engine.async_tp",
            )
        if self.titan.float8_all_gather and job.precision is not Precision.FP8:
            raise InvalidJob(
                f"engine.float8_all_gather=true with precision {job.precision.value}; use precision fp8",
                pointer="/job/options/engine.float8_all_gather",
            )

    def style(self, job: Job, cp_kind: str) -> Style:
        """As the torch engines; copies of tokens are weighted in fp32 outside the grouped product, and operands of fp8
        products are gathered as they are multiplied (torchao, float8_tensor_parallel.py)."""
        return replace(
            super().style(job, cp_kind),
            weighted_copies=2.0 if self.titan.compile else 4.0,
            gathered_bytes=job.precision.gemm_bytes if job.precision is Precision.FP8 else 0.0,
        )

    def ways(self, group: ParameterGroup, meshes: MeshBatch) -> Num:
        """Replicas hold all experts again."""
        return super().ways(group, meshes) / (meshes.dp_replicate if group.is_expert else 1.0)

    def usual_zero(self, pp: int) -> int:
        """`fsdp_reshard_after_forward`: by default parameters are kept where there is a pipeline."""
        policy = self.titan.reshard_after_forward
        keeps = pp > 1 if policy == "default" else policy == "never"
        return 2 if keeps else 3

    def space(self, model: ModelSpec, job: Job) -> Space:
        """Every axis of the version; recompute none, operator by operator, or full."""
        policy = self.titan.reshard_after_forward
        tokens = not model.is_vision
        own = (PER_OP,) if any(kind.scopes for kind in model.kinds.values()) else ()
        return Space(
            zero={"always": (3,), "never": (2,)}.get(policy, (2, 3)),
            schedules=tuple(schedule.value for schedule in self.schedules),
            scopes=((), own) if own else ((),),
            tensor=tokens,
            context=tokens,
            cp_kinds=(
                "allgather",
                "ring",
                "ulysses",
            ),  # the default first: it stands where nothing is divided
            expert=model.is_moe and self.version != "0.1",
            offload=("parameters",),
            own_scopes=own,
            lone_ends=self.version != "0.1",  # module_fqns_per_model_part
        )

    def state_bytes(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> StateBytes:
        """FSDP2's; with a pipeline gathered parameters and whole gradients stay from first to last micro-batch."""
        state = super().state_bytes(group, meshes, job)
        piped = meshes.pp > 1
        weight = min(job.precision.activation_bytes, self._parameter_bytes())
        gathered = np.where(piped & (meshes.zero == 3), weight, 0.0)
        gradients = np.where(piped, self._gradient_bytes(), state.gradients)
        return replace(state, weights=state.weights + gathered, gradients=gradients)

    def sync_plan(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> SyncPlan:
        """FSDP2's; with a pipeline one reduction a step, and one gather where parameters are kept."""
        plan = super().sync_plan(group, meshes, job)
        piped, kept = meshes.pp > 1, (meshes.pp > 1) & (meshes.zero == 2)
        narrow = 0.5 if self.titan.float8_all_gather and group.matrix and not group.rows else 1.0
        forward, backward = plan.forward_gather * narrow, plan.backward_gather * narrow
        return replace(
            plan,
            all_gather=np.where(kept, forward, plan.all_gather),
            forward_gather=np.where(kept, 0.0, forward),
            backward_gather=backward,
            reduce_scatter=np.where(piped, plan.micro_reduce, plan.reduce_scatter),
            micro_reduce=np.where(piped, 0.0, plan.micro_reduce),
        )

    def overlap(self) -> OverlapPolicy:
        """[Empirical] as the torch engines; asynchronous tensor parallelism pipelines gathers with products, and
        DualPipeV exchanges a micro-batch's tokens while another one's backward computes."""
        policy = super().overlap()
        if self.titan.async_tp:
            policy = replace(policy, hidden={**policy.hidden, "tp_gemm": 0.6})
        overlaps = self.titan.ep_overlap and self.version not in ("0.1", "0.2")
        # OVERLAP_F_B is one action of torch's schedule, whether its two passes run side by side or in turn.
        pairs = frozenset({ScheduleName.DUALPIPE_V})
        return replace(policy, pair_schedules=pairs, pair_overlap=0.8 if overlaps else 0.0)

    def _cp_rule(self) -> Rule:
        """Context parallelism of torch gathers keys and values, or hands them round; 0.3 has no word for the latter."""
        kinds = ("allgather",) if self.version == "0.3" else ("allgather", "ring")

        def breaks(facts: Facts, meshes: MeshBatch) -> Bool:
            bad: Bool = (meshes.cp > 1) & (meshes.key.cp_kind not in kinds)
            return bad

        def sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
            near = tuple(f"cp_kind={kind}" for kind in kinds)
            return (
                f"cp_kind {strategy.cp_kind} with cp {mesh['cp']} is not in torchtitan {self.version}",
                near,
            )

        return Rule("torchtitan_cp_kind", "torchtitan/config/configs.py, ParallelismConfig", breaks, sentence)

    def rules(self) -> tuple[Rule, ...]:
        """What the version has: sharded states, its schedules, experts since 0.2, no tensor parallel experts."""
        experts = "no experts before 0.2" if self.version == "0.1" else ""
        found = [
            *super().rules(),
            only("torchtitan_zero", "zero", (2, 3), "is not sharded: use the ddp or torch engine", SOURCE),
            runs("torchtitan_schedule", self.schedules, "torchtitan/distributed/pipeline_parallel.py"),
            only("torchtitan_etp", "etp", (1,), "does not exist: experts are divided by ep alone", SOURCE),
            Rule("torchtitan_micro_batches", PIPELINING, _few_micro_batches, _micro_batches_sentence),
            self._cp_rule(),
            _divided_experts(),
        ]
        if experts:
            found.append(only("torchtitan_ep", "ep", (1,), f"given, but torchtitan has {experts}", SOURCE))
        if self.version != "0.3":
            found.append(_always_sequence_parallel())
        return replaced(tuple(found), sequence_rule(2, "torchtitan/trainer.py: seq_len_divisor"))


def _always_sequence_parallel() -> Rule:
    """Before 0.3 and its enable_sequence_parallel."""
    return fixed(
        "torchtitan_sp",
        "torchtitan before 0.3: parallelize_llama runs norms on sequence shards with tensor parallelism",
        lambda facts, meshes: (meshes.tp > 1) & (meshes.sp == 0) & (not facts.model.is_vision),
        "sp=false with tp {tp}: torchtitan runs norms on sequence shards before 0.3",
        ("sp=true", "tp 1", "engine torchtitan@0.3"),
    )


def _divided_experts() -> Rule:
    """Experts are divided over the ranks that share one copy of the states: replicas hold all of them again."""

    def broken(facts: Facts, meshes: MeshBatch) -> Bool:
        shared = meshes.dp_shard * meshes.cp * meshes.tp
        bad: Bool = (meshes.dp_replicate > 1) & (shared % meshes.ep != 0)
        return bad

    def sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
        shared = mesh["dp_shard"] * mesh["cp"] * mesh["tp"]
        product = f"dp_shard {mesh['dp_shard']} x cp {mesh['cp']} x tp {mesh['tp']} = {shared}"
        legal = tuple(d for d in divisors(shared) if facts.model.num_experts % d == 0)
        nearest = (*nearest_values("ep", legal, mesh["ep"]), "dp_replicate 1")
        return f"{product} is not divisible by ep {mesh['ep']}", nearest

    return Rule("torchtitan_expert_shards", f"{SOURCE}: efsdp = dp_shard x cp x tp / ep", broken, sentence)


def _few_micro_batches(facts: Facts, meshes: MeshBatch) -> Bool:
    """Torch's 1F1B fills its warm-up with a micro-batch a stage; GPipe takes fewer."""
    plain = meshes.schedule == SCHEDULES.index(ScheduleName.ONE_F_ONE_B)
    bad: Bool = plain & (meshes.pp > 1) & (meshes.micro_batches(facts.job.global_batch) < meshes.pp)
    return bad


def _micro_batches_sentence(
    facts: Facts, mesh: dict[str, int], strategy: object
) -> tuple[str, tuple[str, ...]]:
    batch, dp, mbs, pp = facts.job.global_batch, mesh["dp"], mesh["mbs"], mesh["pp"]
    there, least = batch // (mbs * dp), pp * mbs * dp
    fewer = f"pp {there} or less" if there > 1 else "pp 1"
    return (
        f"{there} micro-batches (local batch {batch // dp} / mbs {mbs}) for {pp} stages of 1f1b",
        (f"global batch {least} or more", "schedule=gpipe", fewer),
    )
