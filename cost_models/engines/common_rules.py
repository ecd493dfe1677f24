"""Rules of arithmetic that no engine escapes: devices, batch, heads, experts, sequence, schedule, order."""

import numpy as np

from cost_models.engines.group_rules import devices_in_use, group_rules
from cost_models.engines.rules import Facts, Rule, divides, fixed, nearest_values, nearest_worlds
from cost_models.mesh import SCHEDULES, Bool, MeshBatch
from cost_models.operators import Traced
from cost_models.schedule import ScheduleName, schedule_violations
from cost_models.specs.pools import groups_text
from cost_models.specs.strategy import ORDER_AXES, Strategy, divisors


def _world(facts: Facts, meshes: MeshBatch) -> Bool:
    bad: Bool = meshes.tp * meshes.cp * meshes.pp * meshes.dp != _devices(facts, meshes)
    return bad


def _devices(facts: Facts, meshes: MeshBatch) -> int:
    """Devices that the meshes are for: of the groups that their ranks lie on, or of the whole cluster."""
    return sum(pool.devices for pool in meshes.key.pools) or facts.cluster.num_devices


def _world_sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
    inner = mesh["tp"] * mesh["cp"] * mesh["pp"]
    devices = devices_in_use(facts.cluster, strategy.stage_groups)
    product = f"tp {mesh['tp']} x cp {mesh['cp']} x pp {mesh['pp']} x dp {mesh['dp']} = {inner * mesh['dp']}"
    nearest = (f"dp {devices // inner}",) if devices % inner == 0 else nearest_worlds(devices, inner)
    if strategy.stage_groups:
        return (
            f"{product} is not the {devices} devices of groups={groups_text(strategy.stage_groups):.80}",
            nearest,
        )
    return f"{product} is not the cluster's {devices} devices", nearest


def _batch(facts: Facts, meshes: MeshBatch) -> Bool:
    bad: Bool = facts.job.global_batch % (meshes.mbs * meshes.dp) != 0
    return bad


def nearest_batches(batch: int, unit: int) -> tuple[str, ...]:
    """The multiples of `unit` below and above a batch."""
    below, above = batch // unit * unit, -(-batch // unit) * unit
    values = [str(n) for n in (below, above) if n > 0 and n != batch]
    return (f"global batch {' or '.join(values)}",) if values else ()


def _batch_sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
    batch, mbs, dp = facts.job.global_batch, mesh["mbs"], mesh["dp"]
    nearest = nearest_batches(batch, mbs * dp)
    if batch % dp == 0:
        nearest = (*nearest_values("mbs", divisors(batch // dp), mbs), *nearest)
    return f"global batch {batch} is not divisible by mbs {mbs} x dp {dp} = {mbs * dp}", nearest


def _data_parallel(facts: Facts, meshes: MeshBatch) -> Bool:
    bad: Bool = meshes.dp_shard * meshes.dp_replicate != meshes.dp
    return bad


def _data_parallel_sentence(
    facts: Facts, mesh: dict[str, int], strategy: Strategy
) -> tuple[str, tuple[str, ...]]:
    shard, replicate, dp = mesh["dp_shard"], mesh["dp_replicate"], mesh["dp"]
    said = f"dp_shard {shard} x dp_replicate {replicate} = {shard * replicate} is not dp {dp}"
    if dp % replicate:  # no number of shards goes with these replicas
        return said, nearest_values("dp_replicate", divisors(dp), replicate)
    return said, (f"dp_shard {dp // replicate}",)


def _experts_need_moe(facts: Facts, meshes: MeshBatch) -> Bool:
    wide: Bool = (meshes.ep > 1) | (meshes.etp > 1)
    return wide & (not facts.model.is_moe)


def _experts_need_moe_sentence(
    facts: Facts, mesh: dict[str, int], strategy: Strategy
) -> tuple[str, tuple[str, ...]]:
    return f"ep {mesh['ep']} and etp {mesh['etp']} given, but {facts.model.name} has no experts", (
        "ep 1, etp 1",
    )


def _expert_group(facts: Facts, meshes: MeshBatch) -> Bool:
    ranks = meshes.tp * meshes.cp * meshes.dp
    bad: Bool = ranks % (meshes.etp * meshes.ep) != 0
    return bad


def _expert_group_sentence(
    facts: Facts, mesh: dict[str, int], strategy: Strategy
) -> tuple[str, tuple[str, ...]]:
    ranks = mesh["tp"] * mesh["cp"] * mesh["dp"]
    legal = tuple(d for d in divisors(ranks // mesh["etp"]) if facts.model.num_experts % d == 0)
    return (
        f"tp x cp x dp = {ranks} is not divisible by etp {mesh['etp']} x ep {mesh['ep']} = {mesh['etp'] * mesh['ep']}",
        nearest_values("ep", legal, mesh["ep"]),
    )


def _sequence(facts: Facts, meshes: MeshBatch) -> Bool:
    if facts.model.is_vision:
        return np.zeros(meshes.size, dtype=bool)
    bad = np.zeros(meshes.size, dtype=bool)
    for length in {facts.job.seq_len, facts.job.decoder_seq_len}:
        need = np.where(meshes.cp > 1, 2 * meshes.cp, 1) * np.where(meshes.sp > 0, meshes.tp, 1)
        bad |= length % need != 0
    return bad


def _sequence_sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
    need = (2 * mesh["cp"] if mesh["cp"] > 1 else 1) * (mesh["tp"] if mesh["sp"] else 1)
    length = next(n for n in (facts.job.seq_len, facts.job.decoder_seq_len) if n % need)
    parts = [f"2 x cp {mesh['cp']}"] if mesh["cp"] > 1 else []
    parts += [f"tp {mesh['tp']} (sequence parallel)"] if mesh["sp"] and mesh["tp"] > 1 else []
    below, above = length // need * need, -(-length // need) * need
    nearest = tuple(f"sequence length {n}" for n in (below, above) if n > 0)
    return f"sequence length {length} is not divisible by {' x '.join(parts)} = {need}", nearest


def _sp_needs_tp(facts: Facts, meshes: MeshBatch) -> Bool:
    bad: Bool = (meshes.sp > 0) & (meshes.tp == 1)
    return bad


def _schedule(facts: Facts, meshes: MeshBatch) -> Bool:
    """Schedule rules on the distinct (schedule, pp, vpp, micro-batches) of the batch."""
    micro = meshes.micro_batches(facts.job.global_batch)
    columns = np.stack([meshes.schedule, meshes.pp, meshes.vpp, micro])
    unique, inverse = np.unique(columns, axis=1, return_inverse=True)
    bad = np.asarray([_schedule_breaks(*(int(x) for x in column)) for column in unique.T], dtype=bool)
    return bad[inverse.reshape(-1)]


def _schedule_breaks(schedule: int, pp: int, vpp: int, micro_batches: int) -> bool:
    name = SCHEDULES[schedule]
    return not name.is_modelled or bool(schedule_violations(name, pp, vpp, micro_batches))


def _schedule_sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
    if not strategy.schedule.is_modelled:
        modelled = tuple(s.value for s in ScheduleName if s.is_modelled)
        return f"schedule {strategy.schedule.value} is not modelled in this version", (
            f"one of {', '.join(modelled)}",
        )
    micro = strategy.num_micro_batches(facts.job.global_batch)
    first = schedule_violations(strategy.schedule, mesh["pp"], mesh["vpp"], micro)[0]
    return first.message, tuple(str(n) for n in first.nearest)


def _layers(facts: Facts, meshes: MeshBatch) -> Bool:
    bad: Bool = meshes.pp * meshes.vpp > facts.model.num_blocks
    return bad


def _layers_sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
    layers, stages = facts.model.num_blocks, mesh["pp"] * mesh["vpp"]
    return (
        f"pp {mesh['pp']} x vpp {mesh['vpp']} = {stages} stages for {layers} layers leaves stages empty",
        nearest_values("pp x vpp", tuple(range(1, layers + 1)), stages, limit=1),
    )


def _vision_axes(facts: Facts, meshes: MeshBatch) -> Bool:
    if not facts.model.is_vision:
        return np.zeros(meshes.size, dtype=bool)
    bad: Bool = (meshes.tp > 1) | (meshes.cp > 1)
    return bad


def _traced_axes(facts: Facts, meshes: MeshBatch) -> Bool:
    if not any(isinstance(operator, Traced) for operator in facts.operators):
        return np.zeros(meshes.size, dtype=bool)
    bad: Bool = (meshes.tp > 1) | (meshes.cp > 1) | (meshes.etp > 1)
    return bad


def _shared_blocks(facts: Facts, meshes: MeshBatch) -> Bool:
    if not facts.shares_blocks:
        return np.zeros(meshes.size, dtype=bool)
    bad: Bool = meshes.pp > 1
    return bad


def _uncut(facts: Facts, meshes: MeshBatch) -> Bool:
    bad: Bool = (meshes.pp > 1) & bool(facts.uncut_kinds)
    return bad


def _uncut_sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
    kinds = ", ".join(facts.uncut_kinds)
    return f"pp {mesh['pp']} given, but no stage may end after layers of kind {kinds} (cut_after)", ("pp 1",)


def _ulysses(facts: Facts, meshes: MeshBatch) -> Bool:
    bad = np.zeros(meshes.size, dtype=bool)
    if meshes.key.cp_kind == "ulysses":
        for heads in (*facts.heads, *facts.kv_heads):
            bad |= (meshes.cp > 1) & (heads % (meshes.cp * meshes.tp) != 0)
    return bad


def _ulysses_sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
    common = int(np.gcd.reduce((*facts.heads, *facts.kv_heads)))
    return (
        f"cp_kind ulysses divides heads {facts.heads} and kv heads {facts.kv_heads} over cp {mesh['cp']} x tp "
        f"{mesh['tp']}, which does not go",
        nearest_values("cp x tp", divisors(common), mesh["cp"] * mesh["tp"]),
    )


def _order(facts: Facts, meshes: MeshBatch) -> Bool:
    order = meshes.key.order
    good = set(order) == ORDER_AXES and len(order) == len(ORDER_AXES) and order[:2] == ("tp", "cp")
    return np.full(meshes.size, not good)


_CORE = "megatron/core/transformer/transformer_config.py and megatron/core/parallel_state.py"


def common_rules(batch_source: str) -> tuple[Rule, ...]:
    """Rules of arithmetic that no engine escapes; each has its own reason to take whole micro-batches alone."""
    return (*_device_rules(), *_tensor_rules(), *_expert_rules(), *_batch_rules(batch_source))


def _device_rules() -> tuple[Rule, ...]:
    return (
        *group_rules(),
        Rule("world_size", _CORE, _world, _world_sentence),
        Rule("data_parallel_shards", "torch DeviceMesh", _data_parallel, _data_parallel_sentence),
        fixed(
            "order",
            "megatron/core/parallel_state.py RankGenerator",
            _order,
            "order must name tp, cp, ep, dp and pp once, with tp and cp inside",
            ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"),
        ),
    )


def _tensor_rules() -> tuple[Rule, ...]:
    mixer = "megatron/core/ssm/mamba_mixer.py"
    return (
        fixed(
            "vision_axes",
            "tensor and context parallel are defined over tokens",
            _vision_axes,
            "tp {tp} and cp {cp} given for a vision model, whose convolutions are not divided",
            ("tp 1, cp 1",),
        ),
        fixed(
            "traced_axes",
            "how the work inside a traced layer divides is not known (docs/models.md)",
            _traced_axes,
            "tp {tp}, cp {cp} and etp {etp} given for a model whose layers were traced, not described",
            ("tp 1, cp 1, etp 1",),
        ),
        fixed(
            "shared_blocks",
            "no engine keeps one block's weights in step on several stages",
            _shared_blocks,
            "pp {pp} given for a model whose blocks share weights, which must stay on one stage",
            ("pp 1",),
        ),
        Rule("stage_cuts", "the model's own cut_after", _uncut, _uncut_sentence),
        divides("heads_tp", "tp", "num_attention_heads", lambda f: f.heads, _CORE),
        divides("state_groups_tp", "tp", "state-space groups", lambda f: f.state_groups, mixer),
        divides("ffn_tp", "tp", "intermediate_size", lambda f: f.widths, "column-parallel linears"),
        fixed(
            "sp_needs_tp",
            "megatron/core: sequence parallelism divides the regions outside tensor parallelism",
            _sp_needs_tp,
            "sp=true with tp {tp} has nothing to divide",
            ("sp=false", "tp 2 or more"),
        ),
        Rule("ulysses_heads", "DeepSpeed-Ulysses (Jacobs et al. 2023)", _ulysses, _ulysses_sentence),
    )


def _expert_rules() -> tuple[Rule, ...]:
    return (
        Rule("experts_need_moe", _CORE, _experts_need_moe, _experts_need_moe_sentence),
        divides("experts_ep", "ep", "number of experts", lambda f: f.num_experts, _CORE),
        divides("expert_ffn_etp", "etp", "expert width", lambda f: f.expert_widths, _CORE),
        Rule("expert_ranks", _CORE, _expert_group, _expert_group_sentence),
    )


def _batch_rules(source: str) -> tuple[Rule, ...]:
    return (
        Rule("batch", source, _batch, _batch_sentence),
        Rule("sequence_length", "megatron/training/arguments.py", _sequence, _sequence_sentence),
        Rule("layers_stages", _CORE, _layers, _layers_sentence),
        Rule("schedule", "megatron/core/pipeline_parallel/schedules.py", _schedule, _schedule_sentence),
    )
