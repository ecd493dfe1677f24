"""From bytes that torch allocates to bytes that the device shows as used, and the probability that they do not fit.

reserved = allocated x (1 + slack); used = reserved + context + communicators. Before a run fails the allocator gives
its unused blocks back, so only a share of `used` is really needed: P(out of memory) = 1 - Phi((usable - needed) /
(sigma needed)), needed = share x used. The largest allocation whose verdict is still `fits` follows in closed form.
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np

from cost_models.chunk import Array
from cost_models.engines import Engine
from cost_models.mesh import MeshBatch
from cost_models.roofline.generations import beside_bytes
from cost_models.specs.device import DeviceSpec
from cost_models.specs.job import Job
from cost_models.specs.model import ModelSpec
from cost_models.units import MIB, Num


class Allocator(NamedTuple):
    """Three ratios of torch's caching allocator, fitted to published runs (docs/accuracy.md).

    `slack` is (reserved - allocated) / allocated as runs show it; `held` what is left of it when the device is full and
    unused blocks have been given back; `sigma` the relative standard deviation of the bytes needed around their
    prediction.
    """

    slack: float
    held: float
    sigma: float


ALLOCATORS: Final[dict[tuple[bool, bool], Allocator]] = {
    (True, False): Allocator(0.05, 0.04, 0.10),
    (False, False): Allocator(0.15, 0.04, 0.10),
    (True, True): Allocator(0.02, 0.01, 0.05),
    (False, True): Allocator(0.05, 0.01, 0.05),
}
"""By (states lie in contiguous buffers, expandable segments). [Fitted] slack 0.05 to what SimuMax's runs on B200
reserved; 0.15 to nvidia-smi's figures of DeepSpeed (BLOOM, BigScience on V100, Qwen) and torchtitan's reserved bytes;
held and sigma to what ran and what failed in profiles/published/runs.csv. [Assumed] with expandable segments a third of
the slack is left: Megatron-Bridge's 59 GB of 80 failed without and ran with them."""

AT_RISK_PROBABILITY = 0.5

HOST_ALLOCATOR_BYTES = 16 * MIB
"""[Empirical] what a process on a CPU holds beside its tensors: gloo's buffers, library pages touched while running,
the C library's free lists. Resident peaks of seven runs of one and two processes stood 3 to 18 MiB above the tensors
counted, from a process that has joined its group and run a first product (torch 2.13, gloo, fp32, 2026-12)."""


PROCESS: Final = Allocator(0.0, 0.0, 0.04)
"""A CPU process: large tensors are mapped one by one and given back at once. [Empirical]"""

COMMUNICATOR_BYTES = 160 * MIB
"""[Empirical] buffers of one NCCL communicator with its channels: between 0.1 and 0.5 GB in public reports."""


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Constants of each mesh, scalars or arrays (B,)."""

    capacity_bytes: float
    usable_bytes: float  # capacity less the reserve
    allocator: Allocator
    outside_bytes: Num  # context and communicators
    allocated_limit_bytes: Array  # the most allocated bytes whose verdict is `fits`
    possible_limit_bytes: Array  # the most allocated bytes whose verdict is not `does_not_fit`

    def reserved_bytes(self, allocated_bytes: Num) -> Num:
        """What torch's allocator holds."""
        return np.squeeze(self.used_bytes(allocated_bytes) - self.outside_bytes)

    def used_bytes(self, allocated_bytes: Num) -> Num:
        """What the driver reports as used: at most what is usable, as long as what is needed fits."""
        used = allocated_bytes * (1.0 + self.allocator.slack) + self.outside_bytes
        fits = needed_share(self.allocator) * used <= self.usable_bytes
        return np.where(fits, np.minimum(used, self.usable_bytes), used)

    def oom_probability(self, allocated_bytes: float) -> float:
        """Probability that the needed bytes exceed the usable ones (for a batch of one mesh)."""
        used = float(np.max(allocated_bytes * (1.0 + self.allocator.slack) + self.outside_bytes))
        needed = needed_share(self.allocator) * used
        return 1.0 - NormalDist().cdf((self.usable_bytes - needed) / (self.allocator.sigma * needed))


def allocator_of(engine: Engine, device: DeviceSpec) -> Allocator:
    """The ratios that hold for an engine on a device."""
    if device.architecture == "cpu":
        return PROCESS
    return ALLOCATORS[engine.contiguous_states, engine.options.expandable_segments]


def needed_share(allocator: Allocator) -> float:
    """Bytes that must stay for each byte that is shown as used."""
    return (1.0 + allocator.held) / (1.0 + allocator.slack)


def usable_per_used(allocator: Allocator, oom_probability: float) -> float:
    """Bytes that must be usable for each byte that is expected to be used, at a probability to run out of memory."""
    sigmas = NormalDist().inv_cdf(1.0 - oom_probability)
    return needed_share(allocator) * (1.0 + sigmas * allocator.sigma)


def device_memory(engine: Engine, device: DeviceSpec, job: Job, meshes: MeshBatch) -> DeviceMemory:
    """Memory constants of every mesh; an axis of size 1 needs no communicator."""
    capacity = device.capacity_bytes.value
    usable = capacity - job.options.reserve_bytes
    axes = (meshes.tp, meshes.cp, meshes.pp, meshes.dp, meshes.ep, meshes.expert_ranks)
    groups = np.sum([axis > 1 for axis in axes], axis=0) + np.where(meshes.pp > 1, 1, 0)
    each = 0 if device.architecture == "cpu" else COMMUNICATOR_BYTES
    outside = device.context_bytes.value + each * groups
    allocator = allocator_of(engine, device)

    def limit(probability: float) -> Array:
        used = usable / usable_per_used(allocator, probability)
        return np.asarray((used - outside) / (1.0 + allocator.slack), dtype=float)

    return DeviceMemory(
        capacity,
        usable,
        allocator,
        outside,
        limit(job.options.max_oom_probability),
        limit(AT_RISK_PROBABILITY),
    )


def workspace_bytes(
    engine: Engine, device: DeviceSpec, model: ModelSpec, job: Job, meshes: MeshBatch
) -> Array:
    """Bytes that a rank of every mesh allocates beside its tensors, whatever its layers, with what `planner calibrate`
    found in the cluster's own runs; never below none."""
    if device.architecture == "cpu":
        constant = np.full(meshes.size, float(HOST_ALLOCATOR_BYTES))
    else:
        constant = engine.constant_bytes(device.architecture, model, job, meshes)
    return np.maximum(constant + beside_bytes(device.name), 0.0)


def verdict(oom_probability: float, max_oom_probability: float) -> str:
    """`fits`, `at_risk` or `does_not_fit` (design section 9)."""
    if oom_probability < max_oom_probability:
        return "fits"
    return "at_risk" if oom_probability < AT_RISK_PROBABILITY else "does_not_fit"
