"""A process that believes it is one rank of a world of any size: no storage behind tensors, no peer behind messages."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, _dispatch, _sharding_prop
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

MESH_METHODS = ("__init__", "__getitem__", "_flatten", "_concatenate")
"""Methods of DeviceMesh that read values of its tensor of ranks, which a fake tensor does not have."""


class Numbers(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Answers 1 wherever the program asks for the value of a tensor: a norm, a loss, a count."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """One operator."""
        if any(issubclass(each, DTensor) for each in types):
            return NotImplemented
        if func is torch.ops.aten._local_scalar_dense.default and isinstance(args[0], FakeTensor):
            return 1.0 if args[0].is_floating_point() else 1
        return func(*args, **(kwargs or {}))


@contextmanager
def fake_rank(rank: int, world_size: int) -> Iterator[None]:
    """Everything inside runs as `rank` of `world_size`, and allocates nothing.

    Raises RuntimeError where this process has joined a process group already.
    """
    if dist.is_initialized():
        raise RuntimeError("this process has joined a process group; leave it before the oracle is asked")
    dist.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())
    try:
        with ExitStack() as stack:
            for patch in _patches():
                stack.enter_context(patch)
            stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
            stack.enter_context(Numbers())  # type: ignore[no-untyped-call]
            yield
    finally:
        dist.destroy_process_group()


def really(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with real tensors inside."""

    @wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily():
            return function(*args, **kwargs)

    return inner


def _patches() -> Iterator[Any]:
    """What torch 2.13 needs under fake tensors: meshes of real ranks; sharding rules that are cached, and whose tensors
    of global shape belong to a mode of their own, so that nothing counts them."""
    for name in MESH_METHODS:
        found = DeviceMesh.__dict__[name]
        plain = found.__func__ if isinstance(found, staticmethod) else found
        patched = really(plain)
        yield mock.patch.object(DeviceMesh, name, staticmethod(patched) if plain is not found else patched)
    for module in (_sharding_prop, _dispatch):
        yield mock.patch.object(module, "_are_we_tracing", lambda: False)
    yield mock.patch.object(_sharding_prop, "detect_fake_mode", lambda *_, **__: None)
