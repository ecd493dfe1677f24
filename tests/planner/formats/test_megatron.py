"""Megatron-LM arguments in their three written forms, and what they come to."""

import re
from pathlib import Path

import pytest

from cost_models.errors import BadInput
from cost_models.specs.counts import count_parameters
from cost_models.specs.job import Precision
from planner.formats import megatron
from planner.formats.megatron import arguments_of_mapping, arguments_of_text, read_megatron
from planner.formats.megatron.arguments import layer_pattern
from planner.formats.megatron.known import IGNORED, KNOWN, REFUSED
from planner.formats.megatron.strategy import layout_stages

GPT = {
    "num-layers": "12",
    "hidden-size": "512",
    "num-attention-heads": "8",
    "seq-length": "1024",
    "max-position-embeddings": "1024",
    "micro-batch-size": "4",
    "global-batch-size": "32",
    "bf16": "true",
}

SCRIPT = """
#!/bin/bash
TP=2
GPUS_PER_NODE=8
MODEL_ARGS=(
    --num-layers 12
    --hidden-size 512   # narrow
    --num-attention-heads 8
    --seq-length 1024
    --max-position-embeddings 1024
)
torchrun --nproc_per_node ${GPUS_PER_NODE} pretrain_gpt.py \\
    ${MODEL_ARGS[@]} \\
    --tensor-model-parallel-size $TP --sequence-parallel \\
    --micro_batch_size=4 --global-batch-size ${GBS:-32} --bf16
"""

YAML = """
ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
MODEL_ARGS:
  --num-layers: 12
  --hidden-size: 512
  --num-attention-heads: 8
  --seq-length: 1024
  --max-position-embeddings: 1024
  --tensor-model-parallel-size: 2
  --sequence-parallel: true
  --micro-batch-size: 4
  --global-batch-size: 32
  --bf16: true
"""


def read(devices=8, program="gpt", **changes):
    raw = {**GPT, **{name.replace("_", "-"): str(value) for name, value in changes.items()}}
    return read_megatron(arguments_of_mapping(raw), devices, program=program)


def test_script_yaml_and_mapping_say_the_same():
    plain = read(tensor_model_parallel_size=2, sequence_parallel="true")
    for text in (SCRIPT, YAML):
        settings = read_megatron(arguments_of_text(text), 8)
        assert settings.strategy == plain.strategy
        assert settings.job == plain.job
        assert settings.model.kinds == plain.model.kinds


def test_gpt_defaults_biases_tied_table_and_learned_positions():
    # a block of h 512: 12 h^2 + 13 h; table 50257 h, positions 1024 h, final norm 2 h
    h = 512
    expected = 12 * (12 * h * h + 13 * h) + 50257 * h + 1024 * h + 2 * h
    settings = read()
    assert count_parameters(settings.model).parameters == expected
    assert settings.job.precision is Precision.BF16
    assert "vocab-size=50257" in settings.assumed
    assert settings.strategy.dp == 8
    assert settings.strategy.zero == 0  # the distributed optimizer is asked for by name


def test_experts_take_the_tensor_parallel_size_unless_told_otherwise():
    settings = read(
        num_experts=8, expert_model_parallel_size=2, tensor_model_parallel_size=2, sequence_parallel="true"
    )
    assert (settings.strategy.ep, settings.strategy.etp) == (2, 2)
    assert settings.model.num_experts_per_token == 2
    assert "expert-tensor-parallel-size=2" in settings.assumed


@pytest.mark.parametrize(
    ("changes", "stages"),
    [
        ({"pipeline_model_parallel_size": 4}, (3, 3, 3, 3)),
        ({"pipeline_model_parallel_size": 2, "num_layers_per_virtual_pipeline_stage": 2}, (2,) * 6),
        ({"pipeline_model_parallel_size": 2, "num_virtual_stages_per_pipeline_rank": 3}, (2,) * 6),
        (
            {
                "pipeline_model_parallel_size": 4,
                "decoder_first_pipeline_num_layers": 2,
                "decoder_last_pipeline_num_layers": 2,
            },
            (2, 4, 4, 2),
        ),
        (
            {
                "num_layers": 14,
                "pipeline_model_parallel_size": 4,
                "account_for_embedding_in_pipeline_split": "true",
                "account_for_loss_in_pipeline_split": "true",
            },
            (3, 4, 4, 3),
        ),
    ],
)
def test_stages_in_every_spelling(changes, stages):
    settings = read(**changes)
    assert settings.strategy.stages == stages
    assert settings.strategy.vpp == len(stages) // changes["pipeline_model_parallel_size"]


def test_layout_strings_count_layers_between_bars():
    assert layout_stages("Et*3|(tt|)*6L", 15) == (3, 2, 2, 2, 2, 2, 2, 0)
    assert layout_stages("Et*2|(tt|)*5t|tmL", 14) == (2, 2, 2, 2, 2, 2, 1, 1)
    with pytest.raises(BadInput, match="names 3 layers, --num-layers is 4"):
        layout_stages("Et|ttL", 4)


def test_layer_patterns():
    assert layer_pattern("2", 4, "moe-layer-freq") == (True, False, True, False)
    assert layer_pattern("[0,1,1,0]", 4, "moe-layer-freq") == (False, True, True, False)
    assert layer_pattern("([0]*1+[1]*1)*2", 4, "moe-layer-freq") == (False, True, False, True)
    assert layer_pattern("([0]*3+[1]*2)", 5, "moe-layer-freq") == (False, False, False, True, True)
    with pytest.raises(BadInput, match="names 5 layers, the model has 4"):
        layer_pattern("([0]*3+[1]*2)", 4, "moe-layer-freq")


@pytest.mark.parametrize(
    ("changes", "recompute"),
    [
        ({"recompute_granularity": "selective"}, "selective:core_attn"),
        ({"recompute_granularity": "selective", "recompute_modules": "[moe_act]"}, "selective:moe_act"),
        ({"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}, "full"),
        ({"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 2}, "full:2"),
    ],
)
def test_recompute_in_the_contracts_words(changes, recompute):
    assert read(**changes).strategy.recompute == recompute


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_layers": "twelve"}, "--num-layers twelve is not a whole number"),
        ({"tensor_model_parallel_size": 3}, "world size 8 is not divisible"),
        (
            {"use_torch_fsdp2": "true"},
            "--use-torch-fsdp2 true: torch FSDP2 inside Megatron-LM is not modelled",
        ),
        ({"fp16": "true"}, "--bf16 and --fp16 are both given"),
        ({"recompute_granularity": "full"}, 'needs --recompute-method "uniform" or "block"'),
        ({"normalization": "BatchNorm"}, "--normalization BatchNorm is not known"),
        (
            {"pipeline_model_parallel_size": 8},
            "--num-layers 12 is not divisible by 8 virtual stages; use 1, 2",
        ),
        ({"deepspeed": "true"}, "Megatron-DeepSpeed is not read; give its JSON"),
        ({"optimizer": "lion"}, "--optimizer lion is not read"),
        ({"num_experts": 8, "moe_router_topk": 9}, "--moe-router-topk 9 chooses more than --num-experts 8"),
        ({"num_experts": 8, "moe_layer_freq": "[0,1,2]"}, "--moe-layer-freq .* is not known"),
        ({"fp8_format": "e5m2"}, "--fp8-format e5m2 is not known; use e4m3, hybrid"),
        ({"cp_comm_type": "ring"}, "--cp-comm-type ring is not modelled; use one of p2p"),
        ({"optimizer_cpu_offload": "true", "optimizer_offload_fraction": 7}, "share from 0 to 1"),
        ({"num_layers": 10**20}, "give at most 10,000 layers"),
        ({"pipeline_model_parallel_layout": "E((((t*99999)*99999)*99999)*99999)|L"}, "letters; name each"),
        ({"tensor_model_parallel_size": "$TP"}, "TP is a variable that the file does not set"),
        (
            {"pipeline_model_parallel_size": 2, "decoder_first_pipeline_num_layers": 12},
            "virtual stage 1 of 2 without a layer",
        ),
        (
            {
                "recompute_granularity": "full",
                "recompute_method": "block",
                "recompute_num_layers": 40,
            },
            "--recompute-num-layers 40 is more than the 12 layers there are",
        ),
        (
            {"pipeline_model_parallel_size": 4, "pipeline_model_parallel_layout": "Et*6||t*6|L"},
            "virtual stage 1 of 4 without a layer",
        ),
    ],
)
def test_refusals_name_the_argument(changes, sentence):
    with pytest.raises(BadInput, match=sentence):
        read(**changes)


@pytest.mark.parametrize(
    ("changes", "stages"),
    [
        ({"pipeline_model_parallel_layout": "Et*4|t*4|t*4|L"}, (4, 4, 4, 0)),
        ({"pipeline_model_parallel_layout": "E|t*6|t*6|L"}, (0, 6, 6, 0)),
        (
            {
                "num_layers": 2,
                "account_for_embedding_in_pipeline_split": "true",
                "account_for_loss_in_pipeline_split": "true",
            },
            (0, 1, 1, 0),
        ),
    ],
)
def test_the_ends_may_hold_embedding_and_loss_alone(changes, stages):
    assert read(pipeline_model_parallel_size=4, **changes).strategy.stages == stages


def test_unknown_arguments_are_listed_with_the_one_they_may_be():
    settings = read(tensor_model_paralel_size=2)
    assert any("--tensor-model-paralel-size" in hint for hint in settings.unknown)
    assert any("tensor-model-parallel-size" in hint for hint in settings.unknown)


def test_arguments_called_known_are_read_and_the_lists_are_apart():
    package = Path(megatron.__file__).parent
    code = "".join(path.read_text(encoding="utf-8") for path in package.glob("*.py") if path.stem != "known")
    assert not [name for name in KNOWN if name not in re.findall(r"[a-z0-9][a-z0-9-]+", code)]
    assert not KNOWN & IGNORED
    assert not (KNOWN | IGNORED) & set(REFUSED)


def test_bert_and_t5_heads():
    bert = read(program="bert")
    # tables, final norm, pooler and binary head, transform and its norm, the bias of the head
    h = 512
    ends = (30522 + 1024 + 2) * h + 2 * h + (h + 1) * (h + 2) + (h * h + h) + 2 * h + 30522
    assert count_parameters(bert.model).parameters == 12 * (12 * h * h + 13 * h) + ends
    t5 = read(
        program="t5",
        encoder_num_layers=2,
        decoder_num_layers=2,
        encoder_seq_length=512,
        decoder_seq_length=128,
    )
    assert [layer.stack for layer in t5.model.layers].count("encoder") == 3
    assert t5.job.options["job.decoder_seq_len"] == 128


def test_options_that_change_what_a_rank_holds():
    plain = read().job.options
    assert (plain["engine.deterministic"], plain["engine.softmax_fusion"]) == (False, True)
    assert (plain["engine.transformer_impl"], plain["engine.grouped_gemm"]) == ("transformer_engine", False)
    changed = read(
        **{
            "deterministic-mode": "true",
            "transformer-impl": "local",
            "no-masked-softmax-fusion": "true",
            "moe-grouped-gemm": "true",
        }
    ).job.options
    assert (changed["engine.deterministic"], changed["engine.softmax_fusion"]) == (True, False)
    assert (changed["engine.transformer_impl"], changed["engine.grouped_gemm"]) == ("local", True)


@pytest.mark.parametrize(
    ("pp", "limit", "kept"),
    # 8 GPUs, pp 2: 4 data-parallel ranks run 32 / (4 x 4) = 2 micro-batches
    [("2", "1", 1), ("2", "0", 2), ("2", "7", 2), ("1", "1", 0)],
)
def test_a_deferred_head_waits_for_the_limit_or_the_whole_step(pp: str, limit: str, kept: int):
    asked = {
        "pipeline-model-parallel-size": pp,
        "defer-embedding-wgrad-compute": "true",
        "wgrad-deferral-limit": limit,
    }
    assert read(**asked).job.options["engine.deferred_head_batches"] == kept


def test_models_with_images_are_refused_by_name():
    with pytest.raises(BadInput, match="--img-h 336: models that read images"):
        read(**{"img-h": "336"})


def test_configuration_files_of_the_framework_have_sections():
    text = """
language_model: {num_layers: 12, hidden_size: 512, num_attention_heads: 8, add_bias_linear: False}
model_parallel: {tensor_model_parallel_size: 2}
micro_batch_size: 4
seq_length: 1024
max_position_embeddings: 1024
bf16: True
"""
    settings = read_megatron(arguments_of_text(text), 8)
    assert (settings.strategy.tp, settings.strategy.dp, settings.strategy.mbs) == (2, 4, 4)
    assert settings.unknown == ()
    assert arguments_of_text(text)["disable-bias-linear"] == "true"
    with pytest.raises(BadInput, match="stands twice"):
        arguments_of_text("MODEL_ARGS:\n  --num-layers: 8\n  --num-layers: 16\n")
    assert arguments_of_text("--num-layers 2 --a " + "[" * 3000 + "]" * 3000)["num-layers"] == "2"


def test_switches_that_were_read_past():
    two = {"pipeline_model_parallel_size": 2, "no_overlap_p2p_communication": "true"}
    assert read(**two).job.options["engine.overlap_p2p"] is False
    assert read(attention_backend="AttnBackend.unfused").job.options["engine.attention"] == "unfused"
    assert "vocab-size=32000" in read(tokenizer_type="Llama2Tokenizer").assumed
    plain, rotary = (
        count_parameters(each.model).parameters for each in (read(), read(no_position_embedding=True))
    )
    assert plain - rotary == 1024 * 512  # the table of learned positions
    offload = {"optimizer_cpu_offload": "true", "optimizer_offload_fraction": 0}
    assert read(**offload).strategy.offload == "none"
    assert read(checkpoint_activations="true").strategy.recompute == "full"
    mixed = {"context_parallel_size": 2, "cp_comm_type": "a2a+p2p"}
    assert read(**mixed, hierarchical_context_parallel_sizes="2 1").strategy.cp_kind == "ulysses"
    with pytest.raises(BadInput, match="is missing with --cp-comm-type a2a"):
        read(**mixed)


def test_a_batch_that_does_not_divide_is_decreased_where_megatron_may():
    """Eight ranks of four sequences: 100 runs as 96 (core/num_microbatches_calculator.py); without the switch it stays
    and the layout is refused."""
    odd = {"global_batch_size": 100, "micro_batch_size": 4}
    assert read(**odd).job.global_batch == 100
    found = read(**odd, decrease_batch_size_if_needed=True)
    assert (found.job.global_batch, "global-batch-size=96" in found.assumed) == (96, True)
    assert (
        read(global_batch_size=96, micro_batch_size=4, decrease_batch_size_if_needed=True).assumed
        == read().assumed
    )
    with pytest.raises(BadInput, match="less than one micro-batch of all ranks, 32"):
        read(global_batch_size=24, micro_batch_size=4, decrease_batch_size_if_needed=True)
    assert read(global_batch_size=96, rampup_batch_size="32 32 1000").job.global_batch == 96
    with pytest.raises(BadInput, match="96 - 32 is not divisible by 48"):
        read(global_batch_size=96, rampup_batch_size="32 48 1000")


def test_a_schedule_of_batches_starts_with_its_first():
    raw = {name: value for name, value in GPT.items() if name != "global-batch-size"}
    settings = read_megatron({**raw, "step-batch-size-schedule": "0:384 200B:768"}, 8)
    assert settings.job.global_batch == 384
    assert "global-batch-size=384" in settings.assumed
    groups = {"pipeline_model_parallel_size": 4, "num_virtual_stages_per_pipeline_rank": 3}
    found = read(**groups, microbatch_group_size_per_virtual_pipeline_stage=5)
    assert "microbatch-group-size-per-virtual-pipeline-stage=4" in found.assumed
    with pytest.raises(BadInput, match="no batch size"):
        read_megatron({**raw, "step-batch-size-schedule": "0:many"}, 8)
