"""Measured before fitted before datasheet: a device's profile prices its kernels and messages, and nobody else's."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cost_models.communication import Span, collective_seconds, network_of
from cost_models.communication.message_table import message_seconds, stack_messages
from cost_models.operators import Activation, Linear, Norm, Router
from cost_models.operators.base import Axis, Collective, Kernel, KernelKind, Message, Phase, Shard, Style
from cost_models.operators.curves import REST, kernel_curves
from cost_models.operators.linear import Part
from cost_models.profiles import MEASURED_VARIABLE, load_device, load_preset, read_profile
from cost_models.roofline import (
    COPY,
    Efficiency,
    efficiency_of,
    kernel_seconds,
    load_generation,
    measured_kernels,
    memory_seconds,
    optimizer_seconds,
    stack_kernels,
)

MEASURED = Path(__file__).parents[1] / "data" / "measured"
EXAMPLE = read_profile(next((MEASURED / "h200-sxm").iterdir()))
DEVICE = load_device("h200-sxm")
AT, STYLE = Shard(1.0, 4096.0, 4096.0), Style()
OPERATORS = (
    Linear(name="up", in_features=4096, parts=(Part(name="up", features=16384),)),
    Norm(name="norm", width=4096),
    Activation(name="act", width=4096, gated=True),
    Router(name="router", hidden=4096, experts=64, top_k=4),
)


def kernels_and_curves() -> tuple[list[Kernel], list[str]]:
    kernels, curves = [], []
    for operator in OPERATORS:
        own = operator.kernels(AT, STYLE)
        kernels += own
        curves += kernel_curves(operator, own)
    return kernels, curves


def fitted() -> Efficiency:
    return efficiency_of(DEVICE, load_generation("auto", "megatron", "0.13"))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Efficiency:
    monkeypatch.setenv(MEASURED_VARIABLE, str(MEASURED))
    found = fitted()
    assert found.measured is not None
    return found


def test_without_a_profile_names_of_curves_change_no_bit():
    kernels, curves = kernels_and_curves()
    assert fitted().measured is None
    plain = kernel_seconds(stack_kernels(kernels), DEVICE, fitted(), "bf16")
    named = kernel_seconds(stack_kernels(kernels, curves), DEVICE, fitted(), "bf16")
    assert plain.tobytes() == named.tobytes()


def test_every_family_is_priced_by_its_own_curve(measured: Efficiency):
    kernels, curves = kernels_and_curves()
    seconds = kernel_seconds(stack_kernels(kernels, curves), DEVICE, measured, "bf16")
    # 4 us + 2 m n k / 600e12 + bytes / 3.6e12, as the example's products were made
    work, moved = 2.0 * 4096 * 16384 * 4096, 2.0 * (4096 * 16384 * 2 + 4096 * 4096)
    assert seconds[0] == pytest.approx(4e-6 + work / 600e12 + moved / 3.6e12, rel=1e-3)
    # the norm reads and writes 4096 x 4096 elements of 2 bytes: 5 us + bytes / 3e12
    assert curves[3] == "norm:rms"
    assert seconds[3] == pytest.approx(5e-6 + 2 * 2 * 4096**2 / 3e12, rel=0.02)


def test_a_phase_of_several_kernels_is_timed_as_one():
    kernels, curves = [], []
    router = OPERATORS[3]
    kernels = router.kernels(AT, STYLE)
    curves = kernel_curves(router, kernels)
    for phase in {kernel.phase for kernel in kernels}:
        own = [curve for curve, kernel in zip(curves, kernels, strict=True) if kernel.phase is phase]
        kinds = {kernel.kind for kernel in kernels if kernel.phase is phase}
        if len(kinds) > 1:
            assert sum(not curve.endswith(REST) for curve in own) == 1


def test_what_a_profile_does_not_hold_keeps_its_formula(measured: Efficiency):
    scan = Kernel(Phase.FORWARD, KernelKind.SCAN, 1e12, 1e9, 1.0, 1.0, 1.0)
    table = stack_kernels([scan], ["scan"])
    assert kernel_seconds(table, DEVICE, measured, "bf16").tobytes() == (
        kernel_seconds(table, DEVICE, replace(measured, measured=None), "bf16").tobytes()
    )
    # a precision that was not measured, too
    gemm = Kernel(Phase.FORWARD, KernelKind.GEMM, 2e12, 1e9, 4096.0, 4096.0, 4096.0)
    table = stack_kernels([gemm], ["gemm"])
    assert kernel_seconds(table, DEVICE, measured, "fp8").tobytes() == (
        kernel_seconds(table, DEVICE, replace(measured, measured=None), "fp8").tobytes()
    )


def test_scalar_and_bulk_pricing_are_one_path(measured: Efficiency):
    sizes = np.array([512.0, 3000.0, 70000.0])
    rows = [Kernel(Phase.FORWARD, KernelKind.GEMM, 2 * m * 4096.0**2, 1e8, m, 4096.0, 4096.0) for m in sizes]
    one = Kernel(Phase.FORWARD, KernelKind.GEMM, 2 * sizes * 4096.0**2, 1e8, sizes, 4096.0, 4096.0)
    alone = [kernel_seconds(stack_kernels([row], ["gemm"]), DEVICE, measured, "bf16")[0] for row in rows]
    bulk = kernel_seconds(stack_kernels([one], ["gemm"]), DEVICE, measured, "bf16")[0]
    assert bulk.tolist() == alone


def test_the_optimizer_and_sums_of_gradients_have_curves(measured: Efficiency):
    # half of the bytes between two points of the logarithms: t(1e9) = 4 us + 1e9 / 3.2e12
    assert float(optimizer_seconds(1e9, 1.0, DEVICE, measured)) == pytest.approx(
        4e-6 + 1e9 / 3.2e12, rel=1e-4
    )
    assert float(optimizer_seconds(0.0, 1.0, DEVICE, measured)) == 0.0
    assert float(memory_seconds(1e9, DEVICE, measured)) == pytest.approx(4e-6 + 1e9 / 3.5e12, rel=1e-4)
    assert float(memory_seconds(1e9, DEVICE, measured, COPY)) == pytest.approx(
        float(kernel_copy_s(measured)), rel=1e-9
    )


def kernel_copy_s(measured: Efficiency) -> float:
    """Seconds that the profile's own curve of copies gives for 1e9 bytes."""
    assert measured.measured is not None
    curve = measured.measured.traffic_of("copy")
    assert curve is not None
    return float(curve.at({"bytes": np.asarray(1e9)}))


def test_processes_that_share_cores_take_turns():
    one, four = measured_kernels(EXAMPLE, 1, 2), measured_kernels(EXAMPLE, 4, 2)
    assert one is not None
    assert four is not None
    # the example knows one process alone; four on two cores: two at a time count double, and they take turns
    assert four.stretch == pytest.approx(2.0 * 2.0)
    assert one.at_rate(0.8).stretch == pytest.approx(1.0 / 0.8)
    assert measured_kernels(None) is None


def test_messages_inside_the_node_are_as_measured(monkeypatch: pytest.MonkeyPatch):
    plain = network_of(load_preset("dgx-h200", 16))
    monkeypatch.setenv(MEASURED_VARIABLE, str(MEASURED))
    network = network_of(load_preset("dgx-h200", 16))
    assert network.measured is not None
    assert network.interference[0] == pytest.approx(0.15)
    inside, payload = Span(8), 2.0**28
    reduced = float(collective_seconds(Collective.ALL_REDUCE, payload, inside, network))
    assert reduced == pytest.approx(12e-6 + payload * 2 * 7 / 8 / 400e9, rel=1e-3)
    # between two measured groups the logarithms are straight: a node of 6 lies between groups of 4 and 8
    nodes = {n: network_of(load_preset("dgx-h200", n)) for n in (4, 6, 8)}
    four, six, eight = (
        float(collective_seconds(Collective.ALL_GATHER, payload, Span(n), node)) for n, node in nodes.items()
    )
    assert four < six < eight
    # across nodes, and for nothing to send, the formula stands
    across = Span(16)
    assert collective_seconds(Collective.ALL_REDUCE, payload, across, network) == (
        collective_seconds(Collective.ALL_REDUCE, payload, across, plain)
    )
    assert float(collective_seconds(Collective.ALL_REDUCE, 0.0, inside, network)) == 0.0


def test_reductions_and_gathers_are_told_apart_only_where_measured():
    network = network_of(load_preset("dgx-h100", 8))
    messages = [
        Message(Phase.FORWARD, Collective.ALL_GATHER, Axis.TP, 1e6),
        Message(Phase.FORWARD, Collective.REDUCE_SCATTER, Axis.TP, 1e6),
    ]
    spans = {Axis.TP: Span(8)}
    together = message_seconds(stack_messages(messages), spans, network)
    apart = message_seconds(stack_messages(messages, apart=True), spans, network)
    assert together.tobytes() == apart.tobytes()
