"""Which precisions a device can run, refused by name with the ones it can."""

from cost_models.errors import InvalidJob
from cost_models.specs.device import DeviceSpec
from cost_models.specs.job import Precision


def check_precision(device: DeviceSpec, precision: Precision) -> None:
    """Raise InvalidJob where the device has no matrix units for the precision (V100 bf16, A100 fp8, nvfp4 before
    Blackwell)."""
    if device.supports(precision.value):
        return
    legal = tuple(p.value for p in Precision if device.supports(p.value))
    raise InvalidJob(
        f"precision {precision.value} does not run on {device.title}; use {' or '.join(legal)}",
        pointer="/job/precision",
        allowed=legal,
    )
