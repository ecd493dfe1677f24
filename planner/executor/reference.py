"""Training in one process without any parallelism: what every layout must equal."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cost_models.specs.job import Optimizer
from planner.executor.data import Batch
from planner.executor.data_parallel.records import describe
from planner.executor.model.build import build_chunk, whole
from planner.executor.model.options import BuildOptions
from planner.executor.optimizers.build import build_optimizer
from planner.executor.optimizers.settings import OptimizerSettings
from planner.executor.optimizers.target import MatrixFunction, Target
from planner.executor.request import RunOrder


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
        options = BuildOptions(seed=order.options.seed, device=str(device))
        self.order = order
        model = order.situation.model
        self._module = build_chunk(model, whole(model), options)
        # A shared parameter under each of its names: a pipeline's later stage knows its copy by the later one.
        self._parameters = dict(self._module.named_parameters(remove_duplicate=False))
        self.first_names = {name for name, _ in self._module.named_parameters()}
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
            total = self._module.loss_sum(self._module(batch.inputs), batch.targets) / valid
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
        return ReferenceStep(loss, float(norm), gradients)

    def parameters(self) -> dict[str, Tensor]:
        """The weights now."""
        return {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
