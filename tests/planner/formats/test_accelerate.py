"""Accelerate YAML: FSDP2, FSDP1, DDP and DeepSpeed inside it; exports come back."""

import random

import pytest
import yaml

from cost_models.errors import BadInput, IllegalStrategy
from cost_models.specs.job import JobRequest, Precision
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate
from planner.formats.accelerate.read import read_accelerate
from planner.formats.accelerate.write import write_accelerate
from planner.formats.export import PlannedRun
from planner.formats.registry import find_out
from planner.formats.settings import Beside
from planner.request import CatalogModel, PresetCluster
from planner.situation import resolve


def situation(engine="fsdp2", devices=16, **options):
    options = {"engine.modules": "transformers"} | options
    job = JobRequest(seq_len=4096, global_batch=256, engine=engine, options=options)
    return resolve(CatalogModel(name="llama-3.1-8b"), PresetCluster(name="dgx-h100", devices=devices), job)


def other_situation(engine):
    job = JobRequest(seq_len=4096, global_batch=256, engine=engine)
    return resolve(CatalogModel(name="llama-3.1-8b"), PresetCluster(name="dgx-h100", devices=16), job)


OF = situation()


def read(values, devices=16, **job):
    return read_accelerate(yaml.safe_dump(values), Beside(devices, OF.model, {"seq_len": 2048, **job}))


def fsdp(version=2, processes=16, parallel=None, **keys):
    values = {"distributed_type": "FSDP", "mixed_precision": "bf16", "num_processes": processes}
    values["fsdp_config"] = {"fsdp_version": version} | {f"fsdp_{key}": value for key, value in keys.items()}
    if parallel:
        values["parallelism_config"] = {f"parallelism_config_{k}_size": n for k, n in parallel.items()}
    return values


def test_fsdp2_with_degrees():
    parallel = {"tp": 2, "dp_replicate": 2, "dp_shard": 4}
    keys = {"reshard_after_forward": False, "activation_checkpointing": True, "offload_params": True}
    found = read(fsdp(parallel=parallel, **keys), global_batch=64)
    strategy = found.strategy
    assert (strategy.tp, strategy.dp_replicate, strategy.dp_shard, strategy.dp) == (2, 2, 4, 8)
    assert (strategy.zero, strategy.recompute, strategy.offload, strategy.sp) == (
        2,
        "full",
        "parameters",
        False,
    )
    assert (found.job.engine, found.job.precision, found.job.global_batch) == ("fsdp2", Precision.BF16, 64)
    assert found.unknown == ()


@pytest.mark.parametrize(
    ("values", "engine", "zero"),
    [
        (fsdp(), "fsdp2", 3),  # resharding is the default
        (fsdp(version=1, sharding_strategy="SHARD_GRAD_OP"), "fsdp1", 2),
        (fsdp(version=1, sharding_strategy=1), "fsdp1", 3),
        (fsdp(version=1, sharding_strategy="NO_SHARD"), "ddp", 0),
        ({"distributed_type": "MULTI_GPU"}, "ddp", 0),
        ({"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 3}}, "deepspeed", 3),
    ],
)
def test_kinds_of_data_parallel(values, engine, zero):
    found = read(values)
    assert (found.job.engine, found.strategy.zero) == (engine, zero)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (fsdp(processes=8), ("8", "16")),
        (fsdp(parallel={"tp": 2, "dp_shard": 4}), ("8 processes", "16")),
        (fsdp(parallel={"cp": 2, "sp": 2}), ("one of them",)),
        (fsdp(reshard_after_forward="FULL_SHARD"), ("true or false",)),
        (fsdp(reshard_after_forward="perhaps"), ("true or false",)),
        ({"distributed_type": "TPU"}, ("TPU", "FSDP")),
        ({"distributed_type": "FSDP", "mixed_precision": "int3"}, ("int3", "bf16")),
        (
            {"distributed_type": "DEEPSPEED", "deepspeed_config": {"deepspeed_config_file": "ds.json"}},
            ("ds.json", "--format deepspeed"),
        ),
    ],
)
def test_what_is_wrong_is_said_with_numbers(values, words):
    with pytest.raises(BadInput) as caught:
        read(values)
    assert all(word in caught.value.detail for word in words), caught.value.detail


def test_unknown_keys_are_listed_inside_sections_too():
    values = fsdp(reshard_after_foward=True) | {"bogus": 1}
    found = read(values)
    assert any(each.startswith("bogus") for each in found.unknown)
    assert any("fsdp_config.fsdp_reshard_after_foward" in each for each in found.unknown)


def test_random_plans_come_back():
    rng, held = random.Random(4), 0
    for _ in range(80):
        engine = rng.choice(("fsdp2", "fsdp2", "ddp"))
        of = situation(engine)
        words = f"tp={rng.choice((1, 1, 2))},cp={rng.choice((1, 2))},sp=false,mbs={rng.choice((1, 2))}"
        words += f",cp_kind={rng.choice(('ring', 'allgather', 'ulysses'))}" if engine == "fsdp2" else ""
        words += f",recompute={rng.choice(('none', 'full'))}"
        if engine == "fsdp2":
            words += f",zero={rng.choice((2, 3))},dp_replicate={rng.choice((1, 2))}"
        try:
            before = evaluate(of, parse_strategy(words))
        except IllegalStrategy:
            continue
        export = write_accelerate(PlannedRun(of, before.strategy))
        assert find_out(export.files["accelerate.yaml"], "a.yaml") == "accelerate"
        said = [loss for loss in export.losses if not (engine == "ddp" and loss.startswith("recompute"))]
        assert said == []
        held += 1
    assert held >= 20


INSIDE = {
    "deepspeed": (
        "zero=3,recompute=full,mbs=2",
        "zero=2,offload=optimizer",
        "zero=1",
        "zero=3,offload=parameters",
    ),
    "megatron": ("tp=2,pp=2,recompute=selective", "tp=4,sp=false", "tp=2,pp=4,zero=0,mbs=2"),
}


@pytest.mark.parametrize(("engine", "words"), [(e, words) for e, each in INSIDE.items() for words in each])
def test_what_stands_inside_comes_back(engine, words):
    of = situation(engine) if engine == "deepspeed" else other_situation(engine)
    run = PlannedRun(of, evaluate(of, parse_strategy(words)).strategy)
    export = write_accelerate(run)
    assert export.losses == ()
    values = yaml.safe_load(export.files["accelerate.yaml"])
    assert f"{engine}_config" in " ".join(values).replace("megatron_lm", "megatron")


@pytest.mark.parametrize(
    ("engine", "words", "why"),
    [
        ("deepspeed", "tp=2", "--to deepspeed"),
        ("deepspeed", "zero=3,offload=optimizer:0.5", "all of the optimizer or none"),
        ("megatron", "tp=2,pp=2,recompute=full", "recompute of tp=2"),
        ("megatron", "pp=2,vpp=2,cp=2", "cp, vpp of"),
        ("torchtitan", "tp=2", "Accelerate runs fsdp2, ddp, deepspeed, megatron"),
    ],
)
def test_what_it_has_no_word_for_is_refused(engine, words, why):
    of = situation("deepspeed") if engine == "deepspeed" else other_situation(engine)
    run = PlannedRun(of, evaluate(of, parse_strategy(words)).strategy)
    with pytest.raises(BadInput, match=why):
        write_accelerate(run)


def test_megatron_inside():
    section = {
        "megatron_lm_tp_degree": 4,
        "megatron_lm_pp_degree": 2,
        "megatron_lm_num_micro_batches": 8,
        "megatron_lm_sequence_parallelism": True,
        "megatron_lm_recompute_activations": "true",
        "megatron_lm_use_distributed_optimizer": True,
        "megatron_lm_gradient_clipping": 1.0,
    }
    values = {
        "distributed_type": "MEGATRON_LM",
        "mixed_precision": "bf16",
        "num_processes": 16,
        "megatron_lm_config": section,
    }
    found = read(values)
    assert (found.job.engine, found.job.global_batch) == ("megatron", 16)  # 1 x 8 micro-batches x 2 replicas
    assert (found.strategy.tp, found.strategy.pp, found.strategy.dp, found.strategy.zero) == (4, 2, 2, 1)
    assert (found.strategy.sp, found.strategy.recompute, found.unknown) == (True, "selective", ())
    section["megatron_lm_tp_degree"] = 3
    with pytest.raises(BadInput, match="tp 3 x pp 2"):
        read(values)


def test_hybrid_sharding_stays_inside_a_machine():
    values = fsdp(1, sharding_strategy="HYBRID_SHARD") | {"num_machines": 2}
    strategy = read(values).strategy
    assert (strategy.dp_replicate, strategy.dp_shard, strategy.zero) == (2, 8, 3)


@pytest.mark.parametrize("name", ["12", "", "0", "FULL"])
def test_sharding_strategies_that_are_none(name):
    with pytest.raises(BadInput, match="fsdp_sharding_strategy"):
        read(fsdp(1, sharding_strategy=name))
