"""`python -m planner.validation.search_speed [--growth] [CASE…]`: how long the search takes, and what it cut.

Every case runs in a process of its own, so that its peak memory is its own. Wall time means something on an idle
machine; processor time is beside it.
"""

import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cost_models.engines import even_stages
from cost_models.specs.job import JobRequest
from cost_models.specs.recompute import ALL_LAYERS, Recompute
from cost_models.specs.strategy import Strategy
from planner.candidates import enumerate_candidates, strategy_of
from planner.evaluation import Context
from planner.make_plan import make_plan
from planner.request import CatalogModel, PresetCluster, SearchRequest, SpecCluster
from planner.restrictions import read_restrictions
from planner.search.bulk import outcomes
from planner.situation import Situation, resolve

MAX_SECONDS: Final = 120.0
DRAWN: Final = 4_000
"""Strategies that are drawn to measure evaluation."""


HALVES: Final = "a100-and-h100"
"""Name of a cluster of which one half is A100, the other H100, in nodes of 8 on one InfiniBand network."""


def half_and_half(devices: int) -> SpecCluster:
    """The cluster of two kinds, with so many devices in all."""
    groups = [
        {"name": name, "device": f"{name}-sxm-80gb", "nodes": devices // 16, "devices_per_node": 8}
        for name in ("a100", "h100")
    ]
    tiers = [
        {"name": "nvlink", "bytes_per_s": 300e9, "latency_s": 2e-6},
        {"name": "infiniband", "bytes_per_s": 25e9, "latency_s": 4e-6},
    ]
    return SpecCluster(spec={"name": HALVES, "groups": groups, "tiers": tiers})


@dataclass(frozen=True, slots=True)
class Case:
    """A request, and the seconds in which two idle cores should certify it (None: nothing is promised)."""

    name: str
    model: str
    cluster: str
    devices: int
    seq_len: int
    global_batch: int
    engine: str = "megatron"
    within_s: float | None = None

    def situation(self) -> Situation:
        """The request resolved."""
        preset = PresetCluster(name=self.cluster, devices=self.devices)
        return resolve(
            CatalogModel(name=self.model),
            half_and_half(self.devices) if self.cluster == HALVES else preset,
            JobRequest(seq_len=self.seq_len, global_batch=self.global_batch, engine=self.engine),
        )


CASES: Final = (
    Case("llama-70b-64", "llama-3.1-70b", "dgx-h100", 64, 8192, 512, within_s=2.0),
    Case("llama-70b-64-torch", "llama-3.1-70b", "dgx-h100", 64, 8192, 512, "torch"),
    Case("gpt3-4096", "gpt3-175b", "dgx-a100", 4096, 2048, 1536, within_s=3.0),
    Case("llama-405b-16384", "llama-3.1-405b", "dgx-h100", 16384, 8192, 2048, within_s=5.0),
    Case("deepseek-v3-2048", "deepseek-v3", "dgx-h800", 2048, 4096, 15360, within_s=5.0),
    Case("nemotron-h-56b-64-torch", "nemotron-h-56b", "dgx-h100", 64, 8192, 512, "torch"),
    Case("kimi-k2-100000", "kimi-k2", "dgx-h100", 100_000, 4096, 100_000, within_s=30.0),
)

MIXED: Final = (
    Case("llama-70b-mixed-1024", "llama-3.1-70b", HALVES, 1024, 8192, 2048, within_s=10.0),
    Case("deepseek-v3-mixed-1024", "deepseek-v3", HALVES, 1024, 4096, 15360, within_s=10.0),
)

GROWTH: Final = tuple(
    Case(f"llama-70b-on-{n}", "llama-3.1-70b", "dgx-h100", n, 8192, max(4 * n, 512))
    for n in (64, 256, 1024, 4096, 16_384, 65_536, 100_000)
)
"""One model on ever more devices, four sequences for each."""


def measured(case: Case) -> dict[str, object]:
    """One case in this process: status, times, counts, peak memory."""
    situation = case.situation()
    wall, cpu = time.monotonic(), time.process_time()
    result = make_plan(situation, SearchRequest(max_seconds=MAX_SECONDS))
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = result.certificate
    return {
        "case": case.name,
        "status": result.status,
        "gap": found.gap,
        "wall_s": wall,
        "processor_s": cpu,
        "within_s": case.within_s,
        "meshes": found.meshes_total,
        "illegal": dict(found.meshes_illegal),
        "out_of_memory": found.meshes_out_of_memory,
        "bounded": found.meshes_bounded,
        "solved": found.meshes_solved,
        "open": found.meshes_open,
        "peak_bytes": peak,
        "evaluations_per_s": None if case.cluster == HALVES else evaluations_per_s(situation),
        "plan": result.best.strategy.mesh_text() if result.best else None,
    }


def evaluations_per_s(situation: Situation) -> float:
    """Strategies a second of processor time that are priced, simulated and held to memory in bulk."""
    context = Context.of(situation)
    drawn = list(random_strategies(context, random.Random(0), DRAWN))
    started = time.process_time()
    outcomes(context.pricer, drawn)
    return len(drawn) / max(time.process_time() - started, 1e-9)


def random_strategies(context: Context, rng: random.Random, number: int) -> Iterator[Strategy]:
    """Legal meshes drawn evenly over rows, states, kinds and pipes, with even stages and some recompute."""
    restrictions = read_restrictions({}, ())
    families = enumerate_candidates(context.situation.engine, context.facts, restrictions).families
    blocks = context.facts.model.num_blocks
    batches = [batch for batch in families.sampled(rng, 12, number) if batch.size]
    for _ in range(number if batches else 0):
        batch = rng.choice(batches)
        row = rng.randrange(batch.size)
        stages = even_stages(blocks, int(batch.pp[row] * batch.vpp[row]))
        full = 0 if batch.key.scopes else rng.choice((0, ALL_LAYERS, rng.randint(1, max(stages))))
        yield strategy_of(batch, row, stages, Recompute(batch.key.scopes, full))


def table(rows: Sequence[dict[str, object]]) -> str:
    """The rows as a table for people."""
    head: tuple[str, ...] = (
        "case",
        "status",
        "gap",
        "wall s",
        "processor s",
        "asked s",
        "evaluations/s",
        "meshes",
        "illegal",
    )
    head += ("out of memory", "bounded", "solved", "open", "peak MiB")
    lines = [head, *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
    )


def _cells(row: dict[str, object]) -> tuple[str, ...]:
    illegal = row["illegal"]
    gap, asked = row["gap"], row["within_s"]
    return (
        str(row["case"]),
        str(row["status"]),
        "-" if gap is None else f"{gap:.4%}",
        f"{row['wall_s']:.2f}",
        f"{row['processor_s']:.2f}",
        "-" if asked is None else f"{asked:g}",
        "-" if row["evaluations_per_s"] is None else f"{row['evaluations_per_s']:,.0f}",
        f"{row['meshes']:,}",
        f"{sum(illegal.values()):,}" if isinstance(illegal, dict) else "-",
        *(f"{row[name]:,}" for name in ("out_of_memory", "bounded", "solved", "open")),
        f"{row['peak_bytes'] / 2**20:,.0f}" if isinstance(row["peak_bytes"], int) else "-",
    )


def main(arguments: list[str]) -> int:
    """Run the cases one after the other in processes of their own and write the table."""
    if arguments[:1] == ["--one"]:
        (case,) = (case for case in (*CASES, *MIXED, *GROWTH) if case.name == arguments[1])
        sys.stdout.write(json.dumps(measured(case)) + "\n")
        return 0
    cases = GROWTH if "--growth" in arguments else (*CASES, *MIXED)
    wanted = [name for name in arguments if not name.startswith("--")]
    rows = []
    for case in cases:
        if wanted and case.name not in wanted:
            continue
        command = [sys.executable, "-m", "planner.validation.search_speed", "--one", case.name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout))
        sys.stderr.write(f"{case.name}: {rows[-1]['wall_s']:.1f} s, {rows[-1]['status']}\n")
    sys.stdout.write((json.dumps(rows) if "--json" in arguments else table(rows)) + "\n")
    for row in [] if "--json" in arguments else rows:
        sys.stdout.write(f"{row['case']}: illegal by rule {row['illegal']}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
