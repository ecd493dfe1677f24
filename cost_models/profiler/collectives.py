"""Cases of collectives by size and group, and how much computation slows down beside one."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
import torch.distributed as dist

from cost_models.operators.base import Collective
from cost_models.profiler.case import Case, Work
from cost_models.profiler.clocks import EventClock, WallClock
from cost_models.profiler.site import Site
from cost_models.profiles.measured import Point

GLOO_BYTES: Final = (1 << 10, 1 << 14, 1 << 18, 1 << 21, 1 << 24)
NCCL_BYTES: Final = (1 << 13, 1 << 17, 1 << 21, 1 << 25, 1 << 28)
INTERFERENCE_BYTES: Final = 1 << 22
SIDE: Final = 512
REPEATS: Final = 7
WIDTH: Final = 4
"""Bytes of an element: collectives are measured in fp32, in which gradients travel."""


def group_sizes(world: int) -> tuple[int, ...]:
    """Groups that are measured: powers of two below the world, and the world."""
    powers = [1 << i for i in range(1, world.bit_length()) if 1 << i < world]
    return (*powers, world) if world > 1 else ()


def collective_cases(site: Site, world: int) -> Iterator[Case]:
    """Every collective of every size over every group of first ranks; made on all ranks, in one order."""
    cuda = site.device.type == "cuda"
    clock = EventClock() if cuda else WallClock()
    for size in group_sizes(world):
        group = dist.new_group(list(range(size)))
        for moved in NCCL_BYTES if cuda else GLOO_BYTES:
            for collective in Collective:
                point = Point(
                    kind="collective",
                    name=collective.value,
                    processes=size,
                    features={"bytes": float(moved)},
                    label=dist.get_backend(),
                )
                make = _maker(site, collective, moved, group if dist.get_rank() < size else None)
                yield Case(point, make, clock=clock)


def _maker(site: Site, collective: Collective, moved: int, group: Any) -> Callable[[], Work]:
    if group is None:
        return lambda: _nothing
    return lambda: _call(site, collective, moved, group)


def _nothing() -> None:
    """What a rank outside the group does."""


def _call(site: Site, collective: Collective, moved: int, group: Any) -> Work:
    """One call of `moved` bytes, as operators.base.Message counts them."""
    size = dist.get_world_size(group)
    elements = max(moved // WIDTH // size, 1) * size
    whole, part = (torch.ones(n, device=site.device) for n in (elements, elements // size))
    gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    if collective is Collective.ALL_REDUCE:
        return lambda: dist.all_reduce(whole, group=group)
    if collective is Collective.ALL_GATHER:
        return lambda: gather(whole, part, group=group)
    if collective is Collective.REDUCE_SCATTER:
        return lambda: scatter(part, whole, group=group)
    if collective is Collective.ALL_TO_ALL:
        other = torch.empty_like(whole)
        return lambda: dist.all_to_all_single(other, whole, group=group)
    return _neighbours(whole, group)


def _neighbours(whole: torch.Tensor, group: Any) -> Work:
    """One message between the first two ranks, the other way round at the next call."""
    rank, calls = dist.get_rank(group), iter(range(1 << 62))

    def one_way() -> None:
        sender = next(calls) % 2
        if rank == sender:
            dist.send(whole, 1 - sender, group=group)
        elif rank == 1 - sender:
            dist.recv(whole, sender, group=group)

    return one_way


def interference(site: Site) -> float:
    """Seconds by which computation is longer for each second of an all-reduce beside it: (both - alone) / message.

    Medians of several rounds; collective.
    """
    x, message = site.random(SIDE, SIDE), torch.ones(INTERFERENCE_BYTES // WIDTH, device=site.device)
    alone_s = _timed(site, lambda: x @ x)
    message_s = _timed(site, lambda: dist.all_reduce(message))
    count = max(2, round(3.0 * message_s / max(alone_s, 1e-9)))

    def beside() -> None:
        work = dist.all_reduce(message, async_op=True)
        for _ in range(count):
            x @ x
        if work is not None:
            work.wait()

    both_s = _timed(site, beside)
    return min(max((both_s - count * alone_s) / message_s, 0.0), 1.0)


def _timed(site: Site, work: Work) -> float:
    """Median wall seconds of a call that all ranks begin together."""
    found = []
    for _ in range(REPEATS):
        dist.barrier()
        start = time.perf_counter()
        work()
        if site.device.type == "cuda":
            torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return sorted(found)[len(found) // 2]
