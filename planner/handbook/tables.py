"""Tables of the pages on parallelism, as Markdown; every number is a prediction of today's planner."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from cost_models.units import GIB, format_seconds
from planner.answers import Prediction
from planner.handbook import cases
from planner.handbook.cases import CONTEXT, EXPERT, HYBRID, HYBRIDS, PIPELINE, TENSOR, ZERO, fullest
from planner.handbook.markdown import markdown_table
from planner.handbook.overview import every_way, traffic

STATES: Final = ("weights", "gradients", "optimizer")
SCHEDULES: Final = {
    "GPipe": "schedule=gpipe",
    "1F1B": "schedule=1f1b",
    "interleaved, 2 chunks": "vpp=2",
    "ZB-H1": "schedule=zb-h1",
    "ZB-V": "schedule=zb-v",
    "DualPipe-V": "schedule=dualpipe-v",
}


def data_parallel() -> str:
    """A ring beside a parameter server, for ever more GPUs."""
    rows = []
    for devices in (8, 16, 64, 256):
        ring, server = (cases.resnet(devices, engine).predict() for engine in ("ddp", "parameter_server"))
        rows.append(
            [str(devices)]
            + [text for each in (ring, server) for text in (_step(each), _seconds(each, "dp_communication"))]
            + [f"{server.step_s / ring.step_s:.2f}"]
        )
    head = ["GPUs", "ring: step", "of it waiting", "server: step", "of it waiting", "server / ring"]
    return markdown_table(head, rows)


def zero_memory() -> str:
    """What each stage of ZeRO keeps on a device, and what it costs."""
    rows = []
    for stage in range(4):
        found = ZERO.predict(f"zero={stage}")
        causes = fullest(found).by_cause
        held = [f"{causes.get(cause, 0.0) / GIB:.2f}" for cause in STATES]
        total = f"{fullest(found).allocated_bytes / GIB:.1f}"
        rows.append([f"ZeRO-{stage}", *held, total, _seconds(found, "dp_communication"), _step(found)])
    head = ["", "weights", "gradients", "optimizer", "peak, GiB", "communication that shows", "step"]
    return markdown_table(head, rows)


def micro_batches() -> str:
    """The bubble shrinks with the number of micro-batches."""
    rows = []
    for batch in (4, 8, 16, 32, 64):
        case = replace(PIPELINE, global_batch=batch)
        found = case.predict("pp=4")
        share = found.breakdown_s["pp_bubble"] / found.step_s
        rows.append([str(batch), f"{3 / (batch + 3):.0%}", f"{share:.0%}", f"{found.mfu:.1%}"])
    head = ["micro-batches m", "(p - 1) / (m + p - 1)", "bubble of the step", "MFU"]
    return markdown_table(head, rows)


def schedules() -> str:
    """Schedules of one pipeline."""
    rows = []
    for title, words in SCHEDULES.items():
        found = PIPELINE.predict(f"pp=4,{words}")
        activations = fullest(found).by_cause["activations"] / GIB
        share = found.breakdown_s["pp_bubble"] / found.step_s
        rows.append(
            [title, f"{share:.1%}", f"{activations:.1f}", f"{found.memory.peak_allocated_bytes / GIB:.1f}"]
        )
    return markdown_table(["", "bubble of the step", "activations, GiB", "peak, GiB"], rows)


def tensor_parallel() -> str:
    """Degrees of tensor parallelism, up to the edge of a node and beyond."""
    rows = []
    for tp in (1, 2, 4, 8, 16):
        found = TENSOR.predict(f"tp={tp}")
        rows.append(
            [
                str(tp),
                _seconds(found, "compute"),
                _seconds(found, "tp_communication"),
                _step(found),
                f"{fullest(found).by_cause['activations'] / GIB:.1f}",
                f"{found.memory.peak_allocated_bytes / GIB:.1f}",
            ]
        )
    return markdown_table(
        ["tp", "compute", "tp communication", "step", "activations, GiB", "peak, GiB"], rows
    )


def sequence_parallel() -> str:
    """Tensor parallelism with and without sequence shards between its products."""
    rows = []
    for text in ("false", "true"):
        found = TENSOR.predict(f"tp=8,sp={text}")
        activations = fullest(found).by_cause["activations"] / GIB
        rows.append([text, f"{activations:.2f}", _seconds(found, "tp_communication"), _step(found)])
    return markdown_table(["sp", "activations, GiB", "tp communication", "step"], rows)


def context_parallel() -> str:
    """Three ways to let attention cross context ranks, and the first without any."""
    rows = []
    for title, words in (
        ("ring", "cp=8,cp_kind=ring"),
        ("all-gather", "cp=8,cp_kind=allgather"),
        ("Ulysses", "cp=8,cp_kind=ulysses"),
    ):
        found = CONTEXT.predict(f"{words},recompute=full")
        rows.append([title, _seconds(found, "cp_communication"), _step(found), _peak(found)])
    return markdown_table(["kind", "cp communication that shows", "step", "peak, GiB"], rows)


def expert_parallel() -> str:
    """Degrees of expert parallelism."""
    rows = []
    for ep in (1, 2, 4, 8):
        found = EXPERT.predict(f"pp=4,ep={ep}")
        weights = fullest(found).by_cause["weights"] / GIB
        row = [str(ep), f"{weights:.1f}", _seconds(found, "ep_communication"), _step(found), _peak(found)]
        rows.append(row)
    return markdown_table(["ep", "weights, GiB", "routing and exchange", "step", "peak, GiB"], rows)


def expert_capacity() -> str:
    """What an uneven router costs without a limit, and what a capacity factor makes of it."""
    rows = []
    for title, options in (
        ("even tokens", {}),
        ("fullest rank 1.5 x", {"job.moe_imbalance": 1.5}),
        ("fullest rank 2 x", {"job.moe_imbalance": 2.0}),
        ("capacity factor 1.0, drops the rest", {"job.moe_imbalance": 2.0, "job.moe_capacity_factor": 1.0}),
    ):
        found = replace(EXPERT, options=options).predict("pp=4,ep=8")
        rows.append([title, _step(found), _peak(found)])
    return markdown_table(["tokens", "step", "peak, GiB"], rows)


def hybrids() -> str:
    """The same job in layouts that an expert may try, beside each other."""
    rows = []
    for title, words in HYBRIDS.items():
        found = HYBRID.predict(words)
        rows.append(
            [
                title,
                f"`{words}`",
                found.verdict.replace("_", " "),
                _peak(found),
                _step(found),
                f"{found.mfu:.1%}",
            ]
        )
    return markdown_table(["layout", "strategy", "verdict", "peak, GiB", "step", "MFU"], rows)


TABLES: Final[Mapping[str, Callable[[], str]]] = {
    "data-parallel": data_parallel,
    "zero-memory": zero_memory,
    "micro-batches": micro_batches,
    "schedules": schedules,
    "tensor-parallel": tensor_parallel,
    "sequence-parallel": sequence_parallel,
    "context-parallel": context_parallel,
    "expert-parallel": expert_parallel,
    "expert-capacity": expert_capacity,
    "hybrids": hybrids,
    "every-way": every_way,
    "traffic": traffic,
}


def _step(found: Prediction) -> str:
    return format_seconds(found.step_s)


def _seconds(found: Prediction, cause: str) -> str:
    return format_seconds(found.breakdown_s[cause])


def _peak(found: Prediction) -> str:
    return f"{found.memory.peak_allocated_bytes / GIB:.1f}"
