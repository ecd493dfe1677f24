"""The size table: a plan for each number of devices of each cluster, and the fewest that will do, proved.

1. Every count of every cluster is planned, on all cores; open clusters reach further where none is fast enough.
2. For each cluster the fewest devices that reach the deadline, and the fewest on which anything fits, are searched for
   below the first count that does (objective `devices`), so every smaller declared count is ruled out.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cost_models.errors import BadInput
from cost_models.specs.model import ModelSpec
from planner.request import LayersModel, SearchRequest
from planner.situation import resolve_cluster, resolve_model, situate
from planner.sizing.request import MOST_DEVICES, SizeCluster, SizeRequest, counts_of, most_devices
from planner.sizing.rows import (
    CHEAPEST,
    FEWEST,
    FEWEST_THAT_FIT,
    MARKS,
    PLAN_COLUMNS,
    SizeRow,
    row_of,
    with_cheapest,
    with_notes,
)
from planner.sizing.table import Base, OnRow, Table

FURTHER: Final = 4
"""How many times as far an open table reaches where nothing in it meets the deadline."""

ALONE: Final = {"top_k": 0, "explain": False}
"""A row holds the best plan alone."""


@dataclass(frozen=True, slots=True)
class SizeReport:
    """All rows by cluster and count, the proofs of the fewest devices, and what could not be said."""

    model: str
    unit: str
    search: SearchRequest
    rows: tuple[SizeRow, ...]
    proofs: tuple[Mapping[str, Any], ...]
    warnings: tuple[str, ...]
    left_out: tuple[Mapping[str, Any], ...] = ()
    """Searches that a time limit of the whole table left out or cut short: cluster, devices, mark."""

    @property
    def is_yes(self) -> bool:
        """Whether some row will do."""
        return any(row.will_do for row in self.rows)

    def to_json(self) -> dict[str, object]:
        """`planner size --json`."""
        run = self.search.run
        marked = {mark: [row.to_json() for row in self.rows if mark in row.marks] for mark in MARKS}
        return {
            "model": self.model,
            "unit": self.unit,
            "tokens": run.tokens,
            "deadline_s": run.deadline_s,
            "assumptions": run.model_dump(mode="json"),
            "rows": [row.to_json() for row in self.rows],
            "fewest": marked[FEWEST],
            "fewest_that_fit": marked[FEWEST_THAT_FIT],
            "cheapest": next(iter(marked[CHEAPEST]), None),
            "proofs": [dict(proof) for proof in self.proofs],
            "complete": not self.left_out,
            "left_out": [dict(one) for one in self.left_out],
            "warnings": list(self.warnings),
        }


def size(
    request: SizeRequest, jobs: int = 0, on_row: OnRow | None = None, within_s: float | None = None
) -> SizeReport:
    """The table of a question; raises BadInput where the model, the job on every cluster, or a count is wrong.

    After `within_s` no further search begins; what that leaves out is said.
    """
    _check(request.search)
    request = request.model_copy(update={"search": request.search.model_copy(update=ALONE)})
    model = resolve_model(request.model)
    bases, refused = _bases(model, request)
    layers = LayersModel(spec=model.model_dump(mode="json"))
    deadline = None if within_s is None else time.monotonic() + within_s
    table = Table(layers, request, jobs, on_row or (lambda done, total: None), deadline)
    for base in bases:
        table.ask(base, _counts(base, request), request.search)
    table.solve()
    _go_further(table, bases)
    _ask_for_fewest(table, bases)
    rows = with_cheapest(with_notes([row for base in bases for row in table.of(base)]))
    unit = "samples" if bases[0].situation.job.image_size else "tokens"
    proofs = [{"cluster": one.base.name, "mark": one.mark, **proof} for one, proof in table.proofs]
    left_out = [
        {"cluster": one.base.name, "devices": one.devices, "mark": one.mark or None} for one in table.left_out
    ]
    warnings = (*_warnings(bases, request.search), *_unfinished(left_out, within_s))
    return SizeReport(
        model.name, unit, request.search, (*rows, *refused), tuple(proofs), warnings, tuple(left_out)
    )


def _check(search: SearchRequest) -> None:
    if search.vary:
        keys = ", ".join(search.vary)
        raise BadInput(
            f"vary of {keys} in a table of numbers of devices, whose rows would not compare; give {keys} one value",
            pointer="/search/vary",
        )
    if search.run.tokens is None:
        raise BadInput(
            "no number of tokens; give --tokens, for example 1e12 or 15T", pointer="/search/run/tokens"
        )
    if search.objective != "step_time" or search.pareto:
        what = search.objective if search.objective != "step_time" else "pareto"
        raise BadInput(
            f"{what} in a table of numbers of devices; each row is the fastest plan, so leave it out",
            pointer="/search/objective" if what == search.objective else "/search/pareto",
        )


def _bases(model: ModelSpec, request: SizeRequest) -> tuple[list[Base], list[SizeRow]]:
    """Every cluster as a situation; one that refuses the job gets a row that says so, unless all do."""
    bases: list[Base] = []
    refused: list[SizeRow] = []
    problem: BadInput | None = None
    for cluster in request.clusters:
        spec = resolve_cluster(cluster.cluster)
        try:
            bases.append(
                Base(cluster.name, situate(model, spec, request.job), _is_open(cluster, len(spec.groups)))
            )
        except BadInput as error:
            problem = problem or error
            solved = dict.fromkeys(PLAN_COLUMNS) | {
                "status": "refused",
                "rule": error.code,
                "detail": error.detail,
            }
            refused.append(row_of(cluster.name, spec.num_devices, solved, None))
    if problem is not None and not bases:
        raise problem
    return bases, refused


def _is_open(cluster: SizeCluster, num_groups: int) -> bool:
    return cluster.is_open and num_groups == 1


def _counts(base: Base, request: SizeRequest) -> tuple[int, ...]:
    most = most_devices(base.situation, request) if base.is_open else base.situation.cluster.num_devices
    return counts_of(base.situation, most, request)


def _go_further(table: Table, bases: Sequence[Base]) -> None:
    """Ask larger counts of open clusters where none that was asked reaches the deadline."""
    request = table.request
    if request.search.run.deadline_s is None or request.devices:
        return
    for base in bases:
        rows = table.of(base)
        if not rows:
            continue
        most = rows[-1].devices
        if base.is_open and most * FURTHER <= MOST_DEVICES and not any(row.will_do for row in rows):
            table.ask(base, [most * 2, most * FURTHER], request.search)
    table.solve()


def _ask_for_fewest(table: Table, bases: Sequence[Base]) -> None:
    """Search below the first count that will do, and below the first that fits."""
    search = table.request.search
    free = search.run.model_copy(update={"deadline_s": None, "min_tokens_per_s": None})
    for base in bases:
        rows = table.of(base)
        fitting = [row.devices for row in rows if row.has_plan]
        doing = [row.devices for row in rows if row.will_do]
        if fitting:
            update = {"objective": "devices", "run": free}
            table.ask(base, fitting[:1], search.model_copy(update=update), FEWEST_THAT_FIT)
        if fitting and search.run.deadline_s is not None:
            # Where no row will do, a count between the rows still may.
            most = doing[:1] or [rows[-1].devices]
            table.ask(base, most, search.model_copy(update={"objective": "devices"}), FEWEST)
    table.solve()


def _warnings(bases: Sequence[Base], search: SearchRequest) -> Iterator[str]:
    """What the table could not say."""
    unpriced = [
        base.name
        for base in bases
        if any(group.price_per_device_hour_usd is None for group in base.situation.cluster.groups)
    ]
    if unpriced and search.run.price_per_device_hour_usd is None:
        yield f"no price is known for {', '.join(unpriced)}, so cost is not given; state --price-per-device-hour"
    if len(bases) > 1 and search.run.price_per_device_hour_usd is not None:
        yield "the stated price stands for every cluster; put prices into cluster files where they differ"


def _unfinished(left_out: Sequence[Mapping[str, Any]], within_s: float | None) -> Iterator[str]:
    if left_out and within_s is not None:
        yield (
            f"{len(left_out)} searches were left out or cut short after {within_s:g} s; give more time, fewer "
            "clusters, or the numbers of devices that matter"
        )
