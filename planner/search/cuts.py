"""Paths through the schedule's graph, each a linear lower bound on the step for every choice of stages.

    T >= sum f[i, c] F[i, c] + b[i, c] B[i, c] + edges e + r[end]

A path exists whatever the durations are, so its counts (f, b) may come from any durations: those of a solution (its
critical path closes the gap there) or changed ones (which show where the next bottleneck would be).
"""

from collections.abc import Iterator

import numpy as np

from cost_models.chunk import Array, MeshCosts, exposed_sync_s
from cost_models.schedule import PathCoefficients, PipelineDurations, ScheduleName, critical_path
from planner.search.problem import InnerSolution, chunks_of

# How much longer the durations of one rank are made to see the path through it.
_STRETCH = 0.02
# The same for the chunks that a rank of a pair runs in one phase of an interleaved step.
_PAIR_STRETCH = 0.1


def solution_paths(mesh: MeshCosts, solution: InnerSolution, *, stretched: bool) -> list[PathCoefficients]:
    """The critical path of a solution and, if `stretched`, those with each rank in turn a little slower."""
    forward_s, backward_s, exposed_s = solution_durations(mesh, solution)
    changes = [np.ones((mesh.pp, 1))]
    if stretched and mesh.pp > 1:
        changes += [1.0 + _STRETCH * (np.arange(mesh.pp) == rank)[:, None] for rank in range(mesh.pp)]
    return [_longest(mesh, forward_s * change, backward_s * change, exposed_s) for change in changes]


def pair_paths(mesh: MeshCosts, solution: InnerSolution) -> Iterator[PathCoefficients]:
    """Paths that stay on one rank while it runs its early chunks and on another while it runs its late ones.

    Interleaved ranks run p forwards of one chunk (beside backwards of another) before the next chunk's turn.
    Ranks whose chunks differ in length wait for each other by turns, so that the step grows with the sum over
    the turns of the longest rank in each; these paths say so.
    """
    forward_s, backward_s, exposed_s = solution_durations(mesh, solution)
    early = (np.arange(mesh.vpp) < mesh.vpp // 2).astype(np.float64)
    for one in range(mesh.pp):
        for other in range(mesh.pp):
            if one == other:
                continue
            forward, backward = np.ones(forward_s.shape), np.ones(forward_s.shape)
            forward[one] += _PAIR_STRETCH * early
            backward[one] += _PAIR_STRETCH * (1.0 - early)
            forward[other] += _PAIR_STRETCH * (1.0 - early)
            backward[other] += _PAIR_STRETCH * early
            yield _longest(mesh, forward_s * forward, backward_s * backward, exposed_s)


def rank_paths(mesh: MeshCosts) -> Iterator[PathCoefficients]:
    """Rank cuts: chunk 0 down to rank i, all of rank i, chunk 0 up to rank l <= i, for l = 0 and l = i.

    T >= sum_{j<i} F[j,0] + m t_i + sum_{l<=j<i} B[j,0] + (2 i - l) e + r_l.
    """
    for rank in range(mesh.pp):
        for end in sorted({0, rank}):
            forward = np.zeros((mesh.pp, mesh.vpp), dtype=np.int64)
            backward = forward.copy()
            forward[rank], backward[rank] = mesh.num_micro_batches, mesh.num_micro_batches
            forward[:rank, 0] = 1
            backward[end:rank, 0] = 1
            none = np.zeros_like(forward)
            yield PathCoefficients(forward, backward, none, none, 2 * rank - end, end)


def solution_durations(mesh: MeshCosts, solution: InnerSolution) -> tuple[Array, Array, Array]:
    """Forward and backward seconds (p, v) and exposed reduction (p,) of a solution."""
    costs = chunks_of(mesh, np.array([solution.stages]), np.array([solution.full_layers]))
    forward_s, backward_s = costs.forward_s[..., 0], costs.backward_s[..., 0]
    exposed_s = exposed_sync_s(mesh.rules, costs.sync_s[..., 0].sum(1), backward_s.sum(1))
    return forward_s, backward_s, exposed_s


def distinct(paths: list[PathCoefficients]) -> list[PathCoefficients]:
    """Without repetitions, in order."""
    seen: dict[tuple[bytes, bytes, int, int], PathCoefficients] = {}
    for path in paths:
        key = (path.forward_count.tobytes(), path.backward_count.tobytes(), path.edge_count, path.end_rank)
        seen.setdefault(key, path)
    return list(seen.values())


def _longest(mesh: MeshCosts, forward_s: Array, backward_s: Array, exposed_s: Array) -> PathCoefficients:
    durations = PipelineDurations(forward_s, backward_s, send_s=mesh.rules.send_s)
    shape: tuple[ScheduleName, int, int, int] = (mesh.schedule, mesh.pp, mesh.vpp, mesh.num_micro_batches)
    return critical_path(*shape, durations, tail_s=exposed_s)
