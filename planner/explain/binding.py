"""What binds each pipeline stage: the resource that its time follows, and whether its memory is full.

The share of a stage's time that a resource binds is measured, not guessed: the resource is made 10 % faster, the
stage is priced again, and share = (1 - t' / t) / (1 - 1 / 1.1). What no resource moves is latency, launches and fixed
work. A stage's memory binds when it has no room for one more of its own blocks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from cost_models.specs.strategy import Strategy
from planner.answers import Prediction, StageMemory
from planner.evaluation import Context
from planner.explain.ranks import Ranks, ranks_of
from planner.explain.scaled import MORE, faster_resources

FIXED: Final = "latency_and_fixed"
NEGLIGIBLE: Final = 5e-4
STATIC: Final = ("weights", "gradients", "optimizer", "activations")


@dataclass(frozen=True, slots=True)
class StageBinding:
    """One stage: seconds of a step it works and could work longer, share of its time by resource, its memory."""

    stage: int
    layers: tuple[str, ...]
    busy_s: float
    slack_s: float
    shares: Mapping[str, float]
    used_bytes: float
    room_bytes: float
    block_bytes: float

    @property
    def binding(self) -> str:
        """The resource that most of its time follows."""
        return max(self.shares, key=lambda key: self.shares[key])

    @property
    def memory_binds(self) -> bool:
        """Whether one more of its blocks would not fit."""
        return self.room_bytes < self.block_bytes

    def to_json(self) -> dict[str, object]:
        """One entry of `stages`."""
        return {
            "stage": self.stage,
            "layers": list(self.layers),
            "busy_s": self.busy_s,
            "slack_s": self.slack_s,
            "binding": self.binding,
            "shares": dict(self.shares),
            "memory": {
                "binds": self.memory_binds,
                "used_bytes": self.used_bytes,
                "room_bytes": self.room_bytes,
                "block_bytes": self.block_bytes,
            },
        }


def bindings(context: Context, prediction: Prediction) -> tuple[StageBinding, ...]:
    """What binds every stage of a plan."""
    strategy = prediction.strategy
    ranks = ranks_of(context, strategy)
    shares = _shares(context, strategy, ranks)
    return tuple(
        StageBinding(
            stage=stage.stage,
            layers=stage.layers,
            busy_s=float(ranks.busy_s[stage.stage]),
            slack_s=float(ranks.slack_s[stage.stage]),
            shares={key: float(values[stage.stage]) for key, values in shares.items()},
            used_bytes=stage.device_used_bytes,
            room_bytes=float(ranks.room_bytes[stage.stage]),
            block_bytes=_block_bytes(stage, sum(strategy.stages[stage.stage :: strategy.pp])),
        )
        for stage in prediction.memory.stages
    )


def _shares(context: Context, strategy: Strategy, ranks: Ranks) -> dict[str, np.ndarray]:
    """Share of every stage's busy time by resource, arrays (p,); they sum to one."""
    found: dict[str, np.ndarray] = {}
    for better in faster_resources(context.situation):
        faster = ranks_of(Context.of(better.situation), strategy)
        share = (1.0 - faster.busy_s / ranks.busy_s) / (1.0 - 1.0 / MORE)
        if share.max() > NEGLIGIBLE:
            found["compute" if better.key == "flops" else better.key] = np.clip(share, 0.0, 1.0)
    rest = 1.0 - np.sum(list(found.values()), axis=0)
    return found | {FIXED: np.clip(rest, 0.0, 1.0)}


def _block_bytes(stage: StageMemory, blocks: int) -> float:
    """What one more block of this stage's mean size would take; tables and head count with the blocks."""
    return sum(stage.by_cause.get(cause, 0.0) for cause in STATIC) / max(blocks, 1)
