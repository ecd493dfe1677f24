"""Rows to situations: models, clusters, engines, and what is assumed or refused."""

from pathlib import Path

import pytest

from cost_models.operators import Attention
from cost_models.specs.counts import count_parameters
from planner.validation.mapping import case_of
from planner.validation.rows import Run, Unusable

LLAMA = {
    "id": "x-1",
    "model_json": "models/llama3-8b.json",
    "kind": "dense",
    "seq_len": "4096",
    "gpu": "H100-SXM-80GB",
    "n_gpus": "16",
    "gpus_per_node": "8",
    "framework": "Megatron-Bridge",
    "precision": "bf16",
    "tp": "2",
    "dp": "8",
    "sequence_parallel": "true",
    "recompute": "none",
    "micro_batch": "1",
    "global_batch": "64",
    "zero_stage": "1 (distributed optimizer)",
}


def case(**cells: str):
    return case_of(Run({key: value for key, value in (LLAMA | cells).items() if value}, Path()))


def test_a_plain_row():
    found = case()
    assert found.situation.engine.name == "megatron"
    assert found.situation.cluster.num_devices == 16
    assert (found.strategy.tp, found.strategy.dp, found.strategy.zero, found.strategy.sp) == (2, 8, 1, True)
    assert found.assumed == ()
    # Llama 3 8B has 8,030,261,248 parameters, norms included
    assert count_parameters(found.situation.model).parameters == 8_030_261_248


def test_what_a_source_does_not_state_is_marked():
    found = case(recompute="")
    assert found.strategy.recompute == "none"
    assert found.assumed == ("recompute=none",)
    assert not found.may_fit


@pytest.mark.parametrize(
    ("text", "recompute"),
    [("full (gradient checkpointing)", "full"), ("selective:mlp+core_attn", "selective:mlp+core_attn")],
)
def test_recompute_in_the_contracts_words(text: str, recompute: str):
    assert case(recompute=text).strategy.recompute == recompute


def test_mixed_windows_alternate():
    model = case(model_json="models/gpt-oss-120b.json", kind="moe").situation.model
    windows = {
        name: next(op.window for op in kind.operators if isinstance(op, Attention))
        for name, kind in model.kinds.items()
        if name in ("window", "moe")
    }
    assert windows == {"window": 128, "moe": 0}
    assert model.num_blocks == 36


def test_nodes_of_four_become_a_cluster_of_four():
    found = case(gpu="V100-SXM2-32GB", precision="fp16", gpus_per_node="4").situation.cluster
    assert (found.groups[0].devices_per_node, found.tiers[0].devices_per_domain) == (4, 4)


def test_a_stated_network_replaces_the_presets():
    found = case(gpu="A100-SXM-80GB", interconnect="NVLink3 in node; 4x100 Gb/s RoCE per node (as stated)")
    # 4 x 100e9 / 8 bytes/s over 8 devices
    assert found.situation.cluster.tiers[-1].bytes_per_s.value == 4 * 100e9 / 8 / 8


def test_composers_last_micro_batch_is_smaller():
    """30 sequences a rank in micro-batches of 8 are 4, the last of 6: priced as 32, times 30 / 32."""
    found = case(
        framework="llm-foundry / Composer FSDP1",
        tp="1",
        dp="16",
        sequence_parallel="false",
        micro_batch="8",
        global_batch="480",
        zero_stage="3 (FSDP1 FULL_SHARD)",
    )
    assert found.situation.job.global_batch == 512
    assert found.stretch == pytest.approx(30 / 32)
    assert found.situation.engine.name == "fsdp1"


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"framework": "MaxText"}, "engine MaxText is not modelled"),
        ({"framework": "torchtune", "notes": "true lengths shorter than 4096"}, "by how much is not said"),
        ({"gpu": "TPU v5p"}, "not in the catalog"),
        ({"precision": "bf16-true"}, "keeps all states in bf16"),
        ({"precision": "int8"}, "is not known"),
        ({"global_batch": "9" * 12, "micro_batch": "9"}, "global_batch"),
        ({"recompute": "full + offload"}, "offload is not modelled"),
        ({"optimizer": "adamw in backward"}, "not modelled"),
        ({"model_json": "models/nemotron3-super.json"}, "not restated"),
        ({"model_json": ""}, "names no architecture"),
        ({"gpu": "V100-SXM2-32GB"}, "precision bf16 does not run"),
    ],
)
def test_what_cannot_be_predicted_says_why(cells: dict[str, str], reason: str):
    with pytest.raises(Unusable, match=reason):
        case(**cells)


def of_program(framework: str, zero: str, **cells: str):
    alone = {"n_gpus": "1", "dp": "1", "tp": "1"} if zero == "0" else {"tp": "1", "dp": "16"}
    usual = {"precision": "bf16-true", "sequence_parallel": "", "zero_stage": zero, **alone}
    return case(framework=framework, **{**usual, **cells})


@pytest.mark.parametrize(
    ("framework", "zero", "engine"),
    [
        ("torchtune", "0", "torch"),
        ("torchtune", "3 (FSDP2) + CPU offload", "fsdp2"),
        ("litgpt eager", "3", "fsdp1"),
        ("litgpt thunder nvfuser", "1", "ddp"),
    ],
)
def test_programs_run_on_the_engine_of_their_stage(framework, zero, engine):
    found = of_program(framework, zero)
    assert found.situation.engine.name == engine
    assert found.situation.job.engine_options["param_dtype"] == "bf16"
    assert found.strategy.offload == ("parameters" if "offload" in zero else None)


@pytest.mark.parametrize(
    ("framework", "zero", "engine"),
    [
        ("an unknown trainer on DeepSpeed", "3", "deepspeed"),
        ("an unknown trainer on FSDP2", "3", "fsdp2"),
        ("an unknown trainer on FSDP", "3", "fsdp1"),
        ("an unknown trainer on DDP", "0", "ddp"),
    ],
)
def test_unknown_trainers_run_on_the_engine_that_they_name(framework, zero, engine):
    cells = {"sequence_parallel": "", "tp": "1", "dp": "16", "zero_stage": zero}
    found = case(framework=framework, **cells)
    assert found.situation.engine.name == engine
    assert found.nearest


def test_a_cumulative_row_has_the_options_of_those_before_it():
    found = of_program("torchtune", "0", notes="cumulative: + optimizer step in backward", recompute="full")
    options = found.situation.job.engine_options
    assert (options["compile"], options["cross_entropy_chunks"]) == (True, 8)
    assert options["optimizer_impl"] == "in_backward" and "offload_checkpoints" not in options


def test_an_unstated_batch_is_one_micro_batch_a_rank_and_assumed():
    found = of_program("torchtune", "3", global_batch="", micro_batch="2")
    assert found.situation.job.global_batch == 32
    assert "global_batch=32" in found.assumed


@pytest.mark.parametrize(
    ("framework", "engine", "recompute", "text"),
    [
        ("Megatron-DeepSpeed", "deepspeed", "full", "full"),
        ("HF Trainer + DeepSpeed", "deepspeed", "full", "full"),
        ("torchtitan", "torchtitan", "selective (per-op SAC)", "selective:per_op"),
    ],
)
def test_frameworks_have_their_own_engine(framework, engine, recompute, text):
    found = case(
        framework=framework,
        tp="1",
        dp="16",
        sequence_parallel="false",
        recompute=recompute,
        zero_stage="3" if engine == "torchtitan" else "",
    )
    assert found.situation.engine.name == engine
    assert found.strategy.recompute == text


def test_runs_of_adapters_train_adapters():
    found = case(flops_convention="model_lora (frozen weights)")
    assert found.situation.job.trainable.kind == "lora"
    assert "job.trainable=lora:r=16" in found.assumed


@pytest.mark.parametrize(("mode", "version"), [("PURE", "2.0"), ("DEFAULT", "2.6")])
def test_composers_tables_are_of_two_releases_of_torch(mode: str, version: str):
    """The tables of May 2023 are of mode PURE, before checkpoints stopped early; both reduce in the compute dtype."""
    found = case(
        framework="llm-foundry / Composer FSDP1", notes=f"MP mode {mode}", tp="1", dp="16", zero_stage="3"
    )
    engine = found.situation.engine
    assert (engine.name, engine.version, engine.options.grad_dtype) == ("fsdp1", version, "bf16")
    assert engine.style(found.situation.job, "ring").logit_metrics == 2


@pytest.mark.parametrize(("day", "ending"), [("02-24", "2022"), ("02-25", "2022-numa")])
def test_days_that_a_source_does_not_compare_are_two_generations(day: str, ending: str):
    found = case(framework="Megatron-DeepSpeed", precision="fp16", source_locator=f"line 1 ({day})")
    assert found.situation.generation.name == f"megatron-deepspeed-{ending}"
