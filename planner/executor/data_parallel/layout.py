"""Which parameters share a flat buffer, in which order buffers are ready, and where each parameter lies in one."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.executor.data_parallel.records import ParameterRecord

FP32_BYTES = 4
ALIGNMENT = 64
"""Elements; 128 bytes in bf16, so that views of weights start where matrix units and collectives are fastest."""


@dataclass(frozen=True, slots=True)
class Place:
    """Elements [start, start + numel) of a buffer hold parameter `index` of the list that was laid out."""

    index: int
    start: int
    numel: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """Parameters that travel together; `numel` is padded to a multiple of the ranks that share it."""

    places: tuple[Place, ...]
    numel: int


@dataclass(slots=True)
class _Open:
    """A bucket that still takes parameters."""

    indices: list[int]
    numel: int


@dataclass(frozen=True, slots=True)
class LayoutOptions:
    """Ranks that share a bucket evenly (other ones where it holds experts), its size, and what the optimizer needs of
    the order of elements.

    Every parameter and every rank's share starts at a multiple of `alignment` elements.
    """

    ranks: int
    bucket_bytes: int
    alignment: int = ALIGNMENT
    matrices_apart: bool = False
    expert_ranks: int = 1


def lay_out(
    records: Sequence[ParameterRecord], numels: Sequence[int], options: LayoutOptions
) -> list[Bucket]:
    """Buckets in the order in which a backward pass completes them: from the last parameter to the first.

    Only parameters that are reduced alike share a bucket: those of one chunk, dense or of experts, divided alike;
    each tied parameter has its own, so that its shard is the same slice on every rank that has a copy. A bucket is
    complete when its first parameter is; buckets hold `bucket_bytes` of fp32 gradients or one parameter.
    """
    limit = max(options.bucket_bytes // FP32_BYTES, 1)
    open_buckets: dict[tuple[object, ...], _Open] = {}
    closed: list[_Open] = []
    for index in reversed(range(len(records))):
        key = (*_kind(records[index], index), options.matrices_apart and records[index].is_matrix)
        bucket = open_buckets.get(key)
        if bucket is not None and bucket.numel + numels[index] > limit:
            closed.append(open_buckets.pop(key))
            bucket = None
        if bucket is None:
            bucket = open_buckets[key] = _Open([], 0)
        bucket.indices.append(index)
        bucket.numel += numels[index]
    closed.extend(open_buckets.values())
    closed.sort(key=lambda each: each.indices[-1], reverse=True)
    return [_bucket(each.indices, numels, options, records[each.indices[0]].expert) for each in closed]


def _kind(record: ParameterRecord, index: int) -> tuple[object, ...]:
    tie: object = (record.tie, index) if record.tie else ""
    return record.chunk, record.expert, record.is_tp_sharded, record.is_partial, tie


def _bucket(indices: Sequence[int], numels: Sequence[int], options: LayoutOptions, expert: bool) -> Bucket:
    places, start = [], 0
    ranks = options.expert_ranks if expert else options.ranks
    for index in indices:
        places.append(Place(index, start, numels[index]))
        start = _rounded_up(start + numels[index], options.alignment)
    return Bucket(tuple(places), _rounded_up(start, options.alignment * ranks))


def _rounded_up(number: int, multiple: int) -> int:
    return number + -number % multiple
