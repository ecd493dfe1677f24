"""What an expert looks at first in a layout: micro-batches, bubble, tokens of a product, links of each axis."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cost_models.communication.spans import Count
from cost_models.mesh import MeshBatch, batch_of, mesh_key
from cost_models.operators import Embedding
from cost_models.operators.base import Axis, padded_vocabulary
from cost_models.schedule import in_flight
from cost_models.specs.strategy import Strategy
from planner.situation import Situation


@dataclass(frozen=True, slots=True)
class LayoutFacts:
    """Counts of one layout. `bubble` is (p - 1) / (v m), the idle share of 1F1B with equal stages beside its busy time;
    `tokens` are those of one matrix product of a rank, `vocabulary_rows` those of the table with its padding; `links`
    names the outermost tier that each axis crosses."""

    micro_batches: int
    bubble: float
    in_flight: float
    layers_per_stage: str
    tokens: int
    gradient_shards: int
    vocabulary_rows: int
    links: Mapping[str, str]

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {
            "micro_batches": self.micro_batches,
            "bubble": self.bubble,
            "in_flight_first_stage": self.in_flight,
            "layers_per_stage": self.layers_per_stage,
            "tokens_per_product": self.tokens,
            "gradient_shards": self.gradient_shards,
            "vocabulary_rows": self.vocabulary_rows,
            "links": dict(self.links),
        }


def layout_facts(situation: Situation, strategy: Strategy) -> LayoutFacts:
    """The counts of a strategy in its situation."""
    micro = strategy.num_micro_batches(situation.job.global_batch)
    flights = in_flight(strategy.schedule, strategy.pp, strategy.vpp, micro).split_vectors[0]
    held = float(np.asarray(flights, dtype=float).sum(-1).max()) / strategy.vpp
    blocks = [sum(strategy.stages[rank :: strategy.pp]) for rank in range(strategy.pp)]
    low, high = min(blocks), max(blocks)
    return LayoutFacts(
        micro_batches=micro,
        bubble=(strategy.pp - 1) / (strategy.vpp * micro),
        in_flight=held,
        layers_per_stage=str(low) if low == high else f"{low} to {high}",
        tokens=strategy.mbs * max(situation.job.seq_len // strategy.cp, 1),
        gradient_shards=strategy.dp_shard * strategy.cp,
        vocabulary_rows=vocabulary_rows(situation, strategy.tp),
        links=dict(_links(situation, strategy)),
    )


def vocabulary_rows(situation: Situation, tp: int) -> int:
    """Rows of the embedding after the engine's padding; 0 where there is none."""
    style = situation.engine.style(situation.job, "ring")
    rows = [
        int(padded_vocabulary(op.vocab_size, float(tp), style))
        for kind in situation.model.kinds.values()
        for op in kind.operators
        if isinstance(op, Embedding)
    ]
    return max(rows, default=0)


def _links(situation: Situation, strategy: Strategy) -> list[tuple[str, str]]:
    meshes = batch_of([strategy], mesh_key(strategy))
    spans = _spans(meshes, strategy)
    cluster = situation.cluster
    return [
        (axis, cluster.tiers[cluster.tier_for_span(size * stride)].name)
        for axis, (size, stride) in spans.items()
        if size > 1
    ]


def _spans(meshes: MeshBatch, strategy: Strategy) -> dict[str, tuple[int, int]]:
    """Size and stride of each axis' groups."""
    shard, replicas, _ = meshes.data_spans()
    spans = {
        "tp": meshes.span(Axis.TP),
        "cp": meshes.span(Axis.CP),
        "ep": meshes.span(Axis.EP),
        "dp": shard,
        "dp_replicate": replicas,
    }
    found = {axis: (_first(span.size), _first(span.stride)) for axis, span in spans.items()}
    return found | {"pp": (2 if strategy.pp > 1 else 1, int(meshes.stage_stride[0]))}


def _first(value: Count) -> int:
    return int(np.asarray(value).reshape(-1)[0])
