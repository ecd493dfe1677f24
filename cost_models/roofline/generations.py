"""Software generations and devices: few factors over the curves of an architecture, and the spread of what is left."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from cost_models.errors import BadInput
from cost_models.profiles import HOST_DEVICE, measured_profile, profiles_root, this_host
from cost_models.roofline.efficiency import Efficiency, load_efficiency
from cost_models.roofline.measured import MeasuredKernels, measured_kernels
from cost_models.specs.curves import CurveFigure
from cost_models.specs.device import DeviceSpec
from cost_models.specs.generations import (
    OTHER,
    DeviceFactors,
    GenerationsFile,
    SupportFigures,
    UncertaintyFile,
)

AUTOMATIC: Final = "auto"


@dataclass(frozen=True, slots=True)
class Generation:
    """One software generation as numbers: ratios over the rates of the curves, and seconds of an exchange."""

    name: str
    kernels: float = 1.0
    grouped: float = 1.0
    exchange_s: float = 0.0
    tuned: bool = False
    region_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Support:
    """How well the steps of one kind of model are known: standard deviations of log(measured / predicted).

    `noise` is what no constant explains, `communication` that of a second of communication that shows; `devices` has
    noise and what is not known of the constants together, by device and by software generation, `largest` the devices
    of a generation's largest run.
    """

    noise: float
    communication: float
    largest: Mapping[str, int]
    devices: Mapping[str, Mapping[str, float]]

    def of(self, device: DeviceSpec, generation: str) -> float:
        """Of steps on a device under a generation of software: of its own runs, of its architecture's, or of none."""
        names = (device.name, device.architecture, OTHER)
        row = next(self.devices[name] for name in names if name in self.devices)
        return row.get(generation, row[OTHER])

    def largest_of(self, generation: str) -> int:
        """Devices of the largest run of a generation of software, of any software where it has none."""
        return self.largest.get(generation, self.largest[OTHER])


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """How well steps are known by kind of model (dense, moe, vision), the standard deviation of the logarithm for every
    doubling of the devices beyond the largest run, and the share of it that is a layout's own."""

    kinds: Mapping[str, Support]
    doubling: float
    own: float
    fitted_architectures: tuple[str, ...]
    fitted_generations: tuple[str, ...]


def load_generation(name: str, engine: str, version: str) -> Generation:
    """The generation called `name`, or the current one of an engine where it is `auto`."""
    file = _generations()
    if name == AUTOMATIC:
        wanted = (f"{engine}@{version}", engine)
        name = next((g for want in wanted for g, f in file.generations.items() if want in f.engines), "")
        if not name:
            return Generation("none")
    found = file.generations.get(name)
    if found is None:
        known = (AUTOMATIC, *file.generations)
        detail = f"there is no software generation {name[:60]!r}; use {' or '.join(known)}"
        raise BadInput(detail, pointer="/job/options/engine.generation", allowed=known)
    return Generation(
        name,
        _ratio(found.kernels),
        _ratio(found.grouped),
        _ratio(found.exchange_s, 0.0),
        found.tuned,
        _ratio(found.region_s, 0.0),
    )


def tuned_generations() -> Mapping[str, bool]:
    """Names of all software generations, and whether the device's vendor tuned their runs."""
    return {name: found.tuned for name, found in _generations().generations.items()}


def efficiency_of(device: DeviceSpec, generation: Generation) -> Efficiency:
    """Curves of a device's architecture under its factors and those of a generation, and before them its own profile,
    where it was measured."""
    factors = device_factors(device.name)
    fitted = under_factors(load_efficiency(device.architecture), device, factors, generation)
    measured = kernels_of(device)
    if measured is None:
        return fitted
    return replace(fitted, measured=measured.at_rate(measured_factor(device.name)))


def measured_factor(name: str) -> float:
    """Rate of a measured device's kernels in a step over their rate alone, as its own runs showed; 1 for none."""
    return _ratio(_generations().devices.get(name, DeviceFactors()).measured)


def beside_bytes(name: str) -> float:
    """Bytes that a cluster's own runs on a device allocated beside what was predicted; 0 for none."""
    figure = _generations().devices.get(name, DeviceFactors()).beside_bytes
    return figure.value if figure else 0.0


def kernels_of(device: DeviceSpec) -> MeasuredKernels | None:
    """The measured kernels of a device; a host's for as many processes as share it."""
    profile = measured_profile(device.name)
    if profile is None or device.name != HOST_DEVICE:
        return measured_kernels(profile)
    cores = this_host().cores
    return measured_kernels(profile, max(1, round(cores / device.compute_units.value)), cores)


def device_factors(name: str) -> tuple[float, float]:
    """Ratios of a device's matrix products and attention over its architecture's curves; 1 for one not listed."""
    own = _generations().devices.get(name, DeviceFactors())
    return _ratio(own.matmul), _ratio(own.attention)


def under_factors(
    plain: Efficiency, device: DeviceSpec, factors: tuple[float, float], generation: Generation
) -> Efficiency:
    """Curves times a device's two ratios (matrix products, attention) and a generation's constants."""
    scale, kernels = plain.scale, generation.kernels
    matmul, attention = factors
    found = replace(
        scale,
        matmul=scale.matmul * matmul * kernels,
        narrow=scale.narrow * matmul * kernels,
        attention=scale.attention * attention * kernels,
        memory=scale.memory * kernels,
        grouped=scale.grouped * generation.grouped,
        convolution=scale.convolution * kernels,
    )
    return replace(
        plain,
        scale=found,
        exchange_s=generation.exchange_s,
        region_s=generation.region_s,
        sustained=sustained_share(device),
    )


def sustained_share(device: DeviceSpec) -> float:
    """Share of the boost clock that matrix products keep: the power of a clock grows with its third power.

    share = min(1, (W per peak FLOP/s of 16-bit products / full)^exponent), with the board's power limit W; narrower
    products switch as many transistors a second.
    """
    law = _generations().power
    peak = device.peak("bf16" if device.supports("bf16") else "fp16")
    watts_a_flop = device.power_w.value / peak
    return float(min(1.0, (watts_a_flop / law.full_watts_a_flop.value) ** law.exponent.value))


def _ratio(figure: CurveFigure | None, absent: float = 1.0) -> float:
    return absent if figure is None else figure.value


def load_uncertainty() -> Uncertainty:
    """The spread of predictions as calibrated."""
    path = profiles_root() / "calibration" / "uncertainty.toml"
    return _uncertainty(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _uncertainty(path: Path, changed_ns: int) -> Uncertainty:
    file = _read_uncertainty(path, changed_ns)
    kinds = {"dense": file.dense, "moe": file.moe, "vision": file.vision}
    columns = (*file.fitted_generations, OTHER)
    return Uncertainty(
        kinds={name: _support(figures, columns) for name, figures in kinds.items()},
        doubling=file.doubling.value,
        own=file.own.value,
        fitted_architectures=tuple(file.fitted_architectures),
        fitted_generations=file.fitted_generations,
    )


def _support(figures: SupportFigures, columns: tuple[str, ...]) -> Support:
    rows = {name: dict(zip(columns, row, strict=True)) for name, row in figures.devices.items()}
    largest = dict(zip(columns, figures.largest, strict=True))
    return Support(figures.noise.value, figures.communication.value, largest, rows)


def _generations() -> GenerationsFile:
    path = profiles_root() / "calibration" / "generations.toml"
    return _read_generations(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _read_generations(path: Path, changed_ns: int) -> GenerationsFile:
    try:
        return GenerationsFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (ValidationError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"{path.name} cannot be used: {error}; correct that key") from error


@lru_cache(maxsize=8)
def _read_uncertainty(path: Path, changed_ns: int) -> UncertaintyFile:
    try:
        return UncertaintyFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (ValidationError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"{path.name} cannot be used: {error}; correct that key") from error
