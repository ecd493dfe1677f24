"""Messages between two ranks: shape and dtype go ahead of the first output, gradients follow them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from planner.executor.pipeline.actions import Cargo, Receive, Send
from planner.executor.pipeline.links import Links

RunRanks = Callable[..., list[Any]]


def talk(rank: int, world: int) -> list[Any]:
    """Rank 0 holds stage 0, rank 1 stage 1; two micro-batches go there and one gradient comes back."""
    links = Links(dist.group.WORLD, torch.device("cpu"))  # type: ignore[arg-type]
    outputs = [torch.full((2, 3), float(number), dtype=torch.bfloat16).t() for number in range(2)]
    if rank == 0:
        for number, output in enumerate(outputs):
            links.send(Send(Cargo.OUTPUT, 0, number, 1), output)
        links.receive(Receive(Cargo.GRADIENT, 0, 1, 1))
        found = [links.take(Cargo.GRADIENT, 0, 1)]
    else:
        for number in range(2):
            links.receive(Receive(Cargo.OUTPUT, 1, number, 0))
        found = [links.take(Cargo.OUTPUT, 1, number) for number in (1, 0)]
        links.send(Send(Cargo.GRADIENT, 1, 1, 0), found[0] + 1)
    links.finish()
    return [(tuple(each.shape), str(each.dtype), float(each[0, 0])) for each in found]


def grow(rank: int, world: int) -> str:
    """An output of another shape than the first."""
    links = Links(dist.group.WORLD, torch.device("cpu"))  # type: ignore[arg-type]
    if rank == 1:
        links.receive(Receive(Cargo.OUTPUT, 1, 0, 0))
        links.take(Cargo.OUTPUT, 1, 0)
        return ""
    links.send(Send(Cargo.OUTPUT, 0, 0, 1), torch.zeros(2, 3))
    with pytest.raises(ValueError, match="one size") as caught:
        links.send(Send(Cargo.OUTPUT, 0, 1, 1), torch.zeros(1, 3))
    links.finish()
    return str(caught.value)


def test_tensors_arrive_as_they_were_sent(run_ranks: RunRanks) -> None:
    first, second = run_ranks(talk, 2)
    assert first == [((3, 2), "torch.bfloat16", 2.0)]
    assert second == [((3, 2), "torch.bfloat16", 1.0), ((3, 2), "torch.bfloat16", 0.0)]


def test_an_output_of_another_shape_is_refused(run_ranks: RunRanks) -> None:
    assert "(2, 3) of torch.float32 and now (1, 3)" in run_ranks(grow, 2)[0]
