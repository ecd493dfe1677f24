"""What is fitted: ratios over the curves, each with what it is expected to be before any run is seen.

Constants are shared from the top down: what all architectures have in common, an architecture's deviation from it, a
device's from its architecture, a generation of software's from them all. Deviations are expected to be small, so a
device or a generation with one source moves little, and one with none stands where the shared constants put it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cost_models.roofline import Efficiency, Generation, Scale, load_efficiency
from cost_models.roofline.generations import under_factors
from cost_models.roofline.price import NARROW_BYTES
from planner.validation.mapping import Case

COMMON: Final = "common"
ULTRA: Final = ("b300", "gb300")
"""Devices of one design whose factors are fitted as one."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Median and standard deviation of the logarithm of a constant before any run is seen."""

    median: float
    log_sigma: float


@dataclass(frozen=True, slots=True)
class Parameter:
    """One fitted constant: `field` of `owner` (common, an architecture, a device or a generation) of `kind`."""

    kind: str
    owner: str
    field: str
    expected: Expected

    @property
    def name(self) -> str:
        """As in reports: kind, owner and field."""
        return f"{self.kind}.{self.owner}.{self.field}"

    def of(self, value: float) -> float:
        """The constant at a fitted value, which counts standard deviations of its logarithm."""
        return self.expected.median * math.exp(self.expected.log_sigma * value)


EXPECTED: Final[Mapping[tuple[str, str], Expected]] = {
    (COMMON, "matmul"): Expected(0.9, 0.2),
    (COMMON, "attention"): Expected(0.95, 0.2),
    (COMMON, "memory"): Expected(0.9, 0.15),
    ("architecture", "matmul"): Expected(1.0, 0.1),
    ("architecture", "attention"): Expected(1.0, 0.1),
    ("architecture", "memory"): Expected(1.0, 0.06),
    ("architecture", "narrow"): Expected(1.0, 0.05),
    (COMMON, "tuned"): Expected(1.03, 0.04),
    ("architecture", "flash2"): Expected(0.5, 0.3),
    (COMMON, "convolution"): Expected(0.75, 0.25),
    ("architecture", "convolution"): Expected(1.0, 0.1),
    ("device", "matmul"): Expected(1.0, 0.08),
    ("device", "attention"): Expected(1.0, 0.1),
    ("generation", "kernels"): Expected(1.0, 0.06),
    ("generation", "grouped"): Expected(1.0, 0.2),
    ("generation", "exchange_s"): Expected(2e-4, 1.5),
}
"""[Empirical] medians near what steps of dense models keep of kernels run alone, and how far devices, driver and
library versions are usually apart: 5 to 10 %. Exchanges of experts differ by orders of magnitude, with and without
CUDA graphs. The vendor's own runs (tuned) are a few percent faster than others'."""

OWN: Final[Mapping[tuple[str, str, str], Expected]] = {
    ("architecture", "ampere", "flash2"): Expected(0.6, 0.3),
    ("architecture", "hopper", "flash2"): Expected(0.42, 0.2),
    ("device", ULTRA[0], "attention"): Expected(1.4, 0.1),
}
"""Where more is known. FlashAttention 1 reached 110 to 130 of the 190 to 225 TFLOP/s of FlashAttention 2 on A100 (Dao
2023, figure 5); FlashAttention 2 reached 350 forward and 300 backward where 3 reaches 740 and 560 on H100 (Shah 2024,
figures 5 and 6). Blackwell Ultra's rate of exponentials is twice Blackwell's (datasheet), and softmax is a part of
attention."""


def parameters_of(cases: Sequence[Case]) -> tuple[Parameter, ...]:
    """The constants that some case depends on, in a fixed order."""
    found = {(kind, owner, field) for case in cases for kind, owner, field in _touched(case)}
    return tuple(Parameter(k, o, f, _expected(k, o, f)) for k, o, f in sorted(found))


def depends(case: Case, parameter: Parameter) -> bool:
    """Whether a case's prediction moves with a constant."""
    return (parameter.kind, parameter.owner, parameter.field) in _touched(case)


def efficiency_under(case: Case, values: Mapping[Parameter, float]) -> Efficiency:
    """The curves of a case's device and generation under fitted values; constants without one are as expected."""
    known = {(p.kind, p.owner, p.field): p.of(value) for p, value in values.items()}

    def at(kind: str, owner: str, field: str) -> float:
        return known.get((kind, owner, field), _expected(kind, owner, field).median)

    architecture, device, generation = case.architecture, device_of(case), case.situation.generation.name
    shared = {
        name: at(COMMON, COMMON, name) * at("architecture", architecture, name)
        for name in ("matmul", "attention", "memory")
    }
    scale = Scale(
        **shared,
        narrow=shared["matmul"] * at("architecture", architecture, "narrow"),
        flash2=at("architecture", architecture, "flash2"),
        convolution=at(COMMON, COMMON, "convolution") * at("architecture", architecture, "convolution"),
    )
    plain = replace(load_efficiency(architecture), scale=scale)
    plain_kernels = case.situation.model.is_vision or not case.situation.generation.tuned
    tuned = 1.0 if plain_kernels else at(COMMON, COMMON, "tuned")
    software = Generation(
        generation,
        at("generation", generation, "kernels") * tuned,
        at("generation", generation, "grouped") if _has_experts(case) else 1.0,
        at("generation", generation, "exchange_s") if _has_experts(case) else 0.0,
        region_s=case.situation.generation.region_s,
    )
    factors = (at("device", device, "matmul"), at("device", device, "attention"))
    return under_factors(plain, case.situation.cluster.device, factors, software)


def device_of(case: Case) -> str:
    """The device whose factor a case has; devices of one design share it."""
    name = case.situation.cluster.device.name
    return ULTRA[0] if name in ULTRA else name


def _touched(case: Case) -> frozenset[tuple[str, str, str]]:
    architecture, software = case.architecture, case.situation.generation
    if case.situation.model.is_vision:
        owners = {(COMMON, COMMON), ("architecture", architecture)}
        return frozenset({(*owner, "convolution") for owner in owners} | {_kernels_of(software.name)})
    attention = getattr(case.situation.engine.options, "attention", "")
    names = ("matmul", "memory", *(("attention",) if attention != "unfused" else ()))
    found = {(COMMON, COMMON, name) for name in names}
    found |= {("architecture", architecture, name) for name in names}
    found |= {("device", device_of(case), name) for name in names if name != "memory"}
    if attention == "flash2":
        found.add(("architecture", architecture, "flash2"))
    if case.situation.job.precision.value in NARROW_BYTES:
        found.add(("architecture", architecture, "narrow"))
    found.add(_kernels_of(software.name))
    if software.tuned:
        found.add((COMMON, COMMON, "tuned"))
    if _has_experts(case):
        found |= {("generation", software.name, name) for name in ("grouped", "exchange_s")}
    return frozenset(found)


def _kernels_of(generation: str) -> tuple[str, str, str]:
    return "generation", generation, "kernels"


def _has_experts(case: Case) -> bool:
    return case.situation.model.is_moe


def _expected(kind: str, owner: str, field: str) -> Expected:
    own = OWN.get((kind, owner, field))
    return EXPECTED[kind, field] if own is None else own
