"""Torch engines: plain programs, activation functions, optimizers that step early or copy, buckets, parallel loss."""

import numpy as np
import pytest

from cost_models.engines.base import RowInstants
from cost_models.errors import IllegalStrategy, InvalidJob
from cost_models.layer_walk import walk_layer
from cost_models.operators import Activation, CrossEntropy
from cost_models.operators.base import ParameterGroup, Shard, Style
from cost_models.specs.strategy import parse_strategy
from cost_models.units import GIB
from planner.evaluation import evaluate

WEIGHT = ParameterGroup("w", 1)
AT = Shard(1.0, 8192.0, 8192.0)
EAGER = Style(fused_activation=False)


def situation(make_situation, engine="fsdp2", devices=8, batch=8, **options):
    job = {"engine": engine, "options": options}
    return make_situation("llama-3.1-8b", "dgx-h100", devices, seq_len=8192, global_batch=batch, **job)


def test_a_reference_program_keeps_copies_and_repeats_keys(make_situation):
    """A token of a block of Llama-3-8B, saved tensors of the program written out (hooks of autograd, torch 2.13).

    Two norms: fp32 copy 4, normalised 2, output 2 bytes of 4096; queries, repeated keys, values, output 4 x 4096 x 2;
    gate, up, silu and product 4 x 14,336 x 2; statistics 2 x 4 and log-sum-exp 32 x 4.
    """
    of = situation(make_situation, **{"engine.modules": "reference"})
    walk = walk_layer(of.model.kinds["dense"], AT, of.engine.style(of.job, "ring"), ())
    token = 2 * (4 + 2 + 2) * 4096 + 4 * 4096 * 2 + 4 * 14_336 * 2 + 2 * 4 + 32 * 4
    assert float(walk.base.saved_bytes) == pytest.approx(8192 * token)


def test_a_reference_program_of_8b_is_near_torchs_tracker(make_situation):
    """79.37 GiB on 8 ranks; its RMSNorms ran on a CPU, where they are multiplied in fp32: 2 bytes of 64 norms more."""
    of = situation(make_situation, **{"engine.modules": "reference"})
    stage = evaluate(of, parse_strategy("dp=8,mbs=1,zero=3")).memory.stages[0]
    wider = 64 * 8192 * 4096 * 2
    found = stage.allocated_bytes - stage.by_cause["workspaces"] + wider
    assert found / GIB == pytest.approx(79.37, rel=0.005)


@pytest.mark.parametrize(
    ("function", "gated", "kept"),
    [
        ("gelu", False, {"up": 2}),  # one kernel keeps its input
        ("relu", False, {"act": 2}),  # its value, which the next product keeps too
        ("quick_gelu", False, {"up": 2, "act.inner": 2}),
        ("silu", True, {"up": 4, "act.inner": 2}),  # both halves and the function's value
    ],
)
def test_what_an_eager_activation_keeps(function, gated, kept):
    op = Activation(name="act", inputs=("up",), function=function, width=64, gated=gated)
    assert {t.id: float(t.elements) * 2 / (8192 * 64) for t in op.saved(AT, EAGER)} == kept


def test_this_projects_experts_compute_their_function_again(make_situation):
    op = Activation(name="act", inputs=("up",), function="silu", width=64, gated=True, expert_top_k=2)
    again = Style(fused_activation=False, experts_run_again=True)
    assert [t.id for t in op.saved(AT, again)] == ["up"]
    assert (
        situation(make_situation, "torch")
        .engine.style(situation(make_situation, "torch").job, "ring")
        .experts_run_again
    )
    assert not situation(make_situation).engine.style(situation(make_situation).job, "ring").experts_run_again


@pytest.mark.parametrize(("tp", "each"), [(1.0, 8.0), (8.0, 12.0)])
def test_a_parallel_eager_loss_holds_12_bytes_a_logit(tp, each):
    op = CrossEntropy(name="loss", inputs=("logits",), vocab_size=128_000)
    at = Shard(1.0, 8192.0, 8192.0, tp=tp)
    assert float(op.transient(at, Style(eager_loss=True)).backward) == pytest.approx(
        8192 * 128_000 / tp * each
    )


@pytest.mark.parametrize(
    ("style", "kept", "forward", "backward"),
    [
        ({}, 4, 2 + 4, 8),
        ({"shifted_logits": True}, 4, 2 + 4 + 4, 8),  # transformers before 4.50
        ({"logits_fp32": False}, 2, 2, 2 * 2),  # torchtune: log-softmax and gradients in bf16
    ],
)
def test_bytes_of_a_logit_in_an_eager_loss(style, kept, forward, backward):
    op, entries = CrossEntropy(name="loss", inputs=("logits",), vocab_size=1000), 8192 * 1000
    found = Style(eager_loss=True, **style)
    (softmax,) = op.saved(AT, found)
    assert float(softmax.elements) * (4 if softmax.dtype.value == "fp32" else 2) == kept * entries
    transient = op.transient(AT, found)
    assert (float(transient.forward), float(transient.backward)) == (forward * entries, backward * entries)


@pytest.mark.parametrize(
    ("engine", "implementation", "copied"),
    [
        ("fsdp2", "auto", 4 / 8),
        ("fsdp2", "fused", 0),
        ("torch", "auto", 0),
        ("torch", "foreach", 4),
        ("torchtitan", "auto", 0),
        ("ddp", "loop", 0),
        ("ddp", "auto", 4),
    ],
)
def test_foreach_optimizers_make_a_copy(make_situation, make_mesh, engine, implementation, copied):
    of = situation(make_situation, engine, **{"engine.optimizer_impl": implementation})
    zero = "zero=0" if engine in ("torch", "ddp") else ""
    state = of.engine.state_bytes(WEIGHT, make_mesh(of, zero), of.job)
    assert float(np.sum(state.step_transient)) == pytest.approx(copied)


def test_stepping_in_backward_keeps_no_gradients(make_situation, make_mesh):
    """Pure bf16 AdamW of 8.03e9 parameters: 6 bytes instead of 8, and one block's gradients while it runs."""
    pure = {"engine.param_dtype": "bf16", "engine.cross_entropy_chunks": 8}
    late = situation(make_situation, "torch", 1, 1, **pure)
    early = situation(make_situation, "torch", 1, 1, **pure, **{"engine.optimizer_impl": "in_backward"})
    text = parse_strategy("zero=0,recompute=full")
    whole, less = (evaluate(of, text).memory.stages[0] for of in (late, early))
    assert (whole.by_cause["gradients"], less.by_cause["gradients"]) == (2 * 8_030_261_248, 0.0)
    block = 218_112_000 * 2  # 4096 x (4096 x 2 + 1024 x 2 + 14,336 x 3) + 2 x 4096 parameters
    assert whole.allocated_bytes - less.allocated_bytes <= 2 * 8_030_261_248 - block


@pytest.mark.parametrize(("optimizer", "tensors"), [("adamw", 3), ("adam8bit", 1)])
def test_a_table_steps_beside_its_gradient_and_temporaries(make_situation, make_mesh, optimizer, tensors):
    """128,256 x 4096 bf16 values: the gradient, and two tensors of its size that 8-bit Adam's kernel does not make."""
    options = {"engine.optimizer_impl": "in_backward", "engine.param_dtype": "bf16"}
    job = {"engine": "torch", "optimizer": optimizer, "options": options}
    of = make_situation("llama-3.1-8b", "dgx-h100", 1, seq_len=8192, global_batch=1, **job)
    rows = RowInstants(*(np.zeros((3, 1)),) * 3, layers=(0, 1, 2), trained=np.full((3, 1), 525_336_576.0))
    held = of.engine.instants(rows, make_mesh(of, "zero=0")).gathered
    assert float(held[0, 0]) == tensors * 2 * 525_336_576


def test_stepping_in_backward_takes_one_micro_batch(make_situation):
    early = {"engine.optimizer_impl": "in_backward"}
    with pytest.raises(IllegalStrategy, match="takes several micro-batches a step"):
        evaluate(situation(make_situation, "torch", 1, 4, **early), parse_strategy("mbs=1,zero=0"))
    for engine in ("deepspeed", "fsdp1", "parameter_server"):
        with pytest.raises(InvalidJob, match=f"in_backward under {engine}"):
            situation(make_situation, engine, **early)


def test_buckets_that_are_no_views_hold_the_gradients_again(make_situation, make_mesh):
    of = situation(make_situation, "ddp", **{"engine.gradient_as_bucket_view": False})
    assert float(of.engine.state_bytes(WEIGHT, make_mesh(of, ""), of.job).gradients[0]) == 8.0
    alone = situation(make_situation, "ddp", 1, **{"engine.gradient_as_bucket_view": False})
    assert float(alone.engine.state_bytes(WEIGHT, make_mesh(alone, ""), alone.job).gradients[0]) == 4.0
