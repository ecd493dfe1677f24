"""DeepSpeed JSON: what it says, what it means where keys are missing, and that exports come back."""

import json
import random

import pytest

from cost_models.errors import BadInput, IllegalStrategy
from cost_models.specs.job import JobRequest, Optimizer, Precision
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate
from planner.formats.deepspeed.read import read_deepspeed
from planner.formats.deepspeed.write import write_deepspeed
from planner.formats.export import PlannedRun
from planner.formats.registry import find_out
from planner.formats.settings import Beside
from planner.request import CatalogModel, PresetCluster
from planner.situation import resolve


def situation(devices=16, model="llama-3.1-8b", seq_len=4096, global_batch=256, **options):
    options = {"engine.modules": "transformers"} | options
    job = JobRequest(seq_len=seq_len, global_batch=global_batch, engine="deepspeed", options=options)
    return resolve(CatalogModel(name=model), PresetCluster(name="dgx-h100", devices=devices), job)


OF = situation()


def read(values, devices=16, **job):
    return read_deepspeed(json.dumps(values), Beside(devices, OF.model, {"seq_len": 2048, **job}))


def test_every_key_arrives():
    found = read(
        {
            "train_batch_size": 128,
            "train_micro_batch_size_per_gpu": 2,
            "gradient_accumulation_steps": 8,
            "bf16": {"enabled": True},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
            "zero_optimization": {
                "stage": 3,
                "reduce_bucket_size": 2e8,
                "stage3_max_live_parameters": "5e8",
                "sub_group_size": 1e8,
                "overlap_comm": False,
                "contiguous_gradients": True,
                "offload_optimizer": {"device": "cpu", "ratio": 0.5, "pin_memory": True},
                "zero_hpz_partition_size": 8,
                "stage3_prefetch_bucket_size": 5e7,
                "zero_quantized_weights": True,
                "round_robin_gradients": True,
            },
            "tensor_parallel": {"autotp_size": 2},
            "data_types": {"grad_accum_dtype": "fp32"},
        }
    )
    strategy = found.strategy
    assert (strategy.tp, strategy.dp, strategy.mbs, strategy.zero) == (2, 8, 2, 3)  # 128 = 2 x 8 x 8
    assert strategy.offload == "optimizer:0.5"
    assert (found.job.global_batch, found.job.seq_len) == (128, 2048)
    assert found.job.precision is Precision.BF16
    assert found.job.optimizer is Optimizer.ADAMW
    assert found.job.options == {
        "engine.reduce_bucket_size": 2e8,
        "engine.stage3_max_live_parameters": 5e8,
        "engine.sub_group_size": 1e8,
        "engine.stage3_prefetch_bucket_size": 5e7,
        "engine.zero_quantized_weights": True,
        "engine.contiguous_gradients": True,
        "engine.overlap_comm": "off",
        "engine.zero_hpz_partition_size": 8,
        "engine.grad_dtype": "fp32",
    }
    assert found.ignored == ("zero_optimization.round_robin_gradients",)
    assert found.unknown == ()


def test_autos_are_assumed_and_what_is_stated_beside_them_wins():
    values = {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "bf16": {"enabled": "auto"},
    }
    found = read(values, global_batch=64)
    assert (found.job.global_batch, found.strategy.mbs, found.strategy.zero) == (64, 1, 0)
    assert found.assumed == ("train_micro_batch_size_per_gpu=1", "bf16.enabled=true", "recompute=none")
    assert read(values).job.global_batch == 16  # one sequence a device, no accumulation


@pytest.mark.parametrize(
    ("values", "precision", "assumed"),
    [
        ({}, Precision.FP32, "bf16.enabled=false"),  # DeepSpeed's own default: nothing is narrow
        ({"bf16": {"enabled": False}}, Precision.FP32, None),
        ({"fp16": {"enabled": "auto"}}, Precision.FP16, "fp16.enabled=true"),
        ({"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}}, Precision.BF16, "bf16.enabled=true"),
        ({"fp16": {"enabled": True}, "bf16": {"enabled": "auto"}}, Precision.FP16, None),
    ],
)
def test_precision_is_what_the_sections_switch_on(values, precision, assumed):
    found = read(values)
    assert found.job.precision is precision
    assert {each for each in found.assumed if "enabled" in each} == ({assumed} if assumed else set())


@pytest.mark.parametrize(
    ("zero", "offload"),
    [
        ({"cpu_offload": True}, "optimizer"),  # the spelling before 0.3.16
        ({"offload_optimizer": {"device": "cpu", "ratio": 0}}, "none"),
        ({"offload_optimizer": {"device": "none"}}, "none"),
        ({"offload_optimizer": {"device": "cpu", "ratio": 0.5}}, "optimizer:0.5"),
        ({"stage": 3, "cpu_offload_params": True}, "parameters"),
    ],
)
def test_offload_in_its_spellings(zero, offload):
    assert read({"zero_optimization": {"stage": 2, **zero}}).strategy.offload == offload


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"zero_optimization": {"mics_shard_size": 8}}, ("mics_shard_size is 8", "zero_hpz_partition_size")),
        ({"zero_optimization": {"offload_param": {"device": "gpu"}}}, ("'gpu'", "none, cpu or nvme")),
        # 256 sequences do not divide over 2 x 18 x 7 (the 7 devices of a user's case).
        ({"train_batch_size": 256, "train_micro_batch_size_per_gpu": 2}, ("256", "252 or 266")),
        (
            {"train_batch_size": 100, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2},
            ("100", "= 14", "use train_batch_size 14"),
        ),
        ({"zero_optimization": {"stage": 4}}, ("stage is 4", "0, 1, 2 or 3")),
        ({"bf16": {"enabled": True}, "fp16": {"enabled": True}}, ("takes one",)),
        ({"zero_optimization": {"reduce_bucket_size": "many"}}, ("reduce_bucket_size", "a number")),
        ({"zero_optimization": 3}, ("zero_optimization", "a mapping")),
        ({"optimizer": {"type": "Lion"}}, ("Lion", "AdamW")),
        ({"tensor_parallel": {"autotp_size": 2}}, ("7 devices", "2")),
    ],
)
def test_what_is_wrong_is_said_with_numbers(values, words):
    with pytest.raises(BadInput) as caught:
        read(values, devices=7)
    assert all(word in caught.value.detail for word in words), caught.value.detail


def test_unknown_keys_are_listed_with_what_they_may_be():
    found = read({"zero_optimisation": {"stage": 3}, "zero_optimization": {"stag": 2}})
    assert any("zero_optimisation" in each and "zero_optimization" in each for each in found.unknown)
    assert any("zero_optimization.stag" in each and "stage" in each for each in found.unknown)


def test_the_model_is_asked_for():
    with pytest.raises(BadInput, match="--model"):
        read_deepspeed("{}", Beside(8))


def random_strategy(rng):
    zero, offload = rng.choice((0, 1, 2, 3)), "none"
    if zero and rng.random() < 0.3:
        offload = rng.choice(("optimizer", "parameters", "optimizer:0.25"))
    words = (
        f"tp={rng.choice((1, 1, 2))},cp={rng.choice((1, 1, 2))},cp_kind=ulysses,mbs={rng.choice((1, 2, 4))}"
    )
    return parse_strategy(f"{words},zero={zero},offload={offload},recompute={rng.choice(('none', 'full'))}")


def test_random_plans_come_back():
    rng, held = random.Random(3), 0
    for _ in range(60):
        options = {
            "engine.reduce_bucket_size": rng.choice((2e8, 5e8)),
            "engine.overlap_comm": rng.choice(("on", "off")),
            "engine.grad_dtype": rng.choice(("fp32", "bf16")),
            "engine.contiguous_gradients": rng.random() < 0.5,
        }
        of = situation(**options)
        try:
            before = evaluate(of, random_strategy(rng))
        except IllegalStrategy:
            continue
        export = write_deepspeed(PlannedRun(of, before.strategy))
        assert export.losses == ()
        assert find_out(export.files["ds_config.json"], "ds_config.json") == "deepspeed"
        arguments = json.loads(export.files["training_arguments.json"])
        assert arguments["gradient_checkpointing"] is (before.strategy.recompute.text() == "full")
        held += 1
    assert held >= 15


def test_modules_of_the_script_are_a_loss_where_others_were_planned():
    of = situation(**{"engine.modules": "fused"})
    export = write_deepspeed(PlannedRun(of, evaluate(of, parse_strategy("zero=3")).strategy))
    assert len(export.losses) == 1
    assert "transformers' modules" in export.losses[0]


@pytest.mark.parametrize(
    ("strategy", "words"), [("zero=3,recompute=full:3", "recompute none or full"), ("zero=1,pp=2", "pp 2")]
)
def test_what_the_trainer_has_not_is_refused(strategy, words):
    plan = evaluate(OF, parse_strategy(strategy)).strategy
    with pytest.raises(BadInput, match=words):
        write_deepspeed(PlannedRun(OF, plan))
