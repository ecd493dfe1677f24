"""Messages between the stages of one pipeline: point to point, asynchronous, in the order of the actions.

The first output that a stage sends is preceded by its shape and dtype; gradients have those of the output they belong
to, so nothing has to be known or tried out before the first step.
"""

from collections import deque
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from planner.executor.pipeline.actions import Cargo, Receive, Send

DTYPES: Final = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_MOST_DIMENSIONS: Final = 6
_HEADER_LENGTH: Final = 2 + _MOST_DIMENSIONS

Kind = tuple[torch.dtype, torch.Size]


class Links:
    """This rank's end of its pipeline's messages; `group` is the pipeline's process group."""

    def __init__(self, group: dist.ProcessGroup, device: torch.device) -> None:
        self._group = group
        self._device = device
        self._inputs: dict[int, Kind] = {}
        self._outputs: dict[int, Kind] = {}
        self._coming: dict[tuple[Cargo, int, int], tuple[Any, Tensor]] = {}
        self._sent: deque[tuple[Any, Tensor]] = deque()

    def send(self, action: Send, tensor: Tensor) -> None:
        """Start to send; the tensor is kept until it has left."""
        self._drop_sent()
        tensor = tensor.contiguous()
        if action.cargo is Cargo.OUTPUT:
            self._announce(action, tensor)
        self._start_send(tensor, action.peer)

    def receive(self, action: Receive) -> None:
        """Start to receive into a new tensor."""
        if action.cargo is Cargo.GRADIENT:
            dtype, shape = self._outputs[action.stage]
        else:
            dtype, shape = self._input_kind(action)
        buffer = torch.empty(shape, dtype=dtype, device=self._device)
        work = dist.irecv(buffer, group=self._group, group_src=action.peer)
        self._coming[action.cargo, action.stage, action.micro_batch] = (work, buffer)

    def take(self, cargo: Cargo, stage: int, micro_batch: int) -> Tensor:
        """What was received, when it is there."""
        work, buffer = self._coming.pop((cargo, stage, micro_batch))
        work.wait()
        return buffer

    def finish(self) -> None:
        """Wait until everything has left."""
        while self._sent:
            self._sent.popleft()[0].wait()

    def _drop_sent(self) -> None:
        while self._sent and self._sent[0][0].is_completed():
            self._sent.popleft()[0].wait()

    def _start_send(self, tensor: Tensor, peer: int) -> None:
        self._sent.append((dist.isend(tensor, group=self._group, group_dst=peer), tensor))

    def _announce(self, action: Send, tensor: Tensor) -> None:
        """Say what the outputs of a stage are before the first one; later ones must be alike."""
        kind = (tensor.dtype, tensor.shape)
        known = self._outputs.get(action.stage)
        if known is None:
            self._outputs[action.stage] = kind
            self._start_send(_header(kind, self._device), action.peer)
        elif known != kind:
            msg = (
                f"stage {action.stage} sent {tuple(known[1])} of {known[0]} and now {tuple(kind[1])} of {kind[0]}; "
                "give micro-batches of one size"
            )
            raise ValueError(msg)

    def _input_kind(self, action: Receive) -> Kind:
        if action.stage not in self._inputs:
            header = torch.empty(_HEADER_LENGTH, dtype=torch.int64, device=self._device)
            work = dist.irecv(header, group=self._group, group_src=action.peer)
            if work is None:
                raise RuntimeError(f"pipeline rank {action.peer} is not in this rank's pipeline")
            work.wait()
            number, dimensions, *sizes = header.tolist()
            self._inputs[action.stage] = (DTYPES[number], torch.Size(sizes[:dimensions]))
        return self._inputs[action.stage]


def _header(kind: Kind, device: torch.device) -> Tensor:
    dtype, shape = kind
    if dtype not in DTYPES or len(shape) > _MOST_DIMENSIONS:
        msg = f"a stage's output is {tuple(shape)} of {dtype}; use {_MOST_DIMENSIONS} dimensions or fewer, floating"
        raise ValueError(msg)
    sizes = [*shape, *(0 for _ in range(_MOST_DIMENSIONS - len(shape)))]
    return torch.tensor([DTYPES.index(dtype), len(shape), *sizes], dtype=torch.int64, device=device)
