"""A frozen model beside the trained one: a reference for preferences, a teacher for distillation."""

import numpy as np
import pytest

from cost_models.errors import InvalidJob
from cost_models.operators import CrossEntropy
from cost_models.operators.base import Shard, Style
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate

LLAMA = 8_030_261_248


def situation(make_situation, kind, engine="fsdp2", **options):
    job = {"engine": engine, "options": {"job.kind": kind, **options}}
    return make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=2048, global_batch=16, **job)


@pytest.mark.parametrize(
    ("engine", "strategy", "weights"),
    [
        ("fsdp2", "zero=3", 2 / 8),  # divided like everything
        ("fsdp2", "zero=2", 2 + 2 / 8),  # and kept gathered
        ("deepspeed", "zero=3", 2 / 8),
        ("deepspeed", "zero=2", 2),  # only stage 3 divides weights
        ("megatron", "tp=2", 2 / 2),
        ("torch", "pp=2,zero=1", 2 / 2),
    ],
)
def test_a_reference_keeps_two_bytes_a_parameter(make_situation, engine, strategy, weights):
    """Llama-3.1-8B of 16 chosen and rejected sequences: the same weights again, frozen, as the engine divides them."""
    alone, beside = (situation(make_situation, kind, engine) for kind in ("sft", "dpo"))
    found = [evaluate(of, parse_strategy(f"{strategy},mbs=1")).memory for of in (alone, beside)]
    kept = [max(stage.by_cause["weights"] for stage in memory.stages) for memory in found]
    assert kept[1] - kept[0] == pytest.approx(weights * LLAMA, rel=0.13 if "pp" in strategy else 1e-3)


def test_a_reference_costs_one_forward_more(make_situation):
    """Model FLOPs 4/3; forward products alone, so less than a third more time."""
    alone, beside = (situation(make_situation, kind) for kind in ("sft", "dpo"))
    assert beside.model_flops == pytest.approx(alone.model_flops * 4 / 3)
    for recompute in ("none", "full"):
        text = parse_strategy(f"mbs=1,recompute={recompute}")
        short, long = (evaluate(of, text) for of in (alone, beside))
        assert 1.15 < long.step_s / short.step_s < 1.36
        assert long.recompute_s == pytest.approx(short.recompute_s)


def test_adapters_need_no_second_copy(make_situation):
    """The reference is the model without its adapters."""
    alone, beside = (
        situation(make_situation, kind, **{"job.trainable": "lora:r=16"}) for kind in ("sft", "dpo")
    )
    text = parse_strategy("mbs=1,recompute=full")
    short, long = (evaluate(of, text) for of in (alone, beside))
    weights = [each.memory.stages[0].by_cause["weights"] for each in (short, long)]
    assert weights[0] == weights[1]
    assert long.step_s > short.step_s


def test_a_teacher_is_priced_by_its_parameters(make_situation):
    alone = situation(make_situation, "sft")
    beside = situation(make_situation, "distill", **{"job.teacher_parameters": 70.6e9})
    assert beside.model_flops == pytest.approx(alone.model_flops * (1 + 70.6e9 / LLAMA / 3))
    text = parse_strategy("mbs=1")
    weights = [evaluate(of, text).memory.stages[0].by_cause["weights"] for of in (alone, beside)]
    assert weights[1] - weights[0] == pytest.approx(70.6e9 * 2 / 8, rel=1e-3)


@pytest.mark.parametrize(("kind", "parameters"), [("distill", 0.0), ("dpo", 7e9), ("pretrain", 7e9)])
def test_teachers_belong_to_distillation(make_situation, kind, parameters):
    with pytest.raises(InvalidJob, match=r"job\.teacher_parameters"):
        situation(make_situation, kind, **{"job.teacher_parameters": parameters})


def test_logits_of_a_frozen_model():
    """While they are made: 2 bytes, an fp32 copy and a log-softmax an entry; a teacher's softmax stays."""
    op = CrossEntropy(name="loss", inputs=("logits",), vocab_size=128_000)
    at, entries = Shard(1.0, 1024.0, 1024.0), 1024 * 128_000
    plain, made, kept = (Style(eager_loss=True, reference_logits=level) for level in (0, 1, 2))
    assert float(np.max(op.transient(at, made).forward)) == pytest.approx(10 * entries)
    assert op.saved(at, made) == op.saved(at, plain)
    assert sum(float(t.elements) for t in op.saved(at, kept)) == 2 * entries
