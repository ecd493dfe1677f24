"""What layers hand in and on: the first tensor, the shapes of all of them, how much it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cost_models.readers.torch_module.ledger import Cost


def pass_on(*args: Any, **kwargs: Any) -> Any:
    """The first tensor handed in."""
    import torch

    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            return value
    raise TypeError("no tensor to hand on")


def pass_on_pair(*args: Any, **kwargs: Any) -> Any:
    """The first tensor handed in, and nothing beside it (routed blocks that also return their scores)."""
    return pass_on(*args, **kwargs), None


def shapes(values: Any) -> Iterator[object]:
    """Shapes of all tensors in nested values, in order."""
    import torch

    if isinstance(values, torch.Tensor):
        yield tuple(values.shape)
    elif isinstance(values, list | tuple):
        for each in values:
            yield from shapes(each)
    elif isinstance(values, dict):
        for name in sorted(values, key=str):
            yield from shapes(values[name])


def measure(cost: Cost, out: Any, batch: int) -> None:
    """Elements per sequence and channels of the first tensor of an output."""
    import torch

    if isinstance(out, torch.Tensor) and out.dim():
        cost.width, cost.channels = out.numel() / batch, int(out.shape[-1])
    elif isinstance(out, dict):
        measure(cost, tuple(out.values()), batch)
    elif isinstance(out, list | tuple):
        for each in out:
            measure(cost, each, batch)
            if cost.width:
                return


@contextmanager
def no_packing() -> Iterator[None]:
    """No look-up of packed sequences: it reads positions, which have no values here."""
    masking: Any = sys.modules.get("transformers.masking_utils")
    if masking is None:
        yield
        return
    before = masking.find_packed_sequence_indices
    masking.find_packed_sequence_indices = lambda position_ids: None
    try:
        yield
    finally:
        masking.find_packed_sequence_indices = before
