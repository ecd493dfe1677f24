"""Before the first step: how a model is built and how a checkpoint comes, each a phase with its causes."""

import pytest

from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate

LLAMA_70B = 70_553_706_496
LLAMA_8B = 8_030_261_248


def predict(
    make_situation, text, engine="fsdp2", model="llama-3-70b", devices=8, cluster="dgx-h100", **options
):
    job = {"engine": engine, "options": {f"engine.{key}": value for key, value in options.items()}}
    return evaluate(
        make_situation(model, cluster, devices, seq_len=1024, global_batch=64, **job), parse_strategy(text)
    )


def test_wrapping_without_a_meta_device_holds_the_whole_model(make_situation):
    """FSDP2 with fp32 parameters on 64 ranks: 70.6e9 x 4 B whole, and the shards made of it, 4/64 B."""
    usual = predict(make_situation, "recompute=full", devices=64)
    whole = predict(make_situation, "recompute=full", devices=64, initialise="device")
    stage = whole.memory.stages[0]
    assert (usual.verdict, whole.verdict, whole.memory.peak_phase) == (
        "fits",
        "does_not_fit",
        "initialisation",
    )
    assert stage.by_cause["weights"] == pytest.approx(LLAMA_70B * (4 + 4 / 64))
    assert sum(stage.by_cause.values()) == pytest.approx(whole.memory.peak_allocated_bytes)
    assert stage.by_phase["backward"] == usual.memory.stages[0].by_phase["backward"]


def test_a_small_model_is_built_within_its_later_peak(make_situation):
    found = predict(make_situation, "mbs=8", model="llama-3.1-8b", initialise="device")
    assert found.memory.peak_phase == "loss"
    assert found.memory.stages[0].by_phase["initialisation"] > LLAMA_8B * 4


def test_every_rank_building_in_host_memory_fills_the_node(make_situation):
    """8 x 70.6e9 x 4 B = 2.26 TB of a node's 2 TB; one rank a node needs an eighth."""
    every = predict(make_situation, "recompute=full", devices=64, initialise="host")
    first = predict(make_situation, "recompute=full", devices=64, initialise="rank0")
    assert every.memory.host_bytes == pytest.approx(LLAMA_70B * 4)
    assert first.memory.host_bytes == pytest.approx(LLAMA_70B * 4 / 8)
    assert (every.verdict, first.verdict) == ("does_not_fit", "fits")


@pytest.mark.parametrize(
    ("engine", "text", "each"),
    [("fsdp2", "", 4), ("deepspeed", "zero=3", 4), ("megatron", "tp=4,pp=2", 2 / 8)],
)
def test_a_full_state_dict_on_the_device_stands_beside_the_states(make_situation, engine, text, each):
    """Every rank loads all that its tensor-parallel rank has: fp32 under FSDP2 and ZeRO-3, bf16 of an eighth here."""
    found = predict(make_situation, f"{text},recompute=full".strip(","), engine, devices=64, load="device")
    stage = found.memory.stages[0]
    loaded = stage.by_phase["checkpoint_load"] - stage.by_phase["initialisation"]
    assert loaded == pytest.approx(LLAMA_70B * each, rel=0.02)
    if each > 1:
        assert (found.verdict, found.memory.peak_phase) == ("does_not_fit", "checkpoint_load")
        assert stage.by_cause["transient"] == pytest.approx(loaded)
    assert (
        "checkpoint_load" not in predict(make_situation, text, engine, devices=64).memory.stages[0].by_phase
    )
