"""torchtitan: resharding by default, states under a pipeline, selective recompute, what versions have."""

import pytest

from cost_models.errors import IllegalStrategy, InvalidJob
from cost_models.operators.base import ParameterGroup
from cost_models.specs.strategy import parse_strategy
from cost_models.units import GIB
from planner.evaluation import evaluate

WEIGHT = ParameterGroup("w", 1)


def situation(
    make_situation, devices=64, engine="torchtitan", model="llama-3.1-8b", precision="bf16", **options
):
    job = {"engine": engine, "precision": precision, "options": options}
    return make_situation(model, "dgx-h100", devices, seq_len=8192, global_batch=128, **job)


@pytest.mark.parametrize(
    ("policy", "strategy", "zero"),
    [
        ("default", "", 3),
        ("default", "pp=2", 2),
        ("always", "pp=2", 3),
        ("never", "", 2),
        ("default", "pp=2,zero=3", 3),
    ],
)
def test_the_policy_decides_the_stage(make_situation, policy, strategy, zero):
    of = situation(make_situation, **{"engine.reshard_after_forward": policy})
    assert evaluate(of, parse_strategy(strategy)).strategy.zero == zero


def total(of, mesh):
    state = of.engine.state_bytes(WEIGHT, mesh, of.job)
    return float((state.weights + state.gradients + state.optimizer)[0])


def test_states_are_16_over_n_or_6_and_12_over_n_under_a_pipeline(make_situation, make_mesh):
    """A pipeline keeps gathered bf16 weights and whole fp32 gradients until its last micro-batch."""
    of = situation(make_situation)
    assert total(of, make_mesh(of, "")) == pytest.approx(16 / 64)
    assert total(of, make_mesh(of, "pp=4")) == pytest.approx(6 + 12 / 16)
    assert total(of, make_mesh(of, "pp=4,zero=3")) == pytest.approx(6 + 12 / 16)
    assert total(of, make_mesh(of, "dp_shard=8,dp_replicate=8")) == pytest.approx(16 / 8)


def test_a_kept_stage_gathers_and_reduces_once_a_step(make_situation, make_mesh):
    of = situation(make_situation)
    plan = of.engine.sync_plan(WEIGHT, make_mesh(of, "pp=4"), of.job)
    once = (float(plan.all_gather[0]), float(plan.reduce_scatter[0]))
    assert once == (2.0, 4.0)
    assert (float(plan.forward_gather[0]), float(plan.micro_reduce[0])) == (0.0, 0.0)


def test_selective_recompute_is_operator_by_operator(make_situation):
    """Llama-3-8B, one sequence of 8192 on 64 devices: torch's own tracker shows 29.06 GiB, 19.82 of them activations.

    (38.87 GiB on 8 devices, less 12 B x 8.03e9 x (1/8 - 1/64) = 9.81 GiB of fp32 weights and moments.)
    """
    found = evaluate(situation(make_situation), parse_strategy("recompute=selective"))
    assert found.strategy.recompute.scopes == ("per_op",)
    stage = found.memory.stages[0]
    assert stage.by_cause["activations"] / GIB == pytest.approx(19.82, rel=0.02)
    # The tracker's program gathers the head anew for its backward; torchtitan keeps it through the loss.
    assert found.memory.peak_allocated_bytes / GIB == pytest.approx(29.06, rel=0.15)


def test_strong_scaling_of_a_30b_mixture_falls_by_16_bytes_a_parameter(make_situation):
    """8 to 128 devices under ep 8: users saw 167.93 to 114.78 GiB, 53.2 less; 16 x 30.53e9 x (1/8 - 1/128) = 53.3."""
    peaks = []
    for devices in (8, 128):
        # Two micro-batches: the reading is of reserved memory, which keeps the gradients' blocks from step to step.
        job = {"engine": "torchtitan", "seq_len": 2048, "global_batch": 16 * devices}
        of = make_situation("qwen3-30b-a3b", "dgx-b200", devices, **job)
        peaks.append(evaluate(of, parse_strategy("ep=8,mbs=8")).memory.peak_allocated_bytes)
    assert (peaks[0] - peaks[1]) / GIB == pytest.approx(167.93 - 114.78, abs=1.0)


def test_other_engines_have_no_per_operator_scope(make_situation):
    with pytest.raises(IllegalStrategy, match="recompute_scope"):
        evaluate(situation(make_situation, engine="fsdp2"), parse_strategy("recompute=selective:per_op"))


def test_float8_gathers_halve_the_bytes_of_matrices(make_situation, make_mesh):
    options = {"engine.float8_all_gather": True}
    of = situation(make_situation, precision="fp8", **options)
    mesh = make_mesh(of, "")
    norm = ParameterGroup("n", 1, matrix=False)
    moved = [float(of.engine.sync_plan(group, mesh, of.job).forward_gather[0]) for group in (WEIGHT, norm)]
    assert moved == [1.0, 2.0]
    with pytest.raises(InvalidJob, match="use precision fp8"):
        situation(make_situation, **options)


def test_asynchronous_tensor_parallelism_needs_the_compiler(make_situation):
    with pytest.raises(InvalidJob, match=r"engine\.compile=true"):
        situation(make_situation, **{"engine.async_tp": True})
    of = situation(make_situation, **{"engine.async_tp": True, "engine.compile": True})
    assert of.engine.overlap().hidden["tp_gemm"] > 0


@pytest.mark.parametrize(
    ("engine", "strategy", "rule"),
    [
        ("torchtitan", "zero=1", "torchtitan_zero"),
        ("torchtitan", "cp=2,cp_kind=ulysses", "torchtitan_cp_kind"),
        ("torchtitan@0.2", "tp=2,sp=false", "torchtitan_sp"),
        ("torchtitan", "tp=16", "kv_heads_tp"),
        ("torchtitan", "pp=2,schedule=zb-h1", "torchtitan_schedule"),
        ("torchtitan@0.1", "pp=2,schedule=dualpipe-v", "torchtitan_schedule"),
        ("torchtitan", "offload=optimizer", "offload"),
    ],
)
def test_refusals_name_their_rule(make_situation, engine, strategy, rule):
    with pytest.raises(IllegalStrategy) as refused:
        evaluate(situation(make_situation, engine=engine), parse_strategy(strategy))
    assert rule in {violation.rule for violation in refused.value.violations}


@pytest.mark.parametrize(("version", "legal"), [("0.1", False), ("0.2", True), ("0.3", True)])
def test_experts_came_with_0_2(make_situation, version, legal):
    of = situation(make_situation, engine=f"torchtitan@{version}", model="qwen3-30b-a3b")
    if legal:
        assert evaluate(of, parse_strategy("ep=8")).strategy.ep == 8
    else:
        with pytest.raises(IllegalStrategy, match="torchtitan_ep"):
            evaluate(of, parse_strategy("ep=8"))
