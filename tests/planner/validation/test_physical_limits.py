"""No prediction is above what the hardware can do: over published layouts, and over odd ones on every device."""

import random

import pytest

from cost_models.errors import IllegalStrategy
from cost_models.profiles import profiles_root
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import StrategyRequest
from planner.answers import Prediction
from planner.evaluation import evaluate_many
from planner.request import CatalogModel, PresetCluster
from planner.situation import Situation, resolve
from planner.validation.predict import outcome_of
from planner.validation.rows import read_runs

SAMPLED = 8
"""One published row in so many is predicted here; `make accuracy` predicts them all."""

PAIRS = [
    ("llama-3.1-8b", "dgx-a100", 16, "bf16"),
    ("llama-3.1-8b", "dgx-1", 8, "fp16"),
    ("llama-3.1-70b", "dgx-h100", 64, "fp8"),
    ("deepseek-v3", "gb300-nvl72", 256, "mxfp8"),
    ("qwen3-30b-a3b", "dgx-b200", 16, "nvfp4"),
    ("mixtral-8x7b", "mi300x", 16, "bf16"),
]


def check(prediction: Prediction, situation: Situation) -> None:
    """Useful work, states and messages take at least what peaks allow."""
    device, step_s = situation.cluster.device, prediction.step_s
    assert 0.0 < prediction.mfu < 1.0
    assert prediction.step_s_low < step_s < prediction.step_s_high
    # an optimizer step reads and writes every state once
    states = sum(stage.by_cause.get("optimizer", 0.0) for stage in prediction.memory.stages)
    if prediction.breakdown_s["optimizer"] > 0.0 and not prediction.memory.host_bytes:
        rate = states / len(prediction.memory.stages) / max(prediction.breakdown_s["optimizer"], 1e-12)
        assert rate < 2.0 * device.memory_bytes_per_s.value
    assert sum(prediction.breakdown_s.values()) == pytest.approx(step_s, rel=1e-9)
    assert all(seconds >= 0.0 for seconds in prediction.breakdown_s.values())


def test_published_layouts():
    runs = [run for run in read_runs(profiles_root() / "published" / "runs.csv") if not run.out_of_memory]
    outcomes = [outcome_of(run) for run in runs[::SAMPLED]]
    predicted = [o for o in outcomes if o.prediction and o.case]
    assert len(predicted) > 40
    for outcome in predicted:
        assert outcome.prediction
        assert outcome.case
        check(outcome.prediction, outcome.case.situation)


@pytest.mark.parametrize(("model", "cluster", "devices", "precision"), PAIRS)
def test_odd_layouts(model: str, cluster: str, devices: int, precision: str):
    job = JobRequest(seq_len=4096, global_batch=256, precision=precision)
    situation = resolve(CatalogModel(name=model), PresetCluster(name=cluster, devices=devices), job)
    generator = random.Random(f"{model} {cluster}")
    requests = [
        StrategyRequest(
            tp=generator.choice((1, 2, 4, 8)),
            pp=generator.choice((1, 2, 4)),
            cp=generator.choice((1, 1, 2)),
            ep=generator.choice((1, 2, 8)) if situation.model.is_moe else 1,
            mbs=generator.choice((1, 2, 4, 16)),
            recompute=generator.choice(("none", "selective", "full")),
        )
        for _ in range(40)
    ]
    found = [p for p in evaluate_many(situation, requests) if not isinstance(p, IllegalStrategy)]
    assert found
    for prediction in found:
        check(prediction, situation)
