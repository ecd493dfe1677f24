"""A step as a timeline: when every operation of every pipeline rank runs, and where ranks wait."""

from planner.simulate.simulation import RankTimeline, Simulation, simulate
from planner.simulate.trace import trace_events, write_trace

__all__ = ["RankTimeline", "Simulation", "simulate", "trace_events", "write_trace"]
