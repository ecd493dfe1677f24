"""Every pipeline rank of one strategy: how long it works in a step and on what, how much memory a block takes there.

busy = micro-batches x (forward + backward) + gradient reduction that nothing hides + optimizer; the rest of the step
the rank waits for others.
"""

from dataclasses import dataclass

import numpy as np

from cost_models.chunk import Array
from cost_models.specs.strategy import Strategy
from cost_models.step import step_costs
from planner.evaluation import Context

ROUNDING = 1e-9
"""Slack below this share of the step is the rounding of sums."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Seconds of a step and, of every pipeline rank, arrays (p,): busy and waiting seconds, room for more bytes."""

    step_s: float
    busy_s: Array
    room_bytes: Array  # below the most allocated bytes whose verdict is `fits`

    @property
    def slack_s(self) -> Array:
        """How much longer each rank could work before it is as busy as the busiest."""
        slack: Array = self.busy_s.max() - self.busy_s
        return np.where(slack > ROUNDING * self.step_s, slack, 0.0)


def ranks_of(context: Context, strategy: Strategy) -> Ranks:
    """Price one strategy and look at each of its pipeline ranks."""
    mesh = context.mesh_of(strategy)
    costs = step_costs(mesh, strategy.stages, strategy.full_layers())
    working = np.asarray(costs.timeline.rank_busy_s).reshape(mesh.pp)
    busy = (working + costs.sync_exposed_s + costs.tail_s) * mesh.rules.straggler_factor
    limits = np.asarray([mesh.of_rank(rank).rules.allocated_limit_bytes for rank in range(mesh.pp)])
    room = limits - costs.peak_bytes
    return Ranks(costs.step_s, np.asarray(busy), np.asarray(room))
