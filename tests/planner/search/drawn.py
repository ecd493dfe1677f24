"""Random complete, legal strategies of any request: every knob drawn from arithmetic and from the words that exist.

Nothing here knows the declared space or the code that lists it; an engine's rules alone say what is kept.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import replace

from cost_models.schedule import ScheduleName
from cost_models.specs.recompute import ALL_LAYERS, Recompute
from cost_models.specs.strategy import Strategy
from planner.situation import Situation

CP_KINDS = ("ring", "allgather", "ulysses", "hierarchical:2", "hierarchical:4")
MODULES = ("qkv_linear", "core_attn", "attn_proj", "expert_fc1", "moe_act")
ORDERS = (("tp", "cp", "ep", "dp", "pp"), ("tp", "cp", "ep", "pp", "dp"))
OFFLOADS = ("optimizer", "parameters", "optimizer:0.25", "optimizer:0.5", "optimizer:0.75")
MOST_TOKENS = 65_536
"""Tokens of a micro-batch that anybody asks for."""
TRIES = 60
"""Draws for one that is legal."""


def divisors(number: int, most: int) -> list[int]:
    """Divisors up to `most`."""
    return [d for d in range(1, min(number, most) + 1) if number % d == 0]


def drawn(situation: Situation, rng: random.Random, number: int) -> list[Strategy]:
    """`number` legal strategies, fewer where `TRIES` times as many draws do not give them."""
    found: list[Strategy] = []
    for _ in range(TRIES * number):
        if len(found) == number:
            break
        strategy = one(situation, rng)
        if strategy is not None and not situation.engine.violations(situation.facts, strategy):
            found.append(strategy)
    return found


def one(situation: Situation, rng: random.Random) -> Strategy | None:
    """A strategy on all devices of the groups that it uses; None where the batch does not divide."""
    model, batch = situation.model, situation.job.global_batch
    ranks, groups = placed(situation, rng)
    pp = len(groups)
    tp = rng.choice(divisors(ranks, 16))
    cp = rng.choice(divisors(ranks // tp, 16)) if rng.random() < 0.4 else 1
    dp = ranks // tp // cp
    if batch % dp or pp > model.num_blocks:
        return None
    schedule, vpp = pipe(pp, model.num_blocks, rng)
    stages = cut(model.num_blocks, pp * vpp, rng)
    replicate = rng.choice(divisors(dp, 64)) if rng.random() < 0.3 else 1
    experts = divisors(model.num_experts, 512) if model.is_moe else [1]
    return Strategy(
        tp=tp,
        cp=cp,
        pp=pp,
        vpp=vpp,
        ep=rng.choice(experts),
        etp=tp if model.is_moe and rng.random() < 0.3 else 1,
        dp=dp,
        dp_shard=dp // replicate,
        dp_replicate=replicate,
        zero=rng.randrange(4),
        mbs=rng.choice(divisors(batch // dp, max(MOST_TOKENS // situation.job.seq_len, 1))),
        sp=tp > 1 and rng.random() < 0.7,
        schedule=schedule,
        recompute=recompute(situation, stages, rng),
        stages=stages,
        cp_kind=rng.choice(CP_KINDS) if cp > 1 else CP_KINDS[0],
        order=rng.choice(ORDERS),
        offload=rng.choice(OFFLOADS) if rng.random() < 0.2 else "none",
        act_offload=moved(model.num_blocks, rng) if rng.random() < (0.3 if pp == 1 else 0.1) else "none",
        stage_groups=groups if situation.cluster.is_mixed else (),
    )


def placed(situation: Situation, rng: random.Random) -> tuple[int, tuple[str, ...]]:
    """Devices of every pipeline rank, and the groups of each: groups share all ranks, or each has ranks of its own."""
    cluster, blocks = situation.cluster, situation.model.num_blocks
    sizes = dict(zip(cluster.group_names, (group.num_devices for group in cluster.groups), strict=True))
    if not cluster.is_mixed:
        pp = rng.choice(divisors(cluster.num_devices, blocks))
        return cluster.num_devices // pp, ("",) * pp
    names = rng.sample(sorted(sizes), rng.randint(1, len(sizes)))
    if len(names) > 1 and rng.random() < 0.6:
        ranks = rng.choice(divisors(math.gcd(*(sizes[name] for name in names)), cluster.num_devices))
        return ranks, tuple(name for name in names for _ in range(sizes[name] // ranks))
    devices = sum(sizes[name] for name in names)
    pp = rng.choice(divisors(devices, blocks))
    return devices // pp, ("/".join(sorted(names, key=list(sizes).index)),) * pp


def pipe(pp: int, blocks: int, rng: random.Random) -> tuple[ScheduleName, int]:
    """A schedule and its chunks per rank."""
    most = max(blocks // pp, 1)
    schedule = rng.choice(list(ScheduleName)) if pp > 1 else ScheduleName.ONE_F_ONE_B
    if schedule is ScheduleName.INTERLEAVED:
        return (schedule, rng.randint(2, min(most, 8))) if most > 1 else (ScheduleName.ONE_F_ONE_B, 1)
    return schedule, 2 if schedule in (
        ScheduleName.ZB_V,
        ScheduleName.DUALPIPE_V,
        ScheduleName.DUALPIPE,
    ) else 1


def cut(blocks: int, count: int, rng: random.Random) -> tuple[int, ...]:
    """Blocks of every virtual stage: nearly even with a few moved, the ends often lighter, sometimes anything."""
    if count > blocks:
        return (1,) * count
    if rng.random() < 0.1:
        places = sorted(rng.sample(range(1, blocks), count - 1))
        return tuple(b - a for a, b in zip([0, *places], [*places, blocks], strict=True))
    base, extra = divmod(blocks, count)
    stages = [base] * count
    for stage in rng.sample(range(count), extra):
        stages[stage] += 1
    for _ in range(rng.choice((0, 0, 1, 2, 4)) if count > 1 else 0):
        giver, taker = rng.sample(range(count), 2)
        if stages[giver] > (giver not in (0, count - 1)):
            stages[giver] -= 1
            stages[taker] += 1
    return tuple(stages)


def recompute(situation: Situation, stages: tuple[int, ...], rng: random.Random) -> Recompute:
    """None, all, one number of full blocks, one for each stage, any scopes, or scopes beside full blocks."""
    scopes = sorted({scope.name for kind in situation.model.kinds.values() for scope in kind.scopes})
    some = tuple(rng.sample(scopes, rng.randint(0, min(len(scopes), 3))))
    each = tuple(rng.randint(0, n) for n in stages)
    choices = (
        Recompute(),
        Recompute((), ALL_LAYERS),
        Recompute((), rng.randint(1, max(stages))),
        Recompute((), each),
        Recompute(some),
        Recompute(("core_attn",)),
        Recompute(some, rng.randint(1, max(stages))),
    )
    return rng.choice(choices)


def moved(blocks: int, rng: random.Random) -> str:
    """Activations on the host."""
    modules = "+".join(sorted(rng.sample(MODULES, rng.randint(1, 3))))
    return rng.choice(("checkpoints", "blocks", f"blocks:{rng.randint(1, blocks)}", f"modules:{modules}"))


def cuts_of(strategy: Strategy, rng: random.Random, number: int) -> Iterator[Strategy]:
    """The same mesh with other cuts, recompute as far as it is one word for all stages."""
    full = strategy.recompute.full
    kept = replace(strategy.recompute, full=max(full) if isinstance(full, tuple) else full)
    for _ in range(number):
        yield replace(strategy, stages=cut(sum(strategy.stages), len(strategy.stages), rng), recompute=kept)
