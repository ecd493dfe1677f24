"""A simulated step in the Chrome trace-event format (chrome://tracing, Perfetto)."""

from cost_models.schedule.rank_list import Phase
from cost_models.schedule.simulate import OperationTimeline

TraceEvent = dict[str, str | int | float | dict[str, str | int]]

_MICROSECONDS_PER_SECOND = 1e6
_COLOURS = {
    Phase.FORWARD: "thread_state_running",
    Phase.BACKWARD: "thread_state_iowait",
    Phase.INPUT_GRADIENT: "thread_state_iowait",
    Phase.WEIGHT_GRADIENT: "thread_state_runnable",
}


def chrome_trace(timeline: OperationTimeline, process: str = "pipeline") -> list[TraceEvent]:
    """Trace events of a step: one thread per pipeline rank, one complete event per operation, times in us.

    Format: "Trace Event Format" (Chromium project), complete events "X" and metadata events "M".
    """
    ranks = range(int(timeline.rank.max()) + 1)
    events: list[TraceEvent] = [_metadata("process_name", 0, process)]
    events.extend(_metadata("thread_name", rank, f"pipeline rank {rank}") for rank in ranks)
    columns = (timeline.rank, timeline.phase, timeline.micro_batch, timeline.chunk)
    times = (timeline.start_s, timeline.end_s)
    rows = zip(*(column.tolist() for column in columns), *(time.tolist() for time in times), strict=True)
    for rank, phase, micro_batch, chunk, start_s, end_s in rows:
        name = Phase(phase).name.lower().replace("_", " ")
        events.append(
            {
                "name": f"{name} {micro_batch}",
                "cat": name,
                "ph": "X",
                "pid": 0,
                "tid": rank,
                "ts": start_s * _MICROSECONDS_PER_SECOND,
                "dur": (end_s - start_s) * _MICROSECONDS_PER_SECOND,
                "cname": _COLOURS[Phase(phase)],
                "args": {"micro_batch": micro_batch, "chunk": chunk},
            }
        )
    return events


def _metadata(name: str, thread: int, value: str) -> TraceEvent:
    return {"name": name, "ph": "M", "pid": 0, "tid": thread, "args": {"name": value}}
