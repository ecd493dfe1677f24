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

TOGETHER = 2_048
"""Strategies priced together."""

Point = tuple[ScheduleName, int, int, int]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Step in seconds of every strategy, and whether it fits; arrays (n,)."""

    step_s: Array
    fits: NDArray[np.bool_]


@dataclass(slots=True)
class _Waiting:
    """Strategies of one point whose costs are known and whose schedule has not run."""

    places: list[int]
    meshes: list[MeshCosts]
    chunks: list[ChunkCosts]


def outcomes(pricer: Pricer, strategies: Sequence[Strategy]) -> Outcomes:
    """Steps of complete, legal strategies in their order."""
    found = Outcomes(np.zeros(len(strategies)), np.zeros(len(strategies), dtype=bool))
    for start in range(0, len(strategies), TOGETHER):
        waiting: dict[Point, _Waiting] = {}
        _price(pricer, strategies, range(start, min(start + TOGETHER, len(strategies))), waiting)
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
            of_point = waiting.setdefault(point, _Waiting([], [], []))
            of_point.places.append(place)
            of_point.meshes.append(mesh)
            of_point.chunks.append(chunks)


def _run(point: Point, waiting: _Waiting, found: Outcomes) -> None:
    """Simulate all strategies of a point together."""
    durations = [
        durations_of(mesh, chunks) for mesh, chunks in zip(waiting.meshes, waiting.chunks, strict=True)
    ]
    ends_s = simulate(*point, _joined(durations)).rank_end_s
    fits = _fit(point, waiting)
    for column, (place, mesh, chunks) in enumerate(
        zip(waiting.places, waiting.meshes, waiting.chunks, strict=True)
    ):
        rules = mesh.rules
        exposed_s = exposed_sync_s(rules, chunks.sync_s.sum(1), sync_window_s(mesh, chunks))[:, 0]
        tail_s = step_tail_s(rules, chunks.gather_s.sum(1), chunks.optimizer_s.sum(1)).max()
        pipeline_s = (ends_s[:, column] + exposed_s).max() + tail_s
        found.step_s[place] = (pipeline_s + rules.step_fixed_s) * rules.straggler_factor
        found.fits[place] = fits[column]


def _fit(point: Point, waiting: _Waiting) -> NDArray[np.bool_]:
    """Whether each strategy of a point stays within its limits; a rank's constant bytes are added at the end."""
    names = ChunkCosts.__dataclass_fields__
    rules = [mesh.rules for mesh in waiting.meshes]
    limit, constant, room = (
        np.array([getattr(one, name) for one in rules])
        for name in ("allocated_limit_bytes", "rank_constant_bytes", "host_room_bytes")
    )
    joined = {name: np.concatenate([getattr(c, name) for c in waiting.chunks], axis=-1) for name in names}
    fits = np.ones(len(rules), dtype=bool)
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
