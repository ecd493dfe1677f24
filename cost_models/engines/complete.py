"""Fill the absent keys of a strategy with an engine's defaults (design section 9, Strategy)."""

from cost_models.engines.base import Engine
from cost_models.engines.group_rules import REPLICA_ORDER, devices_in_use, nearest_spreads, stage_groups
from cost_models.engines.rules import Facts, nearest_worlds
from cost_models.engines.stage_rules import default_stages
from cost_models.errors import IllegalStrategy, Violation
from cost_models.schedule.names import ScheduleName
from cost_models.specs.offload import parse_act_offload, parse_offload
from cost_models.specs.pools import SHARED, groups_text
from cost_models.specs.recompute import parse_recompute
from cost_models.specs.strategy import DEFAULT_ORDER, Strategy, StrategyRequest


def complete(engine: Engine, facts: Facts, request: StrategyRequest) -> Strategy:
    """A complete strategy; raises IllegalStrategy where the device count leaves no whole data-parallel size."""
    tp, cp, pp = request.tp or 1, request.cp or 1, request.pp or 1
    groups = stage_groups(facts, request)
    dp = request.dp or _data_parallel(engine, facts, request, groups)
    replicate = request.dp_replicate or (max(dp // request.dp_shard, 1) if request.dp_shard else 1)
    vpp = request.vpp or (2 if request.schedule and request.schedule.has_two_chunks else 1)
    interleaved = ScheduleName.INTERLEAVED if vpp > 1 else ScheduleName.ONE_F_ONE_B
    sp = request.sp if request.sp is not None else tp > 1 and engine.can_sequence_parallel(facts.model)
    lone_ends = engine.space(facts.model, facts.job).lone_ends
    stages = request.stages or default_stages(facts.model.num_blocks, pp * vpp, lone_ends)
    return Strategy(
        tp=tp,
        cp=cp,
        pp=pp,
        vpp=vpp,
        ep=request.ep or 1,
        etp=request.etp or 1,
        dp=dp,
        dp_shard=request.dp_shard or max(dp // replicate, 1),
        dp_replicate=replicate,
        zero=engine.usual_zero(pp) if request.zero is None else request.zero,
        mbs=request.mbs or 1,
        sp=sp,
        schedule=request.schedule or interleaved,
        recompute=parse_recompute(request.recompute or "none", engine.default_scopes),
        stages=tuple(stages),
        cp_kind=request.cp_kind or engine.default_cp_kind,
        order=request.order or (REPLICA_ORDER if SHARED in "".join(groups) else DEFAULT_ORDER),
        offload=parse_offload(request.offload or "none").text(),
        act_offload=parse_act_offload(request.act_offload or "none").text(),
        stage_groups=groups,
    )


def _data_parallel(engine: Engine, facts: Facts, request: StrategyRequest, groups: tuple[str, ...]) -> int:
    """Devices / (tp x cp x pp), or the product of the stated shards."""
    if request.dp_shard and request.dp_replicate:
        return request.dp_shard * request.dp_replicate
    inner = (request.tp or 1) * (request.cp or 1) * (request.pp or 1)
    devices = devices_in_use(facts.cluster, groups)
    if devices % inner:
        detail = (
            f"{devices} devices are not divisible by tp {request.tp or 1} x cp {request.cp or 1} x pp "
            f"{request.pp or 1} = {inner}"
        )
        nearest = nearest_worlds(devices, inner)
        if groups:
            detail = f"groups={groups_text(groups):.80}: {detail}"
            degrees = (request.tp or 1) * (request.cp or 1)
            nearest = nearest_spreads(facts.cluster, groups, degrees, request.pp or 1)
        raise IllegalStrategy((Violation("world_size", detail, nearest, engine.degree_source),))
    return devices // inner
