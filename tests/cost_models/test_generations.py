"""Software generations, factors of devices, clocks under a power limit: what each moves, and what is refused."""

from dataclasses import replace

import pytest

from cost_models.errors import BadInput
from cost_models.profiles import load_device
from cost_models.roofline import Generation, efficiency_of, load_efficiency, load_generation
from cost_models.roofline.generations import sustained_share, tuned_generations, under_factors

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


def replace_power(times: float):
    return H100.model_copy(
        update={"power_w": H100.power_w.model_copy(update={"value": times * H100.power_w.value})}
    )


def test_a_device_without_factors_takes_its_architectures_curves():
    plain = load_efficiency("cdna3")
    found = efficiency_of(load_device("mi300x"), Generation("g"))
    assert replace(found, sustained=1.0) == plain
