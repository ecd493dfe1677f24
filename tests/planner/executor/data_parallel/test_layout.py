"""Where parameters lie in flat buckets: order, sizes, what may share one."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.tensor import Replicate, Shard

from planner.executor.data_parallel.layout import Bucket, LayoutOptions, Place, lay_out
from planner.executor.data_parallel.records import ParameterRecord


def record(name: str, **changes: object) -> ParameterRecord:
    values: dict[str, object] = {
        "chunk": 0,
        "shape": torch.Size([1]),
        "tie": "",
        "tp_placements": (),
        "is_partial": False,
        "rows": 0,
        "is_matrix": False,
    }
    return ParameterRecord(name=name, **(values | changes))  # type: ignore[arg-type]


def test_buckets_fill_from_the_last_parameter() -> None:
    records = [record(name) for name in "abcd"]
    # Room for 10 fp32 values: d and c (4 + 5 = 9), then b (7; a's 6 would make 13), then a; padded to 4 ranks.
    buckets = lay_out(records, [6, 7, 5, 4], LayoutOptions(ranks=4, bucket_bytes=40, alignment=1))
    assert buckets == [
        Bucket((Place(3, 0, 4), Place(2, 4, 5)), 12),
        Bucket((Place(1, 0, 7),), 8),
        Bucket((Place(0, 0, 6),), 8),
    ]


def test_a_parameter_above_the_limit_has_a_bucket_of_its_own() -> None:
    buckets = lay_out(
        [record("a"), record("b")], [1000, 1], LayoutOptions(ranks=1, bucket_bytes=40, alignment=1)
    )
    assert [bucket.numel for bucket in buckets] == [1, 1000]


def test_only_parameters_reduced_alike_share_a_bucket() -> None:
    records = [
        record("plain"),
        record("other chunk", chunk=1),
        record("divided", tp_placements=(Shard(0),)),
        record("whole", tp_placements=(Replicate(),)),
        record("partial", tp_placements=(Replicate(),), is_partial=True),
        record("tied", tie="table"),
        record("tied elsewhere", tie="table", chunk=1),
        record("last"),
    ]
    buckets = lay_out(records, [1] * len(records), LayoutOptions(ranks=1, bucket_bytes=10**9))
    shared = [{records[place.index].name for place in bucket.places} for bucket in buckets]
    # "plain", "whole" and "last" are held and reduced alike; a bucket is ready when its first parameter is.
    assert shared == [
        {"tied elsewhere"},
        {"tied"},
        {"partial"},
        {"divided"},
        {"other chunk"},
        {"plain", "whole", "last"},
    ]


def test_aligned_places_and_shares() -> None:
    records = [record("a"), record("b")]
    (bucket,) = lay_out(records, [300, 10], LayoutOptions(ranks=2, bucket_bytes=10**9, alignment=256))
    # b takes [0, 256), a [256, 768); two shares of whole blocks need a multiple of 512.
    assert bucket == Bucket((Place(1, 0, 10), Place(0, 256, 300)), 1024)


def test_matrices_apart() -> None:
    records = [record("norm"), record("matrix", is_matrix=True)]
    options = LayoutOptions(ranks=1, bucket_bytes=10**9, matrices_apart=True)
    assert len(lay_out(records, [1, 1], options)) == 2


@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=30),
    st.integers(1, 8),
    st.integers(1, 4000),
    st.sampled_from([1, 64, 256]),
)
def test_every_parameter_has_one_place(
    numels: list[int], ranks: int, bucket_bytes: int, alignment: int
) -> None:
    options = LayoutOptions(ranks, bucket_bytes, alignment)
    buckets = lay_out([record(str(index)) for index in range(len(numels))], numels, options)
    assert sorted(place.index for bucket in buckets for place in bucket.places) == list(range(len(numels)))
    for bucket in buckets:
        assert bucket.numel % (ranks * alignment) == 0
        end = 0
        for place in bucket.places:
            assert place.start >= end
            assert place.start % alignment == 0
            assert place.numel == numels[place.index]
            end = place.start + place.numel
        assert end <= bucket.numel < end + ranks * alignment + alignment
    # Ready in this order: the first parameter of each bucket comes ever earlier in the model.
    assert [min(p.index for p in b.places) for b in buckets] == sorted(
        (min(p.index for p in b.places) for b in buckets), reverse=True
    )
