"""Several chunks per rank: price every declared cut (windows.py) of a mesh under every K."""

from collections.abc import Callable

import numpy as np

from cost_models.chunk import MeshCosts
from planner.search.problem import (
    InnerSolution,
    chunks_of,
    fits_rank,
    num_virtual_stages,
    of_choices,
    price_many,
    steps_of,
)
from planner.search.windows import declared_cuts


def best_declared(
    mesh: MeshCosts, cutoff_s: float, late: Callable[[], bool] = lambda: False
) -> tuple[float, InnerSolution | None]:
    """Lower bound on the declared cuts of a mesh under every K, and the best of them if it is below `cutoff_s`.

    The bound is the best step where one was found, else the least of what was not simulated; infinite if none fits.
    Once it is late, larger K are only bounded: no cut gets faster with K.
    """
    cuts = declared_cuts(mesh.table.num_blocks, num_virtual_stages(mesh))
    best, bound_s = None, np.inf
    most = int(cuts.max(initial=0)) if mesh.may_recompute else 0
    for number in range(most + 1):
        chunks = chunks_of(mesh, cuts, np.minimum(number, cuts))
        busy_s = mesh.num_micro_batches * (chunks.forward_s + chunks.backward_s).sum(1).max(0)
        least_s = steps_of(mesh, busy_s)
        reach_s = min(cutoff_s, np.inf if best is None else best.step_s)
        if least_s.min(initial=np.inf) >= reach_s or (number > 0 and late()):
            return min(bound_s, float(least_s.min(initial=np.inf))), best
        near = least_s < reach_s  # the others only get slower with K
        bound_s = min(bound_s, float(least_s[~near].min(initial=np.inf)))
        cuts = cuts[near]
        full_layers = np.minimum(number, cuts)
        fits = fits_rank(mesh, of_choices(chunks, near)).all(axis=0)
        tried = np.flatnonzero(fits)
        if len(tried):
            steps = price_many(mesh, cuts[tried], full_layers[tried]).step_s
            first = int(np.argmin(steps))
            bound_s = min(bound_s, float(steps[first]))
            if steps[first] < reach_s:
                row = tried[first]
                cut, full = tuple(cuts[row].tolist()), tuple(full_layers[row].tolist())
                best = InnerSolution(cut, full, float(steps[first]))
        if fits.all():
            break  # a larger K is slower for every cut
    return bound_s, best
