"""A simulated step in the Chrome trace-event format, as chrome://tracing and Perfetto read it.

A process is a pipeline rank. Its threads are streams: compute, a second one for backwards that run beside a forward,
gradient reduction and parameter gather, boundary tensors sent forward and backward (as many threads as are under way
at once).
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from cost_models.schedule import Phase, ScheduleName, num_stages, rank_of_stage, stage_of
from planner.plan_file import write_whole
from planner.simulate.simulation import RankTimeline, Simulation

TraceEvent = dict[str, Any]

MICROSECONDS: Final = 1e6
COMPUTE: Final = 0
DATA_PARALLEL: Final = 1
BESIDE: Final = 2
FIRST_SEND: Final = 3
COLOURS: Final = {
    Phase.FORWARD: "thread_state_running",
    Phase.BACKWARD: "thread_state_iowait",
    Phase.INPUT_GRADIENT: "thread_state_iowait",
    Phase.WEIGHT_GRADIENT: "thread_state_runnable",
}


def trace_events(simulation: Simulation) -> Iterator[TraceEvent]:
    """Events of a step, times in microseconds: "X" (complete) and "M" (names) of the Trace Event Format."""
    lanes = _Lanes(simulation)
    for rank in simulation.ranks:
        yield _named("process_name", rank.rank, COMPUTE, f"pipeline rank {rank.rank}")
        yield {**_named("process_sort_index", rank.rank, COMPUTE, ""), "args": {"sort_index": rank.rank}}
        yield _named("thread_name", rank.rank, COMPUTE, "compute")
        yield _named("thread_name", rank.rank, DATA_PARALLEL, "data parallel")
        if simulation.operations.joined.any():
            yield _named("thread_name", rank.rank, BESIDE, "backward beside a forward")
    yield from _operations(simulation, lanes)
    for rank in simulation.ranks:
        yield from _end_of_step(simulation, rank)
        for thread, name in lanes.names(rank.rank):
            yield _named("thread_name", rank.rank, thread, name)


def write_trace(path: Path, simulation: Simulation) -> None:
    """Write the trace whole or not at all; raises BadInput where the place cannot be written."""
    write_whole(path, trace_text(simulation), "trace", "--trace")


def trace_text(simulation: Simulation) -> str:
    """The JSON object of a trace, one event a line."""
    events = ",\n".join(json.dumps(event, allow_nan=False) for event in trace_events(simulation))
    facts = {"step_s": simulation.step_s, "strategy": simulation.strategy.text()}
    return f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(facts)}, "traceEvents": [\n{events}\n]}}\n'


def _operations(simulation: Simulation, lanes: "_Lanes") -> Iterator[TraceEvent]:
    """Every operation, and the boundary tensor it sends to another rank."""
    began_s: dict[int, float] = {}  # of each rank's latest operation
    for rank, phase, chunk, micro_batch, start_s, end_s, joined in _rows(simulation):
        kind, thread = Phase(phase), BESIDE if joined else COMPUTE
        first_s = began_s[rank] if joined else start_s
        began_s[rank] = start_s
        word = kind.name.lower().replace("_", " ")
        stage = stage_of(simulation.strategy.schedule, len(simulation.ranks), rank, chunk)
        about = {"micro_batch": micro_batch, "chunk": chunk, "phase": word, "stage": stage}
        event = _complete((rank, thread), f"{word} {micro_batch}", first_s, end_s - first_s, about)
        yield {**event, "cat": word, "cname": COLOURS[kind]}
        forward = kind is Phase.FORWARD
        if kind is not Phase.WEIGHT_GRADIENT and lanes.seconds(rank, chunk, forward=forward) > 0.0:
            seconds = lanes.seconds(rank, chunk, forward=forward)
            thread = lanes.take(rank, (end_s, end_s + seconds), forward=forward)
            word = "send activation" if forward else "send gradient"
            about = {"micro_batch": micro_batch, "chunk": chunk, "phase": word, "stage": stage}
            event = _complete((rank, thread), f"{word} {micro_batch}", end_s, seconds, about)
            yield {**event, "cat": "pp communication"}


def _rows(simulation: Simulation) -> Iterable[tuple[int, int, int, int, float, float, bool]]:
    """Operations in order of start; the last says that it is a backward inside the forward before it, in a pair."""
    made = simulation.operations
    columns = (made.rank, made.phase, made.chunk, made.micro_batch, made.start_s, made.end_s, made.joined)
    return zip(*(column.tolist() for column in columns), strict=True)


def _end_of_step(simulation: Simulation, rank: RankTimeline) -> Iterator[TraceEvent]:
    """Gradient reduction, optimizer, gather, and what all ranks wait for, each where it takes time."""
    at, number = simulation, rank.rank
    mine = at.operations.rank == number
    last_s = float(at.operations.end_s[mine].max())
    whole_s, shown_s = max(at.reduction_s[number], rank.reduction_exposed_s), rank.reduction_exposed_s
    begin_s = max(last_s + shown_s - whole_s, 0.0)
    optimizer_s = at.optimizer_s[number]
    after_s = at.tail_end_s + at.fixed_s
    parts: tuple[tuple[int, str, float, float, dict[str, float]], ...] = (
        (DATA_PARALLEL, "gradient reduction", begin_s, last_s + shown_s - begin_s, {"exposed_s": shown_s}),
        (COMPUTE, "optimizer", at.barrier_s, optimizer_s, {}),
        (
            DATA_PARALLEL,
            "exposed parameter gather",
            at.barrier_s + optimizer_s,
            rank.tail_s - optimizer_s,
            {},
        ),
        (COMPUTE, "step overhead", at.tail_end_s, at.fixed_s, {}),
        (COMPUTE, "wait for the slowest of all ranks", after_s, at.straggler_s, {}),
    )
    for thread, name, start_s, seconds, about in parts:
        if seconds > 0.0:
            yield {
                **_complete((number, thread), name, start_s, seconds, {"phase": name, **about}),
                "cat": "step",
            }


class _Lanes:
    """Threads for boundary tensors: those under way at once need one each, as events of a thread cannot overlap."""

    def __init__(self, simulation: Simulation) -> None:
        self._schedule, self._num_ranks = simulation.strategy.schedule, len(simulation.ranks)
        self._num_stages = num_stages(self._schedule, self._num_ranks, simulation.strategy.vpp)
        self._send_s, self._link_s = simulation.send_s, simulation.link_s
        self._free: dict[int, dict[int, tuple[bool, float]]] = {}

    def seconds(self, rank: int, chunk: int, *, forward: bool) -> float:
        """Seconds of an operation's result on its way to another rank; 0 where it stays."""
        stage = stage_of(self._schedule, self._num_ranks, rank, chunk)
        there = stage + (1 if forward else -1)
        if not 0 <= there < self._num_stages:
            return 0.0
        direction = chunk if self._schedule is ScheduleName.DUALPIPE else 0
        low, high = sorted((rank, rank_of_stage(self._schedule, self._num_ranks, there, direction)))
        if low == high:
            return 0.0
        return self._send_s if self._link_s is None else self._link_s[low if high - low == 1 else -1]

    def take(self, rank: int, between_s: tuple[float, float], *, forward: bool) -> int:
        """A thread of the rank that is free from a start to an end."""
        mine = self._free.setdefault(rank, {})
        free = (t for t, (way, until_s) in mine.items() if way == forward and until_s <= between_s[0])
        thread = next(free, FIRST_SEND + len(mine))
        mine[thread] = (forward, between_s[1])
        return thread

    def names(self, rank: int) -> Iterator[tuple[int, str]]:
        """Threads of a rank and what they are called."""
        for thread, (forward, _) in sorted(self._free.get(rank, {}).items()):
            yield thread, "sends to the next stage" if forward else "sends to the stage before"


def _complete(
    place: tuple[int, int], name: str, start_s: float, seconds: float, about: dict[str, Any]
) -> TraceEvent:
    return {
        "name": name,
        "ph": "X",
        "pid": place[0],
        "tid": place[1],
        "ts": start_s * MICROSECONDS,
        "dur": seconds * MICROSECONDS,
        "args": about,
    }


def _named(what: str, process: int, thread: int, value: str) -> TraceEvent:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": value}}
