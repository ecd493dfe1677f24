"""Which precisions and which kernels of others a device can run, refused by name with those it can."""

from typing import Final

from cost_models.errors import InvalidJob
from cost_models.specs.device import DeviceSpec
from cost_models.specs.job import Job, Precision

HYBRID_EP: Final = ("hopper", "blackwell")
"""Architectures with the copies that HybridEP's kernels are made of (deepseek-ai/DeepEP, branch hybrid-ep)."""


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


def check_dispatcher(device: DeviceSpec, job: Job) -> None:
    """Raise InvalidJob where the exchange of experts is asked of kernels that other devices alone run."""
    if job.options.moe_dispatcher != "hybridep" or device.architecture in HYBRID_EP:
        return
    raise InvalidJob(
        f"job.moe_dispatcher=hybridep does not run on {device.title}: its kernels are for {' and '.join(HYBRID_EP)}; "
        f"use alltoall or deepep",
        pointer="/job/options/job.moe_dispatcher",
        allowed=("alltoall", "deepep"),
    )
