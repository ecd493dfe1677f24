"""Software generations, factors of devices, clocks under a power limit: what each moves, and what is refused."""

from dataclasses import replace

import pytest

from cost_models.errors import BadInput
from cost_models.operators.base import Kernel, KernelKind, Phase
from cost_models.profiles import load_device
from cost_models.roofline import (
    Generation,
    Scale,
    efficiency_of,
    kernel_seconds,
    load_efficiency,
    load_generation,
    stack_kernels,
)
from cost_models.roofline.generations import (
    device_factors,
    sustained_share,
    tuned_generations,
    under_factors,
)

H100 = load_device("h100-sxm-80gb")


def test_an_unknown_generation_is_refused_with_the_known_ones():
    with pytest.raises(BadInput, match="bridge-2026") as refusal:
        load_generation("nope", "megatron", "0.19")
    assert "auto" in str(refusal.value)


@pytest.mark.parametrize(
    ("engine", "version", "name"),
    [("megatron", "0.19", "bridge-2026"), ("megatron", "0.12", "nemo-2025"), ("fsdp2", "2.13", "torch-2024")],
)
def test_engines_have_a_current_generation(engine: str, version: str, name: str):
    assert load_generation("auto", engine, version).name == name
    assert name in tuned_generations()


def test_a_generation_moves_every_rate_and_grouped_products_once_more():
    plain = load_efficiency("hopper")
    found = under_factors(plain, H100, (1.0, 1.0), Generation("g", kernels=0.5, grouped=0.8, exchange_s=1e-3))
    for name in ("matmul", "narrow", "attention", "memory"):
        assert getattr(found.scale, name) == pytest.approx(0.5 * getattr(plain.scale, name))
    assert found.scale.grouped == 0.8
    assert found.exchange_s == 1e-3


@pytest.mark.parametrize("engine", ["megatron@0.14", "torchtitan", "fsdp2", "deepspeed"])
def test_eager_software_waits_for_the_counts_of_tokens(engine: str):
    """Bridge without graphs was measured to wait 2 ms an exchange; software without a fitted mixture waits, too."""
    name, _, version = engine.partition("@")
    assert load_generation("auto", name, version or "0.1").exchange_s == pytest.approx(2e-3)
    assert load_generation("bridge-eager", "megatron", "0.19").exchange_s == pytest.approx(2e-3, rel=0.3)


def test_device_factors_move_their_kernels_only():
    plain = load_efficiency("hopper")
    found = under_factors(plain, H100, (0.9, 1.2), Generation("g"))
    assert found.scale.matmul == pytest.approx(0.9 * plain.scale.matmul)
    assert found.scale.attention == pytest.approx(1.2 * plain.scale.attention)
    assert found.scale.memory == plain.scale.memory


def test_clocks_fall_with_the_cube_root_of_the_power():
    # H100: 700 W / 989.4 TFLOP/s = 0.7075 W a TFLOP/s; 0.7075^0.333 = 0.8912. An eighth of the power: half the clock
    assert sustained_share(H100) == pytest.approx(0.8912, abs=1e-3)
    eighth = replace_power(1.0 / 8.0)
    assert sustained_share(eighth) / sustained_share(H100) == pytest.approx(0.5, abs=2e-3)
    assert sustained_share(replace_power(10.0)) == 1.0


@pytest.mark.parametrize(
    ("device", "precision", "sides", "flops_per_s"),
    [
        # AMD, Measuring Max-Achievable FLOPs part 2 (its shapes); Azure AI-benchmarking-guide, ND MI300X v5 (cubes)
        ("mi300x", "bf16", (4096, 4864, 32896), 708e12),
        ("mi300x", "fp16", (4096, 4864, 32896), 654e12),
        ("mi325x", "bf16", (4096, 4864, 32896), 843e12),
        ("mi300x", "fp8", (4096, 4096, 4096), 955e12),
        ("mi300x", "fp8", (8192, 8192, 8192), 1159e12),
        ("mi300x", "fp8", (2048, 2048, 2048), 428e12),
        # stas00/ml-engineering, MAMF
        ("mi300x", "bf16", (10240, 15360, 8192), 668.4e12),
        ("mi325x", "bf16", (13312, 10240, 8192), 784.9e12),
        ("mi355x", "bf16", (12288, 8192, 8192), 1565e12),
        # ROCm/TransformerEngine issue 73, torch.matmul
        ("mi300x", "bf16", (16384, 8192, 1280), 493e12),
        ("mi300x", "bf16", (16384, 1024, 8192), 546.4e12),
        # zzc0721/torch-performance-test-data issue 195: 124.2, 102.5, 120.2 TFLOP/s of an MI210's 181; of 191.5 here,
        # times 0.8: ROCm/rocBLAS issue 1563 over ROCm/rocm-libraries issue 9453
        ("mi250x", "bf16", (8192, 8192, 8192), 105.1e12),
        ("mi250x", "bf16", (2048, 2048, 2048), 86.8e12),
        ("mi250x", "fp16", (8192, 8192, 8192), 101.7e12),
        # the same tables, issues 78, 120 and 126
        ("l4", "bf16", (8192, 8192, 8192), 59.4e12),
        ("l4", "fp16", (4096, 4096, 4096), 53.0e12),
        ("a10g", "bf16", (8192, 8192, 8192), 66.6e12),
        ("rtx-4090", "bf16", (8192, 8192, 8192), 160.2e12),
        ("rtx-4090", "tf32", (8192, 8192, 8192), 85.7e12),
        ("rtx-4090", "fp32", (8192, 8192, 8192), 53.4e12),
        # cloudrift-ai/emmy pull request 349: 919.5 and 120.2 us
        ("rtx-4090", "fp16", (4096, 4096, 4096), 149.5e12),
        ("rtx-4090", "fp16", (2048, 2048, 2048), 143e12),
    ],
)
def test_products_alone_are_near_their_readings(
    device: str, precision: str, sides: tuple[int, int, int], flops_per_s: float
):
    """Kernels alone, so without what steps keep of them (scale): within a sixth of every reading."""
    spec = load_device(device)
    plain = replace(load_efficiency(spec.architecture), scale=Scale(), kernel_s=0.0)
    curves = under_factors(plain, spec, device_factors(device), Generation("g"))
    m, n, k = (float(side) for side in sides)
    moved = 2.0 * (m * k + n * k + m * n)
    kernel = Kernel(Phase.WEIGHT_GRADIENT, KernelKind.GEMM, 2.0 * m * n * k, moved, m, n, k)
    seconds = float(kernel_seconds(stack_kernels([kernel]), spec, curves, precision)[0])
    assert 2.0 * m * n * k / seconds == pytest.approx(flops_per_s, rel=1.0 / 6.0)


def replace_power(times: float):
    return H100.model_copy(
        update={"power_w": H100.power_w.model_copy(update={"value": times * H100.power_w.value})}
    )


def test_a_device_without_factors_takes_its_architectures_curves():
    plain = load_efficiency("cdna3")
    found = efficiency_of(load_device("mi300x"), Generation("g"))
    assert replace(found, sustained=1.0) == plain


@pytest.mark.parametrize(
    "architecture", ["volta", "ampere", "ada", "hopper", "blackwell", "cdna2", "cdna3", "cdna4"]
)
def test_every_host_takes_its_time_to_launch(architecture: str):
    """A module costs its host: without a reading a device takes others', or small layers were fastest on it."""
    assert 0.35e-3 <= load_efficiency(architecture).module_s <= 1.2e-3
