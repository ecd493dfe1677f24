"""Two predictions side by side: knobs, seconds by cause, bytes by cause, memory of every stage.

All differences are second minus first: positive seconds mean that the second is slower there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from cost_models.units import GIB, format_bytes, format_seconds
from planner.answers import Prediction, StageMemory

FOLLOWING_KEYS: Final = ("dp_shard", "dp_replicate", "stages")
"""Knobs that follow from others and are named only where nothing else differs."""
NAMED_CAUSES: Final = 3
SMALL_SHARE: Final = 0.002
"""Causes whose difference is below this share of the first step are not named in a sentence."""
SMALL_BYTES: Final = 0.05 * GIB


@dataclass(frozen=True, slots=True)
class StageDifference:
    """Memory of one pipeline rank in both; None where one has no such rank."""

    stage: int
    first_bytes: float | None
    second_bytes: float | None
    by_cause: Mapping[str, float]

    def to_json(self) -> dict[str, object]:
        """One entry of `memory.stages`."""
        return {
            "stage": self.stage,
            "first_bytes": self.first_bytes,
            "second_bytes": self.second_bytes,
            "by_cause": dict(self.by_cause),
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """What the second strategy does otherwise than the first, in knobs, seconds and bytes."""

    knobs: Mapping[str, tuple[object, object]]
    first_s: float
    second_s: float
    seconds: Mapping[str, float]
    recompute_s: float
    worst_bytes: float
    worst_by_cause: Mapping[str, float]
    stages: tuple[StageDifference, ...]

    @property
    def step_s(self) -> float:
        """Seconds that the second takes more."""
        return self.second_s - self.first_s

    def to_json(self) -> dict[str, object]:
        """Knobs as pairs; `breakdown_s` sums to `step_s`."""
        return {
            "knobs": {key: list(pair) for key, pair in self.knobs.items()},
            "step_s": self.step_s,
            "ratio": self.second_s / self.first_s,
            "breakdown_s": dict(self.seconds),
            "recompute_s": self.recompute_s,
            "memory": {
                "worst_bytes": self.worst_bytes,
                "worst_by_cause": dict(self.worst_by_cause),
                "stages": [stage.to_json() for stage in self.stages],
            },
        }

    def where(self) -> str:
        """`+2.31 s tp communication, -900 ms pp bubble`: the causes that moved most, or empty."""
        shown = [item for item in self.seconds.items() if abs(item[1]) >= SMALL_SHARE * self.first_s]
        largest = sorted(shown, key=lambda item: -abs(item[1]))[:NAMED_CAUSES]
        return ", ".join(f"{signed_seconds(value)} {cause.replace('_', ' ')}" for cause, value in largest)

    def memory_where(self) -> str:
        """The same for the bytes of the worst stage."""
        shown = [item for item in self.worst_by_cause.items() if abs(item[1]) >= SMALL_BYTES]
        largest = sorted(shown, key=lambda item: -abs(item[1]))[:NAMED_CAUSES]
        return ", ".join(f"{signed_bytes(value)} {cause.replace('_', ' ')}" for cause, value in largest)

    def knob_text(self) -> str:
        """`tp 2 -> 4, dp 8 -> 4`: what differs, without what follows from it."""
        main = {key: pair for key, pair in self.knobs.items() if key not in FOLLOWING_KEYS} or self.knobs
        return ", ".join(f"{key} {_word(a)} -> {_word(b)}" for key, (a, b) in main.items()) or "nothing"


def difference(first: Prediction, second: Prediction) -> Difference:
    """Put two predictions side by side."""
    ours, theirs = first.strategy.to_json(), second.strategy.to_json()
    worst, other = _worst(first), _worst(second)
    return Difference(
        knobs={
            key: (ours.get(key), theirs.get(key))
            for key in dict.fromkeys((*ours, *theirs))
            if ours.get(key) != theirs.get(key)
        },
        first_s=first.step_s,
        second_s=second.step_s,
        seconds=_minus(second.breakdown_s, first.breakdown_s),
        recompute_s=second.recompute_s - first.recompute_s,
        worst_bytes=second.memory.device_used_bytes - first.memory.device_used_bytes,
        worst_by_cause=_minus(other.by_cause, worst.by_cause),
        stages=tuple(
            _stage(index, pair[0], pair[1])
            for index, pair in enumerate(zip_longest(first.memory.stages, second.memory.stages))
        ),
    )


def signed_seconds(seconds: float) -> str:
    """`+1.2 s` or `-30 ms`."""
    return ("+" if seconds >= 0 else "-") + format_seconds(abs(seconds))


def signed_bytes(num_bytes: float) -> str:
    """`+1.20 GiB` or `-3.00 MiB`."""
    return ("+" if num_bytes >= 0 else "-") + format_bytes(abs(num_bytes))


def _worst(prediction: Prediction) -> StageMemory:
    return prediction.memory.stages[prediction.memory.worst_stage]


def _stage(index: int, first: StageMemory | None, second: StageMemory | None) -> StageDifference:
    causes = _minus(second.by_cause, first.by_cause) if first and second else {}
    return StageDifference(
        index,
        first.device_used_bytes if first else None,
        second.device_used_bytes if second else None,
        causes,
    )


def _minus(second: Mapping[str, float], first: Mapping[str, float]) -> dict[str, float]:
    keys = dict.fromkeys((*first, *second))
    return {key: second.get(key, 0.0) - first.get(key, 0.0) for key in keys}


def _word(value: object) -> str:
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
