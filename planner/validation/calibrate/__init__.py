"""Fit the few constants of devices and software generations to measured runs, robustly and the same every time."""

from planner.validation.calibrate.fit import Calibration, Left, calibrate, usable, with_unseen
from planner.validation.calibrate.parameters import Parameter, efficiency_under, parameters_of
from planner.validation.calibrate.spread import Spreads, spreads_of
from planner.validation.calibrate.write import write_constants, write_spreads

__all__ = [
    "Calibration",
    "Left",
    "Parameter",
    "Spreads",
    "calibrate",
    "efficiency_under",
    "parameters_of",
    "spreads_of",
    "usable",
    "with_unseen",
    "write_constants",
    "write_spreads",
]
