"""From bytes that torch allocates to bytes that the device shows as used, and the probability that they do not fit.

reserved = allocated x (1 + fragmentation); used = reserved + context + communicators. The prediction of `used` has a
relative error with standard deviation `USED_RELATIVE_SIGMA`, so P(out of memory) = 1 - Phi((capacity - used) / (sigma
used)), and the largest allocation whose verdict is still `fits` follows in closed form.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from cost_models.chunk import Array
from cost_models.engines import Engine
from cost_models.mesh import MeshBatch
from cost_models.specs.device import DeviceSpec
from cost_models.specs.job import Job
from cost_models.specs.model import ModelSpec
from cost_models.units import MIB, Num

FRAGMENTATION = {False: 0.06, True: 0.02}
"""[Empirical] (reserved - allocated) / allocated without and with expandable segments: SimuMax uses reserved =
allocated / 0.94 on B200; Mist reports +9 % on L4; Megatron-Bridge lost 20 GB of 80 at worst without, nothing with."""

COMMUNICATOR_BYTES = 160 * MIB
"""[Empirical] buffers of one NCCL communicator with its channels: between 0.1 and 0.5 GB in public reports."""

USED_RELATIVE_SIGMA = 0.04
"""[Empirical] standard deviation of used bytes around their prediction: allocated bytes of published runs are predicted
within 1 to 8 % (docs/accuracy.md), and what the allocator and the communicators add varies more; to be refitted."""

AT_RISK_PROBABILITY = 0.5

HOST_ALLOCATOR_BYTES = 16 * MIB
"""[Empirical] what a process on a CPU holds beside its tensors: gloo's buffers, library pages touched while running,
the C library's free lists. Resident peaks of seven runs of one and two processes stood 3 to 18 MiB above the tensors
counted, from a process that has joined its group and run a first product (torch 2.13, gloo, fp32, 2026-12)."""


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Constants of each mesh, scalars or arrays (B,)."""

    capacity_bytes: float
    usable_bytes: float  # capacity less the reserve
    fragmentation: float
    outside_bytes: Num  # context and communicators
    allocated_limit_bytes: Array  # the most allocated bytes whose verdict is `fits`
    possible_limit_bytes: Array  # the most allocated bytes whose verdict is not `does_not_fit`

    def reserved_bytes(self, allocated_bytes: Num) -> Num:
        """What torch's allocator holds."""
        return allocated_bytes * (1.0 + self.fragmentation)

    def used_bytes(self, allocated_bytes: Num) -> Num:
        """What the driver reports as used."""
        return self.reserved_bytes(allocated_bytes) + self.outside_bytes

    def oom_probability(self, allocated_bytes: float) -> float:
        """Probability that the used bytes exceed the usable ones (for a batch of one mesh)."""
        used = float(np.max(self.used_bytes(allocated_bytes)))
        return 1.0 - NormalDist().cdf((self.usable_bytes - used) / (USED_RELATIVE_SIGMA * used))


def device_memory(engine: Engine, device: DeviceSpec, job: Job, meshes: MeshBatch) -> DeviceMemory:
    """Memory constants of every mesh; an axis of size 1 needs no communicator."""
    capacity = device.capacity_bytes.value
    usable = capacity - job.options.reserve_bytes
    axes = (meshes.tp, meshes.cp, meshes.pp, meshes.dp, meshes.ep, meshes.expert_ranks)
    groups = np.sum([axis > 1 for axis in axes], axis=0) + np.where(meshes.pp > 1, 1, 0)
    outside = device.context_bytes.value + COMMUNICATOR_BYTES * groups
    fragmentation = FRAGMENTATION[engine.options.expandable_segments]
    if device.architecture == "cpu":  # large tensors are mapped one by one and given back at once
        outside, fragmentation = np.full(meshes.size, device.context_bytes.value), 0.0

    def limit(probability: float) -> Array:
        sigmas = NormalDist().inv_cdf(1.0 - probability)
        used = usable / (1.0 + sigmas * USED_RELATIVE_SIGMA)
        return np.asarray((used - outside) / (1.0 + fragmentation), dtype=float)

    return DeviceMemory(
        capacity,
        usable,
        fragmentation,
        outside,
        limit(job.options.max_oom_probability),
        limit(AT_RISK_PROBABILITY),
    )


def workspace_bytes(
    engine: Engine, device: DeviceSpec, model: ModelSpec, job: Job, meshes: MeshBatch
) -> Array:
    """Bytes that a rank of every mesh allocates beside its tensors, whatever its layers."""
    if device.architecture == "cpu":
        return np.full(meshes.size, float(HOST_ALLOCATOR_BYTES))
    return engine.constant_bytes(device.architecture, model, job, meshes)


def verdict(oom_probability: float, max_oom_probability: float) -> str:
    """`fits`, `at_risk` or `does_not_fit` (design section 9)."""
    if oom_probability < max_oom_probability:
        return "fits"
    return "at_risk" if oom_probability < AT_RISK_PROBABILITY else "does_not_fit"
