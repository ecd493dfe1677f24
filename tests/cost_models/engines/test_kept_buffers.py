"""Tensors that frameworks keep beside states and activations: empty gradients, copies of the step, pipeline outputs."""

import pytest

from cost_models.engines.megatron_dummies import empty_gradient_bytes
from cost_models.operators.base import ParameterGroup, Split
from cost_models.specs.strategy import parse_strategy
from cost_models.units import GIB
from planner.evaluation import evaluate

JOB = {"seq_len": 4096, "global_batch": 32}


def worst(of, text: str) -> float:
    return evaluate(of, parse_strategy(text)).memory.peak_allocated_bytes


def test_one_empty_gradient_a_shape_of_linear(make_situation, make_mesh):
    """Llama-3.1-70B: 8192 x (10,240 + 8192 + 57,344) + 28,672 x 8192 elements of 2 bytes are 1.59 GiB at tp 1."""
    of = make_situation("llama-3.1-70b", "dgx-h100", 8, **JOB)
    found = {
        tp: float(empty_gradient_bytes(of.model, of.job, make_mesh(of, f"tp={tp},dp={8 // tp}"))[0])
        for tp in (1, 8)
    }
    assert found[1] == 2 * (8192 * (10_240 + 8192 + 57_344) + 28_672 * 8192)
    assert found[8] == found[1] / 8


def test_without_fused_accumulation_there_are_no_empty_gradients(make_situation):
    fused = make_situation("llama-3.1-8b", "dgx-h100", 8, **JOB)
    plain = make_situation(
        "llama-3.1-8b", "dgx-h100", 8, **JOB, options={"engine.gradient_accumulation_fusion": False}
    )
    # 4096 x (6144 + 4096 + 28,672) + 14,336 x 4096 elements of 2 bytes
    assert worst(fused, "dp=8") - worst(plain, "dp=8") == 2 * (4096 * (6144 + 4096 + 28_672) + 14_336 * 4096)


@pytest.mark.parametrize(
    ("options", "expert", "each"),
    [
        ({}, False, 0.0),  # fp32 main gradients are stepped as they are
        ({"engine.grad_dtype": "bf16"}, False, 4.0),
        ({"engine.grad_dtype": "bf16", "engine.moment_dtype": "bf16"}, True, 8.0),  # two moments in fp32
        (
            {"engine.grad_dtype": "bf16", "engine.moment_dtype": "bf16"},
            False,
            0.0,
        ),  # experts step after the others
        ({"engine.grad_dtype": "bf16", "engine.master_dtype": "remainder"}, True, 0.0),
    ],
)
def test_copies_of_the_optimizer_step(make_situation, make_mesh, options, expert, each):
    of = make_situation("mixtral-8x7b", "dgx-h100", 8, **JOB, options=options)
    group = ParameterGroup("w", 1, Split.EXPERT if expert else Split.NONE)
    meshes = make_mesh(of, "ep=8,dp=8")  # dense states over 8 ranks, experts' over 1
    state = of.engine.state_bytes(group, meshes, of.job)
    assert float(state.step_transient[0]) == pytest.approx(each / (1 if expert else 8))


def test_a_stage_of_deepspeed_keeps_the_outputs_of_its_micro_batches(make_situation):
    """pp 4 holds 4 micro-batches on the first stage: 4 x 4096 x 4096 x 2 bytes more than the layers' inputs."""
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, **JOB, engine="deepspeed")
    found = evaluate(of, parse_strategy("pp=4,recompute=full")).memory.stages[0]
    # embedding's ids (4096 x 8 bytes) and 8 inputs of layers a micro-batch, and the output
    assert found.by_cause["activations"] == pytest.approx(4 * (9 * 4096 * 4096 * 2 + 4096 * 8), rel=1e-3)


def test_megatron_deepspeed_holds_the_logits_through_the_last_backward(make_situation):
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, **JOB, engine="deepspeed")
    kept = make_situation(
        "llama-3.1-8b", "dgx-h100", 8, **JOB, engine="deepspeed", options={"engine.modules": "megatron"}
    )
    assert kept.engine.keeps_logits and not of.engine.keeps_logits


def test_the_first_zero_1_flattens_all_gradients(make_situation):
    """1.5B parameters on a rank: 2 bytes each, less the bucket of 5e8 that later releases have."""
    later = make_situation("gpt2-xl", "dgx-h100", 8, seq_len=1024, global_batch=8, engine="deepspeed@0.14")
    first = make_situation("gpt2-xl", "dgx-h100", 8, seq_len=1024, global_batch=8, engine="deepspeed@0.4")
    text = "dp=8,zero=1,recompute=full"
    added = worst(first, text) - worst(later, text)
    assert added == pytest.approx(2 * (first.counts.parameters - 5e8), rel=0.02)
    assert added > GIB
