"""Lower bounds on the step of one mesh, in milliseconds and without a solver.

One chunk per rank: the rank program (rank_program.py), for the fixed K that is best if the engine takes one K.

Several chunks per rank: with S the seconds of one micro-batch over all blocks, rank i's list alone takes m t_i, and
chunk 0 of the i ranks before it, which hold at least the first i blocks, runs before its first operation and after
its last:

    T >= m t_i + h_i,   h_i = (embedding and first i blocks, forward and backward) + 2 i e          (i > 0; h_0 = 0)

    average:  p T >= m S + sum_i h_i
    whole numbers: with n blocks of at least c seconds, rank i recomputes at least f(n) = min(K, n - v + 1) + v - 1
                   blocks of at least x seconds each (one long chunk, the others of one block), so it holds at most the
                   largest n with h_i + m (edge_i + c n + x f(n)) <= T; over the ranks these must come to all such
                   blocks, for every c

edge_i is the embedding on rank 0 and the head on rank p - 1, x the least recompute of a block; f(n) = 0 for K = 0.
The longest tail is at least the average one and that of either edge.
"""

from dataclasses import dataclass, replace

import numpy as np

from cost_models.chunk import Array, MeshCosts, step_tail_s
from cost_models.schedule import in_flight
from planner.search.problem import has_partition, most_full, num_virtual_stages, step_of
from planner.search.rank_program import RankProgram, solve_rank_program
from planner.search.windows import takes_every_cut

# Halvings of the interval in which the whole-number bound lies: 2**-40 of it is left.
_HALVINGS = 40


Programs = list[tuple[int | None, RankProgram]]
"""Rank programs by K (None: the smallest that fits on each rank)."""


def inner_lower_bound(mesh: MeshCosts) -> float:
    """Least step of any choice of stages and recompute, infinite if provably none fits; seconds."""
    if not has_partition(mesh):
        return np.inf
    if mesh.schedule.splits_backward:
        return split_lower_bound(mesh)
    if not takes_every_cut(mesh.schedule, mesh.vpp, mesh.table.num_blocks):
        return chunks_lower_bound(mesh)
    return programs_lower_bound(mesh, *rank_programs(mesh, None))


def chunks_lower_bound(mesh: MeshCosts) -> float:
    """The same for several chunks per rank, and for models too deep for the rank program."""
    return step_of(mesh, np.inf if _is_short_of_memory(mesh) else chunk_bound(mesh, 0))


def split_lower_bound(mesh: MeshCosts) -> float:
    """The same for schedules that split their backward: no path bounds but the average rank and its first forwards.

    p T >= m S + sum_i (forwards of the embedding and at least the first i blocks, which the first forward of rank i
    waits for, and i e), plus the least tail. Chunk 0 of rank i is stage i in every such schedule.
    """
    table, ranks = mesh.table, np.arange(mesh.pp)
    forward_s = table.forward_parts_s.sum(0)
    total_s = forward_s.sum() + table.backward_parts_s.sum()
    before_s = np.concatenate(([0.0], forward_s[0] + np.cumsum(forward_s[1:-1][: mesh.pp - 1])))
    average_s = (mesh.num_micro_batches * total_s + (before_s + ranks * mesh.rules.send_s).sum()) / mesh.pp
    short = _is_short_of_memory(mesh)
    return step_of(mesh, np.inf if short else float(average_s) + _least_tail(mesh))


def programs_lower_bound(mesh: MeshCosts, programs: Programs, rest_s: float) -> float:
    """The same for one chunk per rank, from its rank programs and the bound on every K they leave out."""
    return step_of(mesh, min([rest_s, *(program.bound_s for _, program in programs)]))


def roomy_bound(mesh: MeshCosts, reach_s: float) -> float:
    """Pipeline and tail seconds that no choice is below without memory (v = 1), as little recomputed as may be."""
    roomy = replace(mesh, rules=replace(mesh.rules, allocated_limit_bytes=np.inf))
    return solve_rank_program(roomy, mesh.least_full, reach_s).bound_s


def rank_programs(mesh: MeshCosts, reach_s: float | None) -> tuple[Programs, float]:
    """Rank programs by K, and a bound on every K that is left out (v = 1; pipeline and tail seconds).

    Time does not fall with K, so once the program without memory is at `reach_s` (None: the least bound so far), larger
    K are at least there too.
    """
    if not mesh.uniform_full:
        return [(None, solve_rank_program(mesh, None, reach_s or 0.0))], np.inf
    roomy = replace(mesh, rules=replace(mesh.rules, allocated_limit_bytes=np.inf))
    programs: Programs = []
    least_s = np.inf
    for full in range(mesh.least_full, most_full(mesh) + 1):
        stop_s = least_s if reach_s is None else reach_s
        if full > mesh.least_full and np.isfinite(stop_s):
            rest_s = solve_rank_program(roomy, full).bound_s
            if rest_s >= stop_s:
                return programs, rest_s
        if full == mesh.least_full + 1 and np.isinf(stop_s) and _fits_nowhere(mesh):
            return programs, np.inf
        program = solve_rank_program(mesh, full, reach_s or 0.0)
        programs.append((full, program))
        least_s = min(least_s, program.bound_s)
        reached_s = least_s if reach_s is None else reach_s
        if program.all_fit and reached_s <= program.outside_s:
            break  # every larger K is slower than this one with the same cut, which fits
    return programs, np.inf


def _fits_nowhere(mesh: MeshCosts) -> bool:
    """Whether no cut fits even where every rank takes the recompute that it needs."""
    return bool(np.isinf(solve_rank_program(mesh, None).bound_s))


def chunk_bound(mesh: MeshCosts, full: int) -> float:
    """Bound of the module's docstring for all K >= `full`; pipeline and tail seconds."""
    rows_s = mesh.table.forward_parts_s.sum(0) + mesh.table.backward_parts_s.sum(0)
    blocks_s = rows_s[1:-1]
    m, ranks = mesh.num_micro_batches, np.arange(mesh.pp)
    edge_s = rows_s[0] * (ranks == 0) + rows_s[-1] * (ranks == mesh.pp - 1)
    head_s = np.concatenate(([0.0], rows_s[0] + np.cumsum(blocks_s[: mesh.pp - 1])))
    head_s = head_s + 2 * ranks * mesh.rules.send_s
    extra_s = np.sort(mesh.table.full_parts_s.sum(0)[1:-1])
    recompute_s = 0.0 if full == 0 else float(extra_s[: num_virtual_stages(mesh)].sum())
    average_s = (m * (rows_s.sum() + recompute_s) + head_s.sum()) / mesh.pp
    room = _Room(head_s + m * edge_s, m * float(extra_s[0]), full, mesh.vpp)
    whole_s = _whole_number_bound(blocks_s * m, room, float(average_s))
    return max(float(average_s), whole_s) + _least_tail(mesh)


@dataclass(frozen=True, slots=True)
class _Room:
    """How many blocks the ranks take within a time; seconds are those of the whole step."""

    taken_s: Array
    recompute_s: float
    full: int
    vpp: int

    def blocks(self, step_s: float, block_s: float) -> int:
        """Over all ranks, blocks of `block_s` each."""
        free_s = np.maximum(step_s - self.taken_s, 0.0)
        if self.full == 0:
            return _whole(free_s / block_s)
        most = self.full + self.vpp - 1  # recomputed blocks when the longest chunk has K or more
        short = np.minimum(_floor(free_s / (block_s + self.recompute_s)), most)
        long = _floor((free_s - most * self.recompute_s) / block_s)
        return int(np.maximum(short, np.where(long >= most, long, 0.0)).sum())

    def enough_s(self, number: int, block_s: float) -> float:
        """A time in which one rank alone takes all."""
        return float(self.taken_s.max()) + number * (block_s + self.recompute_s)


def _whole_number_bound(blocks_s: Array, room: _Room, low_s: float) -> float:
    """Least T at which the ranks' whole numbers of blocks come to all of them, for each least time of a block."""
    bound_s = low_s
    for block_s in np.unique(blocks_s[blocks_s > 0.0]).tolist():
        number = int((blocks_s >= block_s).sum())
        low, high = bound_s, room.enough_s(number, block_s)
        if room.blocks(low, block_s) >= number:
            continue
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if room.blocks(middle, block_s) >= number else (middle, high)
        bound_s = low
    return bound_s


def _floor(quotient: Array) -> Array:
    # A hair more than computed keeps the bound true when a quotient is rounded to just below a whole number.
    floored: Array = np.floor(quotient + 1e-9)
    return floored


def _whole(quotient: Array) -> int:
    return int(_floor(quotient).sum())


def _least_tail(mesh: MeshCosts) -> float:
    tail_s = step_tail_s(mesh.rules, mesh.table.gather_s, mesh.table.optimizer_s)
    return float(max(tail_s.sum() / mesh.pp, tail_s[0], tail_s[-1]))


def _is_short_of_memory(mesh: MeshCosts) -> bool:
    """Whether all ranks together lack the bytes of all blocks at their best recompute, or an edge its own.

    Peak of a rank >= static + sum over its chunks of held x saved, at the in-flight vector with the largest sum.
    """
    limit, table = mesh.rules.allocated_limit_bytes, mesh.table
    if np.isinf(limit):
        return False
    flight = in_flight(mesh.schedule, mesh.pp, mesh.vpp, mesh.num_micro_batches)
    waiting = ([vector[: mesh.vpp] for vector in vectors] for vectors in flight.split_vectors)
    fewest = min(min(max(vectors, key=sum)) for vectors in waiting)
    static = table.static_parts_bytes.sum(0)
    saved = np.minimum(table.saved_bytes, table.full_saved_bytes)
    saved[[0, -1]] = table.saved_bytes[[0, -1]]
    room = limit - mesh.rules.rank_constant_bytes
    total = float((static + fewest * saved).sum())
    return total > mesh.pp * room * (1 + 1e-9) or float(static[[0, -1]].max()) > room
