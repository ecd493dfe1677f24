"""Predictions: sums that must hold, one path for one and many, known layouts, monotone answers."""

import math

import pytest

from cost_models.errors import IllegalStrategy
from cost_models.specs.counts import count_parameters, forward_flops
from cost_models.specs.strategy import parse_strategy
from planner.answers import BREAKDOWN_CAUSES
from planner.evaluation import evaluate, evaluate_many

STRATEGIES = [
    "tp=4,pp=4",
    "tp=8,pp=2,vpp=2",
    "tp=2,pp=8,cp=2,recompute=full:2",
    "tp=4,pp=4,stages=20+20+21+19,recompute=selective",
    "tp=8,pp=8,vpp=5,mbs=2,recompute=full",
    "tp=8,sp=false,zero=0",
]


@pytest.fixture(scope="module")
def llama(make_situation):
    return make_situation("llama-3.1-70b", "dgx-h100", 64, seq_len=8192, global_batch=512)


@pytest.mark.parametrize("text", STRATEGIES)
def test_parts_sum_to_wholes(llama, text):
    found = evaluate(llama, parse_strategy(text))
    assert tuple(found.breakdown_s) == BREAKDOWN_CAUSES
    assert math.fsum(found.breakdown_s.values()) == pytest.approx(found.step_s, abs=1e-9)
    assert all(seconds >= -1e-9 for seconds in found.breakdown_s.values())
    assert found.step_s_low < found.step_s < found.step_s_high
    for stage in found.memory.stages:
        assert math.fsum(stage.by_cause.values()) == pytest.approx(stage.allocated_bytes, rel=1e-12)
        assert stage.allocated_bytes == pytest.approx(max(stage.by_phase.values()), rel=1e-12)
    assert found.memory.peak_allocated_bytes == max(s.allocated_bytes for s in found.memory.stages)
    assert (
        found.memory.peak_allocated_bytes < found.memory.peak_reserved_bytes < found.memory.device_used_bytes
    )
    assert found.recompute_s <= found.breakdown_s["compute"] + sum(
        found.breakdown_s[c] for c in BREAKDOWN_CAUSES if c.endswith("communication")
    )


def test_many_equal_one_by_one_in_order(llama):
    requests = [parse_strategy(text) for text in [*STRATEGIES, "tp=3"]]
    many = evaluate_many(llama, requests)
    assert isinstance(many[-1], IllegalStrategy)
    for request, together in zip(requests[:-1], many[:-1], strict=True):
        alone = evaluate(llama, request)
        assert alone.step_s == pytest.approx(together.step_s, rel=1e-12)
        assert alone.memory.peak_allocated_bytes == pytest.approx(
            together.memory.peak_allocated_bytes, rel=1e-12
        )


def test_mfu_is_model_flops_over_dense_peak(llama):
    """6 x matmul parameters + 3 x heads x (d_qk + d_v) x s per layer a token (design, section 9)."""
    found = evaluate(llama, parse_strategy("tp=4,pp=4"))
    matmul = count_parameters(llama.model).matmul
    per_token = 6 * matmul + 80 * 3 * 64 * 256 * 8192
    assert 3 * forward_flops(llama.model, 8192) / 8192 == pytest.approx(per_token, rel=1e-12)
    rate = per_token * 512 * 8192 / (found.step_s * 64)
    assert found.model_flops_per_s_per_device == pytest.approx(rate, rel=1e-12)
    assert found.mfu == pytest.approx(rate / llama.cluster.device.peak("bf16"), rel=1e-12)
    assert found.tokens_per_s_per_device == pytest.approx(512 * 8192 / found.step_s / 64, rel=1e-12)


PUBLISHED = [
    ("gpt3-175b", 1536, 1536, "tp=8,pp=12,recompute=full", 0.339),
    ("megatron-1t", 3072, 3072, "tp=8,pp=64,recompute=full", 0.392),
]


@pytest.mark.parametrize(("model", "devices", "batch", "text", "published_mfu"), PUBLISHED)
def test_published_megatron_layouts_are_legal_and_fit(
    make_situation, model, devices, batch, text, published_mfu
):
    """Narayanan et al. 2021, table 1: the layouts ran; MFU within a factor that allows four years of kernels."""
    of = make_situation(model, "dgx-a100", devices, seq_len=2048, global_batch=batch)
    found = evaluate(of, parse_strategy(text))
    assert found.verdict == "fits"
    assert published_mfu * 0.8 < found.mfu < published_mfu * 1.35


def test_more_bandwidth_and_memory_never_hurt(make_situation):
    """The same strategy on H200 (more and faster memory, equal compute) is no slower than on H100 and fits as well."""
    slow = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=8192, global_batch=64)
    fast = make_situation("llama-3.1-8b", "dgx-h200", 8, seq_len=8192, global_batch=64)
    for text in ("tp=2", "tp=4,pp=2", "cp=2,tp=2"):
        a, b = evaluate(slow, parse_strategy(text)), evaluate(fast, parse_strategy(text))
        assert b.step_s <= a.step_s
        assert b.oom_probability <= a.oom_probability


def test_recompute_trades_time_for_memory(llama):
    found = [
        evaluate(llama, parse_strategy(f"tp=4,pp=4,recompute={kind}"))
        for kind in ("none", "full:5", "full:10", "full")
    ]
    steps = [p.step_s for p in found]
    peaks = [p.memory.peak_allocated_bytes for p in found]
    assert steps == sorted(steps)
    assert peaks == sorted(peaks, reverse=True)
    assert found[0].recompute_s == 0.0


def test_hot_experts_cost_memory_and_time(make_situation):
    common = {"seq_len": 4096, "global_batch": 256}
    even = make_situation("mixtral-8x7b", "dgx-h100", 32, **common)
    hot = make_situation("mixtral-8x7b", "dgx-h100", 32, **common, options={"job.moe_imbalance": 1.5})
    request = parse_strategy("tp=2,pp=2,ep=4,recompute=full")
    a, b = evaluate(even, request), evaluate(hot, request)
    assert b.step_s > a.step_s
    assert b.memory.peak_allocated_bytes > a.memory.peak_allocated_bytes


def test_vision_models_count_samples(make_situation):
    of = make_situation("resnet-50", "dgx-a100", 8, global_batch=2048, engine="ddp")
    found = evaluate(of, parse_strategy("mbs=256"))
    assert found.tokens_per_s_per_device is None
    assert found.samples_per_s_per_device == pytest.approx(2048 / found.step_s / 8)
    # ResNet-50 v1.5 trains at roughly 1,000 to 3,500 images/s on an A100
    assert 500 < found.samples_per_s_per_device < 5000


def test_mtp_layers_add_to_the_last_stage(make_situation):
    common = {"seq_len": 4096, "global_batch": 15360}
    without = make_situation("deepseek-v3", "dgx-h800", 2048, **common)
    with_mtp = make_situation("deepseek-v3", "dgx-h800", 2048, **common, options={"job.train_mtp": True})
    request = parse_strategy("pp=16,ep=64,recompute=full")
    a, b = evaluate(without, request), evaluate(with_mtp, request)
    assert b.parameters - a.parameters == 11_610_067_968
    assert b.memory.stages[-1].allocated_bytes > a.memory.stages[-1].allocated_bytes
    assert b.memory.stages[1].allocated_bytes == pytest.approx(a.memory.stages[1].allocated_bytes)
    assert any("train_mtp" in warning for warning in a.warnings)


def test_a_batch_that_rules_data_parallelism_out_is_said(make_situation):
    """512 and 7 devices share no divisor; 511 = 73 x 7 and 504 = 72 x 7 do."""
    of = make_situation("llama-3.1-8b", "dgx-h100", 7, seq_len=4096, global_batch=512)
    found = evaluate(of, parse_strategy("pp=7"))
    assert any("512; 511 or 504 would" in warning for warning in found.warnings)


def test_more_recomputed_layers_than_there_are_is_said(make_situation) -> None:
    """16 layers on two stages: 9 of a stage are all 8 of it."""
    of = make_situation("llama-3.2-1b", "dgx-h100", 8, seq_len=2048, global_batch=32)
    more, all_of_them = (evaluate(of, parse_strategy(f"pp=2,recompute=full:{n}")) for n in (9, 8))
    assert more.step_s == all_of_them.step_s
    assert "recompute full:9 is more than the 8 layers of any stage; it means full:8" in more.warnings
    assert not any("full:" in warning for warning in all_of_them.warnings)
