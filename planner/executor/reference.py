"""Training in one process without any parallelism: what every layout must equal.

Tokens beyond an expert's capacity are dropped by rank and micro-batch, so the layout's partition is replayed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from cost_models.fine_tuning import without_adapters
from cost_models.specs.job import Optimizer
from planner.executor.adapters.attach import adapters_of, attach
from planner.executor.data import Batch, Sampler, open_source
from planner.executor.data_parallel.records import describe
from planner.executor.model.build import build_chunk, whole
from planner.executor.model.chunk import last_output
from planner.executor.model.expert_parallel import ExpertParallel
from planner.executor.model.operators.routing import even_out, routers_of
from planner.executor.model.options import BuildOptions
from planner.executor.model.prediction import with_predictions
from planner.executor.optimizers.build import build_optimizer
from planner.executor.optimizers.settings import OptimizerSettings
from planner.executor.optimizers.target import MatrixFunction, Target
from planner.executor.positions import token_parts
from planner.executor.request import RunOrder
from planner.executor.step import balance_of

SEEDS: Final = 8
"""Seeds that are tried until no token's choice of experts is close to another one."""


@dataclass(frozen=True, slots=True)
class ReferenceStep:
    """One step: loss, norm and every gradient before clipping."""

    loss: float
    grad_norm: float
    gradients: dict[str, Tensor]


class WholeMatrix:
    """A parameter that is a whole matrix as it stands."""

    def apply(self, function: MatrixFunction, local: Tensor) -> Tensor:
        """The function of the matrix."""
        return function(local)


class Reference:
    """The whole model, the whole batch, one optimizer: a plain loop."""

    def __init__(self, order: RunOrder, device: torch.device) -> None:
        is_muon = order.situation.job.optimizer is Optimizer.MUON
        parts = token_parts(order.strategy, order.situation.job.seq_len)
        balance = replace(balance_of(order), parts=parts if order.situation.model.is_moe else ())
        options = BuildOptions(
            seed=order.options.seed,
            device=str(device),
            experts=ExpertParallel(balance=balance),
            train_mtp=order.predictions > 0,
            mtp_weight=order.options.mtp_weight,
        )
        self.order = order
        model = order.situation.model
        base = without_adapters(model)
        self._module = build_chunk(base, whole(base), options)
        attach(self._module, model, options, adapters_of(order))
        self.routers = routers_of(self._module)
        for router in self.routers.values():
            router.watched = True
        # A shared parameter under each of its names: a pipeline's later stage knows its copy by the later one.
        named = self._module.named_parameters(remove_duplicate=False)
        self._parameters = {name: parameter for name, parameter in named if parameter.requires_grad}
        self.first_names = {name for name, p in self._module.named_parameters() if p.requires_grad}
        records, parameters = describe([self._module])
        targets = [
            Target(parameter, WholeMatrix() if is_muon and record.is_matrix else None)
            for record, parameter in zip(records, parameters, strict=True)
        ]
        settings = OptimizerSettings(
            kind=order.situation.job.optimizer,
            lr=order.options.lr,
            weight_decay=order.options.weight_decay,
            eps=order.options.adam_eps,
        )
        self._optimizer = build_optimizer(targets, settings, torch.float32)

    def step(self, batches: Sequence[Batch]) -> ReferenceStep:
        """One optimizer step over the micro-batches of a global batch."""
        valid = sum(batch.num_valid() for batch in batches)
        loss = 0.0
        for batch in batches:
            targets = with_predictions(batch, self.order.predictions).targets
            output = last_output(self._module, batch.inputs, targets)
            total = self._module.loss_sum(output, targets) / valid
            total.backward()  # type: ignore[no-untyped-call]
            loss += float(total.detach())
        gradients = {
            name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
            for name, p in self._parameters.items()
        }
        max_norm = self.order.options.max_norm
        norm = torch.nn.utils.clip_grad_norm_(
            self._module.parameters(), float("inf") if max_norm is None else max_norm
        )
        self._optimizer.step()
        self._optimizer.zero_grad()
        if self.order.options.moe_bias_rate:
            even_out(self.routers.values(), self.order.options.moe_bias_rate)
        return ReferenceStep(loss, float(norm), gradients)

    @property
    def routing_margin(self) -> float:
        """The smallest distance so far of any choice of experts from being another one; infinite without experts."""
        return min((router.margin for router in self.routers.values()), default=math.inf)

    def parameters(self) -> dict[str, Tensor]:
        """The weights now."""
        return {name: parameter.detach().clone() for name, parameter in self._parameters.items()}


@dataclass(frozen=True, slots=True)
class ReferenceRun:
    """Steps of one process, its parameters after the last, the first name of each; `order` has the seed they are of."""

    order: RunOrder
    steps: list[ReferenceStep]
    parameters: dict[str, Tensor]
    first_names: set[str]
    routing_margin: float


def train_reference(
    order: RunOrder, device: torch.device, micro_batches: int, steps: int, safe_margin: float
) -> ReferenceRun:
    """Train the order in one process, under the first seed of a few whose routing stays clear of ties: two layouts'
    rounding must not send a token to another expert. The clearest one where none stays clear."""
    best: ReferenceRun | None = None
    for offset in range(SEEDS):
        options = order.options.model_copy(update={"seed": order.options.seed + offset})
        found = _train(replace(order, options=options), device, micro_batches, steps)
        if best is None or found.routing_margin > best.routing_margin:
            best = found
        if best.routing_margin > safe_margin:
            break
    assert best is not None
    return best


def _train(order: RunOrder, device: torch.device, micro_batches: int, steps: int) -> ReferenceRun:
    reference = Reference(order, device)
    job = order.situation.job
    sampler = Sampler(open_source(order), job.global_batch, (0, 1), order.options.first_sample)
    done = []
    for _ in range(steps):
        batches = sampler.micro_batches(micro_batches)
        on_device = [replace(b, inputs=b.inputs.to(device), targets=b.targets.to(device)) for b in batches]
        done.append(reference.step(on_device))
    return ReferenceRun(order, done, reference.parameters(), reference.first_names, reference.routing_margin)
