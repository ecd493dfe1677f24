"""Changes that arithmetic rules out before anything is priced: what they can save at most leaves too much.

A change saves at most the bytes of the causes it touches, or with n times the devices all but 1 / n. Another layout
than the leanest may profit more, so a change is ruled out only where `SLACK` of what would be left still does not fit.
"""

from collections.abc import Mapping
from typing import Final

from planner.answers import Prediction
from planner.relax.changes import Change

SLACK: Final = 0.75

STATES: Final = ("weights", "gradients", "optimizer")
TOUCHED: Final[Mapping[str, tuple[str, ...]]] = {
    "engine.fused_cross_entropy": ("transient", "activations"),
    "engine.grad_dtype": ("gradients",),
    "engine.moment_dtype": ("optimizer",),
    "optimizer": ("optimizer",),
    "seq_len": ("transient", "activations", "workspaces"),
    "global_batch": ("transient", "activations"),
    "job.trainable": STATES,
}
"""Causes whose bytes a change can save, of which nothing more than all."""

FRAGMENTATION_SAVED: Final = 0.2
"""Share of the used bytes that expandable segments save at most."""


def is_hopeless(change: Change, closest: Prediction) -> bool:
    """Whether even the most that a change can save leaves the leanest layout far too large."""
    memory = closest.memory
    if memory.margin_bytes >= 0.0:
        return False
    used = memory.device_used_bytes
    capacity = change.situation.cluster.device.capacity_bytes.value
    devices = change.situation.cluster.num_devices / closest.strategy.world_size
    if change.key == "engine.expandable_segments":
        left = used * (1.0 - FRAGMENTATION_SAVED)
    elif change.key in TOUCHED:
        causes = memory.stages[memory.worst_stage].by_cause
        left = used - sum(causes.get(cause, 0.0) for cause in TOUCHED[change.key])
    elif change.key == "devices":
        left = used / max(devices, 1.0)
    elif change.key == "device":
        left = used
    else:
        return False
    return SLACK * left > capacity
