"""Weights of folders in layouts: the first loss and logits are the library's, and what is written is what was read."""

from pathlib import Path

import pytest

from tests.planner.executor.weights.families import FAMILIES
from tests.planner.executor.weights.layouts import Case, through

# Of two ranks: every family, and every way in which a rank may hold a part of a tensor.
LAYOUTS = {
    "llama": ("tp=2,mbs=2", "torch"),
    "llama tied": ("pp=2,mbs=2", "torch"),
    "qwen3": ("dp=2,zero=3", "fsdp2"),
    "gpt2": ("tp=2,sp=false", "torch"),
    "gemma": ("dp=2", "ddp"),
    "gemma2": ("tp=2,mbs=4", "torch"),
    "gemma3": ("dp=2,zero=1", "torch"),
    "mixtral": ("dp=2,ep=2,zero=3", "torch"),
    "qwen3 moe": ("tp=2,ep=2", "torch"),
    "deepseek v3": ("tp=2,pp=1", "torch"),
}
EIGHT = "tp=2,pp=2,dp=2,zero=3,mbs=2"


def test_every_family_on_two_ranks(tmp_path: Path) -> None:
    cases = {name: Case(FAMILIES[name], *LAYOUTS[name]) for name in FAMILIES}
    # What is frozen is read, too, and an adapter's second matrix begins at zero.
    cases["adapted"] = Case(FAMILIES["qwen3"], "dp=2,zero=3", trainable="lora:r=4")
    found = through(cases, 2, tmp_path)
    assert {name: outcome for name, outcome in found.items() if not outcome.is_equal} == {}
    # A replica holds all of it; two parts hold half each, and norms twice.
    assert found["gemma"].most_read == 1.0
    for name in set(found) - {"gemma"}:
        assert found[name].most_read < 0.58, name
    # ZeRO's shares are disjoint.
    assert found["qwen3"].all_read == found["gemma3"].all_read == found["adapted"].all_read == 1.0


@pytest.mark.system
def test_experts_and_shared_tables_on_eight_ranks(tmp_path: Path) -> None:
    found = through(
        {name: Case(FAMILIES[name], EIGHT) for name in ("deepseek v3", "llama tied")}, 8, tmp_path
    )
    assert all(outcome.is_equal for outcome in found.values()), found
    # An eighth of the whole, and an eighth of what is not divided by tensor-parallel ranks beside it.
    assert all(1 / 8 <= outcome.most_read < 1.3 / 8 for outcome in found.values()), found


@pytest.mark.matrix
@pytest.mark.parametrize("strategy", [EIGHT, "tp=2,pp=2,dp=2,ep=2,zero=3,mbs=2"])
def test_every_family_on_eight_ranks(strategy: str, tmp_path: Path) -> None:
    routed = "ep=2" in strategy
    chosen = {
        name: config for name, config in FAMILIES.items() if not routed or "num_experts_per_tok" in config
    }
    found = through({name: Case(config, strategy) for name, config in chosen.items()}, 8, tmp_path)
    assert {name: outcome for name, outcome in found.items() if not outcome.is_equal} == {}
    assert all(outcome.most_read < 1.4 / 8 for outcome in found.values()), found
