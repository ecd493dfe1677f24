"""How well constants are known together, as a standard deviation of a step's logarithm by device and software.

A step's logarithm moves with the constants by its slopes; what a fit knows of the constants is a normal distribution,
so the variance of a prediction is slopes^T covariance slopes (Rasmussen and Williams 2006, section 2.1). A device or a
generation that no run shows has its own constants as they are expected, whatever the shared ones say.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from cost_models.specs.generations import OTHER
from planner.intervals import kind_of
from planner.validation.calibrate.fit import Calibration, Left
from planner.validation.calibrate.parameters import COMMON, ULTRA, device_of
from planner.validation.calibrate.solve import deviation

SPECIAL: Final = frozenset({"flash2", "narrow"})
"""Constants of single rows' kernels or precision: not of a typical step."""

UNSEEN_CURVE: Final = 0.1
"""[Empirical] of an architecture without any run of a kind of model, beside its constants: the curves of that kind's
kernels were set by hand near published readings of single kernels, which differ by 10 to 15 % among themselves."""

Slopes = Mapping[tuple[str, str], float]
"""Slopes of a step by (kind, field) of the constant."""


def of_kind(rows: Sequence[Left], kind: str) -> list[Left]:
    """Rows of one kind of model."""
    return [left for left in rows if kind_of(left.case.situation.model) == kind]


def typical_slopes(found: Calibration, rows: Sequence[Left]) -> Slopes:
    """Median slopes of rows by (kind, field) of the constants, whoever owns them."""
    fields = [(p.kind, p.field) for p, _ in found.values]
    slopes = {}
    for key in sorted(set(fields)):
        if key[1] not in SPECIAL:
            places = [index for index, field in enumerate(fields) if field == key]
            slopes[key] = median(sum(left.slopes[index] for index in places) for left in rows)
    return slopes


def unknown(found: Calibration, slopes: Slopes, owners: Mapping[str, str]) -> float:
    """Standard deviation that the constants of these owners leave of a step with these slopes."""
    places = {(p.kind, p.owner, p.field): index for index, (p, _) in enumerate(found.values)}
    along, apart = [0.0] * len(places), 0.0
    for (kind, field), slope in slopes.items():
        index = places.get((kind, owners[kind], field))
        if index is None:
            apart += slope**2  # one standard deviation of a constant without evidence
        else:
            along[index] += slope
    return math.hypot(deviation(found.root, along), math.sqrt(apart))


def device_rows(found: Calibration, kind: str) -> dict[str, tuple[str, str]]:
    """(device, architecture) of each row of the table: fitted devices, the others of fitted architectures, the rest."""
    rows = of_kind(found.rows, kind)
    named: dict[str, tuple[str, str]] = {}
    for left in rows:
        fitted = device_of(left.case)
        for name in ULTRA if fitted in ULTRA else (fitted,):
            named[name] = (fitted, left.case.architecture)
    for architecture in sorted({left.case.architecture for left in found.rows}):
        named.setdefault(architecture, (OTHER, architecture))
    return dict(sorted(named.items())) | {OTHER: (OTHER, OTHER)}


def support_table(
    found: Calibration, kind: str, noises: Mapping[str, float], scale: float
) -> dict[str, tuple[float, ...]]:
    """Noise and unknown constants together, times `scale`, for every device and generation; `noises` are by generation,
    `other` among them."""
    rows = of_kind(found.rows, kind)
    kin = {g: [left for left in rows if left.case.situation.generation.name == g] or rows for g in noises}
    slopes = {generation: typical_slopes(found, kin[generation]) for generation in noises}
    # what other kinds of models say of a generation is not said of this one
    software = {generation: OTHER if kin[generation] is rows else generation for generation in noises}
    shown = {left.case.architecture for left in rows}
    table = {}
    for name, (device, architecture) in device_rows(found, kind).items():
        curve = 0.0 if architecture in shown else UNSEEN_CURVE
        owners = {COMMON: COMMON, "architecture": architecture, "device": device}
        table[name] = tuple(
            round(
                scale
                * math.hypot(noise, curve, unknown(found, slopes[g], owners | {"generation": software[g]})),
                4,
            )
            for g, noise in noises.items()
        )
    return table
