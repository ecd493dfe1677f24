"""Seconds of kernels, by hand on round curves."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.errors import BadInput, InvalidCluster, InvalidJob
from cost_models.operators.base import Kernel, KernelKind, Phase
from cost_models.profiles import load_device
from cost_models.roofline import (
    AttentionCurve,
    Efficiency,
    GemmCurve,
    Scale,
    gemm_efficiency,
    kernel_seconds,
    load_efficiency,
    optimizer_seconds,
    precision_of,
    stack_kernels,
)
from cost_models.specs.device import DeviceSpec

FORWARD, INPUT, WEIGHT = Phase


def figure(value: float, unit: str) -> dict[str, object]:
    return {"value": value, "unit": unit, "kind": "derived", "source": "made up for a test"}


DEVICE = DeviceSpec.model_validate(
    {
        "name": "round",
        "title": "Round",
        "vendor": "none",
        "architecture": "hopper",
        "capacity_bytes": figure(1e9, "bytes"),
        "memory_bytes_per_s": figure(1e12, "bytes/s"),
        "peak_flops": {
            "fp32": figure(10e12, "flop/s"),
            "bf16": figure(100e12, "flop/s"),
            "fp8": figure(200e12, "flop/s"),
        },
        "vector_flops": figure(10e12, "flop/s"),
        "compute_units": figure(100, "count"),
        "power_w": figure(1, "W"),
        "context_bytes": figure(1, "bytes"),
        "host_link_bytes_per_s": figure(1, "bytes/s"),
    }
)
CURVE = GemmCurve(max_efficiency=0.8, k_half=0.0, tile_m=100.0, tile_n=100.0, wave_strength=0.5)
ROUND = Efficiency(
    architecture="hopper",
    kind="fitted",
    gemm={"fp32": CURVE, "bf16": CURVE, "fp8": CURVE},
    attention_forward=AttentionCurve(0.5, 0.0, 0.0),
    attention_backward=AttentionCurve(0.25, 0.0, 0.0),
    grouped_gemm=0.5,
    convolution=0.25,
    scan=0.1,
    memory=0.5,
    optimizer=0.8,
    half_bytes=0.0,
    kernel_s=0.0,
    group_s=0.0,
    quantisation_traffic=1.0,
    scale=Scale(),
)


def seconds(kernel: Kernel, efficiency: Efficiency = ROUND, precision: str = "bf16") -> float:
    return float(kernel_seconds(stack_kernels([kernel]), DEVICE, efficiency, precision)[0])


def gemm(m: float, n: float, k: float, kind: KernelKind = KernelKind.GEMM, **more: object) -> Kernel:
    return Kernel(FORWARD, kind, 2.0 * m * n * k, 0.0, m, n, k, **more)  # type: ignore[arg-type]


def test_whole_waves_reach_the_maximum() -> None:
    # 10 x 10 tiles on 100 units: one full wave; 2e9 FLOP / (100e12 x 0.8) = 25 us
    assert seconds(gemm(1000, 1000, 1000)) == pytest.approx(25e-6)


def test_tile_and_wave_quantisation() -> None:
    # m = 1,050 makes 11 x 10 tiles: tile share 1,050/1,100;
    # 110 tiles on 2 x 100 units: fill 0.55, wave 1 - 0.5 x 0.45
    expected = 0.8 * (1050 / 1100) * (1 - 0.5 * 0.45)
    assert float(gemm_efficiency(1050.0, 1000.0, 1000.0, CURVE, 100.0)) == pytest.approx(expected)


def test_half_saturation_of_k() -> None:
    curve = replace(CURVE, k_half=500.0)
    assert float(gemm_efficiency(1000.0, 1000.0, 500.0, curve, 100.0)) == pytest.approx(0.4)


def test_bytes_bound_gemm() -> None:
    # 50e6 bytes / (1e12 x 0.5) = 100 us, over the 25 us of its FLOP
    kernel = replace(gemm(1000, 1000, 1000), bytes=50e6)
    assert seconds(kernel) == pytest.approx(100e-6)


def test_grouped_gemm_fills_the_device_together_and_pays_for_groups() -> None:
    # 4 experts of 5 x 5 tiles: 100 tiles, one wave. 4 x 2 x 500 x 500 x 1,000 = 2e9 FLOP at 0.8 x 0.5: 50 us;
    # one launch of 3 us and three further groups of 1 us
    kernel = Kernel(FORWARD, KernelKind.GROUPED_GEMM, 2e9, 0.0, 500.0, 500.0, 1000.0, 4.0)
    assert seconds(kernel, replace(ROUND, kernel_s=3e-6, group_s=1e-6)) == pytest.approx(56e-6)


def test_memory_kernels_pay_each_launch() -> None:
    # 3 launches: (30e6 + 3 x 1e6) / (1e12 x 0.5) + 3 x 2 us = 66 + 6 us
    kernel = Kernel(FORWARD, KernelKind.MEMORY, 0.0, 30e6, count=3.0)
    assert seconds(kernel, replace(ROUND, half_bytes=1e6, kernel_s=2e-6)) == pytest.approx(72e-6)


def test_attention_by_direction_keys_and_head_size() -> None:
    curve = AttentionCurve(0.5, 1000.0, 64.0)
    efficiency = replace(ROUND, attention_forward=curve)
    # 1e9 FLOP at 0.5 x 1,000/2,000 x (64 x 1.5 / 128): 1e9 / (100e12 x 0.1875)
    kernel = Kernel(FORWARD, KernelKind.ATTENTION, 1e9, 0.0, 1000.0, 1000.0, 64.0)
    assert seconds(kernel, efficiency) == pytest.approx(1e9 / (100e12 * 0.1875))
    # backward at 0.25 flat
    assert seconds(replace(kernel, phase=INPUT), efficiency) == pytest.approx(1e9 / (100e12 * 0.25))


def test_scan_and_convolution_shares() -> None:
    assert seconds(Kernel(FORWARD, KernelKind.SCAN, 1e9, 0.0)) == pytest.approx(1e9 / (100e12 * 0.1))
    # tiles of 64 pad 1,000 to 1,024 both ways
    assert seconds(gemm(1000, 1000, 1000, KernelKind.CONVOLUTION)) == pytest.approx(100e-6 * 1.024**2)


def test_fp8_holds_for_gemms_only_and_pays_for_quantising() -> None:
    # compute 2e9 / (200e12 x 0.8) = 12.5 us;
    # quantising 1e6 + 1e6 elements, 2 + 2 x 1 bytes each: 8e6 / 0.5e12 = 16 us
    assert seconds(gemm(1000, 1000, 1000), precision="fp8") == pytest.approx(28.5e-6)
    # the input gradient quantises one operand, the weight gradient none
    assert seconds(replace(gemm(1000, 1000, 1000), phase=INPUT), precision="fp8") == pytest.approx(20.5e-6)
    assert seconds(replace(gemm(1000, 1000, 1000), phase=WEIGHT), precision="fp8") == pytest.approx(12.5e-6)
    attention = Kernel(FORWARD, KernelKind.ATTENTION, 1e9, 0.0, 1000.0, 1000.0, 128.0)
    assert seconds(attention, precision="fp8") == seconds(attention, precision="bf16")


def test_fp32_rows_run_at_the_fp32_rate() -> None:
    assert seconds(gemm(1000, 1000, 1000, fp32=True)) == pytest.approx(250e-6)
    assert precision_of(KernelKind.GEMM, True, "fp8") == "fp32"


def test_order_and_mixed_batches() -> None:
    rows = np.array([1000.0, 2000.0])
    kernels = [
        Kernel(FORWARD, KernelKind.MEMORY, 0.0, 1e6),
        gemm(1000, 1000, 1000),
        Kernel(FORWARD, KernelKind.MEMORY, 0.0, rows * 1e3),
    ]
    found = kernel_seconds(stack_kernels(kernels), DEVICE, ROUND, "bf16")
    assert found.shape == (3, 2)
    assert found == pytest.approx(np.array([[2e-6, 2e-6], [25e-6, 25e-6], [2e-6, 4e-6]]))


def test_no_work_takes_no_time() -> None:
    idle = [Kernel(FORWARD, kind, 0.0, 0.0, count=0.0) for kind in KernelKind]
    assert not kernel_seconds(stack_kernels(idle), DEVICE, load_efficiency("hopper"), "fp8").any()
    assert kernel_seconds(stack_kernels([]), DEVICE, ROUND, "bf16").shape == (0,)


def test_optimizer_is_traffic() -> None:
    # 1e6 elements x 30 bytes / (1e12 x 0.8) = 37.5 us
    assert float(optimizer_seconds(1e6, 30.0, DEVICE, ROUND)) == pytest.approx(37.5e-6)
    assert float(optimizer_seconds(0.0, 30.0, DEVICE, load_efficiency("hopper"))) == 0.0


def test_what_a_device_lacks_is_refused() -> None:
    v100 = load_device("v100-sxm2-32gb")
    with pytest.raises(InvalidCluster, match="bf16"):
        kernel_seconds(stack_kernels([gemm(8, 8, 8)]), v100, load_efficiency("volta"), "bf16")
    with pytest.raises(InvalidJob, match="fp8"):
        load_efficiency("volta").curve("fp8")
    with pytest.raises(BadInput, match="no efficiency curves"):
        load_efficiency("../devices/cpu")


@pytest.mark.parametrize(
    ("device", "architecture", "shape", "low", "high"),
    [
        # public cuBLAS readings, TFLOP/s
        ("h100-sxm-80gb", "hopper", (8192, 8192, 8192), 640, 790),
        ("h100-sxm-80gb", "hopper", (8192, 1024, 8192), 550, 750),
        ("a100-sxm-80gb", "ampere", (8192, 8192, 8192), 240, 275),
    ],
)
def test_large_gemms_are_near_public_readings(
    device: str, architecture: str, shape: tuple[int, int, int], low: float, high: float
) -> None:
    m, n, k = shape
    kernel = Kernel(FORWARD, KernelKind.GEMM, 2.0 * m * n * k, 2.0 * (m * n + n * k + m * k), m, n, k)
    alone = replace(load_efficiency(architecture), scale=Scale())  # scales are of a whole step under load
    time_s = kernel_seconds(stack_kernels([kernel]), load_device(device), alone, "bf16")
    assert low <= float(kernel.flops / time_s[0]) / 1e12 <= high


def test_few_tiles_and_a_long_reduction_are_split() -> None:
    # 2 x 4 tiles of 100 units: wave 1 - 0.5 x 0.92; in 12 parts 96 tiles, 1 - 0.5 x 0.04 = 0.98 of 0.8, and 12 sums of
    # 200 x 400 in fp32 written and read at 0.5e12 bytes/s
    flops = 2.0 * 200 * 400 * 1e6
    assert seconds(gemm(200, 400, 1e6)) == pytest.approx(flops / (100e12 * 0.784) + 12 * 8 * 8e4 / 0.5e12)


def test_a_short_reduction_is_not_split() -> None:
    # the same tiles, but k 104 with half of the rate at 1,000: parts of it would be slower
    slow = replace(ROUND, gemm={**ROUND.gemm, "bf16": replace(CURVE, k_half=1000.0)})
    share = 0.8 * 0.54 * 104 / 1104
    assert seconds(gemm(200, 400, 104), slow) == pytest.approx(2.0 * 200 * 400 * 104 / (100e12 * share))
