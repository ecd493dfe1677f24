"""Devices: figures carry a unit and a source, and impossible ones are refused."""

from typing import get_args

import pytest
from pydantic import ValidationError

from cost_models.errors import InvalidCluster
from cost_models.specs.device import DeviceSpec, Figure, GemmPrecision
from cost_models.specs.job import Precision


def spec(**changed):
    """A small imaginary device, with some keys changed."""
    return {
        "name": "toy",
        "title": "Toy",
        "vendor": "nobody",
        "architecture": "ampere",
        "capacity_bytes": 16e9,
        "memory_bytes_per_s": 1e12,
        "peak_flops": {"fp32": 1e13, "bf16": 1e14},
        "vector_flops": 1e13,
        "compute_units": 10,
        "power_w": 100,
        "context_bytes": 5e8,
        "host_link_bytes_per_s": 3e10,
        **changed,
    }


def test_plain_numbers_become_figures_of_the_fields_unit_with_the_user_as_source():
    device = DeviceSpec.model_validate(spec())
    expected = Figure(value=1e12, unit="bytes/s", kind="derived", source="given by the user")
    assert device.memory_bytes_per_s == expected
    assert device.peak_flops["bf16"].unit == "flop/s"
    assert float(device.capacity_bytes) == 16e9


def test_dumped_device_reads_back_equal():
    device = DeviceSpec.model_validate(spec())
    assert DeviceSpec.model_validate(device.model_dump()) == device
    assert DeviceSpec.model_validate_json(device.model_dump_json()) == device


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), True, "fast", None, 10**400])
@pytest.mark.parametrize("field", ["capacity_bytes", "memory_bytes_per_s", "power_w"])
def test_refuses_figures_that_are_no_positive_number(field, value):
    with pytest.raises(ValidationError, match=field):
        DeviceSpec.model_validate(spec(**{field: value}))


def test_refuses_a_figure_in_another_unit():
    bandwidth = {"value": 900, "unit": "bytes", "kind": "datasheet", "source": "a sheet"}
    with pytest.raises(ValidationError, match="write the figure in 'bytes/s'"):
        DeviceSpec.model_validate(spec(memory_bytes_per_s=bandwidth))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tflops": 3}, "tflops"),
        ({"architecture": "kepler"}, "architecture"),
        ({"peak_flops": {"fp6": 1e15}}, "fp6"),
        ({"peak_flops": {}}, "peak_flops"),
        ({"peak_flops": {"nvfp4": 1e15}}, "ampere has no nvfp4"),
        ({"context_bytes": 16e9}, "leaves nothing of capacity_bytes"),
        ({"name": "../etc"}, "name"),
    ],
)
def test_refuses_unknown_keys_and_contradictions(changed, message):
    with pytest.raises(ValidationError, match=message):
        DeviceSpec.model_validate(spec(**changed))


def test_peak_refuses_a_precision_the_device_lacks_and_lists_those_it_has():
    device = DeviceSpec.model_validate(spec())
    assert device.supports("bf16")
    assert not device.supports("fp8")
    assert device.peak("bf16") == 1e14
    with pytest.raises(InvalidCluster, match="Toy has no fp8 GEMM; use fp32 or bf16") as caught:
        device.peak("fp8")
    assert caught.value.allowed == ("fp32", "bf16")


def test_a_job_may_ask_for_exactly_the_precisions_a_device_can_have():
    assert set(get_args(GemmPrecision)) == {precision.value for precision in Precision}
    assert DeviceSpec.model_validate(spec()).peak(Precision.BF16) == 1e14


def test_a_device_cannot_be_changed():
    device = DeviceSpec.model_validate(spec())
    with pytest.raises(ValidationError, match="frozen"):
        device.name = "other"
