"""Profile this machine, plan for it, run the plans, and hold measured steps beside predicted ones."""

from planner.loop.run import LoopOptions, run_loop
from planner.loop.summary import LoopRow, LoopSummary, summarise

__all__ = ["LoopOptions", "LoopRow", "LoopSummary", "run_loop", "summarise"]
