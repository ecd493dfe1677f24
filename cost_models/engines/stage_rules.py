"""Legality of what a mesh does not hold: stage boundaries, recompute, offload."""

from collections.abc import Iterator

from cost_models.engines.rules import Facts
from cost_models.engines.space import Space
from cost_models.errors import Violation
from cost_models.specs.offload import parse_act_offload, parse_offload
from cost_models.specs.strategy import Strategy


def even_stages(num_blocks: int, num_stages: int) -> tuple[int, ...]:
    """Blocks per virtual stage, as even as they go, the larger ones in the middle (the ends hold more beside)."""
    base, extra = divmod(num_blocks, num_stages)
    sizes = [base] * num_stages
    order = sorted(range(num_stages), key=lambda i: (-min(i, num_stages - 1 - i), i))
    for index in order[:extra]:
        sizes[index] += 1
    return tuple(sizes)


def default_stages(num_blocks: int, num_stages: int, lone_ends: bool) -> tuple[int, ...]:
    """Even stages; one or two more stages than blocks leave the embedding or the loss alone, where an engine can.

    The loss weighs more, so it is first to have a stage of its own (Megatron-LM's
    --account-for-loss-in-pipeline-split, then --account-for-embedding-in-pipeline-split).
    """
    alone = num_stages - num_blocks
    if lone_ends and alone in (1, 2) and num_blocks:
        return (*((0,) * (alone - 1)), *((1,) * num_blocks), 0)
    return even_stages(num_blocks, min(num_stages, num_blocks))


def stage_violations(facts: Facts, strategy: Strategy, space: Space) -> tuple[Violation, ...]:
    """Broken rules of stages, recompute and offload."""
    return (
        *_stages(facts, strategy, space),
        *_recompute(facts, strategy, space),
        *_offload(strategy, space),
    )


def _stages(facts: Facts, strategy: Strategy, space: Space) -> Iterator[Violation]:
    blocks, wanted = facts.model.num_blocks, strategy.pp * strategy.vpp
    even = "+".join(str(n) for n in even_stages(blocks, wanted))
    source = "megatron/core/transformer/transformer_block.py get_num_layers_to_build"
    if len(strategy.stages) != wanted:
        named = len(strategy.stages)
        detail = f"stages names {named} virtual stages, but pp {strategy.pp} x vpp {strategy.vpp} = {wanted}"
        yield Violation("stages_count", detail, (f"stages={even}",), source)
    elif sum(strategy.stages) != blocks:
        detail = f"stages sum to {sum(strategy.stages)} layers, but {facts.model.name} has {blocks}"
        yield Violation("stages_sum", detail, (f"stages={even}",), source)
    elif 0 in strategy.stages and (0 in strategy.stages[1:-1] or not space.lone_ends):
        where = strategy.stages.index(0, 0 if not space.lone_ends else 1)
        detail = f"virtual stage {where} of {wanted} holds no layer"
        if space.lone_ends:
            detail += ", which only the first (embedding) and the last (loss) may"
        yield Violation("stages_empty", detail, (f"stages={even}",), source)
    elif space.uniform_chunks and strategy.vpp > 1 and len(set(strategy.stages)) > 1:
        detail = (
            f"uneven stages {'+'.join(map(str, strategy.stages))} with vpp {strategy.vpp} are not accepted"
        )
        yield Violation("stages_uneven_interleaved", detail, ("vpp 1",), source)


def _recompute(facts: Facts, strategy: Strategy, space: Space) -> Iterator[Violation]:
    known = (*facts.model.recompute_scopes, *space.own_scopes)
    apart = space.recomputed_apart(facts.model)
    for scope in strategy.recompute.scopes:
        if scope not in known:
            nearest = (f"one of {', '.join(known)}",) if known else ("recompute=none", "recompute=full")
            yield Violation(
                "recompute_scope", f"{facts.model.name} has no recompute scope {scope!r:.60}", nearest
            )
        elif scope not in apart:
            detail = f"engine {facts.job.engine} recomputes whole layers, not {scope} apart"
            yield Violation("recompute_scope", detail, ("recompute=full", "recompute=none"))
    full = strategy.recompute.full
    if not space.full_recompute and full:
        yield Violation("recompute_full", "full recompute is not available here", ("recompute=none",))
    if isinstance(full, tuple):
        if len(full) != len(strategy.stages):
            detail = f"recompute=full names {len(full)} counts for {len(strategy.stages)} virtual stages"
            yield Violation(
                "recompute_count", detail, ("one number for all", f"{len(strategy.stages)} numbers")
            )
        elif space.uniform_full and len(set(strategy.full_layers())) > 1:
            detail = "this engine takes one --recompute-num-layers for all stages, not one per stage"
            yield Violation(
                "recompute_per_stage",
                detail,
                (f"recompute=full:{max(full)}",),
                "megatron/training/arguments.py",
            )
    if strategy.recompute.scopes and full:
        detail = f"recompute={strategy.recompute.text()} mixes full and selective"
        source = "megatron/training/arguments.py: recompute_granularity is full or selective"
        yield Violation("recompute_mixed", detail, ("recompute=full:K", "recompute=selective"), source)


def _offload(strategy: Strategy, space: Space) -> Iterator[Violation]:
    """Parameters rest on the host where they are divided; activations of blocks that are not recomputed."""
    if parse_offload(strategy.offload).parameters and strategy.zero < 2 and "parameters" in space.offload:
        yield Violation(
            "offload_zero",
            f"offload=parameters with zero {strategy.zero}: every rank would need all parameters on its device",
            ("zero 2 or 3", "offload=optimizer"),
            "torch.distributed.fsdp CPUOffloadPolicy",
        )
    full = strategy.recompute.full
    recomputed = any(full) if isinstance(full, tuple) else full
    if parse_act_offload(strategy.act_offload).kind in ("blocks", "modules") and recomputed:
        moved, recompute = strategy.act_offload, strategy.recompute.text()
        detail = f"act_offload={moved:.60} with recompute={recompute:.60}, which keeps inputs alone"
        nearest = tuple(f"act_offload={kind}" for kind in space.act_offload if kind == "checkpoints")
        yield Violation("act_offload_recompute", detail, (*nearest, "recompute=none"))
