"""Numbers with units in cluster files."""

import pytest

from cost_models.errors import InvalidCluster
from cost_models.profiles import cluster_from_spec
from cost_models.specs.quantity import quantity


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("300 GB/s", "bytes/s", 300e9),
        ("300GB/s", "bytes/s", 300e9),
        ("200 Gb/s", "bytes/s", 25e9),  # 200 / 8
        ("400Gbps", "bytes/s", 50e9),
        ("2 TB/s", "bytes/s", 2e12),
        ("1 GiB/s", "bytes/s", 1024.0**3),
        ("5 us", "s", 5e-6),
        ("5 µs", "s", 5e-6),
        ("0.5ms", "s", 5e-4),
        ("80 GB", "bytes", 80e9),
        ("80GiB", "bytes", 80 * 1024.0**3),
        ("312 TFLOP/s", "flop/s", 312e12),
        ("989.5 TFLOPS", "flop/s", 989.5e12),
        ("700 W", "W", 700.0),
    ],
)
def test_units_are_read(text: str, unit: str, value: float) -> None:
    assert quantity(text, unit) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("fast", "bytes/s"),
        ("300", "bytes/s"),
        ("5 us", "bytes/s"),
        ("5 GB/s", "s"),
        ("1e999 GB", "bytes"),
        ("", "W"),
    ],
)
def test_other_text_is_refused_with_what_to_write(text: str, unit: str) -> None:
    with pytest.raises(ValueError, match=r"is no quantity in .*; write a number of"):
        quantity(text, unit)


def spec(rate: object, latency: object = 2e-6) -> dict[str, object]:
    """One node of A100 whose links have this rate."""
    group = {"device": "a100-sxm-80gb", "nodes": 1, "devices_per_node": 8}
    tier = {"name": "nvlink", "bytes_per_s": rate, "latency_s": latency}
    return {"name": "ours", "groups": [group], "tiers": [tier]}


def test_a_cluster_takes_units() -> None:
    (tier,) = cluster_from_spec(spec("300 GB/s", "2 us")).tiers
    assert (tier.bytes_per_s.value, tier.latency_s.value) == (300e9, pytest.approx(2e-6))


@pytest.mark.parametrize("rate", ["300 GB", True, None, [300e9]])
def test_a_rate_that_is_none_says_what_to_write(rate: object) -> None:
    with pytest.raises(
        InvalidCluster, match=r"tiers\.0\.bytes_per_s: .*; write a number of bytes a second, as 300e9"
    ):
        cluster_from_spec(spec(rate))
