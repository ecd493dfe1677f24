"""Small steps from a found plan until none helps: the last part of a search, without a bound of its own.

A step moves one block from one virtual stage to another (the last one of the first or the last virtual stage too, which
then holds the embedding or the head alone, where the engine can), drops one recompute scope, or recomputes one block
fewer in full. Such plans may lie outside the declared cuts and scopes; a better one lowers the best step, and
with it the lower bound of the certificate, which is never above the best step.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from cost_models.chunk import Index, MeshCosts
from cost_models.specs.recompute import ALL_LAYERS, Recompute
from cost_models.specs.strategy import Strategy
from planner.search.bounding.path_pool import PathPool
from planner.search.greedy import FullRule, improve
from planner.search.problem import chunks_of, excess_bytes, price_one, steps_of
from planner.search.space.search_state import Found, SearchState

MOST_MOVES = 40
MOST_ROUNDS = 8

POLISHED = 6
POLISH_WITHIN = 1.03
"""How many of the best plans are improved at the end, beside the fastest of each mesh that is shown, and how close to
the best they must be."""


Reached = tuple[Strategy, float]
"""A strategy and its step."""


@dataclass(frozen=True, slots=True)
class Polish:
    """How plans are improved: costs of a strategy's mesh as the search sees them, recompute that the user takes, and
    the scopes of the model."""

    costs_of: Callable[[Strategy], MeshCosts]
    takes: Callable[[Recompute], bool]
    scopes: tuple[str, ...]
    paths: PathPool
    priced: dict[Strategy, MeshCosts] = field(
        default_factory=dict
    )  # by strategy without stages and full recompute

    def improve_best(self, state: SearchState, wanted: int, late: Callable[[], bool]) -> None:
        """Improve the best plans, and the fastest of each mesh among those that are wanted beside the best."""
        near = sorted(state.found, key=lambda found: found.step_s)[:POLISHED]
        near += state.distinct()[: wanted + 1]
        for found in dict.fromkeys(f for f in near if f.step_s <= state.best_s * POLISH_WITHIN):
            if late():
                return
            better = self.improved(found.strategy)
            if better is not None and better[1] < found.step_s:
                state.offer(Found(*better))

    def improved(self, strategy: Strategy) -> Reached | None:
        """The end of small steps from a strategy, and its step; None if nothing fits."""
        best: Reached | None = None
        for _ in range(MOST_ROUNDS):
            now = best[0] if best else strategy
            found = self._reach(now)
            for again in self._recomputes(now.recompute):
                other = self._again(replace(now, recompute=again), np.inf if found is None else found[1])
                found = other if other is not None else found
            if found is None or (best is not None and found[1] >= best[1]):
                break
            best = found
        return best

    def _reach(self, strategy: Strategy) -> Reached | None:
        """Moves of single blocks under an unchanged recompute."""
        rule = _rule(strategy.recompute)
        mesh, starts = self._mesh(strategy), [strategy.stages]
        if mesh.lone_ends:
            starts += _with_empty_ends(strategy.stages)
        found = improve(mesh, np.asarray(starts), rule, self.paths, MOST_MOVES, lone_ends=mesh.lone_ends)
        if found is None:
            return None
        full = strategy.recompute.full
        again = replace(strategy.recompute, full=found.full_layers if isinstance(full, tuple) else full)
        return replace(strategy, stages=found.stages, recompute=again), found.step_s

    def _again(self, strategy: Strategy, reach_s: float) -> Reached | None:
        """The strategy and its step if it fits and is below `reach_s`, as far as the paths so far do not tell."""
        mesh, stages = self._mesh(strategy), np.asarray([strategy.stages])
        full = _rule(strategy.recompute)(stages)
        chunks = chunks_of(mesh, stages, full)
        if steps_of(mesh, self.paths.bounds(mesh, chunks))[0] >= reach_s:
            return None
        if (excess_bytes(mesh, chunks) > 0.0).any():
            return None
        step_s = price_one(mesh, strategy.stages, tuple(full[0].tolist())).step_s
        return (strategy, step_s) if step_s < reach_s else None

    def _mesh(self, strategy: Strategy) -> MeshCosts:
        """Costs of a strategy's mesh, priced once."""
        key = replace(strategy, stages=(), recompute=Recompute(strategy.recompute.scopes))
        if key not in self.priced:
            self.priced[key] = self.costs_of(strategy)
        return self.priced[key]

    def _recomputes(self, now: Recompute) -> Iterator[Recompute]:
        """One scope less, and one fully recomputed block fewer, as far as the user allows: more of either fits where
        this fits and is no faster."""
        fewer_scopes = (
            tuple(s for s in now.scopes if s != scope) for scope in self.scopes if scope in now.scopes
        )
        changed = [Recompute(scopes) for scopes in fewer_scopes]
        if isinstance(now.full, tuple):
            fewer = (
                tuple(k - (i == stage) for i, k in enumerate(now.full)) for stage in range(len(now.full))
            )
            changed += [Recompute((), counts) for counts in fewer if min(counts) >= 0]
        elif now.full > 0:
            changed += [Recompute((), now.full - 1)]
        yield from (recompute for recompute in changed if self.takes(recompute))


def _with_empty_ends(stages: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The cut with the last, the first and both virtual stages emptied into the shortest of the others: single moves
    may not lead there, for each alone lengthens the step."""
    found: list[tuple[int, ...]] = []
    for empty in ({-1}, {0}, {0, -1}):
        ends = {end % len(stages) for end in empty}
        cut = [0 if place in ends else blocks for place, blocks in enumerate(stages)]
        others = [place for place in range(len(stages)) if place not in ends]
        for _ in range(sum(stages) - sum(cut) if others else 0):
            cut[min(others, key=lambda place: cut[place])] += 1
        found += [tuple(cut)] if others else []
    return found


def _rule(recompute: Recompute) -> FullRule:
    """As many fully recomputed blocks as now; where every block is, the costs hold them already (mesh_table)."""
    full = np.asarray(0 if recompute.full == ALL_LAYERS else recompute.full)

    def rule(stages: Index) -> Index:
        limited: Index = np.minimum(full, stages)
        return limited

    return rule
