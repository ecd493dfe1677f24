"""Files of profiles/calibration/: factors of devices and software generations, and how far off predictions are."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from cost_models.specs.base import Frozen
from cost_models.specs.curves import CurveFigure
from cost_models.specs.device import Architecture, FigureKind


class ByteShift(Frozen):
    """A number of bytes that may be negative."""

    value: float = Field(allow_inf_nan=False)
    unit: Literal["bytes"]
    kind: FigureKind
    source: str = Field(min_length=1)


OTHER: Final = "other"
"""Devices of architectures that no run was fitted to."""


class DeviceFactors(Frozen):
    """Ratios of one device over the curves of its architecture; what is absent is 1."""

    matmul: CurveFigure | None = None
    attention: CurveFigure | None = None
    measured: CurveFigure | None = None
    """Rate of the kernels of the device's own profile in a step, over their rate alone."""
    beside_bytes: ByteShift | None = None
    """What runs on the device allocate beside what is predicted, as the runs of one cluster showed."""


class GenerationFigures(Frozen):
    """One generation of software: what it was, which predictions take it, and its few constants; absent are 1."""

    about: str = Field(min_length=1)
    engines: tuple[str, ...] = ()
    """Engines, or engine@version, whose predictions take it unless `engine.generation` names another."""
    tuned: bool = False
    """Runs of the device's vendor with its own software and settings, which are usually faster than others'."""
    kernels: CurveFigure | None = None
    """Rate of all kernels."""
    grouped: CurveFigure | None = None
    """Rate of grouped products of experts, on top of `kernels`."""
    exchange_s: CurveFigure | None = None
    """Seconds of host work and waiting that one exchange of experts' tokens adds, one way; 0 where it is absent."""
    region_s: CurveFigure | None = None
    """Seconds of host work of one recomputed region of a layer, where the host is the bottleneck; else absent, 0."""


class PowerLaw(Frozen):
    """Clocks under a power limit: full_watts_a_flop keeps the boost clock; less keeps its ratio to this power."""

    full_watts_a_flop: CurveFigure
    exponent: CurveFigure


class GenerationsFile(Frozen):
    """profiles/calibration/generations.toml."""

    power: PowerLaw
    devices: dict[str, DeviceFactors]
    generations: dict[str, GenerationFigures]


class SupportFigures(Frozen):
    """How well the steps of one kind of model are known."""

    noise: CurveFigure
    """What no constant explains."""
    communication: CurveFigure
    """Of communication that shows, over its own seconds."""
    largest: tuple[Annotated[int, Field(gt=0)], ...]
    """Devices of the largest run by software generation, in the order of `fitted_generations`, the last of any."""
    devices: dict[str, tuple[Annotated[float, Field(gt=0.0)], ...]]
    """Noise and what is not known of the constants together, by device (an architecture's name stands for its other
    devices, `other` for all other architectures) and software generation, in the order of `fitted_generations`, the
    last for those that were not fitted."""


class UncertaintyFile(Frozen):
    """profiles/calibration/uncertainty.toml: standard deviations of log(measured / predicted)."""

    dense: SupportFigures
    moe: SupportFigures
    vision: SupportFigures
    doubling: CurveFigure
    """For every doubling of the devices beyond the largest run."""
    own: CurveFigure
    """Share of the spread that is a layout's own, not its situation's."""
    fitted_architectures: tuple[Architecture, ...]
    fitted_generations: tuple[str, ...]

    @model_validator(mode="after")
    def _whole(self) -> Self:
        """Every device has a figure for every generation, and one for the others."""
        columns = len(self.fitted_generations) + 1
        for kind in (self.dense, self.moe, self.vision):
            if OTHER not in kind.devices:
                raise ValueError(f"devices lacks the row {OTHER}; add one of {columns} figures")
            rows = {**{f"devices.{name}": row for name, row in kind.devices.items()}, "largest": kind.largest}
            for name, row in rows.items():
                if len(row) != columns:
                    raise ValueError(f"{name} has {len(row)} figures; give {columns}")
        return self
