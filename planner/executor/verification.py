"""The outcome of `planner run --verify`: how far a layout's training is from that of one process."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

STEPS: Final = 5
LEARNING_RATE: Final = 3e-4
ADAM_EPS: Final = 1e-6
"""What is added to the root of Adam's second moment. Far below most gradients, and far above the rounding of those that
are close to zero, which Adam would divide by their own size, so that it grows from step to step."""
COMPARABLE: Final[Mapping[str, object]] = {
    "verify": True,
    "lr": LEARNING_RATE,
    "adam_eps": ADAM_EPS,
    "warmup_steps": 0,
    "lora_init": "random",
}
"""Options of a run that is verified, whatever its own are."""
LIMITS: Final[Mapping[str, float]] = {"loss": 1e-6, "gradients": 1e-5, "parameters": 1e-3}
"""Largest relative differences in fp32. Parameters may differ more: Adam divides a gradient by its own size, so that
rounding of a gradient near zero becomes a whole step."""

SAFE_MARGIN: Final = 2e-6
"""Least distance of any token's choice of experts from being another one: rounding must not flip it. Scores are of the
order of 1; those of two layouts are apart by a few 1e-7."""


@dataclass(frozen=True, slots=True)
class Verification:
    """Largest relative differences over the steps: of the loss, and over each tensor's largest element."""

    loss: float
    gradients: float
    parameters: float
    steps: int = STEPS
    worst: Mapping[str, str] = field(default_factory=dict)
    """Names of the gradient and the parameter that differ most."""

    @property
    def verified(self) -> bool:
        """Whether every difference is within its limit (a difference that is no number is not)."""
        return all(getattr(self, name) <= limit for name, limit in LIMITS.items())

    def to_json(self) -> dict[str, object]:
        """`planner run --verify --json`."""
        return {
            "verified": self.verified,
            "max_relative_difference": {name: getattr(self, name) for name in LIMITS},
            "steps": self.steps,
            "limits": dict(LIMITS),
            "worst": dict(self.worst),
        }


def verification_of_event(event: Mapping[str, Any]) -> Verification:
    """The outcome that the workers reported; what was no number stays none."""
    values = {name: float("nan") if event[name] is None else float(event[name]) for name in LIMITS}
    return Verification(**values, steps=int(event["steps"]), worst=event["worst"])
