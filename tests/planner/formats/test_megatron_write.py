"""Exported Megatron-LM arguments mean the same plan when they are read back."""

import random
from dataclasses import replace

import pytest

from cost_models.errors import BadInput, IllegalStrategy
from cost_models.specs.job import JobRequest
from cost_models.specs.recompute import parse_recompute
from cost_models.specs.strategy import parse_strategy, strategy_from_mapping
from planner.evaluation import evaluate
from planner.formats.export import PlannedRun
from planner.formats.megatron.write import grouped_arguments, read_back, write_megatron
from planner.formats.registry import find_out, read_settings
from planner.formats.settings import Beside
from planner.request import CatalogModel, PresetCluster
from planner.situation import resolve, situate

MODELS = {
    "llama-3.1-8b": "dgx-h100",
    "gpt2-large": "dgx-a100",
    "qwen2.5-7b": "dgx-h100",
    "qwen3-30b-a3b": "dgx-h100",
    "mixtral-8x7b": "dgx-h200",
    "deepseek-v2-lite": "dgx-h800",
    "nemotron-h-8b": "dgx-b200",
}


def situation(model, cluster, devices, global_batch=256, **options):
    seq_len = 1024 if model.startswith("gpt2") else 4096
    job = JobRequest(seq_len=seq_len, global_batch=global_batch, options=options)
    return resolve(CatalogModel(name=model), PresetCluster(name=cluster, devices=devices), job)


def random_strategy(rng, of):
    """A strategy that may be illegal: the engine decides."""
    tp, pp = rng.choice((1, 2, 4, 8)), rng.choice((1, 2, 4))
    vpp = rng.choice((1, 1, 2)) if pp > 1 else 1
    cp = rng.choice((1, 1, 2))
    ep = rng.choice((1, 2, 4, 8)) if of.model.is_moe else 1
    recompute = rng.choice(("none", "selective", "full", f"full:{rng.randint(1, 3)}", "selective:layernorm"))
    words = [f"tp={tp},pp={pp},vpp={vpp},cp={cp},ep={ep},mbs={rng.choice((1, 2))},recompute={recompute}"]
    words.append(f"sp={str(tp > 1 and rng.random() < 0.7).lower()},zero={rng.choice((0, 1, 1))}")
    if rng.random() < 0.5 and pp > 1:
        blocks, parts = of.model.num_blocks, pp * vpp
        cuts = sorted(rng.sample(range(1, blocks), parts - 1))
        words.append(
            "stages=" + "+".join(str(b - a) for a, b in zip((0, *cuts), (*cuts, blocks), strict=True))
        )
    return parse_strategy(",".join(words))


def random_options(rng):
    """Options that arguments can say."""
    choices = {
        "engine.grad_dtype": ("fp32", "bf16"),
        "engine.fused_cross_entropy": (False, True),
        "engine.overlap_grad_reduce": (False, True),
        "engine.attention": ("flash", "unfused"),
        "engine.moment_dtype": ("fp32", "bf16"),
        "engine.vocabulary_multiple": (128, 64),
        "job.train_mtp": (False, True),
    }
    options = {key: rng.choice(values) for key, values in choices.items() if rng.random() < 0.4}
    if options.get("engine.moment_dtype") == "bf16":
        options["engine.master_dtype"] = "remainder"  # the precision-aware optimizer stores no other
    return options


@pytest.mark.parametrize("model", MODELS)
def test_random_plans_come_back(model):
    rng = random.Random(model)
    held = 0
    for _ in range(25):
        of = situation(model, MODELS[model], 64, **random_options(rng))
        try:
            before = evaluate(of, random_strategy(rng, of))
        except IllegalStrategy:
            continue
        run = PlannedRun(of, before.strategy)
        flat = {name: word for group in grouped_arguments(run).values() for name, word in group.items()}
        again, strategy = read_back(run, flat)
        after = evaluate(again, strategy)
        assert after.strategy == before.strategy
        assert (after.step_s, after.memory.device_used_bytes) == (
            before.step_s,
            before.memory.device_used_bytes,
        )
        assert write_megatron(run).losses == ()
        held += 1
    assert held >= 4


def test_what_arguments_cannot_say_is_a_loss():
    of = situation("llama-3.1-8b", "dgx-h100", 8, **{"engine.moment_dtype": "bf16"})
    export = write_megatron(PlannedRun(of, evaluate(of, parse_strategy("tp=2")).strategy))
    assert export.losses == ("engine.master_dtype=fp32 is not said by the settings, which mean remainder",)


def test_the_script_is_read_as_it_was_written():
    of = situation("llama-3.1-8b", "dgx-h100", 16)
    before = evaluate(of, parse_strategy("tp=2,pp=4,vpp=2,stages=3+4+5+4+4+5+4+3,recompute=full:1"))
    export = write_megatron(PlannedRun(of, before.strategy, "plan_1"))
    script = export.files[export.script]
    assert '--pipeline-model-parallel-layout "Et*3|t*4|t*5|t*4|t*4|t*5|t*4|t*3L"' in script
    assert "export CUDA_DEVICE_MAX_CONNECTIONS=1" in script  # tp > 1 on Hopper
    assert "plan_1" in script
    assert find_out(script, "train.sh") == "megatron"
    settings = read_settings(script, "megatron", Beside(16))
    assert settings.unknown == ()
    assert evaluate(of, settings.strategy).strategy == before.strategy
    assert settings.job.global_batch == 256


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        # Windows of 4,096 on every other layer and soft caps are nothing that the GPT builder has.
        ("gemma-2-9b", "gelu_pytorch_tanh|norm"),
        ("t5-3b", "stacks"),
        ("resnet-50", "stacks|vision|export"),
    ],
)
def test_what_it_cannot_build_is_refused(model, reason):
    of = situation("llama-3.1-8b", "dgx-h100", 8)
    strategy = evaluate(of, parse_strategy("tp=2")).strategy
    other = resolve(
        CatalogModel(name=model),
        PresetCluster(name="dgx-h100", devices=8),
        JobRequest(seq_len=None if model == "resnet-50" else 2048, global_batch=256),
    )
    with pytest.raises(BadInput, match=reason):
        write_megatron(PlannedRun(other, strategy))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"order": "dp-tp-cp-ep-pp"}, "tp-cp-ep-dp-pp"),
        ({"recompute": "full:2/selective:core_attn"}, "mixes full and selective"),
        ({"offload": "parameters"}, "offload"),
    ],
)
def test_a_knob_it_cannot_say_is_refused_with_what_it_can(change, words):
    of = situation("llama-3.1-8b", "dgx-h100", 16)
    plan = evaluate(of, parse_strategy("tp=2,pp=2")).strategy
    other = evaluate(of, strategy_from_mapping({"tp": 2, "pp": 2})).strategy
    assert other == plan
    values = dict(change)
    if "order" in values:
        values["order"] = tuple(values["order"].split("-"))
    if "recompute" in values:
        values["recompute"] = parse_recompute(values["recompute"])
    with pytest.raises(BadInput, match=words):
        write_megatron(PlannedRun(of, replace(plan, **values)))


def test_another_engine_is_told_to_plan_again():
    of = situation("llama-3.1-8b", "dgx-h100", 8)
    job = of.job_request.model_copy(update={"engine": "torch"})
    torch = situate(of.model, of.cluster, job)
    run = PlannedRun(torch, evaluate(torch, parse_strategy("tp=2")).strategy)
    with pytest.raises(BadInput, match="--engine megatron"):
        write_megatron(run)
