"""Would the framework take it? Situations of real users: the true rule, its numbers, and the nearest legal values."""

import json
from pathlib import Path
from typing import Any

import pytest

from cost_models.errors import BadInput, IllegalStrategy
from cost_models.profiles import load_device, model_config
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import parse_strategy
from cost_models.units import GIB
from planner.answers import Prediction
from planner.candidates import Candidates, enumerate_candidates
from planner.evaluation import evaluate
from planner.explain import against
from planner.explain.facts import layout_facts
from planner.formats.megatron import read_megatron
from planner.relax import relaxations
from planner.request import (
    CatalogModel,
    HuggingFaceModel,
    ModelInput,
    PresetCluster,
    SearchRequest,
    SpecCluster,
)
from planner.restrictions import read_restrictions
from planner.situation import Situation, resolve_cluster, resolve_model, situate
from tests.planner.cases import every_run

DATA = json.loads((Path(__file__).parents[1] / "data" / "cases_rules.json").read_text(encoding="utf-8"))
JOB_KEYS = ("seq_len", "global_batch", "precision", "optimizer", "engine", "options")
STATES = ("weights", "gradients", "optimizer")


def model_of(name: str) -> ModelInput:
    changes = dict(DATA["models"].get(name, {}))
    if not changes:
        return CatalogModel(name=name)
    return HuggingFaceModel(config=model_config(changes.pop("base")) | changes)


def situation_of(run: dict[str, Any]) -> Situation:
    job = JobRequest(**{key: run[key] for key in JOB_KEYS if key in run})
    if run["cluster"] == "a40-16gb-host":
        # 48 GB devices in a node with 16 GB of host memory (the l40s stands in for the A40: equal memory).
        groups = [
            {
                "device": load_device("l40s").model_dump(),
                "nodes": 1,
                "devices_per_node": 4,
                "host_bytes": 16e9,
            }
        ]
        tier = {"name": "pcie4", "bytes_per_s": 25e9, "latency_s": 5e-6}
        cluster = resolve_cluster(SpecCluster(spec={"name": "a40", "groups": groups, "tiers": [tier]}))
    else:
        cluster = resolve_cluster(PresetCluster(name=run["cluster"], devices=run["devices"]))
    return situate(resolve_model(model_of(run["model"])), cluster, job)


@pytest.mark.parametrize("run", every_run(DATA))
def test_the_rule_is_the_frameworks(run):
    of = situation_of(run)
    if run["rules"]:
        with pytest.raises(IllegalStrategy) as refused:
            evaluate(of, parse_strategy(run["strategy"]))
        named = {violation.rule for violation in refused.value.violations}
        assert run["rules"] == ["*"] or set(run["rules"]) <= named
        for text in run["says"]:
            assert text in refused.value.detail
        return
    check(of, evaluate(of, parse_strategy(run["strategy"])), run)


def check(of: Situation, found: Prediction, run: dict[str, Any]) -> None:
    """What else a run says about a legal layout."""
    strategy = found.strategy
    assert "+".join(map(str, strategy.stages)) == run.get("stages", "+".join(map(str, strategy.stages)))
    assert found.verdict == run.get("verdict", found.verdict)
    for key in ("etp", "dp"):
        assert getattr(strategy, key) == run.get(key, getattr(strategy, key))
    if "micro_batches" in run:
        assert strategy.num_micro_batches(of.job.global_batch) == run["micro_batches"]
    if "padded" in run:
        assert layout_facts(of, strategy).vocabulary_rows == run["padded"]
    if "most_gib" in run:
        assert found.memory.peak_allocated_bytes / GIB < run["most_gib"]
    for text in run.get("warns", ()):
        assert any(text in warning for warning in found.warnings)
    if "states_b_per_parameter" in run:
        ranks = strategy.tp * strategy.pp
        states = sum(stage.by_cause[cause] for stage in found.memory.stages for cause in STATES)
        total = states * strategy.tp if ranks > 1 else states
        assert total / found.parameters == pytest.approx(run["states_b_per_parameter"], rel=0.04)


ARGUMENTS = {
    "hidden-size": "5120",
    "num-attention-heads": "40",
    "seq-length": "2048",
    "max-position-embeddings": "2048",
    "micro-batch-size": "1",
    "global-batch-size": "64",
    "bf16": "true",
}


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        # https://github.com/NVIDIA/Megatron-LM/pull/326: 40 layers / 8 ranks = 5, which chunks of 2 do not divide.
        (
            {
                "num-layers": "40",
                "pipeline-model-parallel-size": "8",
                "num-layers-per-virtual-pipeline-stage": "2",
            },
            ("5 layers of a pipeline rank", "use 1 or 5"),
        ),
        # https://github.com/modelscope/ms-swift/issues/5737: 46 layers on 4 ranks.
        (
            {"num-layers": "46", "pipeline-model-parallel-size": "4"},
            ("46", "use 1, 2, 23 or 46", "11+12+12+11", "--pipeline-model-parallel-layout"),
        ),
    ],
)
def test_arguments_of_megatron_that_drop_layers_are_refused(stated, says):
    with pytest.raises(BadInput) as refused:
        read_megatron(ARGUMENTS | stated, 8)
    for text in says:
        assert text in refused.value.detail


def test_how_many_devices_for_70b(make_situation):
    """https://github.com/pytorch/torchtitan/issues/770: 16 B x 70.6e9 are 1,129e9 bytes, at least 13.3 devices of
    85e9 without any activation; eight do not do, and the first number that does is named with its step."""
    of = make_situation("llama-3-70b", "dgx-h100", 8, seq_len=8192, global_batch=96, engine="torchtitan")
    reason, found = relaxations(of, candidates_of(of), SearchRequest(pins={"offload": "none"}))
    (devices,) = [one for one in found if one.change.startswith("devices=")]
    assert 16 <= int(devices.change.partition("=")[2]) <= 32
    assert devices.step_s > 0
    assert "too much" in reason


def test_why_a_pipeline_for_175b(make_situation):
    """https://github.com/EleutherAI/gpt-neox/issues/903: without model parallelism nothing fits, by how much is said;
    pp 4 x tp 8 has a bubble of 3 / m."""
    of = make_situation("gpt3-175b", "dgx-a100", 256, seq_len=2048, global_batch=1024)
    plan = evaluate(of, parse_strategy("tp=8,pp=4,recompute=full"))
    contrast = against(of, SearchRequest(), plan, parse_strategy("tp=1,pp=1,cp=1"), 5.0)
    assert contrast.verdict == "does_not_fit"
    assert "too much" in contrast.sentence()
    # 256 / 32 = 8 replicas take 128 micro-batches each: 3 / 128 = 2.3 %.
    facts = layout_facts(of, plan.strategy)
    assert (facts.micro_batches, facts.links["tp"]) == (128, "nvlink")
    assert facts.bubble == pytest.approx(3 / 128)


def candidates_of(of: Situation) -> Candidates:
    return enumerate_candidates(of.engine, of.facts, read_restrictions({}, ()))


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (
            "tp=2,dp=4,dp_replicate=3",
            "use dp_replicate 1, 2 or 4",
        ),  # no number of shards goes with 3 replicas of 4
        ("tp=2,dp=4,dp_replicate=2,dp_shard=4", "use dp_shard 2"),
    ],
)
def test_shards_and_replicas_that_do_not_make_up_dp_name_what_would(make_situation, text, advice):
    of = make_situation("llama-3.2-1b", "dgx-h100", 8, engine="torchtitan", seq_len=2048, global_batch=64)
    with pytest.raises(IllegalStrategy, match=f"data_parallel_shards: .* is not dp 4; {advice}$"):
        evaluate(of, parse_strategy(text))
