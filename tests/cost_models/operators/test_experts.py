"""Routed experts: how full the fullest rank can get, and what a weighting outside the grouped product keeps."""

import pytest

from cost_models.operators import Combine, GroupedLinear
from cost_models.operators.base import Shard, Style
from cost_models.operators.moe import expert_rows

COMBINE = Combine(name="combine", inputs=("down",), hidden=64, top_k=4)
COPIES = 128 * 4 * 64


@pytest.mark.parametrize(
    ("ep", "load", "capacity", "rows"),
    [
        (1.0, 3.0, 0.0, 512),  # every rank computes its own tokens' copies, however uneven
        (8.0, 3.0, 0.0, 3 * 512),
        (2.0, 3.0, 0.0, 2 * 512),  # at most what both ranks send
        (8.0, 3.0, 1.25, 1.25 * 512),  # padded or cut to the capacity
    ],
)
def test_rows_of_the_fullest_rank(ep, load, capacity, rows):
    at = Shard(1.0, 128.0, 128.0, ep=ep, load=load)
    style = Style(expert_capacity_factor=capacity)
    assert float(expert_rows(at, style, 4)) == rows
    linear = GroupedLinear(
        name="up", inputs=("dispatch",), experts=8, top_k=4, in_features=64, out_features=96
    )
    assert float(linear.saved(at, style)[0].elements) == rows * 64


@pytest.mark.parametrize(("kept", "forms"), [(0.0, 4.0), (2.0, 4.0), (4.0, 12.0)])
def test_weighted_copies(kept, forms):
    """torchtitan multiplies the experts' outputs by their scores in fp32: 4 bytes kept, 2 + 4 + 4 + 2 while it does;
    compiled it keeps the narrow copies. The exchange alone has a buffer on each side, 2 + 2."""
    style, at = Style(weighted_copies=kept), Shard(1.0, 128.0, 128.0)
    sizes = {"fp32": 4.0, "compute": 2.0}
    assert sum(float(t.elements) * sizes[t.dtype.value] for t in COMBINE.saved(at, style)) == kept * COPIES
    assert float(COMBINE.transient(at, style).backward) == forms * COPIES
