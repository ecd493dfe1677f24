"""What holds for every kernel: physical limits, monotonicity, arrays equal scalars."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.operators.base import Kernel, KernelKind, Phase
from cost_models.profiles import list_devices, load_device
from cost_models.roofline import Efficiency, kernel_seconds, load_efficiency, stack_kernels
from cost_models.specs.device import DeviceSpec

DEVICE = load_device("h100-sxm-80gb")
HOPPER = load_efficiency("hopper")

sizes = st.integers(min_value=1, max_value=20_000)
kinds = st.sampled_from(list(KernelKind))
phases = st.sampled_from(list(Phase))
precisions = st.sampled_from(["bf16", "fp8", "fp32"])


def priced(
    kernel: Kernel, precision: str, device: DeviceSpec = DEVICE, efficiency: Efficiency = HOPPER
) -> float:
    return float(kernel_seconds(stack_kernels([kernel]), device, efficiency, precision)[0])


def kernel_of(kind: KernelKind, phase: Phase, m: float, n: float, k: float) -> Kernel:
    flops = 0.0 if kind is KernelKind.MEMORY else 2.0 * m * n * k
    return Kernel(phase, kind, flops, 2.0 * (m * n + n * k + m * k), m, n, k)


@given(kinds, phases, sizes, sizes, sizes, precisions, st.integers(0, 2))
@settings(max_examples=200, deadline=None)
def test_more_is_never_cheaper(
    kind: KernelKind, phase: Phase, m: int, n: int, k: int, precision: str, grown: int
) -> None:
    shape = [m, n, k]
    before = priced(kernel_of(kind, phase, *shape), precision)
    shape[grown] += 37
    assert priced(kernel_of(kind, phase, *shape), precision) >= before * (1 - 1e-12)


@given(kinds, phases, sizes, sizes, sizes, precisions)
@settings(max_examples=200, deadline=None)
def test_physical_limits(kind: KernelKind, phase: Phase, m: int, n: int, k: int, precision: str) -> None:
    kernel = kernel_of(kind, phase, m, n, k)
    narrow = precision == "fp8" and kind in {KernelKind.GEMM, KernelKind.GROUPED_GEMM}
    peak = DEVICE.peak(precision if narrow or precision != "fp8" else "bf16")
    least_bytes = kernel.bytes / (2.0 if narrow else 1.0)  # operands may be read in one byte
    bound = max(kernel.flops / peak, least_bytes / DEVICE.memory_bytes_per_s.value)
    assert priced(kernel, precision) >= float(bound)


@pytest.mark.parametrize("name", list_devices())
def test_every_device_has_curves_for_what_it_supports(name: str) -> None:
    device = load_device(name)
    efficiency = load_efficiency(device.architecture)
    for precision in device.peak_flops:
        curve = efficiency.curve(precision)
        assert 0 < curve.max_efficiency <= 1
        kernel = kernel_of(KernelKind.GEMM, Phase.FORWARD, 8192, 8192, 8192)
        rate = float(kernel.flops) / priced(kernel, precision, device, efficiency)
        # runs may show a few percent more than the readings that a curve was set by, never more than the peak
        most = curve.max_efficiency * max(1.0, efficiency.scale.matmul)
        assert rate <= min(most, 1.0) * device.peak(precision)
    assert efficiency.scale.matmul <= 1.05
    assert efficiency.kind in {"fitted", "derived"}  # no file may pose as measured


@given(st.integers(0, 2**32 - 1), precisions)
@settings(max_examples=20, deadline=None)
def test_arrays_equal_scalars(seed: int, precision: str) -> None:
    draw = np.random.default_rng(seed)
    m, n, k, count = (draw.integers(1, 5000, 4).astype(float) for _ in range(4))
    kernels = [
        Kernel(phase, kind, 2.0 * m * n * k, m * n, m, n, k, count) for phase in Phase for kind in KernelKind
    ]
    whole = kernel_seconds(stack_kernels(kernels), DEVICE, HOPPER, precision)
    for row, kernel in enumerate(kernels):
        for i in range(4):
            fields = (kernel.flops, kernel.bytes, m, n, k, count)
            one = Kernel(kernel.phase, kernel.kind, *(float(np.asarray(f)[i]) for f in fields))
            assert priced(one, precision) == pytest.approx(whole[row, i], rel=1e-12)
