"""A simulated step as columns: one entry an operation, in order of start."""

from typing import Any, Final

import numpy as np

from cost_models.schedule import Phase
from planner.simulate.simulation import Simulation

MAX_OPERATIONS: Final = 60_000
"""More than that no screen shows; the first ones are kept, and the answer says of how many."""
DIGITS: Final = 7
"""Decimals of a second: a tenth of a microsecond."""


def timeline(simulation: Simulation, most: int = MAX_OPERATIONS) -> dict[str, Any]:
    """Seconds of a step, of every rank's parts, and the columns of its first `most` operations."""
    made = simulation.operations
    total = len(made.rank)
    kept = slice(0, most)
    columns = {
        "rank": made.rank[kept].tolist(),
        "phase": made.phase[kept].tolist(),
        "chunk": made.chunk[kept].tolist(),
        "micro_batch": made.micro_batch[kept].tolist(),
        "start_s": np.round(made.start_s[kept], DIGITS).tolist(),
        "end_s": np.round(made.end_s[kept], DIGITS).tolist(),
        "joined": [int(value) for value in made.joined[kept]],
    }
    summary = simulation.to_json()
    return summary | {
        "phases": [phase.name.lower() for phase in sorted(Phase, key=int)],
        "barrier_s": simulation.barrier_s,
        "tail_end_s": simulation.tail_end_s,
        "reduction_s": list(simulation.reduction_s),
        "gather_s": list(simulation.gather_s),
        "optimizer_s": list(simulation.optimizer_s),
        "columns": columns,
        "operations_total": total,
    }
