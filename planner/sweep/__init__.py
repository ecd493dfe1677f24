"""Many questions at once: the items of a sweep, one solved, all solved on every core, resumable."""

from planner.sweep.items import SweepItem, SweepRequest, sweep_items
from planner.sweep.pool import solve_all
from planner.sweep.report import SweepReport, run_sweep
from planner.sweep.solve import Row, solve_item
from planner.sweep.store import Store

__all__ = [
    "Row",
    "Store",
    "SweepItem",
    "SweepReport",
    "SweepRequest",
    "run_sweep",
    "solve_all",
    "solve_item",
    "sweep_items",
]
