"""Outputs that a recomputed scope gives up: their readers keep a promise, which is kept when the first of them asks.

As Megatron-LM's checkpoint without output (megatron/core/tensor_parallel/random.py), for any reader and any number.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

Make = Callable[[], tuple[Tensor, ...]]


@dataclass(slots=True, eq=False)
class Source:
    """Makes tensors again, once for all readers that wait for them."""

    make: Make
    waiting: int = 0
    made: tuple[Tensor, ...] | None = None

    def take(self, index: int) -> Tensor:
        """One of the tensors; they are let go with the last reader."""
        if self.made is None:
            with torch.no_grad():
                self.made = self.make()
        found = self.made[index]
        self.waiting -= 1
        if self.waiting <= 0:
            self.made = None
        return found


@dataclass(frozen=True, slots=True)
class Promise:
    """A view of a given-up tensor's storage."""

    source: Source
    index: int
    size: torch.Size
    stride: tuple[int, ...]
    offset: int

    def keep(self) -> Tensor:
        """The tensor, made again."""
        return self.source.take(self.index).as_strided(self.size, self.stride, self.offset)


@dataclass(slots=True, eq=False)
class GivenUp:
    """The given-up tensors of one forward pass, by where their storage lies while it is there."""

    places: dict[int, tuple[Source, int]] = field(default_factory=dict)

    def add(self, make: Make, tensors: Sequence[Tensor]) -> None:
        """Whoever saves one of these from now on keeps a promise instead."""
        source = Source(make)
        for index, tensor in enumerate(tensors):
            self.places[_place(tensor)] = (source, index)

    def follow(self, tensor: Tensor, made: Tensor, function: Callable[[Tensor], Tensor]) -> None:
        """`made` is function(tensor): given up too where the tensor is."""
        found = self.places.get(_place(tensor))
        if found is None or _place(made) == _place(tensor):
            return
        source, index = found
        source.waiting += 1  # the second promise asks for the first
        self.add(lambda: (function(source.take(index)),), [made])

    def forget(self, tensor: Tensor) -> None:
        """The tensor goes; its storage may soon be another's."""
        self.places.pop(_place(tensor), None)

    def hooks(self) -> saved_tensors_hooks:
        """A context in which saved tensors are looked up here."""
        return saved_tensors_hooks(self._pack, _unpack)

    def _pack(self, tensor: Tensor) -> Tensor | Promise:
        found = self.places.get(_place(tensor))
        if found is None:
            return tensor
        source, index = found
        source.waiting += 1
        return Promise(source, index, tensor.size(), tensor.stride(), int(tensor.storage_offset()))


def _unpack(saved: Tensor | Promise) -> Tensor:
    return saved.keep() if isinstance(saved, Promise) else saved


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
