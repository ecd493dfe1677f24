"""YAML of LLaMA-Factory and axolotl, as users have it."""

import pytest

from cost_models.errors import BadInput
from cost_models.specs.job import Optimizer, Precision
from planner.evaluation import evaluate
from planner.formats.registry import find_out, read_settings
from planner.formats.settings import Beside
from planner.request import CatalogModel, PresetCluster
from planner.situation import resolve_cluster, resolve_model, situate

MODEL = resolve_model(CatalogModel(name="llama-3-8b"))

FACTORY = """
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 16
lora_target: q_proj,v_proj
deepspeed: examples/deepspeed/ds_z3_config.json
dataset: identity,alpaca_en_demo
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
bf16: true
"""
AXOLOTL = """
base_model: NousResearch/Llama-3-8B
sequence_len: 8192
micro_batch_size: 2
gradient_accumulation_steps: 4
adapter: qlora
load_in_4bit: true
lora_r: 32
lora_target_linear: true
optimizer: paged_adamw_8bit
bf16: auto
gradient_checkpointing: true
fsdp_version: 2
fsdp_config:
  reshard_after_forward: true
  offload_params: false
"""


def test_llamafactory():
    assert find_out(FACTORY, "sft.yaml") == "llamafactory"
    found = read_settings(FACTORY, "llamafactory", Beside(4, MODEL))
    assert (found.job.engine, found.strategy.zero, found.strategy.mbs) == ("deepspeed", 3, 1)
    assert (found.job.global_batch, found.job.seq_len) == (32, 2048)  # 1 x 8 x 4 devices
    assert found.job.options["job.trainable"] == "lora:r=16,targets=q+v"
    assert found.strategy.recompute == "full"  # on unless disabled
    assert "deepspeed.zero_optimization.stage=3" in found.assumed
    assert "dataset" in found.ignored


def test_axolotl():
    assert find_out(AXOLOTL, "config.yml") == "axolotl"
    found = read_settings(AXOLOTL, "axolotl", Beside(8, MODEL))
    assert (found.job.engine, found.strategy.zero, found.job.global_batch) == ("fsdp2", 3, 64)
    assert (found.job.optimizer, found.job.precision) == (Optimizer.ADAM8BIT, Precision.BF16)
    assert found.job.options["job.trainable"] == "qlora:r=32"
    assert (found.strategy.recompute, found.job.seq_len) == ("full", 8192)


@pytest.mark.parametrize(("text", "form"), [(FACTORY, "llamafactory"), (AXOLOTL, "axolotl")])
def test_what_was_read_is_predicted(text, form):
    cluster = resolve_cluster(PresetCluster(name="dgx-a100", devices=8))
    found = read_settings(text, form, Beside(8, MODEL))
    prediction = evaluate(situate(MODEL, cluster, found.job), found.strategy)
    assert prediction.fits


@pytest.mark.parametrize(
    ("text", "change", "words"),
    [
        (FACTORY, ("ds_z3_config", "mine"), ("--format deepspeed",)),
        (FACTORY, ("finetuning_type: lora", "finetuning_type: oft"), ("oft", "lora")),
        (FACTORY, ("q_proj,v_proj", "q_proj,lm_head"), ("lm_head", "q_proj")),
        (AXOLOTL, ("paged_adamw_8bit", "lion"), ("lion", "adamw_torch")),
        (
            AXOLOTL,
            ("micro_batch_size: 2", "micro_batch_size: 2\ntensor_parallel_size: 3"),
            ("8 devices", "3"),
        ),
        (AXOLOTL, ("lora_r: 32", "lora_r: many"), ("lora_r", "number")),
    ],
)
def test_what_is_wrong_is_said(text, change, words):
    form = find_out(text, "x")
    with pytest.raises(BadInput) as caught:
        read_settings(text.replace(*change), form, Beside(8, MODEL))
    assert all(word in caught.value.detail for word in words), caught.value.detail


FULL = AXOLOTL.replace("adapter: qlora\nload_in_4bit: true\n", "").partition("fsdp_version")[0]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("fsdp: [full_shard, auto_wrap]\nfsdp_config:\n  fsdp_offload_params: true", (3, "parameters", None)),
        ("fsdp: shard_grad_op auto_wrap offload", (2, "parameters", None)),
        ("fsdp: [hybrid_shard, auto_wrap]\nnum_machines: 2", (3, "none", 2)),
        ("fsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP", (2, "none", None)),
        ("fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: false", (2, "none", None)),
        ("fsdp: no_shard", (0, None, None)),
        ("fsdp_version: 2\ndp_replicate_size: 2\ndp_shard_size: 4", (3, "none", 2)),
        ("fsdp_version: 2\ndp_shard_size: 2", (3, "none", 4)),
    ],
)
def test_sharding_in_the_trainers_words(lines, expected):
    strategy = read_settings(f"{FULL}\n{lines}\n", "axolotl", Beside(8, MODEL)).strategy
    assert (strategy.zero, strategy.offload, strategy.dp_replicate) == expected


@pytest.mark.parametrize(
    ("text", "line", "key", "value"),
    [
        (FACTORY, "enable_liger_kernel: true", "engine.fused_cross_entropy", True),
        (AXOLOTL, "cut_cross_entropy: true", "engine.fused_cross_entropy", True),
        (AXOLOTL, "rl: kto", "job.kind", "dpo"),  # a frozen reference beside the model
        (AXOLOTL, "rl: orpo", "job.kind", "sft"),
    ],
)
def test_switches_that_move_memory(text, line, key, value):
    assert read_settings(f"{text}\n{line}\n", find_out(text, "x"), Beside(8, MODEL)).job.options[key] == value


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        (AXOLOTL, "load_in_8bit: true", "load_in_8bit"),
        (AXOLOTL, "rl: grpo", "grpo"),
        (AXOLOTL, "dp_replicate_size: 3", "dp_replicate_size 3"),
        (FACTORY, "quantization_bit: 8", "quantization_bit 8"),
        (FACTORY, "use_galore: true", "use_galore"),
    ],
)
def test_switches_that_are_not_modelled_are_refused(text, line, word):
    with pytest.raises(BadInput, match=word):
        read_settings(f"{text}\n{line}\n", find_out(text, "x"), Beside(8, MODEL))


def test_ring_attention_beside_deepspeed_is_priced_as_ulysses_and_said():
    lines = "deepspeed: deepspeed_configs/zero3_bf16.json\ncontext_parallel_size: 2"
    found = read_settings(f"{FULL}\n{lines}\n", "axolotl", Beside(8, MODEL))
    assert (found.strategy.cp, found.strategy.cp_kind) == (2, "ulysses")
    assert "cp_kind=ulysses" in found.assumed
