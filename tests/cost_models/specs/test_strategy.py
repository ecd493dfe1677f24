"""Strategies as written: what is read, and what is refused in one sentence."""

import pytest

from cost_models.errors import IllegalStrategy
from cost_models.specs.strategy import MAX_STAGES, parse_strategy, strategy_from_mapping


def test_text_is_read_by_key() -> None:
    request = parse_strategy(" tp = 2, pp=4,sp=TRUE,stages=8+8+8+8,order=tp-cp-ep-pp-dp,")
    assert (request.tp, request.pp, request.sp) == (2, 4, True)
    assert request.stages == (8, 8, 8, 8)
    assert request.order == ("tp", "cp", "ep", "pp", "dp")


@pytest.mark.parametrize("value", ["1_0", "٣", "²", "2.0", "0x2", "9" * 5000, "true"])
def test_a_degree_is_a_plain_whole_number(value: str) -> None:
    for text in (f"tp={value}", f"stages={value}", f"stages=8+{value}"):
        with pytest.raises(IllegalStrategy) as caught:
            parse_strategy(text)
        assert "Value error" not in str(caught.value)
        assert len(str(caught.value)) < 300


def test_more_stages_than_any_model_has_layers_are_refused_before_they_are_listed() -> None:
    assert strategy_from_mapping({"pp": MAX_STAGES // 2, "vpp": 2}).vpp == 2
    with pytest.raises(IllegalStrategy, match="pp x vpp is 10,000,000 stages; use at most 10,000"):
        strategy_from_mapping({"vpp": 10_000_000})
    with pytest.raises(IllegalStrategy, match="use at most 10,000"):
        strategy_from_mapping({"pp": MAX_STAGES, "vpp": MAX_STAGES})
