"""Files of profiles/efficiency/ and profiles/fabrics/: how near real kernels and links come to their peaks.

Every figure says how it is known. A curve file is a starting point: a calibration replaces its `scale`
table, a profile of a device the whole file.
"""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from cost_models.specs.base import Frozen
from cost_models.specs.device import Architecture, FigureKind, GemmPrecision


class CurveFigure(Frozen):
    """One number of a curve; a `fraction` is of a datasheet peak, a `ratio` compares two rates or times."""

    value: float = Field(ge=0)
    unit: Literal["fraction", "ratio", "elements", "bytes", "s", "W/(flop/s)"]
    kind: FigureKind
    source: str = Field(min_length=1)


class CurveFile(Frozen):
    """A file of figures; knows the weakest kind among them."""

    def figures(self) -> Iterator[CurveFigure]:
        """All figures, wherever they are nested."""
        yield from _figures(self)

    @property
    def kind(self) -> FigureKind:
        """`measured` or `datasheet` only if every figure is; else `fitted` where any is, else `derived`."""
        kinds = {figure.kind for figure in self.figures()}
        if len(kinds) == 1:
            return kinds.pop()
        return "fitted" if "fitted" in kinds else "derived"


class GemmFigures(Frozen):
    """Matrix multiplication in one precision."""

    max_efficiency: CurveFigure
    k_half: CurveFigure
    tile_m: CurveFigure
    tile_n: CurveFigure
    wave_strength: CurveFigure


class AttentionFigures(Frozen):
    """Fused attention, forward and backward."""

    forward_max_efficiency: CurveFigure
    forward_half_keys: CurveFigure
    backward_max_efficiency: CurveFigure
    backward_half_keys: CurveFigure
    head_size_half: CurveFigure


class FactorFigures(Frozen):
    """Kernels described relative to a GEMM, or by one share of the peak."""

    grouped_gemm: CurveFigure
    convolution: CurveFigure
    scan: CurveFigure


class MemoryFigures(Frozen):
    """Kernels bound by bytes."""

    max_efficiency: CurveFigure
    optimizer_efficiency: CurveFigure
    half_bytes: CurveFigure


class LaunchFigures(Frozen):
    """What a launch costs however little it does."""

    kernel_s: CurveFigure
    group_s: CurveFigure
    module_s: CurveFigure | None = None
    """Host seconds of one operator's forward and backward as a Python module of Megatron's kind; none where absent."""


class ComputeScale(Frozen):
    """Multipliers of the efficiencies above, the only figures that a calibration moves."""

    matmul: CurveFigure
    attention: CurveFigure
    memory: CurveFigure
    narrow: CurveFigure | None = None
    """Matrix multiplication in fp8 and fp4, whose clocks under load differ; 1 where it is absent."""
    flash2: CurveFigure | None = None
    """FlashAttention 1 and 2 over the kernels that the attention figures describe; 1 where it is absent."""
    convolution: CurveFigure | None = None
    """Convolutions, which take it instead of `matmul`; 1 where it is absent."""


class EfficiencyFile(CurveFile):
    """profiles/efficiency/<architecture>.toml."""

    architecture: Architecture
    gemm: dict[GemmPrecision, GemmFigures] = Field(min_length=1)
    attention: AttentionFigures
    factors: FactorFigures
    memory: MemoryFigures
    launch: LaunchFigures
    quantisation_traffic: CurveFigure
    scale: ComputeScale


class ProtocolFigures(Frozen):
    """One wire protocol: its start, its share of the bandwidth, its hops over the tier's `latency_s`."""

    base_s: CurveFigure
    bandwidth: CurveFigure
    ring_hop: CurveFigure
    tree_hop: CurveFigure


class InSwitchFigures(Frozen):
    """All-reduce inside the switch: efficiency by architecture that can, its latency over `latency_s`, and the seconds
    until its pipeline is full."""

    efficiency: dict[Architecture, CurveFigure]
    hop: CurveFigure
    fill_s: CurveFigure


class CommunicationScale(Frozen):
    """Multipliers of bandwidth and latency, the only figures that a calibration moves."""

    bandwidth: CurveFigure
    latency: CurveFigure


class FabricFile(CurveFile):
    """profiles/fabrics/<tier name>.toml."""

    name: str
    full_mesh: bool = False
    ring_efficiency: CurveFigure
    ring_efficiency_on: dict[Architecture, CurveFigure] = {}
    """Where an architecture's devices reach another share of their links."""
    tree_ratio: CurveFigure
    all_to_all_efficiency: CurveFigure
    send_receive_efficiency: CurveFigure
    ramp_bytes: CurveFigure
    peer_s: CurveFigure
    low_latency: ProtocolFigures
    low_latency_128: ProtocolFigures
    simple: ProtocolFigures
    in_switch: InSwitchFigures | None = None
    straggler_noise: CurveFigure
    compute_interference: CurveFigure
    scale: CommunicationScale

    def ring_efficiency_of(self, architecture: str) -> float:
        """Share of the links' rate that a ring of an architecture's devices reaches."""
        own = {str(name): figure.value for name, figure in self.ring_efficiency_on.items()}
        return own.get(architecture, self.ring_efficiency.value)


def _figures(part: object) -> Iterator[CurveFigure]:
    if isinstance(part, CurveFigure):
        yield part
    elif isinstance(part, Frozen):
        for field in type(part).model_fields:
            yield from _figures(getattr(part, field))
    elif isinstance(part, dict):
        for inner in part.values():
            yield from _figures(inner)
