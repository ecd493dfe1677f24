"""What a prediction rests on, and how far off it may be."""

import math

from cost_models.pricing import Pricer
from planner.situation import Situation

STEP_LOG_SIGMA = 0.18
"""[Empirical] standard deviation of log(measured / predicted) step time whose 90 % interval covers 90 % of the core
runs of sources that were left out of the fit (planner.validation.calibrate.step_log_sigma; docs/accuracy.md)."""

NORMAL_95 = 1.6448536269514722


def interval(step_s: float, situation: Situation) -> tuple[float, float]:
    """The 90 % interval of a step time, symmetric in the logarithm; wider for mixtures of experts, whose software
    generations differ by up to a factor of two."""
    sigma = STEP_LOG_SIGMA * (1.5 if situation.model.is_moe else 1.0)
    factor = math.exp(NORMAL_95 * sigma)
    return step_s / factor, step_s * factor


def provenance(pricer: Pricer) -> dict[str, str]:
    """measured, fitted or datasheet for each kind of number."""
    device = pricer.cluster.device
    return {
        "compute": pricer.efficiency.kind,
        "communication": pricer.network.kind,
        "memory": "derived",
        "device_capacity": device.capacity_bytes.kind,
        "device_bandwidth": device.memory_bytes_per_s.kind,
    }
