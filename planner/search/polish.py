"""Moves of single blocks from a found plan until none helps: the last step of a search, without a bound of its own."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cost_models.chunk import MeshCosts
from cost_models.mesh import batch_of, mesh_key
from cost_models.mesh_costs import batch_rules, mesh_costs
from cost_models.pricing import Pricer
from cost_models.specs.recompute import ALL_LAYERS
from cost_models.specs.strategy import Strategy
from planner.search.greedy import full_rule, improve

MOST_MOVES = 40

AsSearched = Callable[[MeshCosts, tuple[str, ...]], MeshCosts]
"""The costs of a mesh as the search sees them under the user's recompute restrictions."""


def polish(pricer: Pricer, as_searched: AsSearched, strategy: Strategy) -> tuple[Strategy, float] | None:
    """The strategy with better stages under the same number of recomputed blocks, and its step; None if none fits."""
    batch = batch_of([strategy], mesh_key(strategy))
    priced = pricer.price(batch)
    mesh = as_searched(mesh_costs(pricer, priced, batch_rules(pricer, priced), 0), strategy.recompute.scopes)
    number = strategy.recompute.full
    if isinstance(number, tuple):
        return None
    rule = full_rule(mesh, 0 if number == ALL_LAYERS else number, None)
    found = improve(mesh, np.asarray([strategy.stages]), rule, max_moves=MOST_MOVES)
    return (replace(strategy, stages=found.stages), found.step_s) if found else None
