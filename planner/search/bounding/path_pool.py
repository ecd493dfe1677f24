"""Critical paths of what was simulated, kept by (schedule, p, v, m): bounds on every other cut of every other mesh.

A path of the schedule's graph is there whatever the durations are (cost_models.schedule.critical_path), so

    T >= sum of the path's operations + r[end] + max_i o[i]

for every choice. Meshes of one point stretch the same paths, so what one taught about uneven cuts holds for all.
"""

from dataclasses import dataclass, field

import numpy as np

from cost_models.chunk import Array, ChunkCosts, MeshCosts
from cost_models.schedule import ManyPaths, PathCoefficients, PipelineDurations, ScheduleName, critical_path
from cost_models.step import after_backward_s, durations_of
from planner.search.problem import steps_of

MOST_PATHS = 96
"""Paths kept of a point; the oldest go first."""

KNOWN_WITHIN = 1e-9
"""A path whose bound is as close as this to a step is as long as its longest."""

Point = tuple[ScheduleName, int, int, int]


@dataclass(slots=True)
class PathPool:
    """Paths by point."""

    paths: dict[Point, list[PathCoefficients]] = field(default_factory=dict)
    _together: dict[Point, ManyPaths] = field(default_factory=dict)  # of points that learned nothing since

    def bounds(self, mesh: MeshCosts, chunks: ChunkCosts, only_last: bool = False) -> Array:
        """Pipeline and tail seconds that the paths of the mesh's point leave to n choices, (n,); 0 without a path."""
        known = self._known(point_of(mesh), only_last)
        if known is None or not chunks.forward_s.shape[-1]:
            return np.zeros(chunks.forward_s.shape[-1])
        exposed_s, tail_s = after_backward_s(mesh, chunks)
        path_s = known.lower_bounds_s(durations_of(mesh, chunks)) + exposed_s[known.end_rank]
        found: Array = (path_s.max(0) + tail_s.max(0)) * (1.0 - 1e-12)
        return found

    def learn_longest(self, mesh: MeshCosts, chunks: ChunkCosts, step_s: float) -> None:
        """Keep the critical path of the one choice given unless a known path is as long as its step."""
        if steps_of(mesh, self.bounds(mesh, chunks))[0] < step_s * (1.0 - KNOWN_WITHIN):
            self.learn(mesh, chunks, 0)

    def _known(self, point: Point, only_last: bool) -> ManyPaths | None:
        """The paths of a point as one; None without any."""
        known = self.paths.get(point, [])
        if not known:
            return None
        if only_last:
            return ManyPaths.of(known[-1:])
        if point not in self._together:
            self._together[point] = ManyPaths.of(known)
        return self._together[point]

    def learn(self, mesh: MeshCosts, chunks: ChunkCosts, column: int) -> None:
        """Keep the critical path of one of n choices."""
        one = ChunkCosts(*(getattr(chunks, name)[..., [column]] for name in ChunkCosts.__dataclass_fields__))
        exposed_s = after_backward_s(mesh, one)[0][:, 0]
        path = critical_path(*point_of(mesh), _single(durations_of(mesh, one)), tail_s=exposed_s)
        known = self.paths.setdefault(point_of(mesh), [])
        known.append(path)
        del known[:-MOST_PATHS]
        self._together.pop(point_of(mesh), None)


def point_of(mesh: MeshCosts) -> Point:
    """(schedule, p, v, m) of a mesh."""
    return mesh.schedule, mesh.pp, mesh.vpp, mesh.num_micro_batches


def _single(durations: PipelineDurations) -> PipelineDurations:
    """The only instance of a batch of one."""
    parts = {name: getattr(durations, name) for name in PipelineDurations.__dataclass_fields__}
    return PipelineDurations(
        **{
            name: value[..., 0] if isinstance(value, np.ndarray) and value.ndim == 3 else value
            for name, value in parts.items()
        }
    )
