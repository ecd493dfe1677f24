"""Predicted collectives beside public readings of nccl-tests, rccl-tests and DeepEP; writes docs/collectives.md.

python -m planner.validation.collectives docs/collectives.md
"""

import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from cost_models.communication import ExpertGroups, Span, collective_seconds, network_of
from cost_models.operators.base import Collective
from cost_models.profiles import load_cluster, profiles_root
from cost_models.specs.cluster import ClusterSpec
from cost_models.units import format_bytes, format_seconds

FILE: Final = "published/collectives.csv"
PASSES: Final = {Collective.ALL_REDUCE: 2.0, Collective.SEND_RECEIVE: 0.0}
"""Passes over the ring that a bus bandwidth counts: bytes x passes (n - 1) / n in the measured time; a send counts its
bytes (nccl-tests, doc/PERFORMANCE.md)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One public reading: a collective over `ranks`, `stride` apart, of a preset whose outer tier may be another."""

    id: str
    source: str
    cluster: str
    outer: str
    collective: Collective
    span: Span
    payload_bytes: float
    fan_out: int
    groups: ExpertGroups | None
    measured_s: float
    note: str

    @property
    def predicted_s(self) -> float:
        """Seconds that the cost model gives."""
        network = network_of(_cluster(self.cluster, self.outer))
        options = {"fan_out": self.fan_out, "groups": self.groups}
        found = collective_seconds(self.collective, self.payload_bytes, self.span, network, **options)  # type: ignore[arg-type]
        return float(found)

    def rate(self, seconds: float) -> float:
        """Bus bandwidth, bytes/s."""
        return bus_bytes(self.collective, self.payload_bytes, int(self.span.size)) / seconds


def readings() -> tuple[Reading, ...]:
    """All readings of the file."""
    with (profiles_root() / FILE).open(encoding="utf-8", newline="") as lines:
        return tuple(_reading(row) for row in csv.DictReader(lines))


def bus_bytes(collective: Collective, payload_bytes: float, ranks: int) -> float:
    """Bytes that nccl-tests divides by the time."""
    passes = PASSES.get(collective, 1.0)
    return payload_bytes * passes * (ranks - 1) / ranks if passes else payload_bytes


def table(found: Sequence[Reading]) -> list[str]:
    """Markdown lines: one reading a line, its predicted and published figure and the error of the time."""
    lines = [
        "| reading | collective | ranks | bytes | published | predicted | time | source |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    for one in found:
        predicted = one.predicted_s
        published, ours = (_figure(one, seconds) for seconds in (one.measured_s, predicted))
        place = f"{one.cluster}{f' ({one.outer} B/s)' if one.outer else ''}"
        name = f"{place}{f'; {one.note}' if one.note else ''}"
        kind = one.collective.value.replace("_", " ")
        lines.append(
            f"| {name} | {kind} | {one.span.size} | {format_bytes(one.payload_bytes)} | {published} | {ours} | "
            f"{predicted / one.measured_s - 1:+.0%} | {one.source} |"
        )
    return lines


def page() -> str:
    """The page of docs."""
    found = readings()
    errors = [one.predicted_s / one.measured_s - 1.0 for one in found]
    return "\n".join(
        [
            "# Collectives beside public readings",
            "",
            "Written by `python -m planner.validation.collectives docs/collectives.md` from",
            f"[`profiles/{FILE}`](../profiles/{FILE}). Bandwidths are nccl-tests' bus bandwidths; exchanges of experts",
            "(DeepEP: a token once a destination) are seconds. The efficiencies in `profiles/fabrics` were set by hand",
            "near these readings, so the errors below are in-sample; the latencies are NCCL's own tuning constants.",
            "",
            f"{len(found)} readings: median error of the time {median(abs(e) for e in errors):.0%}, "
            f"signed {median(errors):+.0%}, largest {max(errors, key=abs):+.0%}.",
            "",
            *table(found),
            "",
        ]
    )


def _figure(one: Reading, seconds: float) -> str:
    return format_seconds(seconds) if one.fan_out else f"{one.rate(seconds) / 1e9:,.0f} GB/s"


def _reading(row: dict[str, str]) -> Reading:
    collective, ranks = Collective(row["collective"]), int(row["ranks"])
    payload = float(row["bytes"])
    stated = row["seconds"]
    seconds = (
        float(stated) if stated else bus_bytes(collective, payload, ranks) / float(row["bus_bytes_per_s"])
    )
    groups = ExpertGroups(int(row["groups"]), int(row["kept"])) if row["groups"] else None
    return Reading(
        row["id"],
        row["source"],
        row["cluster"],
        row["outer"],
        collective,
        Span(ranks, int(row["stride"])),
        payload,
        int(row["fan_out"] or 0),
        groups,
        seconds,
        row["note"],
    )


def _cluster(preset: str, outer: str) -> ClusterSpec:
    """A preset; `outer`, "fabric bytes/s", replaces its outermost tier's kind of link and rate."""
    cluster = load_cluster(preset)
    if not outer:
        return cluster
    name, rate = outer.split()
    last = cluster.tiers[-1]
    figure = last.bytes_per_s.model_copy(update={"value": float(rate)})
    changed = last.model_copy(update={"name": name, "bytes_per_s": figure, "shared_by": 1})
    return cluster.model_copy(update={"tiers": (*cluster.tiers[:-1], changed)})


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
