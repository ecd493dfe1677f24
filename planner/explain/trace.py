"""A Chrome trace of torch's profiler -> seconds of one rank: computing, in each kind of message, loading data, idle.

Seconds of messages are those that show: what runs beside computation is its own. On an accelerator kernels count, on a
CPU operators that call no other (those that call a message wait for it).
"""

import gzip
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cost_models.errors import BadInput

Span = tuple[float, float]

MAX_BYTES: Final = 2 * 1024**3
MICRO: Final = 1e-6
MESSAGE: Final = re.compile(r"^(gloo:|nccl:|nccl(Dev)?Kernel|rccl)", re.IGNORECASE)
KINDS: Final[Mapping[str, re.Pattern[str]]] = {
    "all_reduce": re.compile(r"all_?reduce", re.IGNORECASE),
    "reduce_scatter": re.compile(r"reduce_?scatter", re.IGNORECASE),
    "all_gather": re.compile(r"all_?gather", re.IGNORECASE),
    "all_to_all": re.compile(r"all_?to_?all", re.IGNORECASE),
    "send_receive": re.compile(r"send|recv", re.IGNORECASE),
}
WAITS: Final = re.compile(r"^c10d::|record_param_comms|::wait", re.IGNORECASE)
"""Operators that hand a message over, or wait for one: no computation."""
DATA: Final = re.compile(r"dataloader|enumerate\(", re.IGNORECASE)
STEP: Final = re.compile(r"^ProfilerStep#\d+")
DEVICE_WORK: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
HOST_WORK: Final = frozenset({"cpu_op"})
OTHER_MESSAGE: Final = "other messages"


@dataclass(frozen=True, slots=True)
class RankTime:
    """Seconds a step of one rank; `messages` that show, by kind, and `hidden_s` of them beside computation."""

    step_s: float
    compute_s: float
    messages: Mapping[str, float]
    hidden_s: float
    data_s: float
    idle_s: float


def read_traces(path: Path, steps: int | None) -> tuple[RankTime, ...]:
    """Times of every rank: one trace file, or all of a folder; raises BadInput naming what is wrong."""
    files = sorted(path.glob("*trace*.json*")) if path.is_dir() else [path]
    if not files:
        raise BadInput(f"folder {path} holds no trace; give one with trace_rank0.json and so on")
    return tuple(rank_time(_events(file), steps, file) for file in files)


def is_trace(values: object) -> bool:
    """Whether a JSON document is a Chrome trace."""
    return isinstance(values, list) or (isinstance(values, Mapping) and "traceEvents" in values)


def rank_time(events: Iterable[Mapping[str, Any]], steps: int | None, file: Path) -> RankTime:
    """Seconds a step; the steps are those that the trace marks, unless they are given."""
    spans: dict[str, list[Span]] = {}
    known = [event for event in events if event.get("ph") == "X" and "ts" in event]
    device = any(event.get("cat") in DEVICE_WORK for event in known)
    marks = {str(event["name"]) for event in known if STEP.match(str(event.get("name", "")))}
    for event in known if device else _innermost(known):
        found = _part(event, device)
        if found is not None:
            start = float(event["ts"])
            spans.setdefault(found, []).append((start, start + float(event.get("dur", 0.0))))
    if not spans:
        raise BadInput(f"trace {file} holds no operator and no kernel; record it with planner run --profile")
    return _times(spans, steps or len(marks) or 1)


def _part(event: Mapping[str, Any], device: bool) -> str | None:
    """compute, data, or a kind of message; None for what is none of them."""
    name = str(event.get("name", ""))
    if DATA.search(name):
        return "data"
    is_work = event.get("cat") in (DEVICE_WORK if device else HOST_WORK)
    if MESSAGE.match(name) and (is_work or not device):
        return next((kind for kind, pattern in KINDS.items() if pattern.search(name)), OTHER_MESSAGE)
    return "compute" if is_work and not WAITS.search(name) else None


def _innermost(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Messages and data loading, and of the rest what holds no other event of its thread."""
    threads: dict[object, list[Mapping[str, Any]]] = {}
    for event in events:
        threads.setdefault((event.get("pid"), event.get("tid")), []).append(event)
    found = []
    for own in threads.values():
        own.sort(key=lambda event: (float(event["ts"]), -float(event.get("dur", 0.0))))
        for index, event in enumerate(own):
            name, end = str(event.get("name", "")), float(event["ts"]) + float(event.get("dur", 0.0))
            holds = index + 1 < len(own) and float(own[index + 1]["ts"]) < end
            if not holds or MESSAGE.match(name) or DATA.search(name):
                found.append(event)
    return found


def _times(spans: Mapping[str, Sequence[Span]], steps: int) -> RankTime:
    ends = [time for part in spans.values() for span in part for time in span]
    whole = max(ends) - min(ends)
    compute = _union(spans.get("compute", ()))
    covered, total = compute, 0.0
    messages: dict[str, float] = {}
    for kind in (*KINDS, OTHER_MESSAGE):
        own = _union(spans.get(kind, ()))
        if own:
            total += _length(own)
            joined = _union([*covered, *own])
            messages[kind] = (_length(joined) - _length(covered)) * MICRO / steps
            covered = joined
    with_data = _union([*covered, *spans.get("data", ())])
    shown = sum(messages.values())
    return RankTime(
        whole * MICRO / steps,
        _length(compute) * MICRO / steps,
        messages,
        max(total * MICRO / steps - shown, 0.0),
        (_length(with_data) - _length(covered)) * MICRO / steps,
        (whole - _length(with_data)) * MICRO / steps,
    )


def _union(spans: Iterable[Span]) -> list[Span]:
    """The same time as spans that do not touch."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _length(spans: Iterable[Span]) -> float:
    return sum(end - start for start, end in spans)


def _events(path: Path) -> list[Mapping[str, Any]]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadInput(f"trace {path} exceeds {MAX_BYTES:,} bytes; record fewer steps")
        content = path.read_bytes()
        values = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    except (OSError, ValueError, EOFError) as error:
        what = " ".join(str(error).split())[:200]
        raise BadInput(
            f"trace {path} cannot be read ({what}); give a Chrome trace of torch's profiler"
        ) from None
    if not is_trace(values):
        raise BadInput(f"{path} is no Chrome trace; give one with traceEvents")
    listed = values if isinstance(values, list) else values["traceEvents"]
    return [event for event in listed if isinstance(event, Mapping)]
