"""Which layouts are held against one process, and how: gradients, losses and parameters of five steps.

`python -m tests.planner.executor.equality docs/executor_equality.md` runs every layout and writes the table.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch

from cost_models.errors import BadInput
from planner.executor.data import Sampler, open_source
from planner.executor.differences import Worst, compare_gradients, compare_parameters, rounding_names
from planner.executor.reference import Reference, ReferenceStep
from planner.executor.refuse import run_violations
from planner.executor.request import RunOrder
from planner.executor.verification import ADAM_EPS, LEARNING_RATE, LIMITS, STEPS
from tests.planner.executor.orders import LLAMA, tiny_order
from tests.planner.executor.ranks import RankError, run_ranks

# Eight heads for tp 4 with fewer key/value heads than heads; five blocks, so that no pipeline is even.
MODEL: Final = {**LLAMA, "num_attention_heads": 8, "num_key_value_heads": 4, "num_hidden_layers": 5}
JOB: Final[Mapping[str, Any]] = {"global_batch": 16}
OPTIONS: Final[Mapping[str, Any]] = {
    "lr": LEARNING_RATE,
    "adam_eps": ADAM_EPS,
    "max_norm": 0.5,
    "dropout": False,
}
MAX_WORLD: Final = 8

SCHEDULES: Final = ("none", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v")
SHARDINGS: Final[Mapping[str, str]] = {
    "DDP": "zero=0,dp=2",
    "ZeRO-1": "zero=1,dp=2",
    "ZeRO-2": "zero=2,dp=2",
    "ZeRO-3": "zero=3,dp=2",
    "HSDP": "zero=3,dp_shard=2,dp_replicate=2,dp=4",
}
TENSORS: Final = (1, 2, 4)


@dataclass(frozen=True)
class Layout:
    """One layout to be held against one process."""

    name: str
    strategy: str
    devices: int
    engine: str = "torch"
    config: Mapping[str, object] = field(default_factory=lambda: MODEL)
    job: Mapping[str, Any] = field(default_factory=dict)

    def order(self) -> RunOrder:
        """The order that is run; raises BadInput where it is illegal."""
        job = {**JOB, **self.job}
        return tiny_order(
            self.strategy, devices=self.devices, engine=self.engine, config=self.config, job=job, **OPTIONS
        )


@dataclass(frozen=True)
class Differences:
    """Largest relative differences from one process over five steps."""

    loss: float
    gradients: float
    parameters: float
    worst: str
    missing: tuple[str, ...]

    def within_limits(self) -> bool:
        """Whether the layout trains as one process does."""
        return not self.missing and all(getattr(self, name) <= limit for name, limit in LIMITS.items())


def all_layouts() -> Iterator[Layout]:
    """Every schedule x sharding x tensor parallel degree that is legal on up to eight processes."""
    for schedule in SCHEDULES:
        for sharding, zero in SHARDINGS.items():
            for tp in TENSORS:
                layout = layout_of(schedule, sharding, zero, tp)
                if layout is not None:
                    yield layout


def layout_of(schedule: str, sharding: str, zero: str, tp: int) -> Layout | None:
    """One cell of the matrix; None where it needs more processes or is illegal. The dp degree gives way to tp 4."""
    dp = int(zero.rpartition("=")[2])
    pp = 1 if schedule == "none" else 2
    if pp * dp * tp > MAX_WORLD:
        if dp > 2 or sharding not in ("DDP", "ZeRO-1"):
            return None
        zero, dp = zero.replace("dp=2", "dp=1"), 1
    engine = "ddp" if sharding == "DDP" and pp == tp == 1 else "torch"
    text = f"{zero},tp={tp}" + ("" if pp == 1 else f",pp={pp},schedule={schedule},{stages_of(schedule)}")
    layout = Layout(f"{schedule} {sharding} tp{tp}", text, pp * dp * tp, engine)
    try:
        return None if run_violations(layout.order(), 0) else layout
    except BadInput:
        return None


def stages_of(schedule: str) -> str:
    """Uneven stages of five blocks over two pipeline ranks."""
    if schedule in ("interleaved", "zb-v", "dualpipe-v"):
        return "vpp=2,stages=2+1+1+1"
    return "stages=3+2"


def differences(layout: Layout) -> Differences:
    """Run a layout and one process side by side."""
    return compare(layout.order(), layout.devices)


def compare(order: RunOrder, world: int) -> Differences:
    """Hold an order against one process with the same model, job and options."""
    document = order.to_json()
    steps, last, first_names = reference_of(order)
    results = run_ranks(train_rank, world, document, timeout_s=120.0)
    loss = max(
        abs(own.loss - expected.loss) / expected.loss
        for own_steps, _ in results
        for own, expected in zip(own_steps, steps, strict=True)
    )
    gradients, parameters, names = Worst(), Worst(), set()
    rounding = rounding_names([step.gradients for step in steps])
    for own_steps, own_parameters in results:
        for own, expected in zip(own_steps, steps, strict=True):
            compare_gradients(own.gradients, expected.gradients, gradients)
            names |= set(own.gradients)
        compare_parameters(own_parameters, last, rounding, parameters)
    missing = tuple(sorted(first_names - names))
    return Differences(loss, gradients.value, parameters.value, gradients.name, missing)


_REFERENCES: dict[str, Any] = {}


def reference_of(order: RunOrder) -> tuple[list[ReferenceStep], dict[str, torch.Tensor], set[str]]:
    """Steps, final parameters and the first name of each, of one process; equal questions are trained once."""
    job = order.situation.job
    key = (order.situation.model, job.global_batch, job.seq_len, job.image_size, job.optimizer, order.options)
    text = repr(key)
    if text not in _REFERENCES:
        reference = Reference(order, torch.device("cpu"))
        sampler = Sampler(open_source(order), job.global_batch, (0, 1))
        steps = [reference.step(sampler.micro_batches(1)) for _ in range(STEPS)]
        _REFERENCES[text] = steps, reference.parameters(), reference.first_names
    return _REFERENCES[text]


def train_rank(rank: int, world: int, document: dict[str, Any]) -> Any:
    """What one rank of the layout sees: five steps with gradients, then its parameters."""
    from planner.executor.request import order_of_document
    from planner.executor.step import Trainer

    trainer = Trainer(order_of_document(document), torch.device("cpu"))
    steps = [trainer.step_with_gradients() for _ in range(STEPS)]
    return steps, trainer.data_parallel.full_parameters()


def table() -> Iterator[str]:
    """Markdown of the whole matrix, a row a layout."""
    yield "# Layouts held against one process"
    yield ""
    yield (
        "Largest relative differences over five AdamW steps in fp32, clipped, of a Llama with five blocks (written by "
        "`python -m tests.planner.executor.equality`). Limits: "
        + ", ".join(f"{name} {limit:.0e}" for name, limit in LIMITS.items())
        + "."
    )
    yield ""
    yield "| layout | processes | strategy | loss | gradients | parameters | |"
    yield "|---|--:|---|--:|--:|--:|---|"
    yield from map(row_of, all_layouts())


def row_of(layout: Layout) -> str:
    """Run a layout; its row of the table."""
    start = f"| {layout.name} | {layout.devices} | {layout.engine}: `{layout.strategy}` |"
    try:
        found = differences(layout)
    except RankError as error:
        return f"{start} | | | FAILS: {str(error).splitlines()[-1][:120]} |"
    verdict = "equal" if found.within_limits() else "DIFFERS"
    return f"{start} {found.loss:.1e} | {found.gradients:.1e} | {found.parameters:.1e} | {verdict} |"


if __name__ == "__main__":
    torch.set_num_threads(1)
    with Path(sys.argv[1]).open("w", encoding="utf-8") as file:
        for line in table():
            file.write(line + "\n")
            file.flush()
