"""Which layouts are held against one process, and how: gradients, losses and parameters of five steps."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch

from cost_models.errors import BadInput
from planner.executor.differences import Worst, compare_gradients, compare_parameters, rounding_names
from planner.executor.positions import token_parts
from planner.executor.reference import ReferenceRun, train_reference
from planner.executor.refuse import run_violations
from planner.executor.request import RunOrder
from planner.executor.verification import ADAM_EPS, LEARNING_RATE, LIMITS, SAFE_MARGIN, STEPS
from tests.planner.executor.orders import LLAMA, tiny_order
from tests.planner.executor.ranks import run_ranks

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
    options: Mapping[str, Any] = field(default_factory=dict)

    def order(self) -> RunOrder:
        """The order that is run; raises BadInput where it is illegal."""
        job = {**JOB, **self.job}
        return tiny_order(
            self.strategy,
            devices=self.devices,
            engine=self.engine,
            config=self.config,
            job=job,
            **{**OPTIONS, **self.options},
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
    return compare_all([order], world)[0]


def compare_all(orders: Sequence[RunOrder], world: int) -> list[Differences]:
    """The same of several orders, one after the other in the same processes."""
    expected = [reference_of(order) for order in orders]
    documents = [
        with_seed_of(reference, order).to_json() for reference, order in zip(expected, orders, strict=True)
    ]
    by_rank = run_ranks(train_rank, world, documents, timeout_s=60.0 + 60.0 * len(orders))
    return [
        _differences(reference, ranks)
        for reference, ranks in zip(expected, zip(*by_rank, strict=True), strict=True)
    ]


def _differences(expected: ReferenceRun, ranks: Sequence[Any]) -> Differences:
    loss = max(
        abs(own.loss - step.loss) / step.loss
        for own_steps, _ in ranks
        for own, step in zip(own_steps, expected.steps, strict=True)
    )
    gradients, parameters, names = Worst(), Worst(), set()
    rounding = rounding_names([step.gradients for step in expected.steps])
    for own_steps, own_parameters in ranks:
        for own, step in zip(own_steps, expected.steps, strict=True):
            compare_gradients(own.gradients, step.gradients, gradients)
            gradients.see(abs(own.grad_norm - step.grad_norm) / step.grad_norm, "norm of all gradients")
            names |= set(own.gradients)
        compare_parameters(own_parameters, expected.parameters, rounding, parameters)
    missing = tuple(sorted(expected.first_names - names))
    return Differences(loss, gradients.value, parameters.value, gradients.name, missing)


_REFERENCES: dict[str, ReferenceRun] = {}


def reference_of(order: RunOrder) -> ReferenceRun:
    """What one process does; equal questions are trained once. Its routing is clear of ties."""
    job = order.situation.job
    key = (order.situation.model, job.global_batch, job.seq_len, job.image_size, job.optimizer, order.options)
    micro_batches = order.num_micro_batches * order.strategy.dp if depends_on_partition(order) else 1
    parts = token_parts(order.strategy, job.seq_len) if depends_on_partition(order) else ()
    text = repr((key, job.options, micro_batches, parts))
    if text not in _REFERENCES:
        found = train_reference(order, torch.device("cpu"), micro_batches, STEPS, SAFE_MARGIN)
        assert found.routing_margin > SAFE_MARGIN
        _REFERENCES[text] = found
    return _REFERENCES[text]


def with_seed_of(reference: ReferenceRun, order: RunOrder) -> RunOrder:
    """The order under the seed that the reference settled on."""
    return replace(order, options=reference.order.options)


def depends_on_partition(order: RunOrder) -> bool:
    """Whether what is trained depends on which rank and micro-batch a token is in."""
    options = order.options
    return bool(order.situation.job.options.moe_capacity_factor or options.moe_aux_loss)


def train_rank(rank: int, world: int, documents: Sequence[dict[str, Any]]) -> list[Any]:
    """What one rank sees of each order: five steps with gradients, then its parameters."""
    from planner.executor.request import order_of_document
    from planner.executor.step import Trainer

    found = []
    for document in documents:
        trainer = Trainer(order_of_document(document), torch.device("cpu"))
        steps = [trainer.step_with_gradients() for _ in range(STEPS)]
        found.append((steps, trainer.data_parallel.full_parameters()))
    return found
