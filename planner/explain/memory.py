"""Memory in one sentence: how much a strategy needs of what, on which stage, in which phase, for what."""

from cost_models.units import format_bytes
from planner.answers import Prediction, StageMemory
from planner.relax import lack_text
from planner.situation import Situation


def use(prediction: Prediction) -> str:
    """`needs 73.95 GiB of 79.18 GiB on stage 1 in backward (29.4 GiB activations, ...)`."""
    memory = prediction.memory
    return (
        f"needs {format_bytes(memory.device_used_bytes)} of {format_bytes(memory.capacity_bytes)} on stage "
        f"{memory.worst_stage} in {memory.peak_phase.replace('_', ' ')} "
        f"({causes(memory.stages[memory.worst_stage])})"
    )


def shortage(prediction: Prediction, situation: Situation) -> str:
    """The same, with what is short."""
    return f"{use(prediction)}, {lack_text(prediction, situation)}"


def causes(stage: StageMemory, most: int = 3) -> str:
    """`61.0 GiB optimizer, 12.1 GiB activations, ...`: the largest causes of a stage's peak."""
    largest = sorted(stage.by_cause.items(), key=lambda item: -item[1])[:most]
    return ", ".join(
        f"{format_bytes(size)} {cause.replace('_', ' ')}" for cause, size in largest if size > 0.0
    )
