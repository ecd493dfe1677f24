"""Efficiency curves of an architecture: read from profiles/efficiency/, held as plain numbers."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from pydantic import ValidationError

from cost_models.errors import BadInput, InvalidJob
from cost_models.profiles import profiles_root
from cost_models.roofline.measured import MeasuredKernels
from cost_models.specs.curves import ComputeScale, EfficiencyFile, GemmFigures
from cost_models.specs.device import FigureKind


@dataclass(frozen=True, slots=True)
class GemmCurve:
    """Efficiency of a matrix multiplication against the dense peak of its precision.

    efficiency = max_efficiency * k / (k + k_half) * tile(m, n) * wave(tiles); `wave_strength` 0 ignores and
    1 takes in full the idle units of the last wave.
    """

    max_efficiency: float
    k_half: float
    tile_m: float
    tile_n: float
    wave_strength: float


@dataclass(frozen=True, slots=True)
class AttentionCurve:
    """Efficiency of fused attention: max_efficiency * keys / (keys + half_keys), lower for small heads."""

    max_efficiency: float
    half_keys: float
    head_size_half: float


@dataclass(frozen=True, slots=True)
class Scale:
    """Multipliers that a calibration fits; all 1 as published."""

    matmul: float = 1.0
    attention: float = 1.0
    memory: float = 1.0
    narrow: float = 1.0  # matrix multiplication in fp8 and fp4
    flash2: float = 1.0  # FlashAttention 1 and 2 over the kernels that the attention curves describe
    grouped: float = 1.0  # grouped products of experts, on top of the others
    convolution: float = 1.0  # convolutions, instead of `matmul`


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Curves of one architecture; `kind` is the weakest kind of figure among them.

    `grouped_gemm` and `convolution` multiply the GEMM curve, `scan` is a share of the peak; `half_bytes` is
    the traffic at which a memory-bound kernel reaches half of its rate; `kernel_s` and `group_s` are the
    seconds of a launch and of one further group inside it.
    """

    architecture: str
    kind: FigureKind
    gemm: Mapping[str, GemmCurve]
    attention_forward: AttentionCurve
    attention_backward: AttentionCurve
    grouped_gemm: float
    convolution: float
    scan: float
    memory: float
    optimizer: float
    half_bytes: float
    kernel_s: float
    group_s: float
    quantisation_traffic: float
    scale: Scale
    module_s: float = (
        0.0  # host work of one operator's forward and backward as a Python module of Megatron's kind
    )
    region_s: float = 0.0  # host work of one recomputed region where the host is the bottleneck
    exchange_s: float = 0.0  # host work and waiting of one exchange of experts' tokens
    sustained: float = 1.0  # share of the boost clock that matrix products keep under the board's power limit
    measured: MeasuredKernels | None = None  # the device's own profile, before every curve above

    def curve(self, precision: str) -> GemmCurve:
        """The GEMM curve of a precision; refuses one that the architecture has none for."""
        found = self.gemm.get(precision)
        if found is None:
            known = tuple(self.gemm)
            detail = f"{self.architecture} has no {precision} GEMM curve; use precision {' or '.join(known)}"
            raise InvalidJob(detail, pointer="/job/precision", allowed=known)
        return found


def load_efficiency(architecture: str) -> Efficiency:
    """The curves of profiles/efficiency/<architecture>.toml."""
    folder = profiles_root() / "efficiency"
    known = tuple(sorted(path.stem for path in folder.glob("*.toml")))
    if architecture not in known:
        detail = f"architecture {architecture[:80]!r} has no efficiency curves; use {' or '.join(known)}"
        raise BadInput(detail, pointer="/cluster/groups/device/architecture", allowed=known)
    return efficiency_from_file(read_efficiency(folder / f"{architecture}.toml"))


def read_efficiency(path: Path) -> EfficiencyFile:
    """One curve file, checked; read again only when it changed."""
    return _read(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=32)
def _read(path: Path, changed_ns: int) -> EfficiencyFile:
    try:
        return EfficiencyFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (ValidationError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"efficiency file {path.name} cannot be used: {error}; correct that key") from error


def efficiency_from_file(file: EfficiencyFile) -> Efficiency:
    """Plain numbers of a curve file."""
    attention, head = file.attention, file.attention.head_size_half.value
    return Efficiency(
        architecture=file.architecture,
        kind=file.kind,
        gemm=MappingProxyType({name: _curve(figures) for name, figures in file.gemm.items()}),
        attention_forward=AttentionCurve(
            attention.forward_max_efficiency.value, attention.forward_half_keys.value, head
        ),
        attention_backward=AttentionCurve(
            attention.backward_max_efficiency.value, attention.backward_half_keys.value, head
        ),
        grouped_gemm=file.factors.grouped_gemm.value,
        convolution=file.factors.convolution.value,
        scan=file.factors.scan.value,
        memory=file.memory.max_efficiency.value,
        optimizer=file.memory.optimizer_efficiency.value,
        half_bytes=file.memory.half_bytes.value,
        kernel_s=file.launch.kernel_s.value,
        group_s=file.launch.group_s.value,
        module_s=0.0 if file.launch.module_s is None else file.launch.module_s.value,
        quantisation_traffic=file.quantisation_traffic.value,
        scale=_scale(file.scale),
    )


def _scale(figures: ComputeScale) -> Scale:
    narrow = 1.0 if figures.narrow is None else figures.narrow.value
    flash2 = 1.0 if figures.flash2 is None else figures.flash2.value
    convolution = 1.0 if figures.convolution is None else figures.convolution.value
    rates = (figures.matmul.value, figures.attention.value, figures.memory.value, narrow, flash2)
    return Scale(*rates, convolution=convolution)


def _curve(figures: GemmFigures) -> GemmCurve:
    return GemmCurve(
        max_efficiency=figures.max_efficiency.value,
        k_half=figures.k_half.value,
        tile_m=figures.tile_m.value,
        tile_n=figures.tile_n.value,
        wave_strength=figures.wave_strength.value,
    )
