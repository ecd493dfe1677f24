"""A run of a flattened tensor as boxes: every element once, in order, in few boxes."""

import random

import numpy as np
import pytest

from planner.executor.checkpoint.boxes import Box, boxes_of


def test_a_run_over_three_rows() -> None:
    # Rows of 4: elements 2 and 3 of row 0, rows 1 and 2 whole, element 0 of row 3.
    assert list(boxes_of((5, 4), 2, 13)) == [
        Box((0, 2), (1, 2), 2),
        Box((1, 0), (2, 4), 4),
        Box((3, 0), (1, 1), 12),
    ]


@pytest.mark.parametrize("shape", [(7,), (3, 5), (4, 3, 2), (2, 3, 4, 5), (1, 1, 6)])
def test_every_element_once_and_in_order(shape: tuple[int, ...]) -> None:
    draw = random.Random(str(shape))
    whole = np.arange(int(np.prod(shape))).reshape(shape)
    for _ in range(50):
        start, stop = sorted(draw.randint(0, whole.size) for _ in range(2))
        found = []
        boxes = list(boxes_of(shape, start, stop))
        for box in boxes:
            part = whole[tuple(slice(o, o + s) for o, s in zip(box.offsets, box.sizes, strict=True))]
            assert part.size == box.numel
            assert part.flat[0] == box.first
            found += part.ravel().tolist()
        assert found == list(range(start, stop))
        assert len(boxes) <= 2 * len(shape) - 1
