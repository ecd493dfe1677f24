"""The output matrix over the vocabulary (its columns divided over tensor-parallel ranks) and the logits' soft cap."""

import torch
from torch import Tensor, nn

from cost_models.operators import ClassLoss, CrossEntropy, LmHead
from planner.executor.model.operators.site import Site
from planner.executor.model.parameters import Initial, zeros
from planner.executor.model.tensor_parallel import local
from planner.executor.weight_gradients import CanDefer, linear


class LmHeadModule(CanDefer):
    """Logits of the rank's part of the padded vocabulary."""

    def __init__(self, operator: LmHead, site: Site) -> None:
        super().__init__()
        shape = (operator.vocab_size, operator.width)
        self.weight = site.maker.make("weight", Initial(shape, shard=0, tie=operator.tie, pad=True))
        names = (("bias", operator.bias), ("second_bias", operator.second_bias))
        self.biases = tuple(name for name, present in names if present)
        for name in self.biases:
            bias = Initial((operator.vocab_size,), zeros, 0, pad=True)
            setattr(self, name, site.maker.make(name, bias))
        semantics = site.semantics
        self.scale = semantics.number("logit_scale", 1.0) / semantics.number("logits_scaling", 1.0)

    def forward(self, x: Tensor) -> Tensor:
        """[B, S, H] -> [B, S, vocabulary (/ tp)]."""
        first = local(getattr(self, self.biases[0])) if self.biases else None
        logits = linear(x, local(self.weight), first, self.weight_gradients)
        for name in self.biases[1:]:
            logits = logits + local(getattr(self, name))
        return logits if self.scale == 1.0 else logits * self.scale


class SoftCapModule(nn.Module):
    """cap x tanh(logits / cap) (Gemma 2, 2024, section 2); the identity where the model has no cap."""

    def __init__(self, operator: CrossEntropy | ClassLoss, site: Site) -> None:
        super().__init__()
        capped = isinstance(operator, CrossEntropy) and operator.soft_cap
        self.cap = site.semantics.number("logit_soft_cap", 0.0) if capped else 0.0

    def forward(self, logits: Tensor) -> Tensor:
        """Any shape."""
        return torch.tanh(logits.float() / self.cap) * self.cap if self.cap else logits
