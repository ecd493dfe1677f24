"""How long a layer's kernels and messages take to price; shown, not judged."""

import sys
import time
from collections.abc import Callable

import numpy as np
import pytest

from cost_models.communication import Span, message_seconds, network_of, stack_messages
from cost_models.operators.base import Axis, Collective, Kernel, KernelKind, Message, Phase
from cost_models.profiles import load_cluster, load_device
from cost_models.roofline import kernel_seconds, load_efficiency, stack_kernels

pytestmark = pytest.mark.bench
BATCHES = [(), (2000,)]


def fastest_ms(priced: Callable[[], object]) -> float:
    times = []
    for _ in range(10):
        start = time.perf_counter()
        priced()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def show(capsys: pytest.CaptureFixture[str], what: str, time_ms: float) -> None:
    with capsys.disabled():
        sys.stdout.write(f" {what}: {time_ms:.3f} ms ")


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_150_kernels(batch: tuple[int, ...], precision: str, capsys: pytest.CaptureFixture[str]) -> None:
    size = np.full(batch, 4096.0)
    kinds = list(KernelKind)
    kernels = [Kernel(Phase(i % 3), kinds[i % 6], size, size, size, size, size) for i in range(150)]
    table, device, curves = stack_kernels(kernels), load_device("h100-sxm-80gb"), load_efficiency("hopper")
    show(capsys, "150 kernels", fastest_ms(lambda: kernel_seconds(table, device, curves, precision)))


@pytest.mark.parametrize("batch", BATCHES)
def test_60_messages(batch: tuple[int, ...], capsys: pytest.CaptureFixture[str]) -> None:
    kinds = list(Collective)
    axes = list(Axis)
    payload = np.full(batch, 1e7)
    table = stack_messages([Message(Phase.FORWARD, kinds[i % 5], axes[i % 4], payload) for i in range(60)])
    network = network_of(load_cluster("dgx-h100:1024"))
    spans = {axis: Span(np.full(batch, 4), np.full(batch, 4)) for axis in axes}
    show(capsys, "60 messages", fastest_ms(lambda: message_seconds(table, spans, network)))
