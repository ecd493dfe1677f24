"""Re-check a plan without the solver: arithmetic, legality, memory, and the schedule walked operation by operation."""

import math

import numpy as np

from cost_models.chunk import chunk_costs
from cost_models.schedule import Phase, PipelineDurations, operations, simulate, stage_of, stage_table
from cost_models.specs.strategy import Strategy
from planner.answers import Prediction
from planner.errors import VerificationFailed
from planner.evaluation import Context

RELATIVE_TOLERANCE = 1e-9


def verify(context: Context, prediction: Prediction) -> None:
    """Raise VerificationFailed unless the plan holds: every device used, every layer and sequence placed once, every
    rule kept, memory within the limit, breakdown and full simulation equal to the stated step."""
    strategy = prediction.strategy
    for name, holds in _facts(context, strategy).items():
        if not holds:
            raise VerificationFailed(f"{name} does not hold for {strategy.text()}")
    broken = context.situation.engine.violations(context.facts, strategy)
    if broken:
        raise VerificationFailed("; ".join(f"{v.rule}: {v.detail}" for v in broken))
    total = math.fsum(prediction.breakdown_s.values())
    _equal("the breakdown's sum", total, prediction.step_s)
    _equal("the simulated step", simulated_step_s(context, strategy), prediction.step_s)
    for stage, walked in zip(prediction.memory.stages, walked_bytes(context, strategy), strict=True):
        _equal(f"stage {stage.stage}'s causes", math.fsum(stage.by_cause.values()), stage.allocated_bytes)
        _equal(f"stage {stage.stage}'s walked bytes", walked, stage.allocated_bytes)
        stated = stage.capacity_bytes if stage.group else prediction.memory.peak_allocated_bytes
        if stage.allocated_bytes > stated * (1.0 + RELATIVE_TOLERANCE):
            raise VerificationFailed(f"stage {stage.stage} exceeds the stated peak")
    allowed = ("fits", "at_risk") if context.pricer.allow_at_risk else ("fits",)
    if prediction.verdict not in allowed:
        raise VerificationFailed(
            f"memory: {prediction.verdict}, but only {' or '.join(allowed)} is asked for"
        )


def _facts(context: Context, strategy: Strategy) -> dict[str, bool]:
    """Arithmetic that every plan obeys, spelt out without the engine's rules."""
    job, model = context.facts.job, context.facts.model
    ranks = strategy.tp * strategy.cp * strategy.dp
    return {
        "tp x cp x pp x dp = devices": ranks * strategy.pp == sum(_devices_in_use(context, strategy)),
        "every device group in use holds whole ranks or whole replicas": _groups_hold(context, strategy),
        "mbs x dp x micro-batches = global batch": strategy.mbs
        * strategy.dp
        * strategy.num_micro_batches(job.global_batch)
        == job.global_batch,
        "stages hold every layer once": sum(strategy.stages) == model.num_blocks
        and all(size or stage in (0, len(strategy.stages) - 1) for stage, size in enumerate(strategy.stages))
        and len(strategy.stages) == strategy.pp * strategy.vpp,
        "experts divide over their ranks": ranks % (strategy.ep * strategy.etp) == 0
        and (not model.is_moe or model.num_experts % strategy.ep == 0),
    }


def _devices_in_use(context: Context, strategy: Strategy) -> list[int]:
    """Devices of every group that a rank names, of every group where none is named."""
    cluster = context.facts.cluster
    used = {name for text in strategy.stage_groups for name in text.split("/")} or set(cluster.group_names)
    groups = zip(cluster.group_names, cluster.groups, strict=True)
    return [group.num_devices for name, group in groups if name in used]


def _groups_hold(context: Context, strategy: Strategy) -> bool:
    """Ranks of one group stand in one run and take all of its devices; groups that share ranks hold whole replicas."""
    named, cluster = strategy.stage_groups, context.facts.cluster
    if not named:
        return not cluster.is_mixed
    sizes = dict(zip(cluster.group_names, (group.num_devices for group in cluster.groups), strict=True))
    runs = [text for index, text in enumerate(named) if index == 0 or named[index - 1] != text]
    names = [name for text in runs for name in text.split("/")]
    if len(named) != strategy.pp or len(set(names)) < len(names):
        return False
    if len(names) == len(runs):
        ranks = strategy.tp * strategy.cp * strategy.dp
        return all(named.count(name) * ranks == sizes[name] for name in runs)
    replica = strategy.tp * strategy.cp * strategy.pp
    return len(runs) == 1 and all(sizes[name] % replica == 0 for name in names)


def walked_bytes(context: Context, strategy: Strategy) -> list[float]:
    """Peak bytes of every rank, its operation list walked forward by forward and backward by backward."""
    mesh = context.mesh_of(strategy)
    starts = np.concatenate(([0], np.cumsum(strategy.stages)))
    full, last = strategy.full_layers(), len(strategy.stages) - 1
    peaks: list[float] = []
    for rank, listed in enumerate(operations(mesh.schedule, mesh.pp, mesh.vpp, mesh.num_micro_batches)):
        own = mesh.of_rank(rank)
        table, at_rest, stepping, highest = own.table, own.rules.rank_constant_bytes, 0.0, 0.0
        saved, halfway = [0.0] * mesh.vpp, [0.0] * mesh.vpp
        for chunk in range(mesh.vpp):
            stage = stage_of(mesh.schedule, mesh.pp, rank, chunk)
            first, stop = int(starts[stage]) + (stage > 0), int(starts[stage + 1]) + 1 + (stage == last)
            for row in reversed(range(first, stop)):  # behind a row nothing of the chunk is freed yet
                again = 1 <= row - int(starts[stage]) <= full[stage]
                kept = (table.full_saved_bytes if again else table.saved_bytes)[row]
                instant = (table.full_transient_bytes if again else table.transient_bytes)[row]
                highest = max(highest, float(instant) - saved[chunk] + halfway[chunk])
                saved[chunk] += float(kept)
                if mesh.schedule.splits_backward:
                    halfway[chunk] += float((table.full_halfway_bytes if again else table.halfway_bytes)[row])
                at_rest += float(table.static_parts_bytes[:, row].sum())
                stepping += float(table.step_transient_bytes[row])
        change = {
            Phase.FORWARD: saved,
            Phase.BACKWARD: [-kept for kept in saved],
            Phase.INPUT_GRADIENT: [more - kept for more, kept in zip(halfway, saved, strict=True)],
            Phase.WEIGHT_GRADIENT: [-more for more in halfway],
        }
        held = np.cumsum([change[op.phase][op.chunk] for op in listed])
        # Not after the last: gradients that come with it may outweigh what was saved.
        peaks.append(at_rest + max(float(held[:-1].max()) + highest, stepping))
    return peaks


def simulated_step_s(context: Context, strategy: Strategy) -> float:
    """The step from the whole operation graph, without extending cycles."""
    mesh = context.mesh_of(strategy)
    where = stage_table(mesh.schedule, mesh.pp, mesh.vpp)
    starts = np.concatenate(([0], np.cumsum(strategy.stages)))
    last = len(strategy.stages) - 1
    full = np.asarray(strategy.full_layers(), dtype=np.int64)[where]
    forward, backward, weight, sync, tail, paired = (np.zeros(where.shape) for _ in range(6))
    for rank, chunk in np.ndindex(where.shape):
        stage = where[rank, chunk]
        rows = (starts[[stage]] + (stage > 0), starts[[stage + 1]] + 1 + (stage == last))
        one = chunk_costs(mesh.of_rank(rank), *rows, full[[rank], chunk])
        forward[rank, chunk], backward[rank, chunk] = one.forward_s[0], one.backward_s[0]
        weight[rank, chunk], sync[rank, chunk] = one.weight_s[0], one.sync_s[0]
        paired[rank, chunk] += one.forward_s[0]
        paired[rank, -1 - chunk] += one.backward_s[0]
        forward[rank, chunk] += one.forward_spare_s[0]
        backward[rank, chunk] += one.backward_spare_s[0]
        tail[rank, chunk] = one.optimizer_s[0] + mesh.of_rank(rank).rules.gather_exposed * one.gather_s[0]
    parts = {"input_gradient_s": np.maximum(backward - weight, 0.0), "weight_gradient_s": weight}
    if mesh.table.forward_spare_s is not None:
        parts |= {"paired_forward_s": paired, "paired_backward_s": np.zeros(where.shape)}
    durations = PipelineDurations(forward, backward, send_s=mesh.rules.send_s, link_s=mesh.link_s, **parts)
    point = (mesh.schedule, mesh.pp, mesh.vpp, mesh.num_micro_batches)
    ends = simulate(*point, durations, extend=False).rank_end_s
    rules = mesh.rules
    window = weight if mesh.schedule.splits_backward else backward
    own = [mesh.of_rank(rank).rules for rank in range(mesh.pp)]
    left = sync.sum(1) - np.asarray([rank.sync_overlap for rank in own]) * window.sum(1)
    exposed = np.maximum(np.asarray([rank.sync_exposed_min for rank in own]) * sync.sum(1), left)
    raw = float((ends + exposed).max()) + float(tail.sum(1).max()) + rules.step_fixed_s
    return raw * rules.straggler_factor


def _equal(what: str, found: float, stated: float) -> None:
    if not math.isclose(found, stated, rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-12):
        raise VerificationFailed(f"{what} is {found!r}, stated {stated!r}")
