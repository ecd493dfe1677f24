"""Why a run is slower than predicted: its measured step beside the predicted one, part by part, and what to do.

The step is that of the rank that is predicted to idle least; stragglers are what the slowest rank computes beyond the
mean of all. Where the run was not profiled, processor seconds stand for computing and the rest of the step for waiting.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any, Final

from planner.answers import Prediction
from planner.explain.trace import RankTime

COMMUNICATION: Final = "_communication"
KIND_AXES: Final[Mapping[str, tuple[str, ...]]] = {
    "all_to_all": ("ep", "cp"),
    "send_receive": ("pp", "cp"),
    "all_reduce": ("tp", "dp"),
    "all_gather": ("tp", "dp", "cp"),
    "reduce_scatter": ("tp", "dp", "cp"),
}
"""Axes that a kind of message can be of."""
HINTS: Final[Mapping[str, str]] = {
    "compute": "measure this device (planner profile --model) or fit to this run (planner calibrate)",
    "stragglers": "look at the slowest rank's clock, temperature and neighbours",
    "pipeline bubble and waiting": "give stages equal time (stages=), or more micro-batches",
    "data": "load data in more workers, or ahead",
    "host and idle": "look for synchronisations and small kernels in the trace; compile, or use larger micro-batches",
    "optimizer and other": "use a fused optimizer",
}
MESSAGE_HINT: Final = "measure messages (planner profile), check links and the order of axes"
NOTICEABLE: Final = 0.02
"""Share of the step below which a difference is not named."""


@dataclass(frozen=True, slots=True)
class PartOfStep:
    """One part of the step; `measured_s` None where the run does not tell it apart."""

    name: str
    predicted_s: float
    measured_s: float | None
    hint: str

    @property
    def difference_s(self) -> float | None:
        """Measured - predicted."""
        return None if self.measured_s is None else self.measured_s - self.predicted_s


@dataclass(frozen=True, slots=True)
class Slower:
    """A measured step beside its prediction; `within` says whether it lies in the predicted 90 % interval."""

    predicted_s: float
    measured_s: float
    within: bool
    parts: tuple[PartOfStep, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """`planner explain --measured --json`."""
        parts = [{**asdict(part), "difference_s": part.difference_s} for part in self.parts]
        return {
            "predicted_step_s": self.predicted_s,
            "measured_step_s": self.measured_s,
            "slower_by": self.measured_s / self.predicted_s - 1.0,
            "within_interval": self.within,
            "parts": parts,
            "causes": self.causes(),
            "notes": list(self.notes),
        }

    def causes(self) -> list[str]:
        """Sentences, the largest difference first."""
        told = [part for part in self.parts if part.difference_s is not None]
        told.sort(key=lambda part: -(part.difference_s or 0.0))
        found = []
        for part in told:
            more = part.difference_s or 0.0
            if more > NOTICEABLE * self.measured_s:
                share = 100.0 * more / self.measured_s
                found.append(
                    f"{part.name}: {more:.3g} s more than predicted ({share:.0f} % of the step); {part.hint}"
                )
        return found


def from_traces(prediction: Prediction, ranks: Sequence[RankTime]) -> Slower:
    """The attribution of traces of some or all ranks."""
    first = min(ranks, key=lambda rank: sum(rank.messages.values()) + rank.idle_s)
    predicted = dict(prediction.breakdown_s)
    computed = [rank.compute_s for rank in ranks]
    late = max(computed) - fmean(computed)
    other = predicted["optimizer"] + predicted["other"]
    waits = first.messages.get("send_receive", 0.0) if prediction.strategy.pp > 1 else 0.0
    parts = [
        _part("compute", predicted["compute"] + other, first.compute_s - min(late, first.compute_s)),
        *_messages(
            prediction,
            {kind: s for kind, s in first.messages.items() if not (waits and kind == "send_receive")},
        ),
    ]
    if prediction.strategy.pp > 1:
        expected = predicted["pp_bubble"] + predicted["pp_communication"]
        parts.append(_part("pipeline bubble and waiting", expected, waits))
    parts += [
        _part("stragglers", 0.0, late),
        _part("data", 0.0, first.data_s),
        _part("host and idle", 0.0, first.idle_s),
    ]
    step = max(rank.step_s for rank in ranks)
    notes = [f"{first.hidden_s:.3g} s of messages ran beside computation"] if first.hidden_s > 0.0 else []
    if len(ranks) == 1 and prediction.strategy.world_size > 1:
        notes.append("one rank's trace: stragglers cannot be told; give the folder with all of them")
    return _slower(prediction, step, parts, notes)


def from_report(prediction: Prediction, report: Mapping[str, Any]) -> Slower:
    """The attribution of a report of `planner run --json`; finer where the run was profiled."""
    curve: Sequence[Mapping[str, Any]] = [step for step in report["curve"] if step["step"] > 1] or report[
        "curve"
    ]
    measured, predicted = float(report["measured"]["step_s"]), dict(prediction.breakdown_s)
    shown = sum(seconds for cause, seconds in predicted.items() if cause.endswith(COMMUNICATION))
    bubble = predicted["pp_bubble"]
    work = prediction.step_s - shown - bubble
    profiled = (report.get("parts") or {}).get("time")
    busy = [
        median(float(step["processor_s"][rank]) for step in curve)
        for rank in range(int(report["world_size"]))
    ]
    late = max(busy) - fmean(busy)
    notes = _noise(curve, measured)
    if profiled is not None:
        first = min(profiled["by_rank"], key=lambda rank: float(rank["communication_s"]))
        whole = float(first["communication_s"]) + float(first["rest_s"])
        scale = measured / whole if whole > 0.0 else 1.0  # profiled steps are slower, and few
        rest = [scale * float(rank["rest_s"]) for rank in profiled["by_rank"]]
        late = max(rest) - fmean(rest)
        communicates = scale * float(first["communication_s"])
        parts = [
            _part("compute", work, min(rest)),
            _part("messages, bubble and waiting", shown + bubble, communicates, MESSAGE_HINT),
            _part("stragglers", 0.0, late),
        ]
    else:
        notes.append("the run was not profiled: planner run --profile tells messages apart")
        parts = [
            _part("compute", work, min(*busy, measured)),
            _part(
                "messages, bubble and waiting", shown + bubble, max(measured - max(busy), 0.0), MESSAGE_HINT
            ),
            _part("stragglers", 0.0, late),
        ]
    return _slower(prediction, measured, parts, notes)


def _messages(prediction: Prediction, shown: Mapping[str, float]) -> list[PartOfStep]:
    """Messages by axis where a kind can be of one only, else of several together."""
    predicted, strategy = prediction.breakdown_s, prediction.strategy
    sizes = {"tp": strategy.tp, "cp": strategy.cp, "ep": strategy.ep, "pp": strategy.pp, "dp": strategy.dp}
    groups: dict[tuple[str, ...], float] = {}
    for kind, seconds in shown.items():
        axes = tuple(axis for axis in KIND_AXES.get(kind, tuple(sizes)) if sizes[axis] > 1) or ("dp",)
        groups[axes] = groups.get(axes, 0.0) + seconds
    for axis, size in sizes.items():
        if size > 1 and axis != "pp" and not any(axis in axes for axes in groups):
            groups[axis,] = 0.0
    merged: dict[frozenset[str], float] = {}
    for axes, seconds in groups.items():
        joined, total = frozenset(axes), seconds
        for other in [known for known in merged if known & joined]:
            total += merged.pop(other)
            joined |= other
        merged[joined] = total
    found = []
    for together, seconds in merged.items():
        expected = sum(predicted.get(f"{axis}{COMMUNICATION}", 0.0) for axis in together)
        name = " and ".join(axis for axis in sizes if axis in together)
        found.append(_part(f"{name} messages", expected, seconds, MESSAGE_HINT))
    return found


def _noise(curve: Sequence[Mapping[str, Any]], measured: float) -> list[str]:
    steps = [float(step["step_s"]) for step in curve]
    if max(steps) <= 1.2 * min(steps):
        return []
    return [f"steps took {min(steps):.3g} to {max(steps):.3g} s: something else ran, or clocks moved"]


def _part(name: str, predicted: float, measured: float, hint: str = "") -> PartOfStep:
    return PartOfStep(name, predicted, measured, hint or HINTS[name])


def _slower(
    prediction: Prediction, measured: float, parts: Sequence[PartOfStep], notes: Sequence[str]
) -> Slower:
    within = prediction.step_s_low <= measured <= prediction.step_s_high
    return Slower(prediction.step_s, measured, within, tuple(parts), tuple(notes))
