"""Every mesh of the declared space as arrays: axis values, legality by rule, what is left.

The space is the product of the values below, restricted by pins and bans; every member is counted as illegal (by the
first rule it breaks), out of memory, bounded, solved or open. A mesh is every knob but stage boundaries and full
recompute, which the inner problem chooses.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from cost_models.engines import Engine, Facts, Space
from cost_models.mesh import SCHEDULES, Bool, Int, MeshBatch, MeshKey
from cost_models.schedule.names import ScheduleName
from cost_models.specs.recompute import Recompute
from cost_models.specs.strategy import Strategy, divisors
from planner.restrictions import Restrictions

MIN_TOKENS_PER_CP_RANK = 1024
"""Context parallelism is tried while a rank keeps this many tokens of a sequence."""

MAX_TOKENS_PER_MICRO_BATCH = 65_536
MAX_SAMPLES_PER_MICRO_BATCH = 1024
MAX_CHUNKS_PER_RANK = 8
"""Virtual stages per rank that the search tries."""

STAGES = (
    "contiguous; vpp 1 with whole backwards: every cut with at least one layer a stage; vpp above 1, a split backward, "
    "or more than 2,048 layers: stages of q and q + 1 layers, the longer ones in a row, up to 2 fewer on the first and "
    "on the last, and one K for all"
)
"""Stage boundaries in words, as the certificate shows them (planner/search/windows.py)."""

AXES = tuple(f.name for f in fields(MeshBatch) if f.name != "key")


@dataclass(frozen=True, slots=True)
class Candidates:
    """Legal meshes, one batch per key, and how many were illegal by which rule."""

    batches: tuple[MeshBatch, ...]
    total: int
    illegal: Mapping[str, int]
    space: Mapping[str, object]

    @property
    def num_legal(self) -> int:
        """Meshes that break no rule."""
        return sum(batch.size for batch in self.batches)


def enumerate_candidates(engine: Engine, facts: Facts, restrictions: Restrictions) -> Candidates:
    """Enumerate the space and sort out the illegal meshes."""
    space = engine.space(facts.model, facts.job)
    values = axis_values(engine, space, facts, restrictions)
    batch = all_meshes(engine, facts, restrictions)
    scopes = restrictions.scopes(space.scopes)
    legal, illegal = _sort_out(engine, facts, batch)
    left = batch.take(legal)
    batches = tuple(replace(left, key=MeshKey(scopes=base)) for base in scopes)
    illegal = {rule: count * len(scopes) for rule, count in illegal.items()}
    return Candidates(batches, len(scopes) * batch.size, illegal, _describe(values, space, scopes))


def all_meshes(engine: Engine, facts: Facts, restrictions: Restrictions) -> MeshBatch:
    """Every combination of the axes under pins and bans, legal or not, with no recompute."""
    values = axis_values(engine, engine.space(facts.model, facts.job), facts, restrictions)
    columns = _product(values, facts, restrictions)
    return MeshBatch(MeshKey(), *(columns[name] for name in AXES))


def _sort_out(engine: Engine, facts: Facts, batch: MeshBatch) -> tuple[Bool, dict[str, int]]:
    """Which meshes break no rule, and how many break each rule first; rules do not look at the recompute base."""
    legal = np.ones(batch.size, dtype=bool)
    illegal: dict[str, int] = {}
    for rule in engine.rules():
        standing = np.flatnonzero(legal)
        broken = rule.broken(facts, batch.take(standing))
        if broken.any():
            illegal[rule.name] = int(broken.sum())
            legal[standing[broken]] = False
    return legal, illegal


def axis_values(
    engine: Engine, space: Space, facts: Facts, restrictions: Restrictions
) -> dict[str, tuple[int, ...]]:
    """Values of each axis before legality; pins and bans applied."""
    devices, model, job = facts.cluster.num_devices, facts.model, facts.job
    domain = facts.cluster.tiers[0].devices_per_domain
    ways = divisors(devices)
    blocks = model.num_blocks
    schedules = restrictions.allowed("schedule", (SCHEDULES.index(ScheduleName(s)) for s in space.schedules))
    chunked = any(SCHEDULES[schedule] is ScheduleName.INTERLEAVED for schedule in schedules)
    folded = any(SCHEDULES[schedule].has_two_chunks for schedule in schedules)
    values: dict[str, tuple[int, ...]] = {
        "tp": tuple(d for d in ways if d <= domain) if space.tensor else (1,),
        "cp": tuple(d for d in ways if d == 1 or job.seq_len // d >= MIN_TOKENS_PER_CP_RANK)
        if space.context
        else (1,),
        "pp": tuple(d for d in ways if d <= blocks) if space.pipeline else (1,),
        "vpp": tuple(range(1, min(MAX_CHUNKS_PER_RANK if chunked else 1 + folded, blocks) + 1)),
        "ep": divisors(model.num_experts) if space.expert and model.is_moe else (1,),
        "etp": tuple(d for d in ways if d <= domain)
        if space.expert and model.is_moe and space.tensor
        else (1,),
        "zero": space.zero,
        "mbs": _micro_batches(facts),
        "sp": (0, 1) if space.tensor and engine.can_sequence_parallel(model) else (0,),
        "dp_replicate": ways if max(space.zero) >= 2 else (1,),
        "schedule": schedules,
    }
    wide = dict.fromkeys(("tp", "cp", "pp", "etp", "dp_replicate"), ways) | {
        "mbs": divisors(job.global_batch)
    }
    return {name: restrictions.allowed(name, found, wide.get(name, ())) for name, found in values.items()}


def _micro_batches(facts: Facts) -> tuple[int, ...]:
    """Divisors of the global batch whose micro-batch stays within the declared size."""
    job = facts.job
    largest = MAX_SAMPLES_PER_MICRO_BATCH
    if not facts.model.is_vision:
        largest = max(MAX_TOKENS_PER_MICRO_BATCH // job.seq_len, 1)
    return tuple(d for d in divisors(job.global_batch) if d <= largest)


def _product(
    values: Mapping[str, tuple[int, ...]], facts: Facts, restrictions: Restrictions
) -> dict[str, Int]:
    """All combinations whose degrees divide the devices; dp follows. Chunks and schedules go together."""
    devices = facts.cluster.num_devices
    dense = [
        (tp, cp, pp, vpp, schedule)
        for tp in values["tp"]
        for cp in values["cp"]
        for pp in values["pp"]
        if devices % (tp * cp * pp) == 0 and restrictions.takes("dp", devices // (tp * cp * pp))
        for vpp in values["vpp"]
        for schedule in values["schedule"]
        if _goes_with(SCHEDULES[schedule], vpp)
    ]
    names = ("ep", "etp", "zero", "mbs", "sp", "dp_replicate")
    inner = np.stack(np.meshgrid(*(np.asarray(values[n], dtype=np.int64) for n in names), indexing="ij"))
    inner = inner.reshape(len(names), -1)
    outer = np.asarray(dense, dtype=np.int64).reshape(-1, 5).T
    left = np.repeat(outer, inner.shape[1], axis=1)
    right = np.tile(inner, (1, outer.shape[1]))
    columns = dict(zip(("tp", "cp", "pp", "vpp", "schedule"), left, strict=True))
    columns |= dict(zip(names, right, strict=True))
    columns["dp"] = devices // (columns["tp"] * columns["cp"] * columns["pp"])
    columns["dp_shard"] = columns["dp"] // columns["dp_replicate"]
    keep = _plausible(columns)
    return {name: columns[name][keep] for name in AXES}


def _goes_with(schedule: ScheduleName, vpp: int) -> bool:
    """Whether a schedule can have this many chunks a rank."""
    if schedule.has_two_chunks:
        return vpp == 2
    return (vpp > 1) == (schedule is ScheduleName.INTERLEAVED)


def _plausible(columns: Mapping[str, Int]) -> np.ndarray:
    """Leave out what is not a combination at all: sp without tp, replicas that do not divide dp, unsharded replicas."""
    keep: np.ndarray = (columns["sp"] == 0) | (columns["tp"] > 1)
    keep &= columns["dp_shard"] * columns["dp_replicate"] == columns["dp"]
    keep &= (columns["zero"] >= 2) | (columns["dp_replicate"] == 1)
    return keep


def _describe(
    values: Mapping[str, tuple[int, ...]], space: Space, scopes: tuple[tuple[str, ...], ...]
) -> dict[str, object]:
    """The space in the certificate: every axis and its values."""
    described: dict[str, object] = {name: list(found) for name, found in values.items() if name != "schedule"}
    described["sp"] = [bool(value) for value in values["sp"]]
    described["schedule"] = [SCHEDULES[value].value for value in values["schedule"]]
    described["dp"] = "devices / (tp x cp x pp)"
    described["recompute"] = [("selective:" + "+".join(s)) if s else "none" for s in scopes]
    if space.full_recompute:
        count = "one K for all stages" if space.uniform_full else "one K per virtual stage"
        described["recompute"] = [*described["recompute"], f"full:K, {count}"]  # type: ignore[misc]
    described["stages"] = STAGES
    described["cp_kind"] = ["ring"]
    described["order"] = ["tp-cp-ep-dp-pp"]
    described["offload"] = ["none"]
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
    )
