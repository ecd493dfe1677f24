"""One accelerator: what it can hold, how fast it computes and reads, each figure with its unit and source."""

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, model_validator

from cost_models.errors import InvalidCluster
from cost_models.specs.base import Frozen
from cost_models.specs.quantity import EXAMPLES, quantity

FigureKind = Literal["datasheet", "measured", "fitted", "derived"]
Architecture = Literal["volta", "ampere", "ada", "hopper", "blackwell", "cdna2", "cdna3", "cdna4", "cpu"]
GemmPrecision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"]
Unit = Literal["bytes", "bytes/s", "flop/s", "count", "W", "s"]


class Figure(Frozen):
    """One number with its unit, how it is known (`kind`) and where it was read (`source`)."""

    value: float = Field(gt=0)
    unit: Unit
    kind: FigureKind
    source: str = Field(min_length=1)

    def __float__(self) -> float:
        return self.value


class _InUnit:
    """Takes a plain number, or one with its unit, as a figure of the given unit, with the user as its source."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit

    def __call__(self, given: object) -> object:
        if isinstance(given, str):
            given = quantity(given, self.unit)
        if isinstance(given, int | float) and not isinstance(given, bool):
            return {"value": given, "unit": self.unit, "kind": "derived", "source": "given by the user"}
        unit = given.get("unit") if isinstance(given, dict) else getattr(given, "unit", None)
        if unit is not None and unit != self.unit:
            msg = f"the unit is {unit!r}; write the figure in {self.unit!r}"
            raise ValueError(msg)
        if unit is None and not isinstance(given, dict):
            raise ValueError(f"{str(given)[:40]} is no number; write {EXAMPLES[self.unit]}")
        return given


Bytes = Annotated[Figure, BeforeValidator(_InUnit("bytes"))]
BytesPerSecond = Annotated[Figure, BeforeValidator(_InUnit("bytes/s"))]
FlopPerSecond = Annotated[Figure, BeforeValidator(_InUnit("flop/s"))]
Count = Annotated[Figure, BeforeValidator(_InUnit("count"))]
Watts = Annotated[Figure, BeforeValidator(_InUnit("W"))]
Seconds = Annotated[Figure, BeforeValidator(_InUnit("s"))]

_BLACKWELL_ONLY: Final = "nvfp4"


class DeviceSpec(Frozen):
    """One device as a training rank sees it; all rates are decimal, all peaks dense (no 2:4 sparsity).

    `capacity_bytes` is the total that the driver reports, not the size printed on the box. A precision that
    is absent from `peak_flops` is not supported; "fp32" is the full-precision GEMM peak (outside the tensor
    cores on NVIDIA parts). `context_bytes` is what the driver context and the framework's kernels take before
    the first tensor. `host_link_bytes_per_s` counts one way.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    title: str
    vendor: str
    architecture: Architecture
    capacity_bytes: Bytes
    memory_bytes_per_s: BytesPerSecond
    peak_flops: dict[GemmPrecision, FlopPerSecond] = Field(min_length=1)
    vector_flops: FlopPerSecond
    compute_units: Count
    l2_bytes: Bytes | None = None
    power_w: Watts
    context_bytes: Bytes
    host_link_bytes_per_s: BytesPerSecond

    @model_validator(mode="after")
    def _plausible(self) -> "DeviceSpec":
        if self.context_bytes.value >= self.capacity_bytes.value:
            msg = (
                f"context_bytes {self.context_bytes.value:,.0f} leaves nothing of capacity_bytes "
                f"{self.capacity_bytes.value:,.0f}; give both in bytes"
            )
            raise ValueError(msg)
        if _BLACKWELL_ONLY in self.peak_flops and self.architecture != "blackwell":
            msg = f"{self.architecture} has no {_BLACKWELL_ONLY} tensor cores; leave that peak out"
            raise ValueError(msg)
        return self

    def supports(self, precision: str) -> bool:
        """Whether a GEMM in this precision runs on the device at all."""
        return precision in self.peak_flops

    def peak(self, precision: str) -> float:
        """Dense GEMM peak in FLOP/s of a precision; refuses one the device does not have."""
        for name, figure in self.peak_flops.items():
            if name == precision:
                return figure.value
        known = tuple(self.peak_flops)
        detail = f"{self.title} has no {precision} GEMM; use {' or '.join(known)}, or another device"
        raise InvalidCluster(detail, pointer="/job/precision", allowed=known)
