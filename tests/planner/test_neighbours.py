"""No one-knob neighbour of the best plans beats the plan. The generator here knows nothing of the declared space."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from cost_models.schedule import ScheduleName
from cost_models.specs.recompute import Recompute
from cost_models.specs.strategy import Strategy
from planner.evaluation import Context
from planner.make_plan import make_plan
from planner.request import SearchRequest
from planner.search.bulk import outcomes

DEGREES = ("tp", "cp", "pp", "ep", "etp", "mbs")
ALL = -1


def even(blocks: int, count: int) -> tuple[int, ...]:
    """Blocks spread over stages, the remainder on the middle ones."""
    base, extra = divmod(blocks, count)
    first = (count - extra) // 2
    return tuple(base + (first <= stage < first + extra) for stage in range(count))


def completed(plan: Strategy, devices: int, blocks: int) -> Strategy | None:
    """The same degrees on all devices: dp follows, stages and schedule too where pp or vpp changed."""
    inner = plan.tp * plan.cp * plan.pp
    if devices % inner or plan.pp * plan.vpp > blocks:
        return None
    dp = devices // inner
    replicate = plan.dp_replicate if dp % plan.dp_replicate == 0 else 1
    plan = replace(plan, dp=dp, dp_replicate=replicate, dp_shard=dp // replicate)
    if len(plan.stages) == plan.pp * plan.vpp:
        return plan
    full = plan.recompute.full
    number = max(full) if isinstance(full, tuple) else full
    if plan.vpp == 1 and plan.schedule is ScheduleName.INTERLEAVED:
        plan = replace(plan, schedule=ScheduleName.ONE_F_ONE_B)
    if plan.vpp > 1:
        plan = replace(plan, schedule=ScheduleName.INTERLEAVED)
    stages = even(blocks, plan.pp * plan.vpp)
    return replace(plan, stages=stages, recompute=replace(plan.recompute, full=number))


def scaled(plan: Strategy, name: str, up: bool) -> Strategy | None:
    """One degree doubled or halved; ranks without tensor parallelism have no sequence parallelism."""
    value = getattr(plan, name)
    if not up and value % 2:
        return None
    plan = replace(plan, **{name: value * 2 if up else value // 2})
    return replace(plan, sp=plan.sp and plan.tp > 1)


def degrees(plan: Strategy) -> Iterator[Strategy]:
    """Each degree doubled and halved, and all pairs of such changes; dp follows."""
    changes = [(name, up) for name in DEGREES for up in (True, False)]
    for first, up in changes:
        one = scaled(plan, first, up)
        if one is None:
            continue
        yield one
        others = (scaled(one, second, again) for second, again in changes if second > first)
        yield from (other for other in others if other is not None)


def knobs(plan: Strategy) -> Iterator[Strategy]:
    """Chunks, sequence parallelism, sharding, replicas, schedule."""
    for vpp in {plan.vpp - 1, plan.vpp + 1, plan.vpp * 2} - {0}:
        yield replace(plan, vpp=vpp)
    yield replace(plan, sp=not plan.sp)
    for zero in (plan.zero - 1, plan.zero + 1):
        if 0 <= zero <= 3:
            yield replace(plan, zero=zero)
    yield replace(plan, dp_replicate=plan.dp_replicate * 2)
    if plan.dp_replicate % 2 == 0:
        yield replace(plan, dp_replicate=plan.dp_replicate // 2)
    for schedule in ScheduleName:
        yield replace(plan, schedule=schedule)
    for kind in ("ring", "allgather", "ulysses"):
        yield replace(plan, cp_kind=kind)
    for order in (("tp", "cp", "ep", "dp", "pp"), ("tp", "cp", "ep", "pp", "dp")):
        yield replace(plan, order=order)
    for offload in ("none", "optimizer", "parameters"):
        yield replace(plan, offload=offload)


def offloads(plan: Strategy) -> Iterator[Strategy]:
    """Other shares of the optimizer and other activations on the host, with and without recompute."""
    for share in ("optimizer:0.25", "optimizer:0.5", "optimizer:0.75"):
        yield replace(plan, offload=share)
    blocks = sum(plan.stages)
    quarters = (f"blocks:{blocks * part // 4}" for part in (1, 2, 3))
    for moved in ("none", "checkpoints", "blocks", f"blocks:{blocks - 1}", *quarters):
        yield replace(plan, act_offload=moved)
        for recompute in (Recompute(), Recompute((), ALL)):
            yield replace(plan, act_offload=moved, recompute=recompute)


def recomputes(plan: Strategy, scopes: tuple[str, ...]) -> Iterator[Strategy]:
    """None, selective (one scope, all, one more or less than now), full, and one full block more or less."""
    now = plan.recompute.scopes
    toggled = [tuple(s for s in scopes if (s in now) != (s == scope)) for scope in scopes]
    for base in ((), scopes, *((scope,) for scope in scopes), *toggled):
        yield replace(plan, recompute=Recompute(base))
    yield replace(plan, recompute=Recompute((), ALL))
    full = plan.recompute.full
    counts = full if isinstance(full, tuple) else (full,)
    for index, more in ((i, more) for i in range(len(counts)) for more in (-1, 1)):
        changed = tuple(n + more * (i == index) for i, n in enumerate(counts))
        if min(changed) >= 0:
            number = changed if isinstance(full, tuple) else changed[0]
            yield replace(plan, recompute=Recompute((), number))


def moves(plan: Strategy) -> Iterator[Strategy]:
    """One block from any virtual stage to any other; the first and the last may give their last one."""
    ends = (0, len(plan.stages) - 1)
    for giver in range(len(plan.stages)):
        for taker in range(len(plan.stages)):
            if giver != taker and plan.stages[giver] > (giver not in ends):
                change = [n - (i == giver) + (i == taker) for i, n in enumerate(plan.stages)]
                yield replace(plan, stages=tuple(change))


def neighbours(plan: Strategy, situation) -> Iterator[Strategy]:
    """All one-knob neighbours on the same devices, legal or not."""
    devices, blocks = situation.cluster.num_devices, situation.model.num_blocks
    scopes = tuple(sorted({s.name for kind in situation.model.kinds.values() for s in kind.scopes}))
    for changed in (*degrees(plan), *knobs(plan)):
        whole = completed(changed, devices, blocks)
        if whole is not None:
            yield whole
            if whole.tp > 1 and plan.tp == 1:
                yield replace(whole, sp=True)
    yield from recomputes(plan, scopes)
    yield from moves(plan)


def check(situation, *, at_least: int, top_k: int = 19, pins: dict | None = None) -> None:
    """Plan, draw the neighbours of the best `top_k` + 1 plans, and compare."""
    pins = pins or {}
    result = make_plan(situation, SearchRequest(top_k=top_k, pins=pins, max_seconds=3600.0))
    assert result.best is not None
    plans = [result.best.strategy, *(a.strategy for a in result.alternatives)]
    drawn = list(dict.fromkeys(other for plan in plans for other in neighbours(plan, situation)))
    if pins.get("offload") == "allowed":
        drawn += [other for plan in plans for other in offloads(plan)]
    drawn = [
        other
        for other in drawn
        if all(getattr(other, key) == n for key, n in pins.items() if key != "offload")
    ]
    legal = [other for other in drawn if not situation.engine.violations(situation.facts, other)]
    found = outcomes(Context.of(situation).pricer, legal)
    assert found.fits.sum() >= at_least
    gain = np.where(found.fits, 1.0 - found.step_s / result.best.step_s, 0.0)
    better = [f"{gain[i]:.2e} {legal[i].text()}" for i in np.argsort(-gain) if gain[i] > 1e-9]
    assert not better, f"{len(better)} beat {result.best.strategy.text()}: {better[:5]}"


REQUESTS = [
    ("llama-3.1-8b", "dgx-h100", 16, "megatron", 8192, 128),
    ("mixtral-8x7b", "dgx-h100", 32, "megatron", 4096, 256),
    ("llama-3.1-8b", "dgx-h100", 8, "torch", 8192, 64),
    ("llama-3.1-8b", "dgx-h100", 16, "fsdp2", 8192, 64),
]


@pytest.mark.parametrize("request_of", REQUESTS, ids=lambda r: f"{r[0]}-{r[3]}-{r[2]}")
def test_no_neighbour_beats_the_plan(make_situation, request_of):
    model, cluster, devices, engine, seq_len, batch = request_of
    of = make_situation(model, cluster, devices, engine=engine, seq_len=seq_len, global_batch=batch)
    check(of, at_least=10)


OFFLOADING = [
    ("fsdp2", 65_536, {"tp": 1, "cp": 1}),
    ("megatron", 8_192, {"tp": 1, "cp": 1, "pp": 1}),
    ("deepspeed", 65_536, {"tp": 1, "cp": 1, "pp": 1}),
]


@pytest.mark.parametrize("request_of", OFFLOADING, ids=lambda r: r[0])
def test_no_other_offload_beats_the_plan_where_all_is_allowed(make_situation, request_of):
    engine, seq_len, pins = request_of
    options = {"engine.fused_cross_entropy": True}
    job = {"engine": engine, "seq_len": seq_len, "global_batch": 8, "options": options}
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, **job)
    check(of, at_least=3, top_k=2, pins=pins | {"offload": "allowed"})


LARGE = [
    ("llama-3.1-70b", "dgx-h100", 64, 8192, 512),
    ("deepseek-v3", "dgx-h800", 2048, 4096, 15360),
    ("llama-3.1-70b", "dgx-a100", 128, 4096, 1024),
    ("qwen3-235b-a22b", "dgx-h200", 256, 4096, 2048),
]


@pytest.mark.slow
@pytest.mark.parametrize("request_of", LARGE[:1], ids=lambda r: f"{r[0]}-{r[2]}")
def test_no_neighbour_beats_a_large_plan(make_situation, request_of):
    model, cluster, devices, seq_len, batch = request_of
    of = make_situation(model, cluster, devices, seq_len=seq_len, global_batch=batch)
    check(of, at_least=100, top_k=2)


@pytest.mark.matrix
@pytest.mark.parametrize("request_of", LARGE, ids=lambda r: f"{r[0]}-{r[2]}")
def test_no_neighbour_of_many_beats_a_large_plan(make_situation, request_of):
    model, cluster, devices, seq_len, batch = request_of
    check(make_situation(model, cluster, devices, seq_len=seq_len, global_batch=batch), at_least=100)
