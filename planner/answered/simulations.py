"""Simulations, read back with the operations that were sent."""

import numpy as np

from cost_models.schedule import OperationTimeline, Phase
from planner.answered.parts import STRANGE, Json, strange, strategy_of, value_of
from planner.simulate import RankTimeline, Simulation
from planner.situation import Situation


def simulation(situation: Situation, found: Json) -> Simulation:
    """A simulated step; of a long one the middle operations are missing. Raises BadInput for another object."""
    try:
        timeline, ends = found["timeline"], found["timeline"]["ranks"]
        ranks = ({**rank, "in_flight_by_chunk": tuple(rank["in_flight_by_chunk"])} for rank in found["ranks"])
        return Simulation(
            strategy=strategy_of(situation, found["strategy"]),
            num_micro_batches=found["micro_batches"],
            step_s=found["step_s"],
            pipeline_s=found["pipeline_s"],
            barrier_s=timeline["barrier_s"],
            tail_end_s=timeline["tail_end_s"],
            fixed_s=found["fixed_s"],
            straggler_s=found["straggler_s"],
            send_s=found["send_s"],
            link_s=None,
            ranks=tuple(value_of(RankTimeline, rank) for rank in ranks),
            operations=_operations(timeline["operations"]),
            reduction_s=tuple(end["reduction_s"] for end in ends),
            gather_s=tuple(end["gather_s"] for end in ends),
            optimizer_s=tuple(end["optimizer_s"] for end in ends),
        )
    except STRANGE as error:
        raise strange("simulation", error) from None


def _operations(columns: Json) -> OperationTimeline:
    phases = [Phase[name.upper()].value for name in columns["phase"]]
    whole = (columns["rank"], phases, columns["chunk"], columns["micro_batch"])
    ranks, phase, chunks, batches = (np.asarray(column, dtype=np.int64) for column in whole)
    starts, ends = (np.asarray(columns[key], dtype=float) for key in ("start_s", "end_s"))
    return OperationTimeline(
        ranks, phase, chunks, batches, starts, ends, np.asarray(columns["paired"], dtype=bool)
    )
