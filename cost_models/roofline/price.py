"""Seconds of kernels: the slower of computing and moving bytes, at efficiencies that depend on the shape.

Roofline (Williams, Waterman, Patterson 2009): t = max(FLOP / (peak * e), bytes / (bandwidth * e)) + launch.
"""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cost_models.operators.base import KernelKind, Phase
from cost_models.operators.convolution import TRANSPOSED
from cost_models.operators.curves import REST
from cost_models.profiles.curves import Columns, Curve, columns_of
from cost_models.roofline.efficiency import Efficiency, GemmCurve
from cost_models.roofline.kernel_table import SMALLEST, KernelTable, RowGroup
from cost_models.roofline.measured import ACCUMULATE, COPY, OPTIMIZER, phase_name
from cost_models.specs.device import DeviceSpec
from cost_models.specs.job import Precision
from cost_models.units import Num

Array = NDArray[np.float64]

FULL_HEAD_SIZE: Final = 128.0
"""Head size at which attention curves are given; larger heads are no faster."""

NARROW_BYTES: Final = {
    precision.value: precision.gemm_bytes for precision in (Precision.FP8, Precision.MXFP8, Precision.NVFP4)
}
"""Bytes of an operand's element, scales included, in the precisions that quantise their operands."""

WIDE_BYTES: Final = Precision.BF16.gemm_bytes
"""Bytes of an element before it is quantised."""

ALIGNED_ELEMENTS: Final = 8.0
"""Rows of whole 16-byte words in 16 bits, which matrix units want (NVIDIA, "Matrix Multiplication Background")."""

MISALIGNED_SHARE: Final = 0.5
"""[Empirical] rate of a product with a width that is no multiple of 8: padding GPT-2's 50,257 words to 50,304
about halves the head's time in public training logs."""

MISALIGNED_BATCH_SHARE: Final = 0.08
"""[Empirical] the same for batched products, whose operands start between words: heads 150 wide made each FLOP of
the 80-layer models of BigScience's 176B prequel (profiles/published, bloom) 1.26 times as slow as heads of 144."""

SPLITS: Final = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
"""Parts in which libraries divide a long reduction k so that few output tiles fill the device (split-K: NVIDIA CUTLASS,
"Efficient GEMM in CUDA", parallelized reductions), as weight gradients of narrow layers have them."""

PARTIAL_BYTES: Final = 4.0
"""An element of a part's sum, which is written in fp32 and read again."""

CONVOLUTION_TILE: Final = 64.0
"""Output tile at which small channels are padded: cuDNN has implicit-GEMM kernels down to 64 wide, and splits the long
reduction of weight gradients over idle units."""

FP32: Final = Precision.FP32.value
TF32: Final = Precision.TF32.value
MINIMAL_SHARE: Final = 0.55
"""Products of a 3 x 3 convolution in fp32 under minimal filtering, F(2 x 2, 3 x 3): 16 of 36 (Lavin and Gray 2015),
and a quarter more for the transforms beside them [Empirical]; tensor cores have no such kernels."""

_BATCHED: Final = frozenset({KernelKind.GEMM, KernelKind.GROUPED_GEMM})


def kernel_seconds(table: KernelTable, device: DeviceSpec, efficiency: Efficiency, precision: str) -> Array:
    """Seconds of each kernel, all its launches together; shape (kernels, *batch), in the order given.

    Narrow precisions (fp8, mxfp8, nvfp4) hold for GEMM and grouped GEMM only; everything else runs in bf16.
    Rows marked fp32 run at the full fp32 rate. A zero-count or zero-work row takes no time.
    """
    seconds = np.empty(table.shape)
    for group in table.groups:
        part = _measured_seconds(table, group, efficiency, precision)
        if part is None:
            part = _group_seconds(table, group, device, efficiency, precision)
        rows = group.rows
        idle = (table.flops[rows] + table.bytes[rows]) * table.count[rows] <= 0.0
        seconds[table.order[rows]] = np.where(idle, 0.0, part)
    return seconds


def measured_curve(group: RowGroup, efficiency: Efficiency, precision: str) -> Curve | None:
    """The measured curve of a group of kernels, None where the device's profile has none (or there is no profile).

    What runs beside the timed kernel of its operator has that kernel's curve.
    """
    measured = efficiency.measured
    if measured is None or not group.curve:
        return None
    kind = KernelKind.MEMORY if _is_timed_whole(group) else group.kind
    used = precision_of(kind, group.fp32, precision)
    return measured.curve_of(group.curve.removesuffix(REST), kind, phase_name(group.phase), used)


def _is_timed_whole(group: RowGroup) -> bool:
    """Whether the curve is of an operator's whole phase, whatever the kind of this kernel of it."""
    return group.curve != group.kind.value


def group_columns(table: KernelTable, rows: slice) -> Columns:
    """Sizes of a group's kernels, as curves ask for them."""
    shape = {name: getattr(table, name)[rows] for name in ("m", "n", "k", "count")}
    return columns_of(table.flops[rows], table.bytes[rows], shape)


def _measured_seconds(
    table: KernelTable, group: RowGroup, efficiency: Efficiency, precision: str
) -> Array | None:
    """Seconds of a group's rows from the device's own profile, None where it says nothing of them."""
    curve, measured = measured_curve(group, efficiency, precision), efficiency.measured
    if curve is None or measured is None:
        return None
    if group.curve.endswith(REST):
        return np.zeros_like(table.flops[group.rows])
    return measured.seconds(curve, group_columns(table, group.rows))


def gemm_efficiency(
    m: Num, n: Num, k: Num, curve: GemmCurve, compute_units: float, batch: Num = 1.0
) -> Array:
    """Fraction of the dense peak that `batch` equal m x n x k multiplications in one launch reach.

    e = e_max * k / (k + k_half) * (m n) / (padded m * padded n) * (1 - w (1 - last wave's fill)), with m and
    n padded to whole tiles; the wave term after NVIDIA, "Matrix Multiplication Background User's Guide".
    Limit: one tile shape for all sizes, softened by w < 1.
    """
    tiles_m, tiles_n = np.ceil(m / curve.tile_m), np.ceil(n / curve.tile_n)
    tiles = tiles_m * tiles_n * batch
    fill = tiles / (np.ceil(tiles / compute_units) * compute_units)
    tile = m * n / (tiles_m * tiles_n * (curve.tile_m * curve.tile_n))
    wave = 1.0 - curve.wave_strength * (1.0 - fill)
    found: Array = curve.max_efficiency * tile * wave * (k / (k + curve.k_half))
    return found


def optimizer_seconds(
    elements: Num, bytes_per_element: Num, device: DeviceSpec, efficiency: Efficiency
) -> Array:
    """Seconds of an optimizer step over a rank's elements: HBM traffic and nothing else.

    t = (elements * bytes_per_element + half_bytes) / (bandwidth * e) + launch. Adam with fp32 master weights
    and moments reads and writes 4 x 2 x 3, reads the gradient and writes the weight: 30 bytes with fp32
    gradients.
    """
    moved = np.asarray(elements * bytes_per_element, dtype=float)
    stepped = _traffic_seconds(moved, efficiency, (OPTIMIZER,))
    if stepped is not None:
        return stepped
    rate = device.memory_bytes_per_s.value * min(1.0, efficiency.optimizer * efficiency.scale.memory)
    busy = (moved + efficiency.half_bytes) / rate + efficiency.kernel_s
    return np.where(moved > 0.0, busy, 0.0)


def memory_seconds(moved: Num, device: DeviceSpec, efficiency: Efficiency, name: str = ACCUMULATE) -> Array:
    """Seconds of traffic without a kernel of its own, as of passes fused over many tensors; sums in place, or copies
    into fresh memory, by the `name` of their curve."""
    copied = _traffic_seconds(np.asarray(moved, dtype=float), efficiency, (name, COPY))
    if copied is not None:
        return copied
    rate = device.memory_bytes_per_s.value * min(1.0, efficiency.memory * efficiency.scale.memory)
    return np.asarray(moved, dtype=float) / rate


def _traffic_seconds(moved: Array, efficiency: Efficiency, names: tuple[str, ...]) -> Array | None:
    """Seconds of bytes by the first curve of a profile among `names`, None where it has none; 0 for no bytes."""
    measured = efficiency.measured
    if measured is None:
        return None
    found = [curve for name in names for curve in [measured.traffic_of(name)] if curve is not None]
    if not found:
        return None
    return np.where(moved > 0.0, measured.seconds(found[0], {"bytes": moved}), 0.0)


def precision_of(kind: KernelKind, fp32: bool, precision: str) -> str:
    """The precision a kernel really runs in under a job precision."""
    if fp32:
        return "fp32"
    if precision in NARROW_BYTES and kind not in _BATCHED:
        return "bf16"
    return precision


def _group_seconds(
    table: KernelTable, group: RowGroup, device: DeviceSpec, efficiency: Efficiency, precision: str
) -> Array:
    """Seconds of the rows of one group, launches included."""
    rows, kind = group.rows, group.kind
    count, moved = table.count[rows], table.bytes[rows]
    launches = count
    if kind in _BATCHED:  # equal shapes go out as one batched or grouped launch
        launches = np.minimum(count, 1.0)
    extra = launches * efficiency.kernel_s
    if kind is KernelKind.GROUPED_GEMM:
        extra = extra + (count - launches) * efficiency.group_s
    rate = device.memory_bytes_per_s.value * min(1.0, efficiency.memory * efficiency.scale.memory)
    if kind is KernelKind.MEMORY:
        return (moved + launches * efficiency.half_bytes) / rate + extra
    used = precision_of(kind, group.fp32, precision)
    if used in NARROW_BYTES:
        narrow = NARROW_BYTES[used]
        extra = extra + _quantised_bytes(table, rows, narrow) * (efficiency.quantisation_traffic / rate)
        moved = np.maximum(moved - _operands(table, rows) * (WIDE_BYTES - narrow), 0.0)
    if kind is KernelKind.CONVOLUTION and used == TF32:
        extra = extra + TRANSPOSED * moved / rate
    compute = _compute_seconds(table, group, device, efficiency, used)
    return np.maximum(compute, (moved + launches * efficiency.half_bytes) / rate) + extra


def _compute_seconds(
    table: KernelTable, group: RowGroup, device: DeviceSpec, efficiency: Efficiency, used: str
) -> Array:
    """FLOP / (peak * efficiency) of the rows of one group."""
    rows, kind, scale = group.rows, group.kind, efficiency.scale
    peak = _peak(device, used)
    flops = table.flops[rows]
    if kind is KernelKind.SCAN:
        return flops / (peak * min(1.0, efficiency.scan * scale.matmul))
    if kind is KernelKind.ATTENTION:
        curve = efficiency.attention_backward if group.backward else efficiency.attention_forward
        keys, head = table.n[rows], table.k[rows]
        half = curve.head_size_half
        head_fill = np.minimum(1.0, head * (1.0 + half / FULL_HEAD_SIZE) / (head + half))
        reached = min(1.0, curve.max_efficiency * scale.attention) * head_fill
        return flops * (keys + curve.half_keys) / (keys * reached * peak)
    return _product_seconds(table, group, device, efficiency, used)


def _product_seconds(
    table: KernelTable, group: RowGroup, device: DeviceSpec, efficiency: Efficiency, used: str
) -> Array:
    """Seconds of matrix products and convolutions of one group; plain products split k where that is faster."""
    rows, kind, scale = group.rows, group.kind, efficiency.scale
    gemm, flops, units = efficiency.curve(used), table.flops[rows], device.compute_units.value
    m, n, k = table.m[rows], table.n[rows], table.k[rows]
    if kind is KernelKind.CONVOLUTION:
        gemm = replace(gemm, tile_m=CONVOLUTION_TILE, tile_n=CONVOLUTION_TILE, wave_strength=0.0)
        fitted = (scale.matmul if used == FP32 else scale.convolution) * efficiency.convolution
        flops = flops * (MINIMAL_SHARE if group.minimal and used == FP32 else 1.0)
        return flops / (
            _peak(device, used) * _share(gemm_efficiency(m, n, k, gemm, units), fitted, efficiency)
        )
    batch = np.maximum(table.count[rows], SMALLEST)
    fitted = scale.narrow if used in NARROW_BYTES else scale.matmul
    if kind is KernelKind.GROUPED_GEMM:
        fitted = fitted * efficiency.grouped_gemm * scale.grouped
        return flops / (
            _peak(device, used) * _share(gemm_efficiency(m, n, k, gemm, units, batch), fitted, efficiency)
        )
    odd = (n % ALIGNED_ELEMENTS != 0.0) | (k % ALIGNED_ELEMENTS != 0.0)
    slow = np.where(odd, np.where(batch > 1.0, MISALIGNED_BATCH_SHARE, MISALIGNED_SHARE), 1.0)
    summed_s = 2.0 * PARTIAL_BYTES * m * n * batch / memory_rate(device, efficiency)
    found = np.full_like(flops, np.inf)
    for ways in SPLITS:
        reached = gemm_efficiency(m, n, k / ways, gemm, units, batch * ways)
        busy = flops / (_peak(device, used) * _share(slow * reached, fitted, efficiency))
        found = np.minimum(found, busy + (ways * summed_s if ways > 1.0 else 0.0))
    return found


def _share(reached: Array, fitted: float, efficiency: Efficiency) -> Array:
    """Share of the peak that is left of a curve in a step, at most all of it."""
    share: Array = np.minimum(1.0, reached * (fitted * efficiency.sustained))
    return share


def memory_rate(device: DeviceSpec, efficiency: Efficiency) -> float:
    """Bytes/s of kernels that only move bytes."""
    return device.memory_bytes_per_s.value * min(1.0, efficiency.memory * efficiency.scale.memory)


def _peak(device: DeviceSpec, precision: str) -> float:
    if precision == "fp32" and not device.supports("fp32"):
        return device.vector_flops.value
    return device.peak(precision)


def _operands(table: KernelTable, rows: slice) -> Array:
    """Elements of both operands, over all launches."""
    return table.count[rows] * table.k[rows] * (table.m[rows] + table.n[rows])


def _quantised_bytes(table: KernelTable, rows: slice, narrow: float) -> Array:
    """Bytes moved to quantise: each operand once, read wide, written row- and column-wise.

    The forward GEMM quantises its input and its weight, the input gradient its output gradient; the weight
    gradient finds both operands ready.
    """
    phases = table.phases[table.order[rows]].reshape(-1, *([1] * (table.flops.ndim - 1)))
    left = table.m[rows] * (phases != Phase.WEIGHT_GRADIENT)
    right = table.n[rows] * (phases == Phase.FORWARD)
    moved: Array = table.count[rows] * table.k[rows] * (left + right) * (WIDE_BYTES + 2.0 * narrow)
    return moved
