"""Boxes of parameters are the boxes of stored tensors that they are made of, whatever the layout, there and back."""

from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

from planner.executor.weights.cuts import Source
from planner.executor.weights.files import PlacedTensor, index_of, plan_files, turns

# Stored by hand: what each parameter of two parts (sizes 4 and 2) is of the tensor.
SIX = torch.arange(6 * 3).view(6, 3)
BY_EXPERT = torch.arange(2 * 6 * 3).view(2, 6, 3)
IN_TURN = torch.arange(2 * 3 * 8).view(2, 3, 8)
SOURCES: dict[str, tuple[Source, Tensor, Tensor]] = {
    "plain": (Source("w", (6, 3)), SIX, SIX),
    "transposed": (Source("w", (3, 6), "transposed"), SIX, SIX.T),
    "second of concat": (Source("w", (2, 3), "concat", 1, (4, 2)), SIX, SIX[4:]),
    "second of columns": (
        Source("w", (2, 6), "concat_transposed", 1, (1, 2)),
        SIX,
        torch.stack((SIX[:, 1], SIX[:, 2])),
    ),
    # Two heads of (2, 1) rows each: rows 0, 1 | 2 of the first head, 3, 4 | 5 of the second.
    "first by head": (Source("w", (4, 3), "by_head", 0, (4, 2), 2), SIX, SIX[[0, 1, 3, 4]]),
    "second by head": (Source("w", (2, 3), "by_head", 1, (4, 2), 2), SIX, SIX[[2, 5]]),
    "second of experts": (Source("w", (2, 2, 3), "experts", 1, (4, 2)), BY_EXPERT, BY_EXPERT[:, 4:]),
    "second in turn": (
        Source("w", (2, 4, 3), "experts_in_turn", 1, (4, 4)),
        IN_TURN,
        IN_TURN[:, :, 1::2].transpose(1, 2),
    ),
}


def _boxes(shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Offsets and sizes: the whole, each cut in two at every place."""
    found = [((0,) * len(shape), shape)]
    for dim, size in enumerate(shape):
        for at in range(1, size):
            for start, stop in pairwise((0, at, size)):
                offsets, sizes = [0] * len(shape), list(shape)
                offsets[dim], sizes[dim] = start, stop - start
                found.append((tuple(offsets), tuple(sizes)))
    return found


@pytest.mark.parametrize("name", SOURCES)
def test_any_box_is_cut_out_and_put_back(name: str) -> None:
    source, stored, expected = SOURCES[name]
    assert source.stored_shape == tuple(stored.shape)
    for offsets, sizes in _boxes(source.shape):
        box = torch.full(sizes, -1)
        back = torch.full_like(stored, -1)
        for cut in source.cuts(offsets, sizes):
            box[cut.part] = cut.to_part(stored[cut.stored])
            back[cut.stored] = cut.to_stored(box[cut.part])
        inside = tuple(slice(start, start + size) for start, size in zip(offsets, sizes, strict=True))
        assert torch.equal(box, expected[inside])
        assert int((back >= 0).sum()) == box.numel()
        assert torch.equal(back[back >= 0], stored[back >= 0])


def test_experts_of_their_own_have_a_key_each() -> None:
    source = Source("e.{expert}.w", (3, 4, 2), "expert")
    assert source.keys == ("e.0.w", "e.1.w", "e.2.w")
    cuts = list(source.cuts((1, 2, 0), (2, 2, 2)))
    assert [(cut.key, cut.stored) for cut in cuts] == [
        ("e.1.w", (slice(2, 4), slice(0, 2))),
        ("e.2.w", (slice(2, 4), slice(0, 2))),
    ]


def test_files_are_filled_up_to_their_size_and_dealt_to_ranks() -> None:
    tensors = [PlacedTensor(f"t{i}", "BF16", (size,)) for i, size in enumerate((40, 10, 200, 10))]
    files = plan_files(tensors, 100, 6)
    # 80 + 20 bytes fit into 100; 400 has a file alone; three files over six ranks stand on 0, 2 and 4.
    assert [[tensor.key for tensor in file.tensors] for file in files] == [["t0", "t1"], ["t2"], ["t3"]]
    assert [file.writer for file in files] == [0, 2, 4]
    assert files[1].name == "model-00002-of-00003.safetensors"
    index = index_of(files)
    assert index["metadata"] == {"total_size": 520}
    assert [tensor.key for _, tensor in turns(files)] == ["t0", "t2", "t3", "t1"]
    assert [file.name for file in plan_files(tensors, 1000, 1)] == ["model.safetensors"]
    assert {file.writer for file in plan_files(tensors, 1, 2)} == {0, 1}


def test_every_box_of_a_grid_covers_the_tensor_once() -> None:
    source, stored, _ = SOURCES["first by head"]
    count = torch.zeros_like(stored)
    for row, column in product(range(2), range(3)):
        for cut in source.cuts((2 * row, column), (2, 1)):
            count[cut.stored] += 1
    assert count.tolist() == [[1, 1, 1], [1, 1, 1], [0, 0, 0], [1, 1, 1], [1, 1, 1], [0, 0, 0]]
