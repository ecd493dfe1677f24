"""Scales of the curves: which kernels each moves, older attention, misaligned widths."""

from dataclasses import replace

import pytest

from cost_models.operators.base import Kernel, KernelKind, Phase
from cost_models.profiles import load_device
from cost_models.roofline import Scale, kernel_seconds, load_efficiency, stack_kernels

H100 = load_device("h100-sxm-80gb")
CURVES = load_efficiency("hopper")


def seconds(kernel: Kernel, precision: str, scale: Scale) -> float:
    found = kernel_seconds(stack_kernels([kernel]), H100, replace(CURVES, scale=scale), precision)
    return float(found[0])


def gemm(n: float, k: float = 8192.0, count: float = 1.0) -> Kernel:
    """8,192 rows; FLOP over all launches, few bytes so that it is bound by compute."""
    flops = 2.0 * 8192 * n * k * count
    return Kernel(Phase.FORWARD, KernelKind.GEMM, flops, 1.0, 8192.0, n, k, count)


@pytest.mark.parametrize(
    ("precision", "name", "other"), [("bf16", "matmul", "narrow"), ("fp8", "narrow", "matmul")]
)
def test_each_precision_has_its_scale(precision: str, name: str, other: str):
    plain = seconds(gemm(8192), precision, Scale())
    assert seconds(gemm(8192), precision, replace(Scale(), **{name: 0.5})) > 1.5 * plain
    assert seconds(gemm(8192), precision, replace(Scale(), **{other: 0.5})) == plain


@pytest.mark.parametrize(("count", "slower"), [(1.0, 2.0), (64.0, 12.5)])
def test_misaligned_widths_are_slow(count: float, slower: float):
    """8,184 = 8 x 1,023 fills as many tiles as 8,190; at most the launch dilutes the ratio."""
    even, odd = (
        seconds(gemm(8184, count=count), "bf16", Scale()),
        seconds(gemm(8190, count=count), "bf16", Scale()),
    )
    assert odd / even == pytest.approx(slower, rel=0.01)
