"""DeepSpeed beyond the three stages: quantised messages, near copies, reuse, drives, checkpoints elsewhere."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.engines import RowInstants
from cost_models.engines.deepspeed import INT4_BYTES, INT8_BYTES
from cost_models.errors import IllegalStrategy
from cost_models.host import host_room_bytes
from cost_models.operators.base import ParameterGroup
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate

WEIGHT = ParameterGroup("w", 1)
ZERO_PLUS_PLUS = {
    "engine.zero_quantized_weights": True,
    "engine.zero_quantized_gradients": True,
    "engine.zero_hpz_partition_size": 8,
}


def situation(make_situation, devices=64, **options):
    job = {"engine": "deepspeed", "options": options}
    return make_situation("llama-3.1-8b", "dgx-a100", devices, seq_len=1024, global_batch=128, **job)


def test_zero_plus_plus_sends_a_quarter_between_nodes(make_situation, make_mesh):
    """Wang et al. 2023, section 1: 3 M become 0.75 M: half a gather forward, none backward, a quarter reduced."""
    plain, quantised = situation(make_situation), situation(make_situation, **ZERO_PLUS_PLUS)
    full, less = (of.engine.sync_plan(WEIGHT, make_mesh(of, "zero=3"), of.job) for of in (plain, quantised))
    assert [
        float(np.sum(each)) for each in (full.forward_gather, full.backward_gather, full.micro_reduce)
    ] == [2.0] * 3
    between = less.forward_gather + less.backward_gather + less.micro_reduce
    assert float(between[0]) == pytest.approx(INT8_BYTES + INT4_BYTES)
    assert float(between[0]) / 6.0 == pytest.approx(0.25, rel=0.01)
    assert float(less.near_gather[0]) == pytest.approx(INT8_BYTES)


def test_a_copy_in_the_node_gathers_faster(make_situation):
    """Backward gathers over NVLink alone instead of over the nodes' ports."""
    plain, near = (
        situation(make_situation),
        situation(make_situation, **{"engine.zero_hpz_partition_size": 8}),
    )
    slow, fast = (evaluate(of, parse_strategy("zero=3")) for of in (plain, near))
    assert fast.breakdown_s["dp_communication"] < slow.breakdown_s["dp_communication"]
    assert fast.memory.peak_allocated_bytes > slow.memory.peak_allocated_bytes


def live_bytes(of, mesh, **sizes):
    """Bytes held at stage 3 in a block of 2e8 of ten, without gradients and bucket."""
    elements = np.array([[2e8], [2e8], [2e8], [2e8]])
    zeros = np.zeros_like(elements)
    found = of.engine.instants(RowInstants(elements, zeros, zeros, (0, *([1] * 10), 3), zeros), mesh)
    return float(found.gathered[1, 0]) - 5e8 * 2


@pytest.mark.parametrize(
    ("options", "elements"),
    [
        ({}, 2e8 + 5e8 + 5e7),  # the block, half the reuse distance of 1e9, what is fetched ahead
        ({"engine.stage3_max_reuse_distance": 1e8, "engine.stage3_prefetch_bucket_size": 0.0}, 2e8 + 5e7),
        ({"engine.stage3_max_live_parameters": 3e8}, 3e8),
    ],
)
def test_live_parameters(make_situation, make_mesh, options, elements):
    of = situation(make_situation, **options)
    assert live_bytes(of, make_mesh(of, "zero=3")) == pytest.approx(2 * elements)


def test_drives_need_buffers_on_the_host(make_situation, make_mesh):
    """Four buffers of fp32 states of the rank's partition, 8e9/8, or of a sub-group of 1e9 where that is less."""
    of = situation(make_situation, devices=8, **{"engine.offload_device": "nvme"})
    mesh = make_mesh(of, "zero=3,offload=optimizer")
    assert float(of.engine.host_buffer_bytes(np.array([8e9]), mesh)[0]) == pytest.approx(4 * 4 * 1e9)
    assert float(of.engine.host_buffer_bytes(np.array([80e9]), mesh)[0]) == pytest.approx(4 * 4 * 1e9)
    assert float(of.engine.host_buffer_bytes(np.array([4e9]), mesh)[0]) == pytest.approx(4 * 4 * 0.5e9)
    host = evaluate(of, parse_strategy("zero=3,offload=optimizer")).memory.host_bytes
    assert host == pytest.approx(4 * 4 * min(8_030_261_248 / 8, 1e9))


def test_partitioned_checkpoints_are_divided(make_situation):
    """32 inputs of 1024 x 4096 x 2 B over tp 4: a quarter of 256 MiB stays."""
    whole, divided = (
        situation(make_situation),
        situation(make_situation, **{"engine.partition_activations": True}),
    )
    text = parse_strategy("tp=4,zero=1,sp=false,recompute=full,mbs=1")
    kept = [evaluate(of, text).memory.stages[0].by_cause["activations"] for of in (whole, divided)]
    assert kept[0] - kept[1] == pytest.approx(32 * 1024 * 4096 * 2 * 3 / 4)


def test_offloaded_checkpoints_rest_on_the_host(make_situation):
    """The 32 inputs leave the device, and the copies take time."""
    here, there = situation(make_situation), situation(make_situation, **{"engine.offload_checkpoints": True})
    text = parse_strategy("zero=3,recompute=full,mbs=1")
    kept, gone = (evaluate(of, text) for of in (here, there))
    bytes_kept = [each.memory.stages[0].by_cause["activations"] for each in (kept, gone)]
    assert bytes_kept[0] - bytes_kept[1] == pytest.approx(32 * 1024 * 4096 * 2)
    assert gone.memory.host_bytes == pytest.approx(32 * 1024 * 4096 * 2)
    assert gone.step_s > kept.step_s
    with pytest.raises(IllegalStrategy, match="offload_checkpoints with pp 2"):
        evaluate(there, parse_strategy("pp=2,zero=1,recompute=full"))


@pytest.mark.parametrize(
    ("strategy", "options", "gradients"),
    [
        ("zero=1,offload=optimizer", {}, 2.0),  # summed on the device until the step
        ("zero=2,offload=optimizer", {}, 0.0),  # each goes down as it is reduced
        ("zero=3,offload=optimizer:0.25", {}, 0.75 * 2 / 64),
        ("zero=1", {"engine.grad_dtype": "fp32"}, 4.0),
        ("zero=1", {"engine.grad_dtype": "fp32", "engine.immediate_grad_update": False}, 2.0 + 4.0),
        ("zero=2", {"engine.grad_dtype": "fp32", "engine.immediate_grad_update": False}, 4 / 64),
    ],
)
def test_gradients_on_the_device(make_situation, make_mesh, strategy, options, gradients):
    of = situation(make_situation, **options)
    mesh = make_mesh(of, strategy)
    assert float(of.engine.state_bytes(WEIGHT, mesh, of.job).gradients[0]) == pytest.approx(gradients)


def test_one_device_has_the_whole_host_of_its_node(make_situation):
    assert host_room_bytes(situation(make_situation, devices=1).cluster) == 8 * host_room_bytes(
        situation(make_situation, devices=64).cluster
    )


@pytest.mark.parametrize(("engine", "strategy"), [("deepspeed", "zero=3"), ("fsdp2", "zero=3")])
def test_frozen_weights_are_offloaded_too(make_situation, make_mesh, engine, strategy):
    """2 bytes over 64 ranks on the host, which cross the link before forward and before backward."""
    job = {"engine": engine, "options": {"job.trainable": "lora:r=8"}}
    of = make_situation("llama-3.1-8b", "dgx-a100", 64, seq_len=1024, global_batch=128, **job)
    frozen = replace(WEIGHT, frozen=True)
    mesh = make_mesh(of, f"{strategy},offload=parameters")
    state = of.engine.frozen_bytes(frozen, mesh, of.job)
    assert (float(state.weights[0]), float(state.host[0])) == (0.0, 2 / 64)
    plan = of.engine.frozen_plan(frozen, mesh, of.job)
    assert (float(plan.forward_link[0]), float(plan.backward_link[0])) == (2 / 64, 2 / 64)
