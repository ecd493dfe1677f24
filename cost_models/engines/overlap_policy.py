"""What of an engine's communication hides behind what; seconds are put together in `mesh_costs` and `pricing`."""

from collections.abc import Mapping
from dataclasses import dataclass

from cost_models.schedule.names import ScheduleName


@dataclass(frozen=True, slots=True)
class OverlapPolicy:
    """Shares of the computation beside which communication can hide; never free, as hidden seconds slow it down.

    [Empirical] shares, see docs/engines.md, "Overlap".

    Attributes:
        hidden: of a message class (operators.base.Message), the share of the kernels beside it.
        sync_overlap: share of the last backward that gradient reduction can hide behind.
        sync_exposed_min: share of gradient reduction that can never hide (the last bucket).
        gather_overlap: share of a forward of all chunks of a rank that the step's parameter gather can hide behind.
        gather_exposed_min: share of that gather that can never hide (what the first layer waits for).
        micro_overlap: share of a layer's own forward that its parameter gather can hide behind, every micro-batch.
        micro_overlap_backward: the same for the gather and the reduction of its backward.
        send_shown: share of a boundary tensor's send that the stage itself waits for, with several chunks a rank.
        send_shown_plain: the same with one chunk a rank.
        pair_schedules: schedules in which a forward and a backward of different micro-batches run side by side.
        pair_overlap: share of the one's computation that the other's expert exchange can hide behind.
    """

    hidden: Mapping[str, float]
    sync_overlap: float
    sync_exposed_min: float
    gather_overlap: float
    gather_exposed_min: float
    micro_overlap: float
    micro_overlap_backward: float
    send_shown: float
    send_shown_plain: float = 1.0
    pair_schedules: frozenset[ScheduleName] = frozenset()
    pair_overlap: float = 0.0
