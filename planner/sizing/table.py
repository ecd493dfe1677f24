"""Plans for numbers of devices, solved on all cores and kept as rows; what a time limit left out is counted."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from planner.request import ModelInput, PlanRequest, SearchRequest, SpecCluster
from planner.situation import Situation, changed
from planner.sizing.request import SizeRequest
from planner.sizing.rows import SizeRow, row_of
from planner.sweep.pool import solve_all

OnRow = Callable[[int, int], None]
ENDED: Final = ("optimal", "infeasible", "refused")
"""Statuses that more time would not change."""


@dataclass(frozen=True, slots=True)
class Base:
    """One cluster as a situation, and whether more devices than it has may be asked."""

    name: str
    situation: Situation
    is_open: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """One request on its way: for which cluster and count, and the mark of its answer."""

    base: Base
    devices: int
    request: PlanRequest
    mark: str


@dataclass
class Table:
    """Rows by cluster and count, and the proofs of marked ones."""

    model: ModelInput
    request: SizeRequest
    jobs: int
    on_row: OnRow
    deadline: float | None = None
    """When to stop, by the monotonic clock; searches share the time that is left."""
    rows: dict[tuple[str, int], SizeRow] = field(default_factory=dict)
    proofs: list[tuple[Asked, Mapping[str, Any]]] = field(default_factory=list)
    waiting: list[Asked] = field(default_factory=list)
    left_out: list[Asked] = field(default_factory=list)
    """What was not asked, or ended early, because the time was over."""
    num_done: int = 0

    def ask(self, base: Base, counts: Sequence[int], search: SearchRequest, mark: str = "") -> None:
        """Put a plan on each count on the list."""
        for devices in counts:
            cluster = changed(base.situation, {"devices": devices}).cluster
            spec = SpecCluster(spec=cluster.model_dump(mode="json"))
            request = PlanRequest(model=self.model, cluster=spec, job=self.request.job, search=search)
            self.waiting.append(Asked(base, devices, request, mark))

    def solve(self) -> None:
        """Solve what is on the list. The largest take longest and start first, last where time may run out."""
        sign = -1 if self.deadline is None else 1
        asked = sorted(self.waiting, key=lambda one: sign * one.devices)
        self.waiting = []
        total, begun, cut = self.num_done + len(asked), [0], set[int]()
        for index, solved in solve_all(self._in_time(asked, begun, cut), self.jobs):
            self._keep(asked[index], solved)
            if index in cut and solved["status"] not in ENDED:
                self.left_out.append(asked[index])
            self.num_done += 1
            self.on_row(self.num_done, total)
        self.left_out.extend(asked[begun[0] :])

    def _in_time(self, asked: Sequence[Asked], begun: list[int], cut: set[int]) -> Iterator[PlanRequest]:
        """Requests while there is time, each with its share of it; `cut` are those that get less than they ask."""
        for index, one in enumerate(asked):
            search = one.request.search
            if self.deadline is not None:
                left_s = self.deadline - time.monotonic()
                if left_s <= 0:
                    return
                share_s = left_s * max(self.jobs, 1) / (len(asked) - index)
                if share_s < search.max_seconds:
                    cut.add(index)
                    search = search.model_copy(update={"max_seconds": share_s})
            begun[0] = index + 1
            yield one.request.model_copy(update={"search": search})

    def _keep(self, one: Asked, solved: Mapping[str, Any]) -> None:
        """Keep the row, and the proof of a marked one; a marked search that found nothing adds no row."""
        row = row_of(one.base.name, one.devices, solved, self.request.search.run.deadline_s)
        key = (row.cluster, row.devices)
        if not one.mark:
            self.rows[key] = row
            return
        proof = solved.get("document", {}).get("result", {}).get("certificate", {}).get("proof")
        if proof is not None:
            self.proofs.append((one, proof))
        if row.has_plan:
            known = self.rows.get(key, row)
            self.rows[key] = replace(known, marks=(*known.marks, one.mark))

    def of(self, base: Base) -> list[SizeRow]:
        """Rows of one cluster by rising count."""
        rows = [row for (name, _), row in self.rows.items() if name == base.name]
        return sorted(rows, key=lambda row: row.devices)
