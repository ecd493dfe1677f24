"""What multi-token-prediction layers read and predict, beside the model's own targets (DeepSeek-V3 2024, section 2.2).

The k-th layer sees, at each position, the token k later and predicts the one after that. Positions at the end that have
no such target are left out of its sum, which is divided by as many as the model's own (equation 24).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from planner.executor.data.base import IGNORED, Batch


@dataclass(frozen=True, slots=True)
class Wanted:
    """Targets of the model itself; for each prediction layer the tokens that it reads, and its targets; all [B, S]."""

    targets: Tensor
    ids: Sequence[Tensor]
    later: Sequence[Tensor]


def packed(inputs: Tensor, targets: Tensor, depth: int) -> Tensor:
    """[1 + 2 x depth, B, S]: targets, tokens of each prediction layer, targets of each; just targets for none."""
    if not depth:
        return targets
    ids = [_shifted(inputs, k + 1, 0) for k in range(depth)]
    later = [_shifted(targets, k + 1, IGNORED) for k in range(depth)]
    return torch.stack([targets, *ids, *later])


def with_predictions(batch: Batch, depth: int) -> Batch:
    """The batch with packed targets, for so many prediction layers."""
    return Batch(batch.inputs, packed(batch.inputs, batch.targets, depth))


def unpacked(tensor: Tensor, depth: int) -> Wanted:
    """What `packed` put together."""
    targets, *rest = tensor.unbind(0)
    return Wanted(targets, rest[:depth], rest[depth:])


def _shifted(x: Tensor, places: int, filling: int) -> Tensor:
    """x[:, i + places] at position i."""
    end = x.new_full((x.shape[0], min(places, x.shape[1])), filling)
    return torch.cat((x[:, places:], end), 1)
