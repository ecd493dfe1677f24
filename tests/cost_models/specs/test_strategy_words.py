"""A strategy as it is printed is a strategy that can be given."""

import pytest

from cost_models.errors import IllegalStrategy
from cost_models.specs.strategy import parse_strategy
from cost_models.specs.strategy_words import as_pairs


@pytest.mark.parametrize(
    ("words", "pairs"),
    [
        ("TP8 PP2", "tp=8,pp=2"),
        ("tp8, pp2, mbs 4", "tp=8,pp=2,mbs=4"),
        (
            "TP2 CP4 PP8 VPP3 ZeRO-1 mbs 1 interleaved recompute selective:layernorm",
            "tp=2,cp=4,pp=8,vpp=3,zero=1,mbs=1,schedule=interleaved,recompute=selective:layernorm",
        ),
        (  # as the page writes it
            "TP2 PP8 \u00d73 ZeRO-1 mbs 1 interleaved none",
            "tp=2,pp=8,vpp=3,zero=1,mbs=1,schedule=interleaved,recompute=none",
        ),
        ("1 device ZeRO-0 mbs 4 1f1b recompute full:2", "zero=0,mbs=4,schedule=1f1b,recompute=full:2"),
        ("PP2 on a100*1+h100*1 ZeRO-1", "pp=2,groups=a100*1+h100*1,zero=1"),
        ("tp=8 pp=4", "tp=8,pp=4"),
        ("tp=8, pp = 4", "tp=8, pp = 4"),
        ("TP8 and PP2", "TP8 and PP2"),
        ("", ""),
    ],
)
def test_words_become_pairs_and_other_text_stays(words: str, pairs: str) -> None:
    assert as_pairs(words) == pairs


def test_words_are_read_where_a_strategy_is() -> None:
    found = parse_strategy("TP8 PP4 ZeRO-1 mbs 2 1f1b recompute full")
    assert (found.tp, found.pp, found.zero, found.mbs) == (8, 4, 1, 2)
    assert parse_strategy("TP8 recompute selective:mlp+core_attn") == parse_strategy(
        "tp=8,recompute=selective:mlp+core_attn"
    )


@pytest.mark.parametrize("text", ["TP8 TP4", "TP8 mbs", "fast"])
def test_words_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(IllegalStrategy):
        parse_strategy(text)
