"""A small run that shows what a plan's fullest stage holds and how long its layers take."""

from planner.probe.derive import Probe, derive_probe
from planner.probe.report import Carried, carry, probe_json, probe_result

__all__ = ["Carried", "Probe", "carry", "derive_probe", "probe_json", "probe_result"]
