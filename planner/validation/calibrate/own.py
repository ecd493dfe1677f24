"""A user's own runs: few constants over those at hand, written into a copy of the profiles if they help.

A device's matrix products and attention, and all kernels of a software generation, each as it is now times a ratio that
is expected to be 1; of a device with a profile of its own, all its kernels together. One run in five is not fitted to;
where their error grows, nothing is written.
"""

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Final

from cost_models.errors import BadInput
from cost_models.profiles import profiles_root
from cost_models.roofline import Efficiency, Generation
from cost_models.roofline.generations import (
    beside_bytes,
    device_factors,
    load_generation,
    measured_factor,
    under_factors,
)
from planner.validation.calibrate.held_out import FEWEST, before_and_after, helps, split
from planner.validation.calibrate.own_memory import OwnMemory, calibrate_memory
from planner.validation.calibrate.solve import robust_solve
from planner.validation.calibrate.write import figure_line, replace_lines
from planner.validation.mapping import Case
from planner.validation.predict import Outcome, predict_case

LOG_SIGMA: Final = 0.15
"""How far a cluster's own ratio is expected to be from 1: twice what published sources differ by."""

ITERATIONS: Final = 3
STEP: Final = 0.25
BESIDE: Final = "beside_bytes"
MEASURED: Final = "measured"
"""The field of a device's own profile."""

Key = tuple[str, str, str]
"""(devices or generations, name, field) of generations.toml."""


@dataclass(frozen=True, slots=True)
class OwnCalibration:
    """Ratios over the constants at hand, and mean |log(predicted / measured)| before and after; of memory apart."""

    ratios: Mapping[Key, float]
    fitted: int
    held: int
    errors: Mapping[str, float]
    memory: OwnMemory | None = None

    @property
    def helps_steps(self) -> bool:
        """Whether steps of runs that were not fitted to are predicted no worse."""
        return helps(self.errors)

    @property
    def helps(self) -> bool:
        """Whether there is something to write: ratios of steps, bytes of memory, or both."""
        return self.helps_steps or (self.memory is not None and self.memory.helps)

    def to_json(self) -> dict[str, object]:
        """The answer of `planner calibrate --json`."""
        return {
            "written": self.helps,
            "steps_written": self.helps_steps,
            "memory": self.memory.to_json() if self.memory else None,
            "fitted_runs": self.fitted,
            "held_out_runs": self.held,
            "errors": dict(self.errors),
            "ratios": {".".join(key): value for key, value in self.ratios.items()},
        }


def calibrate_own(outcomes: Sequence[Outcome]) -> OwnCalibration:
    """Fit to the runs whose knobs are all stated; raises BadInput where they are too few."""
    cases = sorted(
        (o.case for o in outcomes if o.case and o.step_error is not None and not o.assumed),
        key=lambda case: case.run.id,
    )
    if len(cases) < FEWEST:
        raise BadInput(
            f"{len(cases)} of {len(outcomes)} runs have a step time and all their knobs stated; give {FEWEST} or more"
        )
    kept, held = split(cases, lambda case: case.run.id)
    keys = sorted({key for case in kept for key in _touched(case)})
    x = _fit(kept, keys)
    ratios = {key: round(math.exp(LOG_SIGMA * value), 4) for key, value in zip(keys, x, strict=True)}
    errors = before_and_after(
        kept, held, lambda rows: _mean_error(rows, {}), lambda rows: _mean_error(rows, ratios)
    )
    return OwnCalibration(ratios, len(kept), len(held), errors, calibrate_memory(outcomes))


def write_own(found: OwnCalibration, folder: Path, runs: Sequence[Path]) -> Path:
    """A copy of the profiles with what helps in it; raises BadInput where the folder exists."""
    if folder.exists():
        raise BadInput(f"{folder} exists; name a folder that does not, or remove it")
    shutil.copytree(profiles_root(), folder)
    names = ", ".join(path.name for path in runs)[:200].replace('"', "'").replace("\\", "/")
    replace_lines(folder / "calibration" / "generations.toml", _sections(found, names))
    return folder


def _sections(found: OwnCalibration, names: str) -> dict[str, dict[str, str]]:
    """Lines of generations.toml by section."""
    sections: dict[str, dict[str, str]] = {}

    def put(section: str, field: str, value: float, unit: str, runs: int) -> None:
        line = figure_line(field, value, unit, f"planner calibrate: {runs} runs of {names}")
        sections.setdefault(section, {})[field] = line

    if found.helps_steps:
        for (kind, name, field), ratio in found.ratios.items():
            put(f"{kind}.{name}", field, ratio * _now(kind, name, field), "ratio", found.fitted)
    memory = found.memory
    if memory is not None and memory.helps:
        for name, shift in memory.shifts_bytes.items():
            put(f"devices.{name}", BESIDE, shift + beside_bytes(name), "bytes", memory.fitted)
    return sections


def _fit(cases: Sequence[Case], keys: Sequence[Key]) -> list[float]:
    x = [0.0] * len(keys)
    for _ in range(ITERATIONS):
        ratios = {key: math.exp(LOG_SIGMA * value) for key, value in zip(keys, x, strict=True)}
        errors = [_log_error(case, ratios) for case in cases]
        pairs = list(zip(cases, errors, strict=True))
        slopes = [[_slope(case, key, ratios, error) for key in keys] for case, error in pairs]
        x = robust_solve(slopes, errors, [1.0] * len(cases), x)
    return x


def _slope(case: Case, key: Key, ratios: Mapping[Key, float], error: float) -> float:
    if key not in _touched(case):
        return 0.0
    moved = {**ratios, key: ratios[key] * math.exp(LOG_SIGMA * STEP)}
    return (_log_error(case, moved) - error) / STEP


def _log_error(case: Case, ratios: Mapping[Key, float]) -> float:
    predicted = predict_case(case, _under(case, ratios)).step_s * case.stretch
    return math.log(predicted / (case.run.step_s or math.nan))


def _mean_error(cases: Sequence[Case], ratios: Mapping[Key, float]) -> float:
    return fmean(abs(_log_error(case, ratios)) for case in cases)


def _under(case: Case, ratios: Mapping[Key, float]) -> Efficiency:
    """The curves at hand times the ratios of a case's device and generation."""
    situation = case.situation
    name, plain = situation.cluster.device.name, situation.efficiency
    if plain.measured is not None:
        ratio = ratios.get(("devices", name, MEASURED), 1.0)
        return replace(plain, measured=plain.measured.at_rate(ratio))
    factors = (ratios.get(("devices", name, "matmul"), 1.0), ratios.get(("devices", name, "attention"), 1.0))
    kernels = ratios.get(("generations", situation.generation.name, "kernels"), 1.0)
    own = Generation(situation.generation.name, kernels, exchange_s=plain.exchange_s)
    return replace(under_factors(plain, situation.cluster.device, factors, own), sustained=plain.sustained)


def _touched(case: Case) -> tuple[Key, ...]:
    name, generation = case.situation.cluster.device.name, case.situation.generation.name
    if case.situation.efficiency.measured is not None:
        return (("devices", name, MEASURED),)
    return (
        ("devices", name, "attention"),
        ("devices", name, "matmul"),
        ("generations", generation, "kernels"),
    )


def _now(kind: str, name: str, field: str) -> float:
    """The constant as it is in the profiles."""
    if kind == "generations":
        return load_generation(name, "", "").kernels
    if field == MEASURED:
        return measured_factor(name)
    return device_factors(name)[("matmul", "attention").index(field)]
