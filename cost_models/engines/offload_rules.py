"""Legality of what rests in the host's memory: kinds that an engine has, and how many blocks it moves."""

from collections.abc import Callable

import numpy as np

from cost_models.engines.rules import Facts, Rule
from cost_models.engines.space import Space
from cost_models.mesh import Bool, MeshBatch
from cost_models.specs.job import Job
from cost_models.specs.model import ModelSpec
from cost_models.specs.offload import ALL_BLOCKS, parse_act_offload
from cost_models.specs.strategy import Strategy

SpaceOf = Callable[[ModelSpec, Job], Space]
LAYERS = "megatron/core/transformer/transformer_config.py: cpu_offloading_num_layers"


def offload_rules(space_of: SpaceOf) -> tuple[Rule, ...]:
    """Rules of states and activations on the host, of an engine's own space."""

    def of(facts: Facts) -> Space:
        return space_of(facts.model, facts.job)

    def unknown(facts: Facts, meshes: MeshBatch) -> Bool:
        return np.full(meshes.size, meshes.key.offload.kind not in ("none", *of(facts).offload))

    def sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
        kinds = of(facts).offload
        detail = f"offload={strategy.offload:.60} is not modelled for engine {facts.job.engine}"
        return detail, (f"one of none, {', '.join(kinds)}",) if kinds else ("offload=none",)

    return Rule("offload", "what the engine can keep on the host", unknown, sentence), *_activations(of)


def _activations(of: Callable[[Facts], Space]) -> tuple[Rule, ...]:
    def unknown(facts: Facts, meshes: MeshBatch) -> Bool:
        return np.full(meshes.size, meshes.key.activations.kind not in ("none", *of(facts).act_offload))

    def sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
        legal = tuple(f"act_offload={kind}" for kind in ("none", *of(facts).act_offload))
        return f"act_offload={strategy.act_offload:.60} is not what engine {facts.job.engine} has", legal

    def too_many(facts: Facts, meshes: MeshBatch) -> Bool:
        return np.full(meshes.size, _blocks(meshes.key.activations.blocks, facts) > _most(of(facts), facts))

    def layers(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
        total, most = facts.model.num_blocks, _most(of(facts), facts)
        given = _blocks(parse_act_offload(strategy.act_offload).blocks, facts)
        return f"activations of {given} of {total} layers offloaded; at most {most}", (
            f"act_offload=blocks:{most}" if most else "act_offload=none",
        )

    return (
        Rule("act_offload", "what the engine can keep on the host", unknown, sentence),
        Rule("act_offload_layers", LAYERS, too_many, layers),
    )


def _blocks(blocks: int, facts: Facts) -> int:
    """Blocks that are meant, all of them in numbers."""
    return facts.model.num_blocks if blocks == ALL_BLOCKS else blocks


def _most(space: Space, facts: Facts) -> int:
    return facts.model.num_blocks if space.most_offloaded is None else space.most_offloaded
