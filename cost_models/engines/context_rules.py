"""Legality of hierarchical context parallelism: heads exchanged inside groups of ranks, a ring across the groups."""

from collections.abc import Callable

import numpy as np

from cost_models.engines.rules import Facts, Rule, nearest_values
from cost_models.engines.space import Space
from cost_models.mesh import Bool, MeshBatch
from cost_models.operators.context import inner_ranks
from cost_models.specs.job import Job
from cost_models.specs.model import ModelSpec
from cost_models.specs.strategy import Strategy, divisors

SOURCE = "megatron/training/arguments.py: hierarchical_context_parallel_sizes"


def context_rules(space_of: Callable[[ModelSpec, Job], Space]) -> tuple[Rule, ...]:
    """Rules of `cp_kind=hierarchical:N`, of an engine's own space."""

    def unknown(facts: Facts, meshes: MeshBatch) -> Bool:
        has = space_of(facts.model, facts.job).hierarchical
        return np.full(meshes.size, inner_ranks(meshes.key.cp_kind) > 0 and not has)

    def unknown_sentence(
        facts: Facts, mesh: dict[str, int], strategy: Strategy
    ) -> tuple[str, tuple[str, ...]]:
        kinds = space_of(facts.model, facts.job).cp_kinds
        detail = f"cp_kind={strategy.cp_kind} is not what engine {facts.job.engine} has"
        return detail, tuple(f"cp_kind={kind}" for kind in kinds)

    return (
        Rule("cp_hierarchical", SOURCE, unknown, unknown_sentence),
        Rule("cp_hierarchical_sizes", SOURCE, _uneven, _uneven_sentence),
        Rule(
            "cp_hierarchical_heads",
            "transformer_engine: attention heads over a2a ranks",
            _heads,
            _heads_sentence,
        ),
    )


def _uneven(facts: Facts, meshes: MeshBatch) -> Bool:
    """Whether groups of N ranks, two at least, do not make the context ranks up."""
    inner = inner_ranks(meshes.key.cp_kind)
    if not inner:
        return np.zeros(meshes.size, dtype=bool)
    bad: Bool = (meshes.cp > 1) & ((meshes.cp % inner != 0) | (meshes.cp == inner) | (inner == 1))
    return bad


def _uneven_sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
    inner, cp = inner_ranks(strategy.cp_kind), mesh["cp"]
    legal = tuple(n for n in divisors(cp) if 1 < n < cp)
    near = nearest_values("cp_kind hierarchical:N with N", legal, inner) or (
        "cp_kind=ring",
        "cp_kind=ulysses",
    )
    return f"cp {cp} is not made of several groups of {inner} ranks", near


def _heads(facts: Facts, meshes: MeshBatch) -> Bool:
    inner = inner_ranks(meshes.key.cp_kind)
    bad = np.zeros(meshes.size, dtype=bool)
    if inner:
        for heads in (*facts.heads, *facts.kv_heads):
            bad |= (meshes.cp > 1) & (heads % (inner * meshes.tp) != 0)
    return bad


def _heads_sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
    inner, tp = inner_ranks(strategy.cp_kind), mesh["tp"]
    common = int(np.gcd.reduce((*facts.heads, *facts.kv_heads)))
    legal = tuple(n for n in divisors(common) if n % tp == 0 and n > tp)
    near = nearest_values("cp_kind hierarchical:N with N", tuple(n // tp for n in legal), inner)
    return (
        f"heads {facts.heads} and kv heads {facts.kv_heads} are not divisible by the {inner} inner ranks of "
        f"{strategy.cp_kind} x tp {tp}",
        near or ("cp_kind=ring", "tp 1"),
    )
