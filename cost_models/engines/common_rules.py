"""Rules of arithmetic that no engine escapes: devices, heads, experts, order; of batches and stages see batch_rules."""

import numpy as np

from cost_models.engines.batch_rules import batch_rules
from cost_models.engines.group_rules import devices_in_use, group_rules
from cost_models.engines.rules import Facts, Rule, divides, fixed, nearest_values, nearest_worlds
from cost_models.mesh import Bool, MeshBatch
from cost_models.operators import Traced
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
    ranks, etp, ep = mesh["tp"] * mesh["cp"] * mesh["dp"], mesh["etp"], mesh["ep"]
    detail = f"tp x cp x dp = {ranks} is not divisible by etp {etp} x ep {ep} = {etp * ep}"
    if ranks % etp:  # no ep goes with it
        widths = [d for d in divisors(ranks) if all(width % d == 0 for width in facts.expert_widths)]
        return detail, nearest_values("etp", tuple(widths), etp)
    legal = tuple(d for d in divisors(ranks // etp) if facts.model.num_experts % d == 0)
    return detail, nearest_values("ep", legal, ep)


def _sp_needs_tp(facts: Facts, meshes: MeshBatch) -> Bool:
    bad: Bool = (meshes.sp > 0) & (meshes.tp == 1)
    return bad


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


def common_rules(batch_source: str, source: str) -> tuple[Rule, ...]:
    """Rules of arithmetic that no engine escapes; `source` is where one divides by its degrees, `batch_source` why it
    takes whole micro-batches alone."""
    return (
        *_device_rules(source),
        *_tensor_rules(source),
        *_expert_rules(source),
        *batch_rules(batch_source, source),
    )


def _device_rules(source: str) -> tuple[Rule, ...]:
    return (
        *group_rules(),
        Rule("world_size", source, _world, _world_sentence),
        Rule("data_parallel_shards", "torch DeviceMesh", _data_parallel, _data_parallel_sentence),
        fixed(
            "order",
            "megatron/core/parallel_state.py RankGenerator",
            _order,
            "order must name tp, cp, ep, dp and pp once, with tp and cp inside",
            ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"),
        ),
    )


def _tensor_rules(source: str) -> tuple[Rule, ...]:
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
        divides("heads_tp", "tp", "num_attention_heads", lambda f: f.heads, source),
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


def _expert_rules(source: str) -> tuple[Rule, ...]:
    return (
        Rule("experts_need_moe", source, _experts_need_moe, _experts_need_moe_sentence),
        divides("experts_ep", "ep", "number of experts", lambda f: f.num_experts, source),
        divides("expert_ffn_etp", "etp", "expert width", lambda f: f.expert_widths, source),
        Rule("expert_ranks", source, _expert_group, _expert_group_sentence),
    )
