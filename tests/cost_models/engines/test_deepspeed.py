"""DeepSpeed: the paper's bytes by stage, buffers in elements, offload, and what it refuses."""

import numpy as np
import pytest

from cost_models.engines import RowInstants
from cost_models.errors import IllegalStrategy
from cost_models.operators.base import ParameterGroup
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate

WEIGHT = ParameterGroup("w", 1)


def situation(make_situation, devices=64, precision="fp16", model="llama-3.1-8b", **options):
    job = {"engine": "deepspeed", "precision": precision, "options": options}
    return make_situation(model, "dgx-a100", devices, seq_len=1024, global_batch=128, **job)


@pytest.mark.parametrize(("zero", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_states_of_7_5b_on_64_devices_are_the_papers(make_situation, make_mesh, zero, gigabytes):
    """Rajbhandari et al. 2020, figure 1: 16 P, 4 P + 12 P/64, 2 P + 14 P/64 and 16 P/64 with P = 7.5e9."""
    of = situation(make_situation)
    state = of.engine.state_bytes(WEIGHT, make_mesh(of, f"zero={zero}"), of.job)
    total = float((state.weights + state.gradients + state.optimizer)[0])
    assert total * 7.5 == pytest.approx(gigabytes, abs=0.05)


def test_bf16_with_fp32_accumulation_is_6_plus_12_over_n(make_situation, make_mesh):
    of = situation(make_situation, precision="bf16", **{"engine.grad_dtype": "fp32"})
    state = of.engine.state_bytes(WEIGHT, make_mesh(of, "zero=1"), of.job)
    assert float((state.weights + state.gradients + state.optimizer)[0]) == pytest.approx(6 + 12 / 64)


def test_fp32_partitions_are_copies_of_fp32_weights(make_situation, make_mesh):
    """4 weights + 4 gradients + (4 master + 8 moments) / 64."""
    of = situation(make_situation, precision="fp32")
    state = of.engine.state_bytes(WEIGHT, make_mesh(of, "zero=1"), of.job)
    assert float((state.weights + state.gradients + state.optimizer)[0]) == pytest.approx(8 + 12 / 64)


def test_hpz_keeps_a_second_copy_of_16_bit_weights_in_a_node(make_situation, make_mesh):
    """2/64 + 2/8 bytes of weights."""
    of = situation(make_situation, **{"engine.zero_hpz_partition_size": 8})
    state = of.engine.state_bytes(WEIGHT, make_mesh(of, "zero=3"), of.job)
    assert float(state.weights[0]) == pytest.approx(2 / 64 + 2 / 8)


def instants(of, mesh, blocks=4, block=1e9, edge=2e8, stepping=0.0):
    """Instants of a model of equal blocks; rows: embedding, block, head, head without ties."""
    elements = np.array([[edge], [block], [edge], [edge]])
    zeros = np.zeros_like(elements)
    layers = (0, *([1] * blocks), 3)
    return of.engine.instants(RowInstants(elements, zeros, elements * stepping, layers, elements), mesh)


def test_stage_2_has_a_gradient_bucket_and_the_rows_gradient(make_situation, make_mesh):
    """One bucket of 5e8 x 2 B = 1 GB, the block's own gradient 2 GB, a gather bucket of 1 GB in the step."""
    of = situation(make_situation)
    found = instants(of, make_mesh(of, "zero=2"))
    assert found.gathered[1, 0] == pytest.approx(1e9 + 2e9 + 1e9)
    assert found.stepping[:, 0] @ np.array([1, 4, 0, 1]) == pytest.approx(1e9)


def test_overlapping_stage_2_has_two_buckets(make_situation, make_mesh):
    of = situation(make_situation, **{"engine.overlap_comm": "on"})
    assert instants(of, make_mesh(of, "zero=2")).gathered[1, 0] == pytest.approx(2e9 + 2e9 + 1e9)


def test_stage_3_holds_live_parameters(make_situation, make_mesh):
    """At most 1e9 parameters live, but at least the running block of 3e9: 6 GB, 6 GB of gradient, 1 GB bucket."""
    of = situation(make_situation)
    small = instants(of, make_mesh(of, "zero=3"), block=1e8, edge=1e8)
    assert small.gathered[1, 0] == pytest.approx(2 * 6e8 + 2e8 + 1e9)  # the whole model lives: 6e8 parameters
    large = instants(of, make_mesh(of, "zero=3"), block=3e9)
    assert large.gathered[1, 0] == pytest.approx(6e9 + 6e9 + 1e9)


def test_stage_3_steps_one_sub_group_at_a_time(make_situation, make_mesh):
    """70.4e9 parameters on 16 devices are 4.4e9 a rank; fp32 gradients of 1e9 of them at a time are 4 GB."""
    of = situation(make_situation, devices=16)
    found = instants(of, make_mesh(of, "zero=3"), blocks=70, stepping=4 / 16)
    assert found.stepping[:, 0] @ np.array([1, 70, 0, 1]) == pytest.approx(4e9)


def test_optimizer_offload_puts_16_bytes_a_parameter_on_the_host(make_situation, make_mesh):
    """fp32 master, gradient and two moments, over 64 ranks; nothing of it on NVMe."""
    of = situation(make_situation)
    mesh = make_mesh(of, "zero=2,offload=optimizer")
    state = of.engine.state_bytes(WEIGHT, mesh, of.job)
    assert (float(state.host[0]), float(state.optimizer[0])) == (16 / 64, 0.0)
    assert float(state.host_link[0]) == pytest.approx((2 + 2) / 64)
    drives = situation(make_situation, **{"engine.offload_device": "nvme"})
    stored = drives.engine.state_bytes(WEIGHT, mesh, drives.job)
    assert float(stored.host[0]) == 0.0
    assert float(stored.host_traffic[0]) == pytest.approx(10 * float(state.host_traffic[0]))


def test_parameter_offload_leaves_no_states_on_the_device(make_situation, make_mesh):
    of = situation(make_situation)
    state = of.engine.state_bytes(WEIGHT, make_mesh(of, "zero=3,offload=parameters"), of.job)
    assert float((state.weights + state.gradients + state.optimizer)[0]) == 0.0
    assert float(state.host[0]) == pytest.approx((16 + 2) / 64)


@pytest.mark.parametrize(
    ("strategy", "rule"),
    [
        ("pp=2,zero=2", "deepspeed_pp_zero"),
        ("pp=2,zero=3", "deepspeed_pp_zero"),
        ("pp=2,vpp=2", "deepspeed_vpp"),
        ("dp_shard=8,dp_replicate=8", "deepspeed_replicas"),
        ("tp=2,zero=3", "deepspeed_tp_zero"),
        ("cp=2,cp_kind=ring", "deepspeed_cp_kind"),
        ("tp=2,sp=true", "deepspeed_sp"),
        ("zero=2,offload=parameters", "deepspeed_offload_parameters"),
        ("zero=0,offload=optimizer", "deepspeed_offload_optimizer"),
        ("zero=2,offload=optimizer:0.5", "deepspeed_offload_share"),
    ],
)
def test_refusals_name_their_rule(make_situation, strategy, rule):
    of = situation(make_situation)
    with pytest.raises(IllegalStrategy) as refused:
        evaluate(of, parse_strategy(strategy))
    assert rule in {violation.rule for violation in refused.value.violations}


def test_hpz_divides_ranks_and_node(make_situation):
    """7 divides neither 64 ranks nor a node of 8; the configuration alone accepts it."""
    of = situation(make_situation, **{"engine.zero_hpz_partition_size": 7})
    with pytest.raises(IllegalStrategy, match=r"7 does not divide dp 64 and a node of 8.* 4 or 8"):
        evaluate(of, parse_strategy("zero=3"))


def test_a_pipeline_takes_stage_1(make_situation):
    assert evaluate(situation(make_situation), parse_strategy("pp=2,tp=2")).strategy.zero == 1


def test_unoverlapped_stage_2_reduces_every_micro_batch_in_sight(make_situation, make_mesh):
    """128 sequences on 64 ranks are 2 micro-batches: twice 2 bytes a parameter, nothing beside compute."""
    of = situation(make_situation)
    plan = of.engine.sync_plan(WEIGHT, make_mesh(of, "zero=2"), of.job)
    assert (float(plan.reduce_scatter[0]), float(plan.micro_reduce[0])) == (4.0, 0.0)
    assert of.engine.overlap().sync_exposed_min == 1.0
