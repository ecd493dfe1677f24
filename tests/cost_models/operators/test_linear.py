"""What a divided linear sends: narrow operands are gathered as they are multiplied, sums are reduced wide."""

from collections import Counter

import pytest

from cost_models.operators.base import Collective, Shard, Style
from cost_models.operators.linear import Linear, Part

TOKENS, WIDTH = 128.0, 64


def sent(split: str, style: Style, *, sp: float = 1.0, fp32: bool = False) -> Counter[Collective]:
    """Bytes of a micro-batch by collective, over all passes."""
    linear = Linear(
        name="up",
        inputs=("x",),
        in_features=WIDTH,
        parts=(Part(name="w", features=WIDTH),),
        split=split,
        fp32=fp32,
    )
    found: Counter[Collective] = Counter()
    for message in linear.messages(Shard(1.0, TOKENS, TOKENS, tp=2.0, sp=sp), style):
        found[message.collective] += int(message.bytes)
    return found


@pytest.mark.parametrize(
    ("narrow", "gathered"),
    [
        (0.0, 2.0),  # bf16: all in two bytes
        (1.0, 1.0),  # fp8
        (1.03125, 1.03125),  # mxfp8: a byte of scale for 32 elements
    ],
)
def test_gathers_are_as_narrow_as_the_products(narrow: float, gathered: float) -> None:
    style, elements = Style(gathered_bytes=narrow), TOKENS * WIDTH
    column, row = sent("column", style), sent("row", style)
    # forward, and again for the weight gradient; the input gradient is a sum
    assert column[Collective.ALL_GATHER] == 2 * elements * gathered
    assert column[Collective.REDUCE_SCATTER] == elements * 2
    # the output is a sum, its gradient is gathered
    assert row[Collective.ALL_GATHER] == elements * gathered
    assert row[Collective.REDUCE_SCATTER] == elements * 2


def test_sums_of_undivided_sequences_and_fp32_products_stay_wide() -> None:
    style, elements = Style(gathered_bytes=1.0), TOKENS * WIDTH
    assert sent("row", style, sp=0.0)[Collective.ALL_REDUCE] == elements * 2
    assert sent("column", style, fp32=True)[Collective.ALL_GATHER] == 2 * elements * 2
