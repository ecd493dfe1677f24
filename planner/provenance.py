"""What a prediction rests on."""

from cost_models.pricing import Pricer
from cost_models.roofline.generations import AUTOMATIC
from planner.situation import Situation


def provenance(situation: Situation, pricer: Pricer) -> dict[str, str]:
    """measured, fitted or datasheet for each kind of number, and the software generation of the compute times."""
    device = pricer.cluster.device
    return {
        "compute": pricer.efficiency.kind,
        "communication": pricer.network.kind,
        "memory": "derived",
        "device_capacity": device.capacity_bytes.kind,
        "device_bandwidth": device.memory_bytes_per_s.kind,
        "software_generation": _generation(situation),
    }


def _generation(situation: Situation) -> str:
    """The generation's name; told apart where nobody asked for it."""
    name = situation.generation.name
    return f"{name} (current)" if situation.engine.options.generation == AUTOMATIC else name
