"""Why a memory prediction is off, by arithmetic: against equal and neighbouring rows of its source, and its causes."""

from collections.abc import Mapping, Sequence
from typing import Final

from cost_models.units import GIB
from planner.validation.predict import Outcome

SETTINGS: Final = (
    *("model", "gpu", "n_gpus", "seq_len", "precision", "tp", "pp", "vpp", "cp", "ep", "dp", "zero_stage"),
    *("recompute", "micro_batch", "optimizer", "framework"),
)
"""Columns that decide about memory; rows equal in all of them should show the same."""

VARIED: Final[Mapping[str, str]] = {"micro_batch": "micro-batch", "seq_len": "length"}
"""Columns whose neighbours tell what grows with the tokens of a micro-batch from what does not."""

AGREES: Final = 0.03
"""Rows of equal settings that differ by more contradict each other."""

SHARE: Final = 0.5
"""A cause explains an error where it makes up this much of it."""


def reason(outcome: Outcome, others: Sequence[Outcome]) -> str:
    """One sentence with the numbers that point to the cause."""
    return (
        _contradiction(outcome, others)
        or _neighbour(outcome, others)
        or _slack(outcome)
        or _largest_cause(outcome)
    )


def _measured(outcome: Outcome) -> float:
    return (outcome.run.memory_bytes or 0.0) / GIB


def _predicted(outcome: Outcome) -> float:
    return (outcome.predicted_bytes or 0.0) / GIB


def _settings(outcome: Outcome, varied: str = "") -> tuple[object, ...]:
    """What decides about a row's memory."""
    options = outcome.case.situation.job.engine_options if outcome.case else {}
    cells = (outcome.run.text(name) for name in SETTINGS if name != varied)
    return (*cells, *sorted((key, str(value)) for key, value in options.items()))


def _contradiction(outcome: Outcome, others: Sequence[Outcome]) -> str:
    """Another row of the same settings with another figure that is nearer to the prediction."""
    own, off = _settings(outcome), abs(outcome.memory_error or 0.0)
    for other in others:
        same = other.run.source == outcome.run.source and other.run.id != outcome.run.id
        if not same or other.memory_error is None or _settings(other) != own:
            continue
        if abs(_measured(other) / _measured(outcome) - 1.0) > AGREES and abs(other.memory_error) < off:
            return f"{other.run.id} has the same settings and shows {_measured(other):.1f} GiB"
    return ""


def _neighbour(outcome: Outcome, others: Sequence[Outcome]) -> str:
    """How the figure changes to a row that differs in the micro-batch or the length alone."""
    for column, word in VARIED.items():
        near = [
            other
            for other in others
            if other.run.source == outcome.run.source
            and other.memory_error is not None
            and other.run.text(column) != outcome.run.text(column)
            and _settings(other, column) == _settings(outcome, column)
        ]
        if near:
            size = outcome.run.number(column) or 0.0
            other = min(near, key=lambda o: abs((o.run.number(column) or 0.0) - size))
            return _growth(outcome, other, (word, column))
    return ""


def _growth(outcome: Outcome, other: Outcome, names: tuple[str, str]) -> str:
    word, column = names
    seen = _measured(outcome) - _measured(other)
    made = _predicted(outcome) - _predicted(other)
    off = _predicted(outcome) - _measured(outcome)
    text = (
        f"from {word} {other.run.text(column)} to {outcome.run.text(column)} it changes by {seen:+.1f} GiB, "
        f"predicted {made:+.1f}: "
    )
    if abs(made - seen) >= SHARE * abs(off):
        return text + "activations, or what the allocator keeps of them"
    return text + f"{off:+.1f} GiB that does not come with tokens: states, buffers or slack"


def _slack(outcome: Outcome) -> str:
    """Counters beyond allocated bytes: how much above the predicted allocation the figure stands."""
    if outcome.run.counter == "allocated" or not outcome.counted_stages:
        return ""
    fullest = max(outcome.counted_stages, key=lambda stage: stage.device_used_bytes)
    allocated, held = fullest.allocated_bytes, fullest.device_used_bytes
    kept = fullest.reserved_bytes if outcome.run.counter == "reserved" else held
    return (
        f"the figure stands {(_measured(outcome) * GIB / allocated - 1.0):+.0%} from the {allocated / GIB:.1f} GiB "
        f"predicted as allocated, {kept / allocated - 1.0:+.0%} is predicted"
    )


def _largest_cause(outcome: Outcome) -> str:
    fullest = max(outcome.counted_stages, key=lambda stage: stage.allocated_bytes)
    off = _predicted(outcome) - _measured(outcome)
    causes = sorted(fullest.by_cause.items(), key=lambda item: -item[1])[:3]
    words = ", ".join(f"{cause} {value / GIB:.1f}" for cause, value in causes)
    return f"{off:+.1f} GiB beside {words}"
