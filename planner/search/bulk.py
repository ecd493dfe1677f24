"""Steps and bytes of thousands of strategies at once, without the words of a prediction; equal to `evaluate`.

Strategies are priced a batch per key, and all that share (schedule, p, v, m) run through the simulator together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost_models.chunk import (
    Array,
    ChunkCosts,
    MeshCosts,
    StepRules,
    exposed_sync_s,
    rank_peak_bytes,
    step_tail_s,
)
from cost_models.mesh import MeshKey, batch_of, mesh_key
from cost_models.mesh_costs import batch_rules, mesh_costs
from cost_models.pricing import Pricer
from cost_models.schedule import PipelineDurations, ScheduleName, in_flight, simulate
from cost_models.specs.strategy import Strategy
from cost_models.step import durations_of, sync_window_s
from planner.search.problem import chunks_of

TOGETHER = 16_384
"""Strategies whose schedules run together."""
PRICED = 2_048
"""Strategies priced together."""

Point = tuple[ScheduleName, int, int, int]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Step in seconds of every strategy, and whether it fits; arrays (n,)."""

    step_s: Array
    fits: NDArray[np.bool_]


@dataclass(slots=True)
class _Waiting:
    """Strategies of one point whose costs are known and whose schedule has not run; of each the seconds of every rank
    after its last backward, (p,), and of the longest tail. The tables of their meshes are not kept."""

    places: list[int]
    rules: list[StepRules]
    chunks: list[ChunkCosts]
    durations: list[PipelineDurations]
    exposed_s: list[Array]
    tail_s: list[float]

    def add(self, place: int, mesh: MeshCosts, chunks: ChunkCosts) -> None:
        """Add a strategy."""
        rules = mesh.rules
        self.places.append(place)
        self.rules.append(rules)
        self.chunks.append(chunks)
        self.durations.append(durations_of(mesh, chunks))
        exposed_s = exposed_sync_s(rules, chunks.sync_s.sum(1), sync_window_s(mesh, chunks))
        self.exposed_s.append(exposed_s[:, 0])
        self.tail_s.append(float(step_tail_s(rules, chunks.gather_s.sum(1), chunks.optimizer_s.sum(1)).max()))


def outcomes(pricer: Pricer, strategies: Sequence[Strategy]) -> Outcomes:
    """Steps of complete, legal strategies in their order."""
    found = Outcomes(np.zeros(len(strategies)), np.zeros(len(strategies), dtype=bool))
    for start in range(0, len(strategies), TOGETHER):
        waiting: dict[Point, _Waiting] = {}
        stop = min(start + TOGETHER, len(strategies))
        for first in range(start, stop, PRICED):
            _price(pricer, strategies, range(first, min(first + PRICED, stop)), waiting)
        for point, of_point in waiting.items():
            _run(point, of_point, found)
    return found


def _price(
    pricer: Pricer, strategies: Sequence[Strategy], places: range, waiting: dict[Point, _Waiting]
) -> None:
    groups: dict[MeshKey, list[int]] = {}
    for place in places:
        groups.setdefault(mesh_key(strategies[place]), []).append(place)
    for key, members in groups.items():
        priced = pricer.price(batch_of([strategies[place] for place in members], key))
        rules = batch_rules(pricer, priced)
        for row, place in enumerate(members):
            mesh, strategy = mesh_costs(pricer, priced, rules, row), strategies[place]
            chunks = chunks_of(mesh, np.array([strategy.stages]), np.array([strategy.full_layers()]))
            point = (mesh.schedule, mesh.pp, mesh.vpp, mesh.num_micro_batches)
            waiting.setdefault(point, _Waiting([], [], [], [], [], [])).add(place, mesh, chunks)


def _run(point: Point, waiting: _Waiting, found: Outcomes) -> None:
    """Simulate all strategies of a point together."""
    ends_s = simulate(*point, _joined(waiting.durations)).rank_end_s
    exposed_s = np.stack(waiting.exposed_s, axis=-1)
    fixed_s, factor = (
        np.array([getattr(rules, name) for rules in waiting.rules])
        for name in ("step_fixed_s", "straggler_factor")
    )
    pipeline_s = (ends_s + exposed_s).max(0) + np.array(waiting.tail_s)
    found.step_s[waiting.places] = (pipeline_s + fixed_s) * factor
    found.fits[waiting.places] = _fit(point, waiting)


def _fit(point: Point, waiting: _Waiting) -> NDArray[np.bool_]:
    """Whether each strategy of a point stays within its limits; a rank's constant bytes are added at the end."""
    names = ChunkCosts.__dataclass_fields__
    limit, constant, room = (
        np.array([getattr(one, name) for one in waiting.rules])
        for name in ("allocated_limit_bytes", "rank_constant_bytes", "host_room_bytes")
    )
    joined = {name: np.concatenate([getattr(c, name) for c in waiting.chunks], axis=-1) for name in names}
    fits = np.ones(len(waiting.rules), dtype=bool)
    for rank, vectors in enumerate(in_flight(*point).split_vectors):
        of_rank = ChunkCosts(**{name: values[rank] for name, values in joined.items()})
        peak = rank_peak_bytes(StepRules(), of_rank, np.asarray(vectors, dtype=np.float64)) + constant
        fits &= (peak <= limit) & (of_rank.host_bytes.sum(0) <= room)
    return fits


def _joined(parts: list[PipelineDurations]) -> PipelineDurations:
    """Durations of one instance each as a batch."""
    joined: dict[str, object] = {}
    for name in PipelineDurations.__dataclass_fields__:
        values = [getattr(part, name) for part in parts]
        if values[0] is None or np.ndim(values[0]) == 0:
            joined[name] = None if values[0] is None else np.array(values, dtype=float)
        else:
            joined[name] = np.concatenate(values, axis=-1)
    return PipelineDurations(**joined)  # type: ignore[arg-type]
