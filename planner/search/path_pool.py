"""Critical paths of what was simulated, kept by (schedule, p, v, m): bounds on every other cut of every other mesh.

A path of the schedule's graph is there whatever the durations are (cost_models.schedule.critical_path), so

    T >= sum of the path's operations + r[end] + max_i o[i]

for every choice. Meshes of one point stretch the same paths, so what one taught about uneven cuts holds for all.
"""

from dataclasses import dataclass, field

import numpy as np

from cost_models.chunk import Array, ChunkCosts, MeshCosts
from cost_models.schedule import PathCoefficients, PipelineDurations, ScheduleName, critical_path
from cost_models.step import after_backward_s, durations_of

MOST_PATHS = 96
"""Paths kept of a point; the oldest go first."""

Point = tuple[ScheduleName, int, int, int]


@dataclass(slots=True)
class PathPool:
    """Paths by point."""

    paths: dict[Point, list[PathCoefficients]] = field(default_factory=dict)

    def bounds(self, mesh: MeshCosts, chunks: ChunkCosts, only_last: bool = False) -> Array:
        """Pipeline and tail seconds that the paths of the mesh's point leave to n choices, (n,); 0 without a path."""
        known = self.paths.get(point_of(mesh), [])[-1 if only_last else 0 :]
        bound = np.zeros(chunks.forward_s.shape[-1])
        if not known:
            return bound
        durations = durations_of(mesh, chunks)
        exposed_s, tail_s = after_backward_s(mesh, chunks)
        for path in known:
            bound = np.maximum(bound, path.lower_bound_s(durations) + exposed_s[path.end_rank])
        found: Array = (bound + tail_s.max(0)) * (1.0 - 1e-12)
        return found

    def learn(self, mesh: MeshCosts, chunks: ChunkCosts, column: int) -> None:
        """Keep the critical path of one of n choices."""
        one = ChunkCosts(*(getattr(chunks, name)[..., [column]] for name in ChunkCosts.__dataclass_fields__))
        exposed_s = after_backward_s(mesh, one)[0][:, 0]
        path = critical_path(*point_of(mesh), _single(durations_of(mesh, one)), tail_s=exposed_s)
        known = self.paths.setdefault(point_of(mesh), [])
        known.append(path)
        del known[:-MOST_PATHS]


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
