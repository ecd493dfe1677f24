"""Predicted peaks beside the oracle's: rows and a document."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cost_models.units import GIB
from planner.evaluation import evaluate
from planner.executor.oracle.cases import LLAMA_8B, OracleCase
from planner.executor.oracle.extrapolate import OraclePeak, oracle_peak
from planner.executor.request import RunOrder

HEAD = """\
# Predicted memory beside torch's own tracker

Every row runs this project's own training step (model, tensor parallelism, recompute, FSDP2, AdamW) of a Llama at its
real width as rank 0 of a world of that size. Tensors have no storage and messages no peer
(`planner/executor/oracle/`), so a laptop holds 70B; `FSDPMemTracker` of torch counts what lives. Two steps run, the
second is looked at. Four and six layers run; each phase, and the backward pass of each unit counted from the nearer
end, is a straight line through both. A peak that is made of other parts at one depth than at the other is refused.
Predictions are those of `planner evaluate` without its 64 MiB of workspaces. bf16 with fp32 states, sequences of 8192
tokens, one a micro-batch. `make oracle` writes this file.

| model | ranks | strategy | batch | predicted, GiB | oracle, GiB | error | phase, predicted | oracle |
|---|--:|---|--:|--:|--:|--:|---|---|
"""

HAND_WRITTEN: Final[tuple[tuple[int, str, int, float], ...]] = (
    (8, "dp=8,mbs=1,zero=3,recompute=full", 8, 25.34),
    (64, "dp=64,mbs=1,zero=3,recompute=full", 64, 15.52),
    (8, "dp=8,mbs=1,zero=3", 8, 79.37),
    (64, "dp=64,mbs=1,zero=3", 64, 69.56),
    (64, "tp=8,dp=8,sp=true,mbs=1,zero=3", 8, 14.02),
    (64, "tp=8,dp=8,sp=true,mbs=1,zero=3,recompute=full", 8, 3.77),
)
"""Ranks, strategy, batch, GiB: the same tracker over a plain Llama-3-8B of 32 layers with
`torch.nn.functional.cross_entropy` on fp32 logits (torch 2.13, 2026-12)."""

HAND_HEAD = """
The same tracker over a hand-written Llama-3-8B whose loss is torch's own, out of place, beside predictions under
`--engine fsdp2 --set engine.modules=reference`, which prices such a program. Without recompute the tracker holds 2
bytes more an element of the 65 norms, 4.0 GiB on a rank that holds them whole: on a CPU, RMSNorm multiplies by its
weight in fp32 and keeps that.

| ranks | strategy | predicted, GiB | tracker, GiB | error |
|--:|---|--:|--:|--:|
"""

TAIL = """
Not seen by the tracker: workspaces, communicators, context, what the allocator cannot reuse, and streams (a buffer
freed for another stream stays a little longer). On a CPU RMSNorm is put together from operators whose fp32 temporaries
the one kernel of a GPU does not have; no peak stands on them. Pipelines, ZeRO 0 and 1 are not followed by it: their
runs on CPU processes are in [executor.md](executor.md).
"""


@dataclass(frozen=True, slots=True)
class OracleRow:
    """One case: predicted bytes without workspaces, and the oracle's peak."""

    case: OracleCase
    predicted_bytes: float
    predicted_phase: str
    oracle: OraclePeak

    @property
    def error(self) -> float:
        """Predicted / oracle - 1."""
        return self.predicted_bytes / self.oracle.peak_bytes - 1.0


def compare(case: OracleCase) -> OracleRow:
    """Predict and measure one case."""
    order = case.order()
    predicted, phase = _predicted(order)
    return OracleRow(case, predicted, phase, oracle_peak(order))


def _predicted(order: RunOrder) -> tuple[float, str]:
    """Bytes at the peak without workspaces, and its phase."""
    memory = evaluate(order.situation, order.strategy).memory
    stage = memory.stages[0]
    return stage.allocated_bytes - stage.by_cause["workspaces"], memory.peak_phase


def document(rows: Sequence[OracleRow]) -> str:
    """The whole of docs/torch_oracle.md."""
    tables = (_lines(rows), _hand_lines())
    first, second = ("".join(f"{line}\n" for line in lines) for lines in tables)
    return HEAD + first + HAND_HEAD + second + TAIL


def _hand_lines() -> Iterator[str]:
    for devices, strategy, batch, gib in HAND_WRITTEN:
        case = OracleCase(LLAMA_8B, devices, strategy, batch, "fsdp2", "reference")
        predicted, _ = _predicted(case.order())
        error = predicted / GIB / gib - 1.0
        yield f"| {devices} | `{strategy}` | {predicted / GIB:.2f} | {gib:.2f} | {100 * error:+.1f} % |"


def _lines(rows: Sequence[OracleRow]) -> Iterator[str]:
    for row in rows:
        case, oracle = row.case, row.oracle
        peaks = f"{row.predicted_bytes / GIB:.3f} | {oracle.peak_bytes / GIB:.3f} | {100 * row.error:+.2f} %"
        phases = f"{row.predicted_phase} | {oracle.phase}"
        yield f"| {case.model} | {case.devices} | `{case.strategy}` | {case.global_batch} | {peaks} | {phases} |"
    worst = max(abs(row.error) for row in rows)
    mean = sum(abs(row.error) for row in rows) / len(rows)
    yield ""
    yield f"Mean error {100 * mean:.2f} %, worst {100 * worst:.2f} %, {len(rows)} plans."
