"""One chunk of a rank as a pipeline stage: its passes, and what is kept between them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from planner.executor.model.chunk import last_output
from planner.executor.pipeline.sharded import check_reducible
from planner.executor.weight_gradients import Waiting, WeightGradients, add_weight_gradients, attach

LossFunction = Callable[[Tensor, Tensor], Tensor]
"""(output of the last stage, targets of the micro-batch) -> the scalar that is differentiated."""


@dataclass(frozen=True, slots=True)
class Passed:
    """What a forward leaves for its backward: the stage's input, and where its output stands in autograd's graph."""

    x: Tensor
    root: GradientEdge | None


class Stage:
    """A chunk between its neighbours. `split` are the micro-batches whose backward runs in two halves."""

    def __init__(self, module: nn.Module, index: int, split: frozenset[int]) -> None:
        self.module = module
        self.index = index
        self._split = split
        self._gradients = WeightGradients()
        self._passed: dict[int, Passed] = {}
        self._halfway: dict[int, list[Waiting]] = {}
        if split:
            check_reducible(module)
            attach(module, self._gradients)

    @property
    def splits(self) -> bool:
        """Whether any backward of the stage runs in two halves."""
        return bool(self._split)

    def forward(self, micro_batch: int, x: Tensor) -> Tensor:
        """Output for the next stage, cut off from the graph; x is the stage's input (ids on the first stage)."""
        output = self._output(micro_batch, x)
        self._keep(micro_batch, x, output)
        return output.detach()

    def forward_loss(self, micro_batch: int, x: Tensor, targets: Tensor, loss: LossFunction) -> Tensor:
        """The micro-batch's loss, on the last stage."""
        found = loss(self._output(micro_batch, x, targets), targets)
        self._keep(micro_batch, x, found)
        return found.detach()

    def backward(self, micro_batch: int, gradient: Tensor) -> Tensor | None:
        """All gradients of a micro-batch; returns that of the stage's input, None for ids."""
        self._gradients.deferring = False
        return self._back(micro_batch, gradient)

    def input_gradient(self, micro_batch: int, gradient: Tensor) -> Tensor | None:
        """The gradient of the stage's input; those of the linear layers' weights are put off."""
        self._gradients.deferring = True
        found = self._back(micro_batch, gradient)
        self._halfway[micro_batch] = self._gradients.take()
        return found

    def weight_gradient(self, micro_batch: int) -> None:
        """What `input_gradient` put off."""
        add_weight_gradients(self._halfway.pop(micro_batch))

    def _output(self, micro_batch: int, x: Tensor, targets: Tensor | None = None) -> Tensor:
        self._gradients.deferring = micro_batch in self._split
        if self.index > 0:
            x.requires_grad_()
        output: Tensor = self.module(x) if targets is None else last_output(self.module, x, targets)
        return output

    def _keep(self, micro_batch: int, x: Tensor, result: Tensor) -> None:
        root = get_gradient_edge(result) if result.requires_grad else None
        self._passed[micro_batch] = Passed(x, root)

    def _back(self, micro_batch: int, gradient: Tensor) -> Tensor | None:
        passed = self._passed.pop(micro_batch)
        if passed.root is None:  # nothing before or in this stage is trained
            return None
        torch.autograd.backward((passed.root,), (gradient,))
        found, passed.x.grad = passed.x.grad, None
        return found
