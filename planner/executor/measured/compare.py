"""Runs cases one after the other and puts measured beside predicted: rows, errors, rank correlation, a table."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean

from cost_models.errors import PlannerError
from cost_models.profiles import MEASURED_VARIABLE
from cost_models.units import MIB
from planner.evaluation import evaluate
from planner.executor.measured.cases import Case
from planner.executor.run import run_order


@dataclass(frozen=True, slots=True)
class Row:
    """One case; seconds of a median step and bytes of the largest rank. `failure` is empty where it ran."""

    name: str
    processes: int
    predicted_step_s: float = 0.0
    measured_step_s: float = 0.0
    busy_step_s: float = 0.0
    """Processor seconds of all ranks over the cores here: the step on a machine without other work or waiting."""
    predicted_bytes: float = 0.0
    measured_bytes: float = 0.0
    predicted_reserved_bytes: float = 0.0
    measured_reserved_bytes: float = 0.0
    failure: str = ""
    unprofiled_step_s: float = 0.0
    """Predicted without the device's measured profile; 0 where it has none."""

    @property
    def memory_ratio(self) -> float:
        """Predicted / measured."""
        return self.predicted_bytes / self.measured_bytes

    def to_json(self) -> dict[str, object]:
        """All fields by name."""
        return asdict(self)


def run_cases(cases: Sequence[Case], on_row: Callable[[Row], None], most_s: float) -> list[Row]:
    """Run every case, none of them begun after `most_s` seconds; one that does not run is a row that says why."""
    rows = []
    started = time.monotonic()
    for case in cases:
        is_late = time.monotonic() - started > most_s
        late = Row(case.name, case.order.world_size, failure=f"not begun within {most_s:.0f} s")
        rows.append(late if is_late else run_case(case))
        on_row(rows[-1])
    return rows


def run_case(case: Case) -> Row:
    """Run one case."""
    processes = case.order.world_size
    try:
        report = run_order(case.order)
    except PlannerError as error:
        return Row(case.name, processes, failure=str(error).splitlines()[0][:200])
    memory = report.prediction.memory
    return Row(
        case.name,
        processes,
        report.prediction.step_s,
        report.step_s,
        report.processor_s / len(os.sched_getaffinity(0)),
        memory.peak_allocated_bytes,
        max(report.peak_by_rank),
        memory.peak_reserved_bytes,
        max(report.reserved_by_rank),
        unprofiled_step_s=_without_profile(case)
        if report.prediction.provenance.get("measured_profile")
        else 0.0,
    )


def _without_profile(case: Case) -> float:
    """The step as it is predicted for a device of this kind that was never measured."""
    before = os.environ.get(MEASURED_VARIABLE)
    os.environ[MEASURED_VARIABLE] = ""
    try:
        return evaluate(replace(case.order.situation), case.order.strategy).step_s
    finally:
        del os.environ[MEASURED_VARIABLE]
        if before is not None:
            os.environ[MEASURED_VARIABLE] = before


def rank_correlation(predicted: Sequence[float], measured: Sequence[float]) -> float | None:
    """Spearman's correlation of two columns; None for fewer than three rows."""
    count = len(predicted)
    if count < 3:
        return None
    pairs = zip(_ranks(predicted), _ranks(measured), strict=True)
    squares = sum((a - b) ** 2 for a, b in pairs)
    return 1.0 - 6.0 * squares / (count * (count * count - 1))


def markdown(rows: Sequence[Row]) -> Iterator[str]:
    """A table for people, and the summary under it."""
    on_gpu = any(row.measured_reserved_bytes != row.measured_bytes for row in rows)
    more = " reserved predicted, MiB | measured |" if on_gpu else ""
    yield f"| plan | ranks | peak predicted, MiB | measured | ratio | step predicted, s | measured | processor |{more}"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|" + ("--:|--:|" if on_gpu else "")
    for row in rows:
        if row.failure:
            yield f"| {row.name} | {row.processes} | | | | | | {row.failure} |"
            continue
        memory = (
            f"{row.predicted_bytes / MIB:,.0f} | {row.measured_bytes / MIB:,.0f} | {row.memory_ratio:.2f}"
        )
        step = f"{row.predicted_step_s:.3g} | {row.measured_step_s:.3g} | {row.busy_step_s:.3g}"
        reserved = f" {row.predicted_reserved_bytes / MIB:,.0f} | {row.measured_reserved_bytes / MIB:,.0f} |"
        yield f"| {row.name} | {row.processes} | {memory} | {step} |{reserved if on_gpu else ''}"
    ran = [row for row in rows if not row.failure]
    yield from _errors(ran)
    predicted = [row.predicted_step_s for row in ran]
    measured = rank_correlation(predicted, [row.measured_step_s for row in ran])
    busy = rank_correlation(predicted, [row.busy_step_s for row in ran])
    if measured is not None and busy is not None:
        within = sum(abs(row.memory_ratio - 1.0) <= 0.1 for row in ran)
        yield ""
        yield (
            f"Peak memory within 10 % in {within} of {len(ran)} plans. Rank correlation of predicted steps with "
            f"measured ones {measured:.2f}, with processor seconds {busy:.2f}."
        )


def _errors(ran: Sequence[Row]) -> Iterator[str]:
    """Mean error of the step from the device's profile, beside that without it; of memory too."""
    profiled = [row for row in ran if row.unprofiled_step_s]
    if not profiled:
        return
    steps = fmean(abs(row.predicted_step_s / row.measured_step_s - 1.0) for row in profiled)
    without = fmean(abs(row.unprofiled_step_s / row.measured_step_s - 1.0) for row in profiled)
    allocated = fmean(abs(row.memory_ratio - 1.0) for row in profiled)
    reserved = fmean(
        abs(row.predicted_reserved_bytes / row.measured_reserved_bytes - 1.0) for row in profiled
    )
    yield ""
    yield (
        f"Mean error of the step from this device's profile {100 * steps:.1f} %, without it {100 * without:.1f} %; "
        f"of allocated memory {100 * allocated:.1f} %, reserved {100 * reserved:.1f} %."
    )


def _ranks(values: Sequence[float]) -> list[int]:
    order = sorted(range(len(values)), key=lambda index: values[index])
    ranks = [0] * len(values)
    for place, index in enumerate(order):
        ranks[index] = place
    return ranks
