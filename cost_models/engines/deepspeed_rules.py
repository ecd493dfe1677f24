"""What DeepSpeed refuses, and what it accepts and then does wrong."""

import numpy as np

from cost_models.engines.batch_rules import sequence_rule
from cost_models.engines.options import DeepSpeedOptions
from cost_models.engines.rules import Facts, Rule, fixed, nearest_values, only, runs
from cost_models.mesh import Bool, MeshBatch
from cost_models.schedule.names import ScheduleName
from cost_models.specs.strategy import Strategy, divisors

PIPE = "deepspeed/runtime/pipe/engine.py: ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism"
CONFIG = "deepspeed/runtime/zero/config.py"
ENGINE = "deepspeed/runtime/engine.py"
ULYSSES = "deepspeed/runtime/sequence_parallel/ulysses_sp.py"


def _copied_heads() -> Rule:
    """UlyssesSPAttentionHF: heads divide by the ranks; fewer key/value heads than ranks are copied."""

    def broken(facts: Facts, meshes: MeshBatch) -> Bool:
        bad = np.zeros(meshes.size, dtype=bool)
        if meshes.key.cp_kind == "ulysses":
            for heads in facts.heads:
                bad |= (meshes.cp > 1) & (heads % meshes.cp != 0)
            for heads in facts.kv_heads:
                bad |= (meshes.cp > 1) & (heads % meshes.cp != 0) & (meshes.cp % heads != 0)
        return bad

    def sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
        cp, common = mesh["cp"], int(np.gcd.reduce(facts.heads))
        legal = tuple(n for n in divisors(common) if all(h % n == 0 or n % h == 0 for h in facts.kv_heads))
        detail = f"cp_kind ulysses divides heads {facts.heads} and kv heads {facts.kv_heads} over cp {cp}, which does "
        return f"{detail}not go", nearest_values("cp", legal, cp)

    return Rule("ulysses_heads", f"{ULYSSES}: kv_replication_factor", broken, sentence)


def ulysses_rules(copies_heads: bool) -> tuple[Rule, ...]:
    """Sequences divide into one part a rank; key/value heads divide too, unless the version copies them."""
    whole = sequence_rule(1, f"{ULYSSES}: batch's seqlen isn't divisible by sp-size")
    return (whole, _copied_heads()) if copies_heads else (whole,)


def deepspeed_rules(options: DeepSpeedOptions) -> tuple[Rule, ...]:
    """Rules of stages, axes, offload and hpz."""
    return (
        fixed(
            "deepspeed_pp_zero",
            PIPE,
            lambda facts, meshes: (meshes.pp > 1) & (meshes.zero > 1),
            "zero {zero} with pp {pp}: pipelines take ZeRO 0 or 1",
            ("zero 0 or 1", "pp 1"),
        ),
        runs("deepspeed_schedule", (ScheduleName.ONE_F_ONE_B,), "deepspeed/runtime/pipe/schedule.py"),
        only("deepspeed_vpp", "vpp", (1,), "does not exist: pipelines are not interleaved", PIPE),
        only("deepspeed_etp", "etp", (1,), "does not exist: experts are divided by ep alone", ENGINE),
        only(
            "deepspeed_replicas",
            "dp_replicate",
            (1,),
            "needs MiCS, which 0.19 refuses and no version here models: use engine.zero_hpz_partition_size",
            CONFIG,
        ),
        *_axis_rules(options),
        *_offload_rules(),
        *_hpz_rules(options.zero_hpz_partition_size),
    )


def _axis_rules(options: DeepSpeedOptions) -> tuple[Rule, ...]:
    """What expert, tensor and sequence parallelism go with."""
    return (
        fixed(
            "deepspeed_moe_zero",
            f"{ENGINE}: MoE is not supported with stage 3",
            lambda facts, meshes: (meshes.ep > 1) & (meshes.zero == 3),
            "zero 3 with ep {ep}: expert parallelism takes ZeRO 0 to 2",
            ("zero 2", "ep 1"),
        ),
        fixed(
            "deepspeed_tp_zero",
            "deepspeed AutoTP training takes ZeRO 0 to 2",
            lambda facts, meshes: (meshes.tp > 1) & (meshes.zero == 3),
            "zero 3 with tp {tp}: tensor parallelism takes ZeRO 0 to 2",
            ("zero 2", "tp 1"),
        ),
        fixed(
            "deepspeed_sp",
            "deepspeed/module_inject/auto_tp.py: products are divided, activations between them are not",
            lambda facts, meshes: (meshes.sp > 0) & (meshes.tp > 1) & (options.modules != "megatron"),
            "sp=true with tp {tp}: AutoTP has no sequence parallelism",
            ("sp=false", "engine.modules=megatron"),
        ),
        fixed(
            "deepspeed_cp_kind",
            "sequence_parallel_size is Ulysses (Jacobs et al. 2023)",
            lambda facts, meshes: (meshes.cp > 1) & (meshes.key.cp_kind != "ulysses"),
            "cp {cp} without cp_kind=ulysses",
            ("cp_kind=ulysses", "cp 1"),
        ),
        fixed(
            "deepspeed_cp_axes",
            "Megatron-DeepSpeed parallel_state.py: sequence parallel goes with data parallel alone",
            lambda facts, meshes: (meshes.cp > 1) & ((meshes.tp > 1) | (meshes.pp > 1)),
            "cp {cp} (sequence_parallel_size) with tp {tp} and pp {pp}",
            ("cp 1", "tp 1 and pp 1"),
        ),
    )


def _offload_rules() -> tuple[Rule, ...]:
    def parameters(facts: Facts, meshes: MeshBatch) -> Bool:
        bad: Bool = meshes.zero != 3
        return bad & meshes.key.offload.parameters

    def optimizer(facts: Facts, meshes: MeshBatch) -> Bool:
        bad: Bool = meshes.zero == 0
        return bad & (meshes.key.offload.kind == "optimizer")

    def share(facts: Facts, meshes: MeshBatch) -> Bool:
        bad: Bool = meshes.zero != 3
        return bad & (0.0 < meshes.key.offload.optimizer < 1.0)

    return (
        fixed(
            "deepspeed_offload_parameters",
            f"{CONFIG}: offload_param is of stage 3",
            parameters,
            "offload=parameters with zero {zero}: only stage 3 divides parameters",
            ("zero 3", "offload=optimizer"),
        ),
        fixed(
            "deepspeed_offload_optimizer",
            f"{CONFIG}: offload_optimizer is of stages 1 to 3",
            optimizer,
            "offload=optimizer with zero {zero}",
            ("zero 1, 2 or 3", "offload=none"),
        ),
        fixed(
            "deepspeed_offload_share",
            f"{CONFIG}: offload_optimizer.ratio is of stage 3",
            share,
            "a part of the optimizer's states offloaded with zero {zero}",
            ("zero 3", "offload=optimizer"),
        ),
    )


def _hpz_rules(size: int) -> tuple[Rule, ...]:
    """`zero_hpz_partition_size` divides the data-parallel ranks and a node; the configuration alone takes any."""
    if size == 1:
        return ()

    def broken(facts: Facts, meshes: MeshBatch) -> Bool:
        node = facts.cluster.groups[0].devices_per_node
        uneven = np.full(meshes.size, node % size != 0)
        bad: Bool = (meshes.zero != 3) | (meshes.dp % size != 0) | uneven
        return bad

    def sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
        node = facts.cluster.groups[0].devices_per_node
        if mesh["zero"] != 3:
            return f"engine.zero_hpz_partition_size {size} with zero {mesh['zero']}", ("zero 3",)
        legal = tuple(d for d in divisors(node) if mesh["dp"] % d == 0)
        detail = f"engine.zero_hpz_partition_size {size} does not divide dp {mesh['dp']} and a node of {node}"
        return detail, nearest_values("engine.zero_hpz_partition_size", legal, size)

    return (Rule("deepspeed_hpz", f"{CONFIG}: ZeRO++ (Wang et al. 2023)", broken, sentence),)
