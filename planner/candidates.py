"""The declared space: values of every axis, what is a combination at all, and which combinations break a rule.

The space is the product of the values below, restricted by pins and bans; every member is counted as illegal (by the
first rule it breaks), out of memory, bounded, solved or open. A mesh is every knob but stage boundaries and full
recompute, which the inner problem chooses. The product is far too large to list, so it is kept as families.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cost_models.engines import Engine, Facts, Space
from cost_models.mesh import SCHEDULES, Bool, Int, MeshBatch, MeshKey
from cost_models.schedule.names import ScheduleName
from cost_models.specs.offload import ActivationOffload, Offload, parse_act_offload, parse_offload
from cost_models.specs.recompute import Recompute
from cost_models.specs.strategy import Strategy, divisors
from planner.families import AXES, Families, Options, State, sort_out
from planner.restrictions import Restrictions

MIN_TOKENS_PER_CP_RANK = 1024
"""Context parallelism is tried while a rank keeps this many tokens of a sequence."""

MAX_TOKENS_PER_MICRO_BATCH = 65_536
MAX_TOKENS_WITHOUT_PIPELINE = 262_144
"""Engines that have no pipeline fill a step with few large micro-batches: MPT ran three sequences of 65,536 tokens."""

MAX_SAMPLES_PER_MICRO_BATCH = 1024
CHUNKS_PER_RANK = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20)
"""Virtual stages per rank that the search tries; those above MANY_CHUNKS where at most LAYERS_SHORT layers lack."""

MANY_CHUNKS, LAYERS_SHORT = 8, 2

INNER_RANKS = (2, 4, 8)
"""Context ranks that exchange heads inside a ring, which are tried where cp_kind=allowed asks for all."""

OPTIMIZER_SHARES = ("optimizer:0.25", "optimizer:0.5", "optimizer:0.75")
"""Shares of the optimizer on the host that are tried where offload=allowed asks for all."""

STAGES = (
    "contiguous; vpp 1 with whole backwards: every cut with at least one layer a stage; vpp above 1, a split backward, "
    "or more than 2,048 layers: stages of q and q + 1 layers, the longer ones in a row, up to 2 fewer on the first and "
    "on the last, and one K for all; small steps from the best plans may leave these, and the first and the last stage "
    "without layers (embedding or head alone) where the engine can"
)
"""Stage boundaries in words, as the certificate shows them (planner/search/windows.py)."""

ROW_AXES = ("tp", "cp", "pp", "ep", "etp", "mbs", "sp")


@dataclass(frozen=True, slots=True)
class Candidates:
    """The legal meshes as families, and how many were illegal by which rule."""

    families: Families
    total: int
    illegal: Mapping[str, int]
    space: Mapping[str, object]

    @property
    def num_legal(self) -> int:
        """Meshes that break no rule."""
        return self.families.size

    @property
    def batches(self) -> tuple[MeshBatch, ...]:
        """Every legal mesh, one batch per key; for small spaces."""
        return self.families.everything()


def enumerate_candidates(engine: Engine, facts: Facts, restrictions: Restrictions) -> Candidates:
    """Lay out the space and sort out the illegal meshes."""
    space = engine.space(facts.model, facts.job)
    values = axis_values(engine, space, facts, restrictions)
    rows = _rows(values, facts, restrictions)
    options = Options(
        _pipes(values),
        _states(values, space, restrictions),
        _kinds(space, facts.model.num_blocks, restrictions),
    )
    families, total, illegal = sort_out(
        engine, facts, rows, options, _plausible(rows, options, facts.model.num_blocks, restrictions)
    )
    described = _describe(values, options) | {"recompute": _recomputes(space, options, restrictions)}
    return Candidates(families, total, illegal, described)


def all_meshes(engine: Engine, facts: Facts, restrictions: Restrictions) -> MeshBatch:
    """Every combination of row, pipe and state under pins and bans, legal or not, of the first kind, not offloaded."""
    space = engine.space(facts.model, facts.job)
    values = axis_values(engine, space, facts, restrictions)
    rows = _rows(values, facts, restrictions)
    options = Options(
        _pipes(values),
        _states(values, space, restrictions),
        _kinds(space, facts.model.num_blocks, restrictions),
    )
    pipes, states, _ = _plausible(rows, options, facts.model.num_blocks, restrictions)
    families = Families(rows, options, pipes, states, np.ones((rows.size, 1), dtype=bool))
    none = [i for i, state in enumerate(options.states) if state.offload == options.states[0].offload]
    return replace(families.of_kind(0, none), key=MeshKey())


def axis_values(
    engine: Engine, space: Space, facts: Facts, restrictions: Restrictions
) -> dict[str, tuple[int, ...]]:
    """Values of each axis before legality; pins and bans applied."""
    devices, model, job = facts.cluster.num_devices, facts.model, facts.job
    domain = facts.cluster.tiers[0].devices_per_domain
    ways, blocks = divisors(devices), model.num_blocks
    schedules = restrictions.allowed("schedule", (SCHEDULES.index(ScheduleName(s)) for s in space.schedules))
    chunked = any(SCHEDULES[schedule] is ScheduleName.INTERLEAVED for schedule in schedules)
    folded = any(SCHEDULES[schedule].has_two_chunks for schedule in schedules)
    most_chunks = min(max(CHUNKS_PER_RANK) if chunked else 1 + folded, blocks)
    one, moe = (1,), model.is_moe
    usual: dict[str, tuple[int, ...]] = {
        "tp": tuple(d for d in ways if d <= domain) if space.tensor else one,
        "cp": tuple(d for d in ways if d == 1 or job.seq_len // d >= MIN_TOKENS_PER_CP_RANK)
        if space.context
        else one,
        "pp": tuple(d for d in ways if d <= blocks) if space.pipeline else one,
        "vpp": tuple(v for v in CHUNKS_PER_RANK if v <= most_chunks),
        "ep": divisors(model.num_experts) if space.expert and moe else one,
        "etp": tuple(d for d in ways if d <= domain) if space.expert and moe and space.tensor else one,
        "zero": space.zero,
        "mbs": _micro_batches(facts, space),
        "sp": (0, 1) if space.tensor and engine.can_sequence_parallel(model) else (0,),
        "dp_replicate": ways if max(space.zero) >= space.replicate_zero else one,
        "schedule": schedules,
    }
    wide = dict.fromkeys(("tp", "cp", "pp", "etp", "dp_replicate"), ways) | {
        "mbs": divisors(job.global_batch)
    }
    return {name: restrictions.allowed(name, found, wide.get(name, ())) for name, found in usual.items()}


def _micro_batches(facts: Facts, space: Space) -> tuple[int, ...]:
    """Divisors of the global batch whose micro-batch stays within the declared size."""
    job = facts.job
    largest = MAX_SAMPLES_PER_MICRO_BATCH
    if not facts.model.is_vision:
        tokens = MAX_TOKENS_PER_MICRO_BATCH if space.pipeline else MAX_TOKENS_WITHOUT_PIPELINE
        largest = max(tokens // job.seq_len, 1)
    return tuple(d for d in divisors(job.global_batch) if d <= largest)


def _rows(values: Mapping[str, tuple[int, ...]], facts: Facts, restrictions: Restrictions) -> MeshBatch:
    """Combinations of degrees that divide the devices; dp follows; no sequence parallelism without tp."""
    devices = facts.cluster.num_devices
    grid = np.stack(np.meshgrid(*(np.asarray(values[n], dtype=np.int64) for n in ROW_AXES), indexing="ij"))
    columns = dict(zip(ROW_AXES, grid.reshape(len(ROW_AXES), -1), strict=True))
    inner = columns["tp"] * columns["cp"] * columns["pp"]
    keep = (devices % inner == 0) & ((columns["sp"] == 0) | (columns["tp"] > 1))
    columns = {name: column[keep] for name, column in columns.items()}
    dp = devices // inner[keep]
    taken = {int(n): restrictions.takes("dp", int(n)) for n in np.unique(dp)}
    keep = np.asarray([taken[int(n)] for n in dp], dtype=bool)
    columns = {name: column[keep] for name, column in columns.items()} | {
        "dp": dp[keep],
        "dp_shard": dp[keep],
    }
    one = np.ones(int(keep.sum()), dtype=np.int64)
    rest = {"vpp": one, "dp_replicate": one, "zero": 0 * one, "schedule": 0 * one}
    return MeshBatch(MeshKey(), *((columns | rest)[name] for name in AXES))


def _pipes(values: Mapping[str, tuple[int, ...]]) -> Int:
    """Schedules with the chunks that they can have."""
    found = [
        (schedule, vpp)
        for vpp in values["vpp"]
        for schedule in values["schedule"]
        if _goes_with(SCHEDULES[schedule], vpp)
    ]
    return np.asarray(found, dtype=np.int64).reshape(-1, 2)


def _goes_with(schedule: ScheduleName, vpp: int) -> bool:
    """Whether a schedule can have this many chunks a rank."""
    if schedule.has_two_chunks:
        return vpp == 2
    return (vpp > 1) == (schedule is ScheduleName.INTERLEAVED)


def _states(
    values: Mapping[str, tuple[int, ...]], space: Space, restrictions: Restrictions
) -> tuple[State, ...]:
    """ZeRO stages, replicas where states are sharded, offload; parameters rest on the host only where sharded."""
    return tuple(
        State(zero, replicate, offload)
        for offload in _offloads(space, restrictions)
        for zero in values["zero"]
        for replicate in values["dp_replicate"]
        if (zero >= space.replicate_zero or replicate == 1)
        and (zero >= 2 or not offload.parameters or offload.kind not in space.offload)
    )


def _offloads(space: Space, restrictions: Restrictions) -> tuple[Offload, ...]:
    """Nothing, and what the engine can keep on the host, whole; shares of the optimizer where all is allowed."""
    whole = ("none", *space.offload)
    shares = OPTIMIZER_SHARES if "optimizer" in space.offload else ()
    words = restrictions.words("offload", whole, every=(*whole, *shares))
    return tuple(parse_offload(text) for text in words)


def _activations(space: Space, blocks: int, restrictions: Restrictions) -> tuple[ActivationOffload, ...]:
    """None; where it is asked for, what the engine can move, of blocks a quarter, half, three quarters and most."""
    most = blocks if space.most_offloaded is None else space.most_offloaded
    counts = sorted({max(blocks * part // 4, 1) for part in (1, 2, 3)} | {most}) if blocks > 1 else [most]
    several = tuple("blocks" if n == blocks else f"blocks:{n}" for n in counts if n <= most)
    every = ("none", *space.act_offload)
    if "blocks" in every:
        every = (*(kind for kind in every if kind not in ("blocks", "modules")), *several)
    if "modules" in space.act_offload:
        every = (*every, *(f"modules:{'+'.join(rung)}" for rung in space.offload_modules))
    words = restrictions.words("act_offload", ("none",), every=every)
    return tuple(parse_act_offload(text) for text in words)


def _kinds(space: Space, blocks: int, restrictions: Restrictions) -> tuple[MeshKey, ...]:
    """Recompute scopes x kinds of context parallelism x orders x what activations rest on the host."""
    usual = space.cp_kinds if space.context else space.cp_kinds[:1]
    nested = tuple(f"hierarchical:{ranks}" for ranks in INNER_RANKS if space.hierarchical)
    cp_kinds = restrictions.words("cp_kind", usual, every=(*usual, *nested))
    orders = restrictions.words("order", tuple("-".join(order) for order in space.orders))
    return tuple(
        MeshKey(scopes=scopes, cp_kind=cp_kind, order=tuple(order.split("-")), activations=moved)
        for moved in _activations(space, blocks, restrictions)
        for order in orders
        for cp_kind in cp_kinds
        for scopes in restrictions.scopes(space.scopes, space.full_recompute)
        if _recompute_goes_with(moved, scopes, space, restrictions)
    )


def _recompute_goes_with(
    moved: ActivationOffload, scopes: tuple[str, ...], space: Space, restrictions: Restrictions
) -> bool:
    """Checkpoints are inputs of blocks recomputed in full, which no scope goes with; offloaded blocks are not."""
    if moved.checkpoints:
        return (
            not scopes
            and space.full_recompute
            and (restrictions.may_recompute_fully or restrictions.all_recomputed)
        )
    must = restrictions.all_recomputed or (restrictions.needs_full and not scopes)
    return not (moved.kind in ("blocks", "modules") and must)


def _plausible(
    rows: MeshBatch, options: Options, blocks: int, restrictions: Restrictions
) -> tuple[Bool, Bool, Bool]:
    """What is a combination at all: replicas divide dp; kinds and orders differ where there is something to order."""
    chunks = options.pipes[:, 1]
    even = -blocks % (rows.pp[:, None] * chunks[None, :]) <= LAYERS_SHORT
    pipes: Bool = even | (chunks <= MANY_CHUNKS)[None, :]
    usual = options.pipes[:, 0] == SCHEDULES.index(ScheduleName.ONE_F_ONE_B)
    pipes &= (usual | ~usual.any())[None, :] | (rows.pp > 1)[:, None]  # one stage has nothing to schedule
    replicas = np.asarray([state.replicate for state in options.states], dtype=np.int64)
    states = (
        rows.dp[:, None] % replicas[None, :] == 0 if len(replicas) else np.zeros((rows.size, 0), dtype=bool)
    )
    if states.size and not (restrictions.pins.keys() | restrictions.bans.keys()).isdisjoint({"dp_shard"}):
        shards = rows.dp[:, None] // replicas[None, :]
        states &= np.isin(shards, [n for n in np.unique(shards) if restrictions.takes("dp_shard", int(n))])
    first = options.kinds[0] if options.kinds else MeshKey()
    plain_cp = np.asarray([key.cp_kind == first.cp_kind for key in options.kinds], dtype=bool)
    plain_order = np.asarray([key.order == first.order for key in options.kinds], dtype=bool)
    kinds = plain_cp[None, :] | (rows.cp > 1)[:, None]
    kinds &= plain_order[None, :] | ((rows.pp > 1) & (rows.dp > 1))[:, None]
    return pipes, states, kinds


def _recomputes(space: Space, options: Options, restrictions: Restrictions) -> list[str]:
    """Kinds of recompute in words: none, scopes, and full recompute where both the engine and the user take it."""
    scopes = dict.fromkeys(key.scopes for key in options.kinds)
    bases = [Recompute(each) for each in scopes]
    found = [base.text(default_scopes=()) for base in bases if restrictions.takes_recompute(base)]
    if restrictions.all_recomputed:
        return ["full"]
    if space.full_recompute and restrictions.may_recompute_fully and () in scopes:
        count = "one K for all stages" if space.uniform_full else "one K per virtual stage"
        found.append(f"full:K, {count}")
    return found


def _describe(values: Mapping[str, tuple[int, ...]], options: Options) -> dict[str, object]:
    """The space in the certificate: every axis and its values."""
    described: dict[str, object] = {name: list(found) for name, found in values.items() if name != "schedule"}
    described["sp"] = [bool(value) for value in values["sp"]]
    described["schedule"] = [SCHEDULES[value].value for value in values["schedule"]]
    described["vpp_above_8"] = f"where the layers, or up to {LAYERS_SHORT} more, divide evenly"
    described["dp"] = "devices / (tp x cp x pp)"
    described["dp_shard"] = "dp / dp_replicate"
    described["stages"] = STAGES
    described["cp_kind"] = list(dict.fromkeys(key.cp_kind for key in options.kinds))
    described["order"] = list(dict.fromkeys("-".join(key.order) for key in options.kinds))
    described["act_offload"] = list(dict.fromkeys(key.activations.text() for key in options.kinds))
    described["offload"] = list(dict.fromkeys(state.offload.text() for state in options.states))
    return described


def strategy_of(batch: MeshBatch, row: int, stages: tuple[int, ...], recompute: Recompute) -> Strategy:
    """The strategy of one mesh with its stages and recompute."""
    n = batch.row(row)
    return Strategy(
        tp=n["tp"],
        cp=n["cp"],
        pp=n["pp"],
        vpp=n["vpp"],
        ep=n["ep"],
        etp=n["etp"],
        dp=n["dp"],
        dp_shard=n["dp_shard"],
        dp_replicate=n["dp_replicate"],
        zero=n["zero"],
        mbs=n["mbs"],
        sp=bool(n["sp"]),
        schedule=batch.schedule_name(row),
        recompute=recompute,
        stages=stages,
        cp_kind=batch.key.cp_kind,
        order=batch.key.order,
        offload=batch.key.offload.text(),
        act_offload=batch.key.activations.text(),
        stage_groups=batch.stage_groups(row),
    )
