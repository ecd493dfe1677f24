"""What a layout that does not fit is short of: the device's memory or, with offload, the host's."""

from cost_models.host import host_room_bytes
from cost_models.units import format_bytes
from planner.answers import Prediction
from planner.situation import Situation


def lack(prediction: Prediction, situation: Situation) -> float:
    """The larger of what it needs of the device's memory and of the host's, as a share of what there is."""
    memory = prediction.memory
    of_device = memory.device_used_bytes / memory.capacity_bytes
    return max(of_device, memory.host_bytes / host_room_bytes(situation.cluster))


def lacks_host(prediction: Prediction, situation: Situation) -> bool:
    """Whether it is the host that is short."""
    return prediction.memory.host_bytes > host_room_bytes(situation.cluster)


def lack_text(prediction: Prediction, situation: Situation) -> str:
    """`12.3 GiB too much`, how much of the host's memory is short, or the risk where it may just fit."""
    memory = prediction.memory
    if lacks_host(prediction, situation):
        room, needed = host_room_bytes(situation.cluster), memory.host_bytes
        return (
            f"and with offload={prediction.strategy.offload} {format_bytes(needed)} of host memory a device, of which "
            f"a node has {format_bytes(room)} for each"
        )
    if memory.margin_bytes >= 0.0:
        return f"a risk of {prediction.oom_probability:.0%} to run out of memory; --allow-at-risk takes it"
    return f"{format_bytes(-memory.margin_bytes)} too much"
