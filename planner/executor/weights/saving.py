"""Writes a trainer's weights as safetensors with Hugging Face names: each file by one rank, tensor by tensor.

A rank sends its boxes of a tensor to the rank that writes it, which holds that one tensor alone. All ranks go through
the tensors in the same order, and wait for what they sent only when it has become much, so that no rank waits for one
that waits for it.
"""

import uuid
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO, Final

import torch
import torch.distributed as dist
from torch import Tensor

from cost_models.fine_tuning import without_adapters
from planner.executor.checkpoint.pieces import boxes_of_held
from planner.executor.failures import WeightsFailed
from planner.executor.request import RunOrder
from planner.executor.step import Trainer
from planner.executor.weights.cuts import Box, Cut
from planner.executor.weights.files import PlacedTensor, PlannedFile, plan_files, turns
from planner.executor.weights.folder import finish_folder, partial_of, remove_partials, saved_dtype
from planner.executor.weights.match import sources_of
from planner.executor.weights.names import Naming, is_adapter, naming_of

TYPES: Final[Mapping[str, tuple[str, torch.dtype]]] = {
    "fp32": ("F32", torch.float32),
    "bf16": ("BF16", torch.bfloat16),
    "fp16": ("F16", torch.float16),
}
WRITE_TIMEOUT_S: Final = 1800.0
MOST_SENT_BYTES: Final = 1 << 28
"""What may be under way from one rank."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A folder that is complete."""

    path: str
    files: int
    num_bytes: int
    dtype: str

    def to_event(self) -> dict[str, object]:
        """A line of the run's events."""
        return {
            "event": "saved",
            "path": self.path,
            "files": self.files,
            "bytes": self.num_bytes,
            "dtype": self.dtype,
        }


@dataclass(slots=True, eq=False)
class _Sender:
    """What this rank has of each stored tensor, and what is on its way."""

    own: dict[str, list[tuple[Cut, Tensor]]]
    group: dist.ProcessGroup
    under_way: deque[tuple[Any, Tensor]] = field(default_factory=deque)
    num_bytes: int = 0

    def flat(self, key: str, dtype: torch.dtype) -> Tensor:
        """This rank's boxes of a tensor one after the other, on the host."""
        parts = [cut.to_stored(part[cut.part]).reshape(-1).to("cpu", dtype) for cut, part in self.own[key]]
        return torch.cat(parts)

    def send(self, key: str, dtype: torch.dtype, writer: int) -> None:
        """Give them to the rank that writes the tensor."""
        flat = self.flat(key, dtype)
        self.under_way.append((dist.isend(flat, writer, group=self.group), flat))
        self.num_bytes += flat.numel() * flat.element_size()
        while self.num_bytes > MOST_SENT_BYTES:
            self._wait()

    def finish(self) -> None:
        """Wait for everything."""
        while self.under_way:
            self._wait()

    def _wait(self) -> None:
        work, flat = self.under_way.popleft()
        work.wait()
        self.num_bytes -= flat.numel() * flat.element_size()


@torch.no_grad()
def save_weights(order: RunOrder, trainer: Trainer) -> Saved:
    """Write the folder that the options name; collective. It has its name once it is complete.

    Raises WeightsFailed, on all ranks, where one cannot write.
    """
    naming = naming_of(without_adapters(order.situation.model))
    dtype = saved_dtype(order)
    files = _files(order, naming, dtype)
    group = dist.new_group(backend="gloo", timeout=timedelta(seconds=WRITE_TIMEOUT_S))
    final = Path(order.options.save_weights)
    token = [uuid.uuid4().hex[:8]]
    dist.broadcast_object_list(token, group=group)
    partial = partial_of(final, token[0])
    sender = _Sender(_own(trainer, naming), group)
    problems: list[OSError | None] = [None] * dist.get_world_size()
    dist.all_gather_object(problems, _begin(final, partial), group=group)
    if not any(problems):
        dist.all_gather_object(problems, _write(files, partial, sender), group=group)
    if not any(problems):
        outcome = [finish_folder(order, files, partial, final) if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(outcome, group=group)
        problems = [*outcome]
    for rank, problem in enumerate(problems):
        if problem is not None:
            raise WeightsFailed(str(final), problem, rank)
    total = sum(tensor.num_bytes for file in files for tensor in file.tensors)
    return Saved(str(final), len(files), total, dtype)


def _begin(final: Path, partial: Path) -> OSError | None:
    """The first rank makes the folder; what killed runs left of one is removed."""
    if dist.get_rank() != 0:
        return None
    try:
        remove_partials(final)
        partial.mkdir(parents=True)
    except OSError as error:
        return error
    return None


def _files(order: RunOrder, naming: Naming, dtype: str) -> tuple[PlannedFile, ...]:
    """All files of the model, the same on every rank. Buffers stay in fp32, as transformers keeps them."""
    tensors: dict[str, PlacedTensor] = {}
    for name, source in sources_of(naming, order.predictions > 0).items():
        stored = "F32" if name.endswith(".correction") else TYPES[dtype][0]
        for key in source.keys:
            tensors.setdefault(key, PlacedTensor(key, stored, source.stored_shape))
    return plan_files(tuple(tensors.values()), order.options.save_shard_bytes, dist.get_world_size())


def _own(trainer: Trainer, naming: Naming) -> dict[str, list[tuple[Cut, Tensor]]]:
    """What this rank is to give of each stored tensor: every element is given by one rank."""
    own: dict[str, list[tuple[Cut, Tensor]]] = defaultdict(list)
    data_parallel = trainer.data_parallel
    for held in [*data_parallel.held(), *data_parallel.frozen()]:
        name = held.record.name
        for piece in boxes_of_held(name, held, held.values):
            if piece.writes and not is_adapter(name):
                source = naming.source(name, piece.shape)
                for cut in source.cuts(piece.offsets, tuple(piece.tensor.shape)):
                    own[cut.key].append((cut, piece.tensor))
    at = trainer.meshes.at
    if at.tp == 0 and trainer.meshes.data_rank == 0:
        for name, buffer in data_parallel.buffers.items():
            source = naming.source(name, tuple(buffer.shape))
            for cut in source.cuts((0,) * buffer.dim(), tuple(buffer.shape)):
                own[cut.key].append((cut, buffer))
    return own


def _write(files: Sequence[PlannedFile], partial: Path, sender: _Sender) -> OSError | None:
    """Go through all tensors; a rank that cannot write goes on receiving, so that no other waits for it."""
    boxes = _boxes_of_all(sender)
    rank, problem = dist.get_rank(), None
    with ExitStack() as stack:
        try:
            streams = {
                file.name: stack.enter_context(_opened(file, partial))
                for file in files
                if file.writer == rank
            }
        except OSError as error:
            streams, problem = {}, error
        for file, tensor in turns(files):
            dtype = next(dtype for name, dtype in TYPES.values() if name == tensor.dtype)
            if file.writer == rank:
                whole = _assembled(tensor, dtype, boxes, sender)
                problem = problem or _append(streams.get(file.name), whole)
            elif tensor.key in sender.own:
                sender.send(tensor.key, dtype, file.writer)
        sender.finish()
    return problem


def _boxes_of_all(sender: _Sender) -> list[dict[str, list[Box]]]:
    """Which boxes of each stored tensor every rank gives, in the order in which it sends them; collective."""
    own = {key: [cut.stored for cut, _ in parts] for key, parts in sender.own.items()}
    boxes: list[dict[str, list[Box]]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(boxes, own, group=sender.group)
    return boxes


def _assembled(
    tensor: PlacedTensor, dtype: torch.dtype, boxes: Sequence[Mapping[str, list[Box]]], sender: _Sender
) -> Tensor:
    """The whole tensor from what all ranks give of it."""
    whole = torch.empty(tensor.shape, dtype=dtype)
    filled = 0
    for rank, of_rank in enumerate(boxes):
        if tensor.key not in of_rank:
            continue
        places = [whole[box] for box in of_rank[tensor.key]]
        count = sum(place.numel() for place in places)
        if rank == dist.get_rank():
            flat = sender.flat(tensor.key, dtype)
        else:
            flat = torch.empty(count, dtype=dtype)
            dist.recv(flat, rank, group=sender.group)
        for place, values in zip(
            places, torch.split_with_sizes(flat, [place.numel() for place in places]), strict=True
        ):
            place.copy_(values.view(place.shape))
        filled += count
    if filled != whole.numel():
        raise RuntimeError(
            f"{filled:,} of {whole.numel():,} elements of {tensor.key} were given by all ranks"
        )
    return whole


def _opened(file: PlannedFile, partial: Path) -> BinaryIO:
    stream = (partial / file.name).open("wb")
    stream.write(file.header)
    return stream


def _append(stream: BinaryIO | None, whole: Tensor) -> OSError | None:
    if stream is None:
        return None
    try:
        stream.write(whole.contiguous().view(-1).view(torch.uint8).numpy().data)
    except OSError as error:
        return error
    return None
