"""Weights of folders in layouts: the first loss and logits are the library's, and what is written is what was read."""

from pathlib import Path

import pytest

from planner.executor.weights.stored import read_directory
from tests.planner.executor.model.configs import CASES
from tests.planner.executor.model.library import library_model
from tests.planner.executor.ranks import run_ranks
from tests.planner.executor.weights.families import FAMILIES
from tests.planner.executor.weights.layouts import Case, through
from tests.planner.executor.weights.ranks_at_work import most_held

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
# Of four ranks: everything else that decides which part of a tensor a rank holds.
OTHERS = {
    "interleaved, zero 1": Case(FAMILIES["llama tied"], "pp=2,vpp=2,dp=2,zero=1,stages=1+1+1+1"),
    "v schedule, zero 2": Case(FAMILIES["gemma3"], "pp=2,vpp=2,dp=2,schedule=zb-v,zero=2,stages=1+1+1+1"),
    "replicas of shards": Case(FAMILIES["qwen3"], "dp=4,dp_shard=2,dp_replicate=2,zero=3"),
    "parts of experts": Case(FAMILIES["mixtral"], "tp=2,dp=2,ep=2,etp=2,zero=1"),
    "an expert a rank": Case(FAMILIES["qwen3 moe"], "dp=4,ep=4,zero=3"),
    "experts, zero 2": Case(FAMILIES["deepseek v3"], "tp=2,dp=2,zero=2,ep=2"),
    "optimizer on the host": Case(FAMILIES["gpt2"], "dp=4,zero=3,offload=optimizer"),
    "parameters on the host": Case(FAMILIES["gemma"], "dp=4,zero=3,offload=parameters", "fsdp2"),
    "parameter server": Case(FAMILIES["gpt2"], "dp=4", "parameter_server"),
    "padded vocabulary": Case(FAMILIES["llama tied"], "tp=4"),
}
# One key head cannot be divided by two; BERT is asked for other targets.
OF_EIGHT = {name: Case(config, EIGHT) for name, config in CASES.items() if name not in ("falcon", "bert")}


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
def test_every_way_to_hold_a_part(tmp_path: Path) -> None:
    found = through(OTHERS, 4, tmp_path)
    assert {name: outcome for name, outcome in found.items() if not outcome.is_equal} == {}


@pytest.mark.matrix
def test_every_known_family_on_eight_ranks(tmp_path: Path) -> None:
    found = through(OF_EIGHT, 8, tmp_path)
    assert {name: outcome for name, outcome in found.items() if not outcome.is_equal} == {}
    assert all(
        outcome.most_read < 1.3 / 8 for name, outcome in found.items() if name not in ("gpt oss", "opt")
    )


@pytest.mark.matrix
def test_a_rank_holds_its_part_alone_from_the_beginning(tmp_path: Path) -> None:
    sizes = {"vocab_size": 16_000, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 12}
    library_model(FAMILIES["llama"] | sizes, 1).save_pretrained(tmp_path, max_shard_size="10MB")
    whole = read_directory(tmp_path).num_bytes
    for held in run_ranks(most_held, 4, tmp_path, "dp=4,zero=3"):
        # A quarter, and one tensor that is read; the rest is what any process takes for small things.
        assert held < 0.4 * whole, (held, whole)


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
